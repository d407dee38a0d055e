"""One Slack app: its tokens and what it was configured for, and how what happens is delivered to it.

An app may be installed in several workspaces; its sockets, or its one URL, then hear of all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.slack.checks import Json
from tests.support.slack.wire import SCOPES

EVENT_SCOPES: Mapping[str, str] = {
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "app_mention": "app_mentions:read",
    "agent_session_stopped": "",
    "app_context_changed": "",
    "assistant_thread_started": "assistant:write",
    "assistant_thread_context_changed": "assistant:write",
    "reaction_added": "reactions:read",
    "reaction_removed": "reactions:read",
    "member_joined_channel": "channels:read",
    "app_home_opened": "",
    "app_uninstalled": "",
    "tokens_revoked": "",
    "channel_archive": "channels:read",
    "channel_rename": "channels:read",
    "channel_deleted": "channels:read",
    "team_join": "users:read",
    "user_change": "users:read",
}
"""The events known here and the scope that each needs: https://docs.slack.dev/reference/events/EVENT."""
AGENT_EVENTS = frozenset({"agent_session_stopped", "app_context_changed"})
"""Events that only an app with the agent view gets."""
ASSISTANT_EVENTS = frozenset({"assistant_thread_started", "assistant_thread_context_changed"})
"""Events of the assistant view: https://docs.slack.dev/ai/migrating-to-agent-messaging. New apps cannot have them."""
AGENT_DESCRIPTION_AT_MOST = 300
ALL_SCOPES = frozenset({*SCOPES, "reactions:read"} | {scope for scope in EVENT_SCOPES.values() if scope})
ACK_WITHIN_S = 3.0
"""https://docs.slack.dev/apis/events-api#responding and .../using-socket-mode#acknowledge."""


@dataclass(slots=True)
class Try:
    """One attempt to deliver something."""

    at_s: float
    took_s: float = 0.0
    reason: str = ""
    """Why it failed, in the words of `retry_reason`; empty when it was acknowledged."""
    status: int = 0
    """Of the app's answer over HTTP."""
    answer: Any = None
    """Payload of the acknowledgement."""
    no_retry: bool = False


@dataclass(slots=True, eq=False)
class Delivery:
    """Something that the app has to hear of."""

    kind: str
    """As in the `type` of an envelope: events_api, interactive, slash_commands."""
    payload: Json
    on_done: Callable[[Delivery], None] = lambda delivery: None
    """Called once, when it was acknowledged or given up."""
    tries: list[Try] = field(default_factory=list[Try])
    done: bool = False
    before: tuple[int, str] = (0, "")
    """Number of earlier deliveries, and the reason of their failure: as if Slack had tried and got no answer."""

    @property
    def acknowledged(self) -> bool:
        """Return True if the app took it."""
        return bool(self.tries) and self.done and not self.tries[-1].reason

    @property
    def answer(self) -> Any:
        """Return the app's answer, if there was one."""
        return self.tries[-1].answer if self.tries else None

    @property
    def retried(self) -> bool:
        """Events alone are sent again; https://github.com/slackapi/python-slack-sdk/issues/1940 shows it."""
        return self.kind == "events_api"


class Way(Protocol):
    """Transport of deliveries: by sockets or over HTTP."""

    async def send(self, delivery: Delivery, attempt: int, reason: str) -> Try:
        """One attempt; never raises but for cancellation. `reason`: why the one before failed."""
        ...


@dataclass(slots=True)
class App:
    """The app as its configuration page shows it, and what is under way to it."""

    id: str
    app_token: str
    signing_secret: str
    changed: Callable[[], None]
    surprise: Callable[[str], None]
    way: Way | None = None
    socket_mode: bool = True
    subscribed: set[str] = field(default_factory=lambda: set(EVENT_SCOPES))
    commands: set[str] = field(default_factory=lambda: {"/dragoman"})
    interactive: bool = True
    agent: bool = False
    """True with the agent view of its manifest; False for an app from before, with the assistant view."""
    token_scopes: set[str] = field(default_factory=lambda: {"connections:write"})
    ack_within_s: float = ACK_WITHIN_S
    pauses_s: Sequence[float] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
    """Pauses between attempts. The real ones: at once, a minute, five minutes; then the event is lost
    (https://docs.slack.dev/apis/events-api#retries). These are shorter and more, so that a restart fits in."""
    copies: int = 1
    """Deliveries of each event, as if Slack had missed the acknowledgement; without a retry mark."""
    unheard: int = 0
    """So many acknowledgements of events are not heard: the app took them, and gets them again as retries."""
    shuffle: random.Random | None = None
    """Given one, what happens within `shuffle_s` arrives in any order."""
    shuffle_s: float = 0.05
    holding: bool = False
    """True: nothing is sent until `release`."""
    given: list[Delivery] = field(default_factory=list[Delivery])
    """Everything that was ever to be delivered."""
    lost: list[Delivery] = field(default_factory=list[Delivery])
    """Deliveries that Slack gave up."""
    not_told: list[str] = field(default_factory=list[str])
    """Events that nobody heard of, and why: not subscribed, no scope."""
    _held: list[Delivery] = field(default_factory=list[Delivery])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])

    def tell(self, delivery: Delivery) -> None:
        """Deliver something, now or when it is released."""
        self.given.append(delivery)
        if self.holding:
            self._held.append(delivery)
            return
        for _ in range(self.copies if delivery.retried else 1):
            self._start(delivery)

    def release(self, *, backwards: bool = False) -> None:
        """Send what was held back, the last one first when `backwards`."""
        self.holding = False
        held, self._held = self._held, []
        for delivery in reversed(held) if backwards else held:
            self._start(delivery)

    def replay(self, count: int = 1, *, attempt: int = 0, reason: str = "") -> None:
        """Send the last events again, whatever became of them: the same event ids, marked as the retries they are
        said to be."""
        for delivery in [d for d in self.given if d.retried][-count:]:
            self._start(Delivery(delivery.kind, delivery.payload, before=(attempt, reason)))

    def resume(self) -> None:
        """Go on with what was under way when it was closed."""
        for delivery in self.pending:
            if delivery not in self._held:
                self._start(delivery)

    async def close(self) -> None:
        """Deliver nothing more, until it goes on."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    @property
    def pending(self) -> list[Delivery]:
        """Return the deliveries that are neither acknowledged nor given up."""
        return [delivery for delivery in self.given if not delivery.done]

    def _start(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._deliver(delivery), name=f"{delivery.kind} for {self.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        if self.shuffle is not None:
            await asyncio.sleep(self.shuffle.random() * self.shuffle_s)
        first, reason = delivery.before
        for attempt, pause_s in enumerate((0.0, *(self.pauses_s if delivery.retried else ())), first):
            await asyncio.sleep(pause_s)
            if self.way is None:
                raise RuntimeError("nobody serves this fake")
            tried = await self.way.send(delivery, attempt, reason)
            if not tried.reason and delivery.retried and self.unheard:
                self.unheard -= 1
                tried.reason = "timeout" if self.socket_mode else "http_timeout"
            delivery.tries.append(tried)
            reason = tried.reason
            self.changed()
            if not reason or tried.no_retry:
                break
        if reason:
            self.lost.append(delivery)
        delivery.done = True
        with contextlib.suppress(asyncio.InvalidStateError):
            delivery.on_done(delivery)
        self.changed()

    # --- what it is configured for ---

    def install(self, manifest: Json) -> list[str]:
        """Configure it from a manifest; return the bot scopes. Raises `AssertionError` for what Slack would refuse.

        https://docs.slack.dev/reference/app-manifest.
        """
        _check_manifest(manifest)
        settings, features = manifest["settings"], manifest.get("features", {})
        self.socket_mode = bool(settings.get("socket_mode_enabled", False))
        self.subscribed = set(settings.get("event_subscriptions", {}).get("bot_events", []))
        self.interactive = bool(settings.get("interactivity", {}).get("is_enabled", False))
        self.agent = "agent_view" in features
        self.commands = {command["command"] for command in features.get("slash_commands", [])}
        if unknown := self.subscribed - EVENT_SCOPES.keys():
            raise AssertionError(f"this fake knows no events {sorted(unknown)}")
        scopes: list[str] = manifest["oauth_config"]["scopes"]["bot"]
        if unknown := set(scopes) - ALL_SCOPES - {"chat:write.public", "chat:write.customize", "team:read"}:
            raise AssertionError(f"this fake knows no scopes {sorted(unknown)}")
        for event in self.subscribed:
            needed = EVENT_SCOPES[event]
            assert not needed or needed in scopes, f"the event {event} needs the scope {needed}"
        assert not self.agent or "assistant:write" in scopes, "agent_view needs the scope assistant:write"
        return scopes

    def from_before(self) -> None:
        """Be an app that was installed before there was an agent view: it has the assistant view and its events."""
        self.agent = False
        self.subscribed = (self.subscribed - AGENT_EVENTS) | ASSISTANT_EVENTS


def _check_manifest(manifest: Json) -> None:
    known = {"_metadata", "display_information", "features", "oauth_config", "settings"}
    assert manifest.keys() <= known, f"unknown keys: {sorted(manifest.keys() - known)}"
    information = manifest["display_information"]
    assert 1 <= len(information["name"]) <= 35, "display_information.name: 1 … 35 characters"
    assert len(information.get("description", "")) <= 140, "display_information.description: at most 140 characters"
    long = information.get("long_description")
    assert long is None or 174 <= len(long) <= 4_000, "display_information.long_description: 174 … 4,000 characters"
    features, settings = manifest.get("features", {}), manifest["settings"]
    http = not settings.get("socket_mode_enabled", False)
    for command in features.get("slash_commands", []):
        assert command["command"].startswith("/"), "a command begins with a slash"
        assert len(command["command"]) <= 32, "a command has at most 32 characters"
        assert 1 <= len(command["description"]) <= 2_000, "a command has a description"
        assert not http or command.get("url"), "without Socket Mode a command needs a url"
    subscriptions = settings.get("event_subscriptions", {})
    _check_agent(features, set(subscriptions.get("bot_events", [])))
    assert not http or not subscriptions.get("bot_events") or subscriptions.get("request_url"), "events need a url"


def _check_agent(features: Json, events: set[str]) -> None:
    """Check the agent view: https://docs.slack.dev/ai/migrating-to-agent-messaging."""
    assert "assistant_view" not in features, "assistant_view: new apps have agent_view in its place"
    assert not events & ASSISTANT_EVENTS, f"new apps do not get {sorted(events & ASSISTANT_EVENTS)}"
    view = features.get("agent_view")
    if view is None:
        assert not events & AGENT_EVENTS, f"without agent_view nobody gets {sorted(events & AGENT_EVENTS)}"
        return
    assert view.keys() <= {"agent_description", "suggested_prompts", "actions"}, "agent_view: unknown keys"
    assert 1 <= len(view.get("agent_description", "")) <= AGENT_DESCRIPTION_AT_MOST, "agent_view: agent_description"
    prompts = view.get("suggested_prompts", [])
    assert len(prompts) <= 4, "agent_view: at most 4 suggested_prompts"
    assert all(prompt.keys() == {"title", "message"} for prompt in prompts), "agent_view: a prompt is title and message"
    assert {"app_home_opened", "message.im"} <= events, "agent_view needs the events app_home_opened and message.im"


def tried(at_s: float, reason: str = "", **more: Any) -> Try:
    """An attempt that ended now."""
    return Try(at_s, time.monotonic() - at_s, reason, **more)
