"""Beside the turn: the one line that says what it does now, and at its end what it did.

What is done is only said, and shown by `streams`, from whatever node it comes; the line's slot is made here once it is
worth a message. Its text is plain: nothing in it formats.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gateway.domain.ids import status_slot
from gateway.domain.live import ANSWERS, Activity, ProgressChanged
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Step, StepKind, Usage
from gateway.domain.text import cut
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait, WaitKind, used_by_children
from gateway.errors import LeaseLost, StoreError
from gateway.ports import Clock, EventBus, TurnJournal
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor, redacted_line
from gateway.system.status_text import LINE_CHARS, TEXT_CHARS, THINKING, TITLE_CHARS, at_work, count, duration, money

OPEN_AFTER_S = 1.0
"""Seconds that the calls of a turn have been at work when its line is worth a message."""
SAY_AGAIN_S = 20.0
"""So often it is said again what is done while calls are at work; of a child nothing else tells that it is alive."""
TOOLS_SHOWN = 5
UNTITLED = "sub-session"


@dataclass(slots=True, kw_only=True)
class Status:
    """The status line of one holding of a turn. Made when it is claimed; nothing here fails a turn.

    The line has a message only where answers are streamed, for a root's turn whose calls take time or spawn children.
    A child has no line of its own: what it does is shown in its root's.
    """

    view: TurnView
    """As it was claimed."""
    lease: Lease
    journal: TurnJournal
    events: EventBus
    clock: Clock
    redactor: Redactor
    streams: Collection[str]
    """The channels that show an answer while it is written."""
    currency: str = "USD"
    open_after_s: float = OPEN_AFTER_S
    say_again_s: float = SAY_AGAIN_S
    _text: str = ""
    """What is done now."""
    _waits: frozenset[WaitKind] = frozenset()
    """What is waited for, when nothing else is done."""
    _stands: bool = False
    """Whether the line has a message, for certain."""
    _worked_s: float = 0.0
    """That calls took, in this holding."""
    _log: Any = field(default_factory=lambda: log("status"))

    def doing(self, now: Activity) -> None:
        """Say what is done now, if that is news. Without a text no call is at work, so the model is asked next."""
        if not self._shows:
            return
        line = redacted_line(now.text, TEXT_CHARS, self.redactor) or THINKING
        if (line, now.waits) != (self._text, self._waits):
            self._text, self._waits = line, now.waits
            self._say()

    async def resume(self) -> None:
        """Take up the line that an earlier holding may have made. Called once, before anything else is done.

        No row of a turn's view says whether its line has a message, so where there was reason for one it is written
        here once more: from then on it is certain that it stands, and it says what is done now. For a turn without
        calls, or with quick ones, this does nothing.
        """
        if not self.view.steps:
            return
        self.doing(Activity())
        if self._has_line and _took_long(self.view, self.clock.now(), self.open_after_s):
            await self._open()

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[None]:
        """Around the work on calls: the line gets its message when they have taken a second in all."""
        if not self._shows:
            yield
            return
        began, over = self.clock.monotonic(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after(over), name=f"status of {self.lease.turn}")
            yield
            # Told, not cancelled: a message that is being made is waited for, for it must be known whether it stands.
            over.set()
        self._worked_s += self.clock.monotonic() - began

    async def parking(self) -> None:
        """Before the turn parks: one that waits for children gets its message at once."""
        # By what `toolcalls` said last, which is what the turn waits for: reading it again would cost every park.
        if self._has_line and not self._stands and WaitKind.CHILD in self._waits:
            await self._open()

    def closing(self, view: TurnView, answer: Answer | None = None) -> list[NewSlot]:
        """What the line says in the end, for `finish_turn`: nothing when it has no message, so that it gets none.

        `answer`: the last one, which is not in the view yet.
        """
        if not self._stands:
            return []
        return [self._slot(self._summary(view, answer))]

    def ended(self) -> None:
        """Say that nothing is done any more. Called when the turn has ended; not when it parks or is given back."""
        if self._shows and self._text:
            self._text, self._waits = "", frozenset()
            self._say()

    @property
    def _place(self) -> Conversation:
        lineage = self.view.session.lineage
        return self.view.turn.conversation if lineage is None else lineage.conversation

    @property
    def _shows(self) -> bool:
        """Whether anybody sees what is said here."""
        return self._place.channel in self.streams

    @property
    def _has_line(self) -> bool:
        """Whether the line is this turn's own."""
        return self._shows and self.view.session.lineage is None

    async def _look_after(self, over: asyncio.Event) -> None:
        """Make the message in time, then say again what is done, until it is over."""
        wait_s = self.open_after_s - self._worked_s if self._has_line else self.say_again_s
        while not await _within(max(wait_s, 0), over):
            if self._has_line and not self._stands:
                await self._open()
                wait_s = self.open_after_s
            else:
                if self._text:
                    self._say()
                wait_s = self.say_again_s

    async def _open(self) -> None:
        """Make the message, or write it anew. Whoever writes what counts finds out by itself that it must not."""
        try:
            self._stands = await self.journal.open_slot(self.lease, self._slot(at_work(self._text)))
        except (LeaseLost, StoreError) as error:
            self._log.warning("the status line is not stored", turn=self.lease.turn, error=str(error))

    def _summary(self, view: TurnView, answer: Answer | None) -> str:
        return cut(summary(view, answer, self.clock.now(), self.currency, self.redactor), LINE_CHARS)

    def _slot(self, text: str) -> NewSlot:
        turn = self.view.turn
        return NewSlot(conversation=turn.conversation, kind=SlotKind.STATUS, text=text, id=status_slot(turn.id))

    def _say(self) -> None:
        session, lineage = self.view.session, self.view.session.lineage
        said = ProgressChanged(
            turn=self.view.turn.id if lineage is None else lineage.root_turn,
            conversation=self._place,
            by=session.id,
            title="" if lineage is None else redacted_line(session.title, TITLE_CHARS, self.redactor) or UNTITLED,
            text=self._text,
            waits=self._waits,
        )
        self.events.publish(ANSWERS, said)


async def _within(seconds: float, over: asyncio.Event) -> bool:
    """Wait until it is over, so long at most; whether it is."""
    try:
        async with asyncio.timeout(seconds):
            return await over.wait()
    except TimeoutError:
        return False


def summary(view: TurnView, answer: Answer | None, now: datetime, currency: str, redactor: Redactor) -> str:
    """What a turn did: `2 calls (shell ×2), 12 s, 4,120 tokens, $0.012`. What is not known is left out."""
    calls = [step.call.tool for step in view.steps if step.call is not None]
    spent = _spent(view, answer)
    tokens = spent.input_tokens + spent.output_tokens
    said = [
        f"{count(len(calls), 'call')} ({_tools(calls, redactor)})" if calls else "",
        duration(_elapsed(view, now)),
        f"{tokens:,} tokens" if tokens else "",
        money(spent.cost_micros, currency) if spent.cost_micros else "",
    ]
    return ", ".join(filter(None, said))


def _took_long(view: TurnView, now: datetime, long_s: float) -> bool:
    """Whether the calls so far, side by side or not, took that long; or one waited for a child.

    A call that a crash cut in half counts until now: nobody knows better.
    """
    if any(wait.kind is WaitKind.CHILD for wait in view.waits):
        return True
    return _together(_span(step, now) for step in view.steps if step.kind is StepKind.TOOL) >= long_s


def _span(step: Step, now: datetime) -> tuple[datetime, datetime]:
    return (now, now) if step.started_at is None else (step.started_at, step.ended_at or now)


def _together(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """Seconds that at least one of these lasted."""
    total_s, covered = 0.0, None
    for began, ended in sorted(spans):
        fresh = began if covered is None else max(began, covered)
        total_s += max((ended - fresh).total_seconds(), 0)
        covered = ended if covered is None else max(ended, covered)
    return total_s


def _elapsed(view: TurnView, now: datetime) -> timedelta:
    """How long a turn took: waiting for a decision does not count, waiting for children does."""
    began = view.turn.started_at or now
    asked = (_asked(wait, now) for wait in view.waits if wait.kind is WaitKind.APPROVAL)
    taken = now - began - timedelta(seconds=_together(asked))
    return max(taken, timedelta(milliseconds=view.turn.active_ms))


def _asked(wait: Wait, now: datetime) -> tuple[datetime, datetime]:
    return wait.opened_at, min(wait.decided_at or wait.expires_at, now)


def _spent(view: TurnView, answer: Answer | None) -> Usage:
    """What all answers of a turn used, those of the children that it waited for included."""
    answers = (step.answer for step in view.steps)
    return sum((one.usage for one in (*answers, answer) if one is not None), used_by_children(view.waits))


def _tools(calls: list[str], redactor: Redactor) -> str:
    """Names with how often, in the order they were called first. A model may have made a name up."""
    counted = Counter(redacted_line(tool, TITLE_CHARS, redactor) for tool in calls)
    named = [f"{tool} ×{times}" if times > 1 else tool for tool, times in counted.items()]
    return ", ".join([*named[:TOOLS_SHOWN], *(["…"] if len(named) > TOOLS_SHOWN else [])])
