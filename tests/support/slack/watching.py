"""Messages that people see in a workspace, and requests of the app: all that a test looks at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.patience import PATIENCE_S
from tests.support.slack.app import App
from tests.support.slack.checks import Json
from tests.support.slack.faults import Call, Fault
from tests.support.slack.pressing import Pressed
from tests.support.slack.rate_limits import Pace
from tests.support.slack.world import File, Shown, View, Workspace


@dataclass(frozen=True, slots=True)
class Fetched:
    """One request for a file's bytes."""

    path: str
    token: str
    """Token in the header; empty for none."""
    encoding: str
    """`Accept-Encoding`."""


@dataclass(slots=True)
class Hub:
    """Shared state of all workspaces of one server."""

    port: int = 0
    log: list[Call] = field(default_factory=list[Call])
    surprises: list[str] = field(default_factory=list[str])
    during_ban: list[Call] = field(default_factory=list[Call])
    pace: Pace = field(default_factory=Pace)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    before: Callable[[Call], Fault | None] = lambda call: None
    after: Callable[[Call], Fault | None] | None = None
    drops: Callable[[str], bool] = lambda method: False
    fetched: list[Fetched] = field(default_factory=list[Fetched])
    give: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    """Answers in place of the files, if there is one."""

    def surprise(self, what: str) -> None:
        """Note what no app of ours should do."""
        self.surprises.append(what)
        self.changed.set()


class Watching:
    """The side of the tests; `FakeSlack` has it."""

    world: Workspace
    app: App
    hub: Hub
    troubles: list[str]
    """Slack's own complaints about the app, as people see them."""

    def shown(
        self, channel: str, thread: str | None = None, *, by_bot: bool = True, deleted: bool = False
    ) -> list[Shown]:
        """The messages of a conversation in order. `thread`: of that thread alone, "" for those outside any. Of the
        bot alone, and without deleted ones, unless asked otherwise."""
        place = self.world.channels.get(channel)
        every = place.messages.values() if place else ()
        return [
            m
            for m in every
            if (m.by == self.world.bot or not by_bot)
            and (deleted or not m.deleted)
            and thread in (None, m.thread)
            and m.subtype != "assistant_app_thread"
        ]

    def notes(self, user: str, channel: str = "") -> list[Shown]:
        """The ephemeral messages that one person saw, in a conversation or anywhere."""
        every = [note for place in self.world.channels.values() for note in place.ephemerals]
        mine = [note for note in every if note.only_for == user and channel in ("", note.channel)]
        return sorted(mine, key=lambda note: note.ts)

    def statuses(self, channel: str, thread: str) -> list[str]:
        """Every status that a thread had, the present one last; an empty one stands for none."""
        return self.world.statuses.get((channel, thread), [])

    def uploads(self, channel: str = "") -> list[File]:
        """The files that the bot shared."""
        mine = [file for file in self.world.files.values() if file.user == self.world.bot and file.complete]
        return [file for file in mine if not channel or any(where == channel for where, _ in file.shares)]

    @property
    def fetched(self) -> list[Fetched]:
        """The requests for bytes of files, in order."""
        return self.hub.fetched

    # --- to wait ---

    async def see(
        self,
        channel: str,
        contains: str = "",
        *,
        count: int = 1,
        button: str = "",
        thread: str | None = None,
        within_s: float = PATIENCE_S,
    ) -> Shown:
        """Wait for the `count`-th message of the bot with this text, and a button with that label; returns it."""

        def found() -> list[Shown]:
            every = [m for m in self.shown(channel, thread) if contains in m.text]
            return [m for m in every if any(button in label for label in m.labels)] if button else every

        wanted = f"{contains!r} with a button {button!r}" if button else repr(contains)
        await self._wait(lambda: len(found()) >= count, within_s, f"message {count} with {wanted}", channel)
        return found()[count - 1]

    async def see_note(self, user: str, contains: str = "", *, count: int = 1, within_s: float = PATIENCE_S) -> Shown:
        """Wait for the `count`-th ephemeral message to a person with this text."""

        def found() -> list[Shown]:
            return [note for note in self.notes(user) if contains in note.text]

        await self._wait(lambda: len(found()) >= count, within_s, f"note {count} to {user} with {contains!r}")
        return found()[count - 1]

    async def see_modal(self, user: str, contains: str = "", *, within_s: float = PATIENCE_S) -> View:
        """Wait for an open modal before a person."""

        def found() -> list[View]:
            return [v for v in self.world.views.values() if v.open and v.user == user and contains in v.text]

        await self._wait(lambda: bool(found()), within_s, f"modal before {user} with {contains!r}")
        return found()[-1]

    async def see_reaction(self, message: Shown, name: str = "", *, within_s: float = PATIENCE_S) -> str:
        """Wait until the bot reacted to a message; returns the reaction."""

        def found() -> list[str]:
            mine = [one for one, users in message.reactions.items() if self.world.bot in users]
            return [one for one in mine if name in ("", one)]

        await self._wait(lambda: bool(found()), within_s, f"reaction {name!r} to {message.ts}", message.channel)
        return found()[0]

    async def acknowledged(self, pressed: Pressed, *, within_s: float = PATIENCE_S) -> Pressed:
        """Wait until the app took a press, a submission or a command."""
        await self._wait(lambda: pressed.done, within_s, f"end of a press by {pressed.user}")
        if not pressed.acknowledged:
            raise AssertionError(f"the app did not acknowledge: {pressed.delivery.tries}; {self.picture()}")
        return pressed

    async def heard(self, *, within_s: float = PATIENCE_S) -> None:
        """Wait until the app took everything that happened."""
        await self._wait(lambda: not self.app.pending, within_s, "end of what the app must hear of")

    async def _wait(self, condition: Callable[[], bool], within_s: float, what: str, channel: str = "") -> None:
        try:
            await self.until(condition, within_s)
        except TimeoutError:
            raise AssertionError(f"no {what} after {within_s} s; {self.picture(channel)}") from None

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait until a condition holds; it is looked at after each call and delivery. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s):
            while not condition():
                self.hub.changed.clear()
                await self.hub.changed.wait()

    # --- to read ---

    def picture(self, channel: str = "") -> str:
        """A conversation, or all of them, and the last calls, to be read by people."""
        lines: list[str] = []
        for one in self.world.channels.values():
            if channel in ("", one.id):
                lines.append(f"{one.kind} {one.id} {one.name}".rstrip() + ":")
                lines += [message.picture(self.world.bot) for message in [*one.messages.values(), *one.ephemerals]]
        lines.append("the last calls:")
        lines += [
            f"  {c.method} {c.error or c.status or 'unanswered'} {short(c.parameters)}" for c in self.calls()[-12:]
        ]
        lines += [f"surprise: {surprise}" for surprise in self.surprises]
        lines += [f"trouble: {trouble}" for trouble in self.troubles]
        return "\n".join([f"conversation {channel}:" if channel else "all conversations:", *lines])

    @property
    def surprises(self) -> list[str]:
        """Return calls that no app of ours should make and Slack may let pass; a test asserts that there are none."""
        return self.hub.surprises

    @property
    def log(self) -> list[Call]:
        """All calls of all workspaces, in the order in which they had been read."""
        return self.hub.log

    @property
    def during_ban(self) -> list[Call]:
        """The calls that came although a ban held there."""
        return self.hub.during_ban

    def calls(self, method: str = "", channel: str = "") -> list[Call]:
        """The calls of this workspace's bot."""
        mine = [call for call in self.log if call.team == self.world.team]
        return [c for c in mine if method in ("", c.method) and channel in ("", c.channel)]


def short(parameters: Json) -> str:
    text = json.dumps(parameters, ensure_ascii=False, default=repr)
    return text if len(text) <= 160 else text[:157] + "…"
