"""Status line of a turn: its activity, and at the end a summary. Used by `turn`.

Activity is published, and shown by `outbound/live_edits` for turns of any node. The line's slot is opened here, once
the calls take long enough. Its text is plain, without markup.
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
"""Seconds of work on calls before the status line gets a message."""
SAY_AGAIN_S = 20.0
"""Seconds between repeated progress events while calls run; the only sign of life of a child."""
TOOLS_SHOWN = 5
"""Tool names in a summary."""
UNTITLED = "sub-session"


@dataclass(slots=True, kw_only=True)
class Status:
    """Status line of one claimed turn. Made at the claim; a failure here never fails the turn.

    The line has a message only where answers are streamed, for a root's turn whose calls take time or spawn children.
    A child has no line of its own: its activity is shown in its root's.
    """

    view: TurnView
    """The turn at its claim."""
    lease: Lease
    journal: TurnJournal
    events: EventBus
    clock: Clock
    redactor: Redactor
    streams: Collection[str]
    """Channels that show an answer while it is written."""
    currency: str = "USD"
    open_after_s: float = OPEN_AFTER_S
    say_again_s: float = SAY_AGAIN_S
    _text: str = ""
    """Activity published last."""
    _waits: frozenset[WaitKind] = frozenset()
    """Kinds of waits, when the turn only waits."""
    _stands: bool = False
    """True when the line certainly has a message."""
    _worked_s: float = 0.0
    """Seconds of work on calls, under this lease."""
    _log: Any = field(default_factory=lambda: log("status"))

    def set_activity(self, now: Activity) -> None:
        """Publish the activity when it changed. Without a text no call runs, so the model is asked next."""
        if not self._shows:
            return
        line = redacted_line(now.text, TEXT_CHARS, self.redactor) or THINKING
        if (line, now.waits) != (self._text, self._waits):
            self._text, self._waits = line, now.waits
            self._publish()

    async def resume(self) -> None:
        """Resume the line that an earlier holder may have opened. Call once, before any other method.

        A turn's view does not show whether its line has a message. Where there was reason for one, the slot is written
        again: then it certainly exists, with the current activity. Nothing to do without calls, or with quick ones.
        """
        if not self.view.steps:
            return
        self.set_activity(Activity())
        if self._has_line and _took_long(self.view, self.clock.now(), self.open_after_s):
            await self._open()

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[None]:
        """Open the line's message once calls have taken a second in total. Wrap the work on calls in it."""
        if not self._shows:
            yield
            return
        began, over = self.clock.monotonic(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after(over), name=f"status of {self.lease.turn}")
            yield
            # Signalled, not cancelled: a write in progress must finish, so that its outcome is known.
            over.set()
        self._worked_s += self.clock.monotonic() - began

    async def parking(self) -> None:
        """Open the message of a turn that waits for children. Call before the turn parks."""
        # The last activity from `toolcalls` holds the turn's waits: another read would cost every park.
        if self._has_line and not self._stands and WaitKind.CHILD in self._waits:
            await self._open()

    def closing(self, view: TurnView, answer: Answer | None = None) -> list[NewSlot]:
        """Return the slot with the line's last text, for `finish_turn`; empty when the line has no message.

        `answer`: the last answer, which is not in the view yet.
        """
        if not self._stands:
            return []
        return [self._slot(self._summary(view, answer))]

    def ended(self) -> None:
        """Publish that the activity is over. Call when the turn has ended, not when it parks or is released."""
        if self._shows and self._text:
            self._text, self._waits = "", frozenset()
            self._publish()

    @property
    def _conversation(self) -> Conversation:
        lineage = self.view.session.lineage
        return self.view.turn.conversation if lineage is None else lineage.conversation

    @property
    def _shows(self) -> bool:
        """True when the conversation's channel shows activity."""
        return self._conversation.channel in self.streams

    @property
    def _has_line(self) -> bool:
        """True when the line is this turn's own."""
        return self._shows and self.view.session.lineage is None

    async def _look_after(self, over: asyncio.Event) -> None:
        """Open the message in time, then repeat the activity, until the work is over."""
        wait_s = self.open_after_s - self._worked_s if self._has_line else self.say_again_s
        while not await _within(max(wait_s, 0), over):
            if self._has_line and not self._stands:
                await self._open()
                wait_s = self.open_after_s
            else:
                if self._text:
                    self._publish()
                wait_s = self.say_again_s

    async def _open(self) -> None:
        """Open the message, or write it again. A lost lease is only logged: the turn's next write fails by itself."""
        try:
            self._stands = await self.journal.open_slot(self.lease, self._slot(at_work(self._text)))
        except (LeaseLost, StoreError) as error:
            self._log.warning("the status line is not stored", turn=self.lease.turn, error=str(error))

    def _summary(self, view: TurnView, answer: Answer | None) -> str:
        return cut(summary(view, answer, self.clock.now(), self.currency, self.redactor), LINE_CHARS)

    def _slot(self, text: str) -> NewSlot:
        turn = self.view.turn
        return NewSlot(conversation=turn.conversation, kind=SlotKind.STATUS, text=text, id=status_slot(turn.id))

    def _publish(self) -> None:
        session, lineage = self.view.session, self.view.session.lineage
        event = ProgressChanged(
            turn=self.view.turn.id if lineage is None else lineage.root_turn,
            conversation=self._conversation,
            by=session.id,
            title="" if lineage is None else redacted_line(session.title, TITLE_CHARS, self.redactor) or UNTITLED,
            text=self._text,
            waits=self._waits,
        )
        self.events.publish(ANSWERS, event)


async def _within(seconds: float, over: asyncio.Event) -> bool:
    """Wait for the event with a timeout; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            return await over.wait()
    except TimeoutError:
        return False


def summary(view: TurnView, answer: Answer | None, now: datetime, currency: str, redactor: Redactor) -> str:
    """Return a turn's summary: `2 calls (shell ×2), 12 s, 4,120 tokens, $0.012`. Unknown parts are left out."""
    calls = [step.call.tool for step in view.steps if step.call is not None]
    spent = _spent(view, answer)
    tokens = spent.input_tokens + spent.output_tokens
    parts = [
        f"{count(len(calls), 'call')} ({_tools(calls, redactor)})" if calls else "",
        duration(_elapsed(view, now)),
        f"{tokens:,} tokens" if tokens else "",
        money(spent.cost_micros, currency) if spent.cost_micros else "",
    ]
    return ", ".join(filter(None, parts))


def _took_long(view: TurnView, now: datetime, long_s: float) -> bool:
    """Return True when the calls so far, parallel or not, took that long, or one waited for a child.

    A call interrupted by a crash counts until now, since its end is unknown.
    """
    if any(wait.kind is WaitKind.CHILD for wait in view.waits):
        return True
    return _together(_span(step, now) for step in view.steps if step.kind is StepKind.TOOL) >= long_s


def _span(step: Step, now: datetime) -> tuple[datetime, datetime]:
    return (now, now) if step.started_at is None else (step.started_at, step.ended_at or now)


def _together(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """Return the seconds covered by at least one of these spans."""
    total_s, covered = 0.0, None
    for began, ended in sorted(spans):
        fresh = began if covered is None else max(began, covered)
        total_s += max((ended - fresh).total_seconds(), 0)
        covered = ended if covered is None else max(ended, covered)
    return total_s


def _elapsed(view: TurnView, now: datetime) -> timedelta:
    """Return a turn's duration: waiting for a decision does not count, waiting for children does."""
    began = view.turn.started_at or now
    asked = (_asked(wait, now) for wait in view.waits if wait.kind is WaitKind.APPROVAL)
    taken = now - began - timedelta(seconds=_together(asked))
    return max(taken, timedelta(milliseconds=view.turn.active_ms))


def _asked(wait: Wait, now: datetime) -> tuple[datetime, datetime]:
    return wait.opened_at, min(wait.decided_at or wait.expires_at, now)


def _spent(view: TurnView, answer: Answer | None) -> Usage:
    """Return the usage of all answers of a turn, and of the children that it waited for."""
    answers = (step.answer for step in view.steps)
    return sum((one.usage for one in (*answers, answer) if one is not None), used_by_children(view.waits))


def _tools(calls: list[str], redactor: Redactor) -> str:
    """Return tool names with counts, in order of first call. A name may be the model's invention."""
    counted = Counter(redacted_line(tool, TITLE_CHARS, redactor) for tool in calls)
    named = [f"{tool} ×{times}" if times > 1 else tool for tool, times in counted.items()]
    return ", ".join([*named[:TOOLS_SHOWN], *(["…"] if len(named) > TOOLS_SHOWN else [])])
