"""Status line: the one message that shows what a turn does and, at its end, what it did.

All about it is in this file, except how durations, sizes and money are written (`system.figures`).

In the order of its life: a turn publishes its activity and opens the line's slot (`TurnStatus`, used by `agent.turn`).
`StatusLines`, part of live edits, gathers what a root and its children publish and edits the message. The last text is
the `summary`. Texts are plain, without markup.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gateway.domain.events import Activity, ProgressChanged
from gateway.domain.ids import SessionId, SlotId, TurnId, status_slot
from gateway.domain.messages import Conversation
from gateway.domain.slots import NewSlot, Slot, SlotKind, shown_when_stored
from gateway.domain.steps import Answer, Step, StepKind, Usage
from gateway.domain.text import cut
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait, WaitKind, used_by_children
from gateway.errors import LeaseLost, StoreError
from gateway.outbound.message_actor import MessageActor, MessageActors
from gateway.ports import Clock, EventBus, TurnJournal
from gateway.system.clock import is_set
from gateway.system.figures import count, duration, money
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor, redacted_line

LINE_CHARS = 300
"""Maximum characters of a status line."""
TEXT_CHARS = 200
"""Maximum characters of one session's activity."""
CALL_CHARS = 120
"""Maximum characters of a call in it."""
TAIL_CHARS = 120
"""Maximum characters of the line that a call printed last."""
SHOW_TAIL_EVERY_S = 2.0
"""Minimum seconds since an edit before another one for a new tail alone."""
SHOW_TAIL_SHARE = 0.05
"""Share of the activity's age, with the same effect."""
TITLE_CHARS = 40
"""Maximum characters of a child's title or a tool's name in it."""
AT_WORK = "▸"
"""Prefix of a line that will change. A line without it is final: a summary, or "Ended."."""
THINKING = "thinking"
OPEN_AFTER_S = 1.0
"""Seconds of work on calls before the status line gets a message."""
SAY_AGAIN_S = 20.0
"""Seconds between repeated progress events while calls run; the only sign of life of a child."""
TOOLS_SHOWN = 5
"""Tool names in a summary."""
UNTITLED = "sub-session"
FORGET_UNSHOWN_AFTER_S = 7.0
"""Seconds without an event after which a line without a message is dropped."""
FORGET_LINE_AFTER_S = 60.0
"""Seconds for a line that has a message."""
FORGET_WAITING_AFTER_S = 3_600.0
"""Seconds for a line with a child at work, which may wait long for a decision."""
SHOW_TIME_EVERY_S = 5.0
"""Minimum seconds since an edit before another one for the duration alone."""
SHOW_TIME_SHARE = 0.1
"""Minimum age of a shown duration, as a share of it: each edit takes the room of another message."""
CHILDREN_SHOWN = 6
"""Children in a status line."""
CHILDREN_KEPT = 100
"""Children whose activity a line knows."""
_FOR_CHILDREN = frozenset({WaitKind.CHILD})
_PEOPLE = frozenset({WaitKind.APPROVAL, WaitKind.QUESTION})
"""Waits for people: their time is not the turn's."""


def at_work(text: str) -> str:
    """Return a line marked as one that will change."""
    return f"{AT_WORK} {text or THINKING}"


def is_at_work(text: str) -> bool:
    """Return whether a stored line is marked by `at_work`; a line without the mark is final."""
    return text.startswith(AT_WORK)


def activity_text(now: Activity, redactor: Redactor) -> str:
    """Return an activity as one line: the first call and the number of others, or the waits; empty without any.

    Decisions come before children, since a person can act on those.
    """
    if now.calls:
        beside = f" (and {len(now.calls) - 1} more)" if now.calls[1:] else ""
        return f"{redacted_line(now.calls[0], CALL_CHARS, redactor)}{beside}".strip()
    asked, children = now.waits.count(WaitKind.APPROVAL), now.waits.count(WaitKind.CHILD)
    if asked:
        return "waits for a decision" if asked == 1 else f"waits for {asked} decisions"
    if WaitKind.QUESTION in now.waits:
        return "waits for an answer"
    if children:
        return "waits for a sub-session" if children == 1 else f"waits for {children} sub-sessions"
    return ""


# --- the turn's side ------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class TurnStatus:
    """A turn's side of its status line. Made at the claim; a failure here never fails the turn.

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
    """Activity published last, as text."""
    _waits: frozenset[WaitKind] = frozenset()
    """Kinds of waits, when the turn only waits."""
    _tail: str = ""
    """Last line that the running call printed; always empty for a child."""
    _stands: bool = False
    """True when the line certainly has a message."""
    _worked_s: float = 0.0
    """Seconds of work on calls, under this lease."""
    _log: Any = field(default_factory=lambda: log("status_line"))

    def set_activity(self, now: Activity) -> None:
        """Publish the activity when it changed."""
        if not self._shows:
            return
        line, waits = activity_text(now, self.redactor) or THINKING, frozenset(now.waits)
        tail = redacted_line(now.tail, TAIL_CHARS, self.redactor) if self._has_line else ""
        if (line, waits, tail) != (self._text, self._waits, self._tail):
            self._text, self._waits, self._tail = line, waits, tail
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
        """Return the slot with the line's last text, for `finish_turn`; empty when the line cannot have a message.

        `answer`: the last answer, which is not in the view yet. An earlier holding may have opened the line, or a write
        without a known outcome. The store knows, and leaves out the text of a line that was never opened.
        """
        if not self._has_line or not (self._stands or any(step.call for step in view.steps)):
            return []
        text = summary(view, answer, self.clock.now(), self.currency, self.redactor)
        return [self._slot(cut(text, LINE_CHARS))]

    def ended(self) -> None:
        """Publish that the activity is over. Call when the turn has ended, not when it parks or is released."""
        if self._shows and self._text:
            self._text, self._waits, self._tail = "", frozenset(), ""
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
        while not await is_set(over, max(wait_s, 0)):
            if self._has_line and not self._stands:
                await self._open()
                wait_s = self.open_after_s
            else:
                if self._text:
                    self._publish()
                wait_s = self.say_again_s

    async def _open(self) -> None:
        """Open the message, or write it again. A lost lease is only logged: the turn's next write fails anyway."""
        try:
            self._stands = await self.journal.open_slot(self.lease, self._slot(at_work(self._text)))
        except (LeaseLost, StoreError) as error:
            self._log.warning("the status line is not stored", turn=self.lease.turn, error=str(error))

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
            tail=self._tail,
        )
        self.events.publish_to_sender(self._conversation, event)


# --- the message ----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class StatusLine:
    """Status line of a root's turn: what the root and its children do, and what the line's message shows."""

    redactor: Redactor
    updated_at: float = 0.0
    message: MessageActor | None = None
    """Actor of the message that shows the line; None before it is shown."""
    shown: str = ""
    """Shown text without its duration and without what the call printed."""
    shown_tail: str = ""
    """Shown line of the call's output."""
    edited_at: float = 0.0
    """Time of the last edit."""
    ended: bool = False
    """True once the root's turn ended. Its last text comes as a new version of the slot."""
    _own: str = ""
    _waits: frozenset[WaitKind] = frozenset()
    """Kinds of waits of the root, if it does nothing else."""
    _since: float = 0.0
    """Time of the first event with this text, in seconds of the caller's clock."""
    _tail: str = ""
    """Last line that the root's call printed."""
    _children: dict[SessionId, tuple[str, str]] = field(default_factory=dict[SessionId, tuple[str, str]])
    """Title and activity of each child, in the order of their first event. The activity is empty once it has ended."""

    def update(self, event: ProgressChanged, now: float) -> None:
        """Record the current activity of the root or a child."""
        self.updated_at = now
        text = redacted_line(event.text, TEXT_CHARS, self.redactor)
        if not event.title:
            self.ended, self._waits = not text, event.waits
            self._tail = redacted_line(event.tail, TAIL_CHARS, self.redactor)
            if text != self._own:
                self._own, self._since = text, now
        elif event.by in self._children or len(self._children) < CHILDREN_KEPT:
            self._children[event.by] = (redacted_line(event.title, TITLE_CHARS, self.redactor), text)

    @property
    def children_at_work(self) -> bool:
        """Return whether any child has not ended, by the events received."""
        return any(text for _, text in self._children.values())

    def since(self, now: float) -> float:
        """Return the age in seconds of the root's shown activity; 0 if the line shows only children."""
        return now - self._since if self._shows_own else 0.0

    def line(self, now: float | None = None) -> str:
        """Return the line, at most 300 characters, or an empty string.

        With its duration and what the call printed last if `now` is given.
        """
        if self.ended:
            return ""
        own = at_work(self._own) if self._shows_own else ""
        if own and now is not None and now - self._since >= 1:
            own = f"{own} · {duration(timedelta(seconds=now - self._since))}"
        if own and now is not None and self._tail:
            own = f"{own} · {self._tail}"
        # Once the root goes on, its own activity shows what it does with the children's results.
        children = self._of_children() if self._children and (self.children_at_work or not own) else ""
        return cut(" · ".join(filter(None, (own, children))), LINE_CHARS)

    @property
    def has_message(self) -> bool:
        """Return whether a message shows the line, and its final text is not being sent yet."""
        return self.message is not None and self.message.grows

    def next_text(self, now: float) -> str:
        """Return the text to show if it is worth an edit, else an empty string."""
        line = self.line()
        since_s, idle_s = self.since(now), now - self.edited_at
        time_due = since_s > 0 and idle_s >= max(SHOW_TIME_EVERY_S, since_s * SHOW_TIME_SHARE)
        tail_due = self._tail != self.shown_tail and idle_s >= max(SHOW_TAIL_EVERY_S, since_s * SHOW_TAIL_SHARE)
        return self.line(now) if line and (line != self.shown or time_due or tail_due) else ""

    def edited(self, now: float) -> None:
        """Note that the message is being edited to the present line."""
        self.shown, self.shown_tail, self.edited_at = self.line(), self._tail, now

    def stale(self, now: float) -> bool:
        """Return whether no more events are expected for this line."""
        after_s = FORGET_WAITING_AFTER_S if self.children_at_work else FORGET_LINE_AFTER_S
        return now - self.updated_at > (after_s if self.has_message else FORGET_UNSHOWN_AFTER_S)

    @property
    def _shows_own(self) -> bool:
        """Return whether the root does more than wait for the children in the line."""
        return bool(self._own) and not (self._children and self._waits == _FOR_CHILDREN)

    def _of_children(self) -> str:
        found = sorted(self._children.values(), key=lambda one: not one[1])  # those at work first
        shown, more = found[:CHILDREN_SHOWN], len(found) - CHILDREN_SHOWN
        head = f"{count(len(found), 'sub-session')}: "
        tail = [f"and {more} more"] if more > 0 else []
        room = LINE_CHARS - len(head) - sum(len(one) + 3 for one in tail)
        if self._shows_own:
            room //= 2
        each = room // len(shown) - 3
        return head + " · ".join([*(cut(f"{title}: {text or 'done'}", each) for title, text in shown), *tail])


@dataclass(slots=True, kw_only=True)
class StatusLines:
    """Status lines of the turns of any node, as their conversations show them. Used by live edits, which call it."""

    messages: MessageActors
    _lines: dict[SlotId, StatusLine] = field(default_factory=dict[SlotId, StatusLine])

    def __bool__(self) -> bool:
        """Return whether there is any line."""
        return bool(self._lines)

    def changed(self, event: ProgressChanged) -> None:
        """Record the activity of a root or a child."""
        slot = status_slot(event.turn)
        line = self._of(slot, event.conversation)
        if line is not None:
            line.update(event, self.messages.clock.monotonic())
            if line.ended and not line.has_message:
                del self._lines[slot]

    def active(self, turn: TurnId) -> None:
        """Keep the line of a turn that is at work."""
        if (line := self._lines.get(status_slot(turn))) is not None:
            line.updated_at = self.messages.clock.monotonic()

    def goes_on(self, message: MessageActor, slot: Slot) -> bool:
        """Note a version of a line that was shown. Return whether the line goes on in that message."""
        if not is_at_work(slot.text):
            self._lines.pop(slot.id, None)
            return False
        line = self._of(slot.id, slot.conversation)
        if line is None:
            return False
        now = self.messages.clock.monotonic()
        line.message, line.shown, line.edited_at, line.updated_at = message, slot.text, now, now
        line.shown_tail = ""
        self.messages.changed_at[slot.conversation.chat_scope] = now
        return True

    def edit(self, now: float, group: asyncio.TaskGroup) -> None:
        """Edit each message that may be edited and shows something else than its line."""
        for line in self._lines.values():
            message, text = line.message, ""
            if message is not None and message.may_edit(now):
                text = line.next_text(now)
            if message is not None and text and message.edit(text, group):
                line.edited(now)

    def forget(self, now: float) -> bool:
        """Drop the lines of which no more is expected. Return whether there were any."""
        stale = {slot for slot, line in self._lines.items() if line.stale(now)}
        for slot in stale:
            line = self._lines.pop(slot)
            if line.message is not None:
                line.message.grows = False
        return bool(stale)

    def _of(self, slot: SlotId, where: Conversation) -> StatusLine | None:
        """Return a line, made at its first event. None where lines are not shown."""
        channel = self.messages.channels.get(where.channel)
        if channel is None or not channel.streams or shown_when_stored(where):
            return None
        if slot not in self._lines:
            now = self.messages.clock.monotonic()
            self._lines[slot] = StatusLine(redactor=self.messages.redactor, updated_at=now)
        return self._lines[slot]


# --- the last text --------------------------------------------------------------------------------


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
    asked = (_asked(wait, now) for wait in view.waits if wait.kind in _PEOPLE)
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
