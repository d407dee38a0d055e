"""Connection of one workspace: identity, then events by sockets or HTTP. Run by `adapter`, one per account.

Errors from outside are retried and reported in `trouble`, never raised: an app that was removed from its workspace
must not stop the daemon.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from channels._shared.accounts import STARTING, PlatformAccount, backoff
from channels._shared.receiving_lease import ReceivingLease
from channels._shared.settings import way_of
from channels.slack.bans import Bans
from channels.slack.bolt_dispatch import BoltDispatch
from channels.slack.download import SlackDownload
from channels.slack.failures import BAD_TOKEN, REINSTALL, scope_trouble, token_trouble
from channels.slack.inbound import Identity
from channels.slack.indicators import Indicators
from channels.slack.manifest import SCOPES
from channels.slack.people import SlackDirectory
from channels.slack.request import SlackClient, SlackDeclined, SlackFailure, SlackUnanswered
from channels.slack.settings import SlackAccount, endpoint_path
from channels.slack.socket import LinkDisabled, Sockets, Timing
from channels.slack.threads import Threads
from channels.slack.updates import Errands, SlackUpdates
from channels.slack.webhook import SlackAck, Webhook
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.sessions import SessionKind
from gateway.ports import ChannelContext, Sink

ENDED: Mapping[str, str] = MappingProxyType(
    {
        "app_uninstalled": "The app was removed from its workspace.",
        "tokens_revoked": "A token of the app was revoked.",
    }
)


LEASE = timedelta(seconds=15)
"""Lease on the sockets of an app. Slack deals events out among all sockets: over two nodes a channel lost its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackPauses:
    """Pauses in seconds between attempts."""

    first: float = 1.0
    """Backoff after the first failure; doubled with each further one, up to `longest`."""
    longest: float = 60.0
    token: float = 60.0
    """Pause after a refusal that only a person can resolve."""
    broken: float = 5.0
    """Pause before a crashed account is restarted."""
    steady: float = 30.0
    """Lifetime from which a lost connection is replaced without a pause."""
    lease: float = 5.0
    """Interval between renewals of the lease, and between checks of a standby node."""
    unmark: float = 3.0
    """Interval between two removals of a reaction: Slack allows 20 a minute."""


class SlackConnection(PlatformAccount):
    """Connection of one workspace. Its `repr` does not contain the tokens."""

    platform = "Slack"

    def __init__(
        self,
        name: str,
        settings: SlackAccount,
        context: ChannelContext,
        pauses: SlackPauses,
        timing: Timing,
    ) -> None:
        """Take the workspace's settings. No request is sent before `run`."""
        super().__init__(name, context)
        self.settings = settings
        self._bans = Bans(name, context.key_value, context.clock)
        self.client = self._client_of(settings.bot_token.get_secret_value())
        self.download = SlackDownload(self.client, settings.api_root)
        self.indicators = Indicators(name, self.client, context.clock, pauses.unmark)
        self._pauses = pauses
        self._timing = timing
        self._dispatch = BoltDispatch(name, self.client, self._take)
        self._updates: SlackUpdates | None = None
        self._sockets: Sockets | None = None
        self._lease: ReceivingLease | None = None
        """Right to the sockets; None where Slack calls over HTTP."""
        self._lasting = ""
        """Trouble that only a restart ends."""
        self._unsent = ""
        """Trouble that blocks all sending; a sent message ends it."""
        secret = settings.signing_secret
        self.web = (
            Webhook(secret.get_secret_value(), self._dispatch.answer, context.clock, context.fail_point)
            if settings.mode == "http" and secret is not None
            else None
        )

    def _client_of(self, token: str) -> SlackClient:
        context, proxy = self._context, way_of(self.settings.proxy)
        root = self.settings.api_root
        return SlackClient(token, root, context.client, context.fail_point, self._bans, proxy=proxy)

    @property
    def path(self) -> str:
        """Return the path of the endpoint for `mode = "http"`."""
        return endpoint_path(self.name)

    async def run(self, sink: Sink) -> None:
        """Serve until cancelled."""
        self._trouble, self._failures = STARTING, 0
        async with asyncio.TaskGroup() as group:
            try:
                me = await self._introduce()
                self._updates = self._make_updates(me, sink, group)
                if self.settings.mode == "socket":
                    self._lease = self._lease_of_sockets()
                    await self._lease.lead(self._serve_sockets, self._stand_by)
                else:
                    await asyncio.Event().wait()
            finally:  # before the group ends, which takes no more errands then
                self._updates = self._sockets = self._lease = None

    def trouble(self) -> str:
        """Return why the account does not fully work now; empty when it does."""
        found = (
            self._lasting
            or self._unsent
            or self._trouble
            or (self._sockets.trouble() if self._sockets is not None else "")
        )
        return f"Slack account {self.name}: {found}" if found else ""

    # --- sending ------------------------------------------------------------------------------------

    async def refused(self, declined: SlackDeclined) -> None:
        """Report a refused request to the owners if only a person can resolve it."""
        if declined.error in BAD_TOKEN:
            self._unsent = token_trouble(declined)
            await self._alert("token", self._unsent)
        elif declined.error == "missing_scope":
            self._unsent = scope_trouble(declined)
            await self._alert("scopes", self._unsent)

    def sent(self, conversation: Conversation) -> None:
        """Record a successful send: the token is valid, and the status of its thread ended."""
        self._unsent = ""
        self.indicators.answered(conversation.chat, conversation.thread)

    def answered(self, message: Inbound) -> None:
        """Take the mark off a message that is answered; it stays while this account does not run."""
        if self._updates is not None:
            self._updates.answered(message)

    def stopped(self, conversation: Conversation) -> None:
        """Take off the marks of a channel or thread in which all was stopped."""
        if self._updates is not None:
            self._updates.stopped(conversation)

    # --- receiving ----------------------------------------------------------------------------------

    async def _take(self, payload: object) -> SlackAck:
        """Store a payload. Refuse it while the bot is unknown, and when another node has the sockets."""
        updates = self._updates
        if updates is None or (self._lease is not None and not await self._lease.is_held()):
            return SlackAck(stored=False)
        return await updates.take(payload)

    def _lease_of_sockets(self) -> ReceivingLease:
        """Return the lease of the app: workspaces of one app share its sockets."""
        token = self.settings.app_token
        assert token is not None, "the settings ask for it"
        app = hashlib.sha256(token.get_secret_value().encode()).hexdigest()[:12]
        return ReceivingLease(
            name=f"slack/{app}",
            host=self._context.host,
            clock=self._context.clock,
            ttl=LEASE,
            every_s=self._pauses.lease,
        )

    async def _serve_sockets(self) -> None:
        self._sockets = self._connections()
        try:
            await self._sockets.run()
        finally:
            self._sockets = None

    def _stand_by(self) -> None:
        """Report no trouble: the node that has the sockets reports its own."""
        self._trouble = ""

    def _make_updates(self, me: Identity, sink: Sink, group: asyncio.TaskGroup) -> SlackUpdates:
        later = Errands(self.name, group)
        host = self._context.host
        known = [one.name for kind in (SessionKind.MAIN, SessionKind.NON_MAIN) for one in host.commands(kind)]

        def ended(why: str) -> None:
            later(self._end(why), "ended")

        def broken() -> None:
            text = "A message could not be taken and was put aside. The log says why."
            later(self._alert("poison", text), "alert")

        return SlackUpdates(
            me=me,
            sink=sink,
            clock=self._context.clock,
            people=SlackDirectory(self.client, self._context.clock),
            threads=Threads(self.name, self._context.key_value, self._context.clock),
            indicators=self.indicators,
            commands=frozenset(known),
            later=later,
            ended=ended,
            broken=broken,
        )

    def _connections(self) -> Sockets:
        token = self.settings.app_token
        assert token is not None, "the settings ask for it"
        client = self._client_of(token.get_secret_value())
        tls = self.settings.api_root.startswith("https:")

        async def where() -> str:
            url = (await client.call("apps.connections.open", {})).get("url")
            if not isinstance(url, str) or not url.startswith("wss://" if tls else ("ws://", "wss://")):
                raise SlackUnanswered("Slack named no address to connect to.")
            return url

        return Sockets(
            name=self.name,
            open=where,
            back_off=self._back_off_socket,
            reset_failures=self._reset_failures,
            take=self._dispatch.answer,
            client=self._context.client,
            proxy=way_of(self.settings.proxy),
            clock=self._context.clock,
            fail_point=self._context.fail_point,
            timing=self._timing,
        )

    # --- setting up ---------------------------------------------------------------------------------

    async def _introduce(self) -> Identity:
        """Return the bot's identity; retry until Slack answers."""
        while True:
            try:
                answer, headers = await self.client.told("auth.test", {})
                me = _identity(self.name, answer)
            except SlackFailure as failure:
                await self._back_off(failure)
                continue
            self._log.info("account %s is %s in %s", self.name, me.user, me.team)
            await self._check_scopes(headers.get("X-OAuth-Scopes", ""))
            self._failures = 0
            if self.settings.mode == "http":
                self._reset_failures()
            return me

    async def _check_scopes(self, header: str) -> None:
        """Report missing scopes at once: else each would fail one message at a time."""
        scopes = {scope.strip() for scope in header.split(",") if scope.strip()}
        missing = [scope for scope in SCOPES if scope not in scopes] if scopes else []
        self._lasting = f"The app lacks the scopes {', '.join(missing)}. {REINSTALL}" if missing else ""
        if missing:
            await self._alert("scopes", self._lasting)

    # --- what goes wrong ----------------------------------------------------------------------------

    def _reset_failures(self) -> None:
        """Reset trouble and backoff after a hello or an identity from Slack."""
        self._trouble, self._failures = "", 0

    async def _back_off_socket(self, error: Exception | None, stood_s: float) -> None:
        """Pause before the next connection: none after a long-lived one, else a growing backoff."""
        if isinstance(error, SlackFailure | LinkDisabled):
            await self._back_off(error)
        elif stood_s < self._pauses.steady:
            await self._pause(error)

    async def _back_off(self, error: SlackFailure | LinkDisabled) -> None:
        """Report an error, to the owners too where only they can help, and pause for its backoff."""
        if isinstance(error, LinkDisabled):
            text = 'Socket Mode is off. Switch it on at api.slack.com/apps, or write mode = "http" and start again.'
            await self._need_help("socket-mode", text, error)
        elif isinstance(error, SlackDeclined) and error.error in BAD_TOKEN:
            await self._need_help("token", token_trouble(error), error)
        elif isinstance(error, SlackDeclined) and error.error == "missing_scope":
            await self._need_help("scopes", scope_trouble(error), error)
        else:
            if self._sockets is None or not self._sockets.stand():
                self._trouble = str(error)
            await self._pause(error)

    async def _need_help(self, key: str, text: str, error: Exception) -> None:
        self._trouble = text
        self._log.warning("account %s: %s Again in %g s.", self.name, error or text, self._pauses.token)
        await self._alert(key, text)
        await asyncio.sleep(self._pauses.token)

    async def _pause(self, error: Exception | None) -> None:
        pause = backoff(self._pauses.first, self._failures, self._pauses.longest)
        self._failures += 1
        if isinstance(error, SlackDeclined):
            pause = max(pause, error.retry_after_s)
        self._log.warning("account %s: %s Again in %g s.", self.name, error or "A connection ended.", pause)
        await asyncio.sleep(pause)

    async def _end(self, why: str) -> None:
        if why == "tokens_revoked" and self._unsent.startswith(ENDED["app_uninstalled"]):
            return  # implied by the removal; two connections report them in any order
        self._unsent = f"{ENDED.get(why, 'The app was taken away.')} {REINSTALL}"
        await self._alert("token", self._unsent)


def _identity(name: str, answer: Mapping[str, Any]) -> Identity:
    """Return the identity in an answer of `auth.test`."""
    team, user, called = (answer.get(key) for key in ("team_id", "user_id", "user"))
    if not isinstance(team, str) or not isinstance(user, str) or not team or not user:
        raise SlackUnanswered("Slack did not say who the bot is.")
    return Identity(
        account=name, team=team, user=user, name=called if isinstance(called, str) and called else "dragoman"
    )
