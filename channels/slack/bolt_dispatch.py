"""Dispatch of payloads through slack-bolt's `AsyncApp`, for both modes. `account` gives it to `webhook` or `socket`.

Bolt classifies a payload and shapes the response. With `process_before_response` it answers after its listener:
stored, then acknowledged. Signatures are checked before (`webhook`), authorization is fixed (`authorize`), and
`inbound` parses the payload, any JSON value. Payloads on which bolt raises before a listener are processed without it.
"""

from __future__ import annotations

import logging
import re
from typing import Any, cast

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from channels._shared.fields import json_object
from channels.slack.request import SlackClient
from channels.slack.webhook import SlackAck, Take

ANY = re.compile("")
TAKEN = "dragoman_taken"
"""Key in a request's context: a listener of ours processed it."""
NOT_STORED = 503

Json = dict[str, Any]


class BoltDispatch:
    """Bolt app of one workspace. It sends no requests and starts no tasks."""

    def __init__(self, name: str, client: SlackClient, take: Take) -> None:
        """Create the app. `take` stores any payload and returns the acknowledgement."""
        self._take = take
        self._app = _app(name, client)
        app = cast("Any", self._app)  # bolt's own types have holes
        for register in (app.event, app.command, app.action, app.shortcut, app.options):
            register(ANY)(self._listener())
        for kind in ("view_submission", "view_closed"):
            app.view({"type": kind, "callback_id": ANY})(self._listener())

    async def answer(self, payload: object) -> SlackAck:
        """Process one payload and return its acknowledgement. Raises only what `take` raises."""
        read = cast("Json", payload) if isinstance(payload, dict) else None
        answer = await self._by_bolt(read) if read is not None else None
        return await self._take(cast("object", payload)) if answer is None else answer

    async def _by_bolt(self, payload: Json) -> SlackAck | None:
        """Dispatch a payload through bolt; return None if no listener matched."""
        try:
            request = AsyncBoltRequest(mode="socket_mode", body=payload)
        except Exception as error:  # noqa: BLE001 - it looks into fields that may be anything (house rule 9)
            logging.getLogger(__name__).info("bolt cannot read a payload: %s", type(error).__name__)
            return None
        response = await self._app.async_dispatch(request)
        if response.status == 200 and (TAKEN in request.context or payload.get("type") == "url_verification"):
            return SlackAck(stored=True, body=json_object(response.body or "{}"))
        return SlackAck(stored=False) if TAKEN in request.context else None

    def _listener(self) -> Any:
        """Return a new listener; bolt needs a separate function for each kind."""

        async def taken(context: Any, body: Any, ack: Any) -> BoltResponse:
            context[TAKEN] = True
            answer = await self._take(body)
            return cast("BoltResponse", await ack(**answer.body)) if answer.stored else BoltResponse(status=NOT_STORED)

        return taken


def _app(name: str, client: SlackClient) -> AsyncApp:
    async def authorize(team_id: str | None) -> AuthorizeResult:
        # No `auth.test` for each event: an app serves one workspace, and `inbound` refuses events of others.
        return AuthorizeResult(enterprise_id=None, team_id=team_id)

    # Bolt's own log is silenced: it may quote payloads.
    quiet = logging.Logger(f"{__name__}.{name}", level=logging.CRITICAL + 1)
    quiet.parent = logging.getLogger(__name__)
    return AsyncApp(
        name=f"dragoman {name}",
        logger=quiet,
        client=client,
        signing_secret="",
        authorize=authorize,
        process_before_response=True,
        request_verification_enabled=False,
        ignoring_self_events_enabled=False,
        attaching_function_token_enabled=False,
    )
