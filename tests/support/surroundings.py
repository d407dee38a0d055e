"""Surroundings of a channel in its own tests: a sink, a host, a key-value store that can fail, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeVar

from gateway.domain.ids import InboundId, NodeId, TurnId
from gateway.domain.messages import Inbound, Press, Refused
from gateway.domain.routes import Accepted
from gateway.domain.sessions import SessionKind
from gateway.domain.turns import NamedLease
from gateway.domain.waits import Pressed, PressResult
from gateway.errors import StoreError
from gateway.ports import CommandInfo
from tests.support.patience import PATIENCE_S


@dataclass(slots=True, kw_only=True)
class FakeSink:
    """`ports.Sink`: keeps what it is given, each event once. `fail` says what an event key raises, if anything."""

    events: list[Inbound | Press | Refused] = field(default_factory=list[Inbound | Press | Refused])
    fail: Callable[[str], Exception | None] = lambda _key: None
    result: PressResult = PressResult.APPROVED
    asks_reasons: bool = False
    """True if an accepted press is answered with a request for a reason, where the platform has one."""
    asked: bool = False
    """True if a question is open that a message answers."""
    delay_s: float = 0.0
    tries: int = 0
    running: int = 0
    most: int = 0
    """Largest number taken at the same time."""

    async def message(self, message: Inbound) -> Accepted | None:
        """Begin a turn for a message that is meant for the bot and is no command."""
        new = await self._take(message)
        if not message.addressed or message.text.startswith("/"):
            return None
        return Accepted(inbound=InboundId("i1"), turn=TurnId("t1"), duplicate=not new, answers=self.asked)

    async def press(self, press: Press) -> Pressed:
        """Answer with `result`."""
        await self._take(press)
        asks = self.asks_reasons and press.can_ask_reason and self.result is PressResult.APPROVED
        return Pressed(result=PressResult.ASK_REASON if asks else self.result)

    async def refuse(self, refused: Refused) -> None:
        """Keep it."""
        await self._take(refused)

    async def _take(self, event: Inbound | Press | Refused) -> bool:
        self.tries += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        error = self.fail(event.event_key)
        if error is not None:
            raise error
        new = event.event_key not in {one.event_key for one in self.events}
        if new:
            self.events.append(event)
        return new

    @property
    def messages(self) -> list[Inbound]:
        """Return the accepted messages."""
        return [event for event in self.events if isinstance(event, Inbound)]

    @property
    def texts(self) -> list[str]:
        """The words of it."""
        return [message.text for message in self.messages]

    @property
    def refused(self) -> list[Refused]:
        """Return the events that the channel refused."""
        return [event for event in self.events if isinstance(event, Refused)]

    @property
    def pressed(self) -> list[Press]:
        """The presses."""
        return [event for event in self.events if isinstance(event, Press)]


@dataclass(slots=True, kw_only=True)
class FakeHelm:
    """`ports.ChannelHost`: every lease is ours while `ours`."""

    ours: bool = True
    fence: int = 1
    broken: bool = False
    under: list[NamedLease | None] = field(default_factory=list[NamedLease | None])
    """The lease of each alert."""
    held: list[tuple[str, timedelta]] = field(default_factory=list[tuple[str, timedelta]])
    alerts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    of_owners: tuple[str, ...] = ("stop", "status")
    """The commands besides /help that a main session knows."""

    async def hold(self, name: str, ttl: timedelta) -> NamedLease | None:
        """Remember that it was wanted."""
        self.held.append((name, ttl))
        if self.broken:
            raise StoreError("the disk is full")
        return NamedLease(name=name, node=NodeId("here"), fence=self.fence) if self.ours else None

    async def alert(self, key: str, text: str, *, under: NamedLease | None = None) -> None:
        """Remember it."""
        self.alerts.append((key, text))
        self.under.append(under)

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        """Return what there is in such a session."""
        names = ["help", *(self.of_owners if kind is SessionKind.MAIN else ())]
        return [CommandInfo(name=name, usage=f"/{name}", about=f"About {name}.") for name in names]


@dataclass(slots=True, kw_only=True)
class FakeNotes:
    """`ports.ChannelKeyValue` in a dict."""

    kept: dict[str, str] = field(default_factory=dict[str, str])
    broken: bool = False

    async def read(self) -> Mapping[str, str]:
        """Return all of them."""
        return dict(self.kept)

    async def get(self, key: str) -> str | None:
        """Return one of them."""
        return self.kept.get(key)

    async def keep(self, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Keep one, for ever. Raises `StoreError` while `broken`."""
        if self.broken:
            raise StoreError("the disk is full")
        self.kept[key] = value


@dataclass(slots=True)
class Taken:
    """Target of a fetched file. Raises its error once it has so many bytes."""

    pieces: list[bytes] = field(default_factory=list[bytes])
    full_at: int = 1_000_000_000

    def __call__(self, piece: bytes) -> None:
        """Take a piece."""
        self.pieces.append(piece)
        if len(self.data) > self.full_at:
            raise OSError("the disk is full")

    @property
    def data(self) -> bytes:
        """All that came."""
        return b"".join(self.pieces)


async def until(true: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so; fail the test when it does not become so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not true():
        assert loop.time() < end, "it did not become so"
        await asyncio.sleep(0.005)


class Asked(Protocol):
    """One call that a fake platform is about to answer."""

    @property
    def method(self) -> str:
        """Return the platform's name for it."""
        ...


F = TypeVar("F")


def refusing(method: str, fault: F, times: int = 1_000_000) -> Callable[[Asked], F | None]:
    """A script of a fake platform that gives this method a fault, so many times."""
    left = [times]

    def script(call: Asked) -> F | None:
        if call.method != method or left[0] == 0:
            return None
        left[0] -= 1
        return fault

    return script
