"""The way in, of both modes: slack-bolt's `AsyncApp` says what kind of payload it is, and shapes what Slack is told.

It is asked with `process_before_response`, so that it answers after its listener: stored, then acknowledged. Who signed
what is checked before (`web`), who the bot is is known (`authorize`), and what a payload means is read by `inbound`,
which takes any JSON value. Bolt raises on some, before any listener of ours; those go the same way without it.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any, cast

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from channels.slack.request import SlackClient
from channels.slack.web import SlackAck, Take

ANY = re.compile("")
TAKEN = "dragoman_taken"
"""In the context of a request: a listener of ours had it."""
NOT_STORED = 503

Json = dict[str, Any]


class BoltDispatch:
    """One workspace's app. It asks Slack nothing and starts nothing."""

    def __init__(self, name: str, client: SlackClient, take: Take) -> None:
        """Make the app. `take` stores a payload, whatever it is, and says whether that is done."""
        self._take = take
        self._app = _app(name, client)
        app = cast("Any", self._app)  # bolt's own types have holes
        for register in (app.event, app.command, app.action, app.shortcut, app.options):
            register(ANY)(self._listener())
        for kind in ("view_submission", "view_closed"):
            app.view({"type": kind, "callback_id": ANY})(self._listener())

    async def answer(self, payload: object) -> SlackAck:
        """Take one payload, and say what Slack is told. Raises nothing that `take` does not."""
        read = cast("Json", payload) if isinstance(payload, dict) else None
        answer = await self._by_bolt(read) if read is not None else None
        return await self._take(cast("object", payload)) if answer is None else answer

    async def _by_bolt(self, payload: Json) -> SlackAck | None:
        """Let bolt find who takes it; None when nobody did."""
        try:
            request = AsyncBoltRequest(mode="socket_mode", body=payload)
        except Exception as error:  # noqa: BLE001 - it looks into fields that may be anything (house rule 9)
            logging.getLogger(__name__).info("bolt cannot read a payload: %s", type(error).__name__)
            return None
        response = await self._app.async_dispatch(request)
        if response.status == 200 and (TAKEN in request.context or payload.get("type") == "url_verification"):
            return SlackAck(stored=True, body=_body(response))
        return SlackAck(stored=False) if TAKEN in request.context else None

    def _listener(self) -> Any:
        """One for each kind: bolt wants functions of their own."""

        async def taken(context: Any, body: Any, ack: Any) -> BoltResponse:
            context[TAKEN] = True
            answer = await self._take(body)
            return cast("BoltResponse", await ack(**answer.body)) if answer.stored else BoltResponse(status=NOT_STORED)

        return taken


def _app(name: str, client: SlackClient) -> AsyncApp:
    async def authorize(team_id: str | None) -> AuthorizeResult:
        # No `auth.test` for each event: an app serves one workspace, and `inbound` refuses what is not of it.
        return AuthorizeResult(enterprise_id=None, team_id=team_id)

    # Nothing of what bolt hears or thinks of it belongs into the log: it may quote payloads.
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


def _body(response: BoltResponse) -> Json:
    try:
        found = json.loads(response.body or "{}")
    except ValueError:
        return {}
    return cast("Json", found) if isinstance(found, dict) else {}
