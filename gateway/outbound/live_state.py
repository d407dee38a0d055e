"""State of live edits: turns followed with their answers, status lines and their progress. Used by `live_edits`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gateway.domain.ids import SessionId
from gateway.domain.live import ProgressChanged, TextDelta
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot
from gateway.domain.text import cut
from gateway.domain.waits import WaitKind
from gateway.outbound.message_actor import MessageActor
from gateway.outbound.rate_limit import SendPath
from gateway.system.redaction import Redactor, redacted_line
from gateway.system.status_text import LINE_CHARS, TEXT_CHARS, TITLE_CHARS, at_work, count, duration

FORGET_AFTER_S = 7.0
"""Seconds without an event after which a turn is dropped; `TurnActive` comes every 5 s."""
FORGET_LINE_AFTER_S = 60.0
"""Seconds for a status line that has a message; one without is dropped like a turn."""
FORGET_WAITING_AFTER_S = 3_600.0
"""Seconds for a status line with a child at work, which may wait long for a decision."""
SHOW_TIME_EVERY_S = 5.0
SHOW_TIME_SHARE = 0.1
"""Minimum age of a shown duration, as a share of it: each edit takes the room of another message."""
KEPT_CHARS = 200_000
"""Characters held of one answer; a longer one is shown when it is complete."""

CHILDREN_SHOWN = 6
CHILDREN_KEPT = 100
_FOR_CHILDREN = frozenset({WaitKind.CHILD})
_WORD_CHARS = "".join(map(chr, range(ord("!"), ord("~") + 1)))
"""Characters cut from the end, so that the last word is not shown: a secret is recognised only when complete."""


@dataclass(slots=True, kw_only=True)
class FollowedTurn:
    """Active turn and the answer that it writes."""

    conversation: Conversation
    path: SendPath
    streams: bool
    seen_at: float
    type_at: float | None
    """Time of the next typing indicator; None while a message shows activity."""
    n: int = -1
    """Step whose text is being streamed."""
    pieces: list[str] = field(default_factory=list[str])
    length: int = 0
    whole: bool = False
    """False if some of the text was missed, or it is too long."""
    text_at: float = 0.0
    shown: Slot | None = None
    """Slot of the answer shown last, in part or in full."""
    message: MessageActor | None = None
    """Actor of the message that shows it in part."""
    shown_chars: int = 0
    looked: int = 0
    """Characters received at the last look for more to show."""

    def add(self, delta: TextDelta, now: float) -> None:
        """Append a delta to the answer."""
        if delta.n != self.n:
            self.n, self.pieces, self.length, self.whole = delta.n, [], 0, True
        self.text_at = now
        if delta.start == 0 and self.length:  # the same step once more, after a crash
            self.pieces, self.length, self.whole = [], 0, True
        self.whole = self.whole and delta.start == self.length and self.length + len(delta.text) <= KEPT_CHARS
        if self.whole:
            self.pieces.append(delta.text)
            self.length += len(delta.text)
        else:
            self.drop_text()

    def goes_on(self, message: MessageActor, slot: Slot) -> bool:
        """Note a version of an answer that was shown. Return whether it is a beginning, which grows."""
        if not self.streams or slot.n is None or not slot.text:
            return False
        before, self.shown = self.shown, slot
        if before is not None and before.id == slot.id and before.version < slot.version:
            # A newer version is the final text; rarely the step runs again, and is then not streamed.
            self.drop_text()
            return False
        self.message, self.shown_chars, self.looked = message, len(slot.text), 0
        return True

    def visible_text(self, redactor: Redactor) -> str:
        """Return the part of the answer that may be shown: redacted, without its last word."""
        text = redactor.text("".join(self.pieces)).lstrip()
        return text.rstrip(_WORD_CHARS).rstrip()

    def drop_text(self) -> None:
        """Drop the text and ignore further deltas until the next step."""
        self.pieces, self.whole = [], False


@dataclass(slots=True, kw_only=True)
class ProgressLine:
    """Progress of a root's turn and its children, as one line."""

    redactor: Redactor
    ended: bool = False
    """True once the root's turn ended. The final status line is written elsewhere."""
    _own: str = ""
    _waits: frozenset[WaitKind] = frozenset()
    """Kinds of waits of the root, if it does nothing else."""
    _since: float = 0.0
    """Time of the first event with this text, in seconds of the caller's clock."""
    _children: dict[SessionId, tuple[str, str]] = field(default_factory=dict[SessionId, tuple[str, str]])
    """Title and activity of each child, in the order of their first event. The activity is empty once it has ended."""

    def update(self, event: ProgressChanged, now: float) -> None:
        """Record the current activity of the root or a child."""
        text = redacted_line(event.text, TEXT_CHARS, self.redactor)
        if not event.title:
            self.ended, self._waits = not text, event.waits
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
        """Return the line, at most 300 characters, or an empty string; with its duration if `now` is given."""
        if self.ended:
            return ""
        own = at_work(self._own) if self._shows_own else ""
        if own and now is not None and now - self._since >= 1:
            own = f"{own} · {duration(timedelta(seconds=now - self._since))}"
        # Once the root goes on, its own activity shows what it does with the children's results.
        children = self._of_children() if self._children and (self.children_at_work or not own) else ""
        return cut(" · ".join(filter(None, (own, children))), LINE_CHARS)

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
class StatusLine:
    """Status line of a root's turn: its progress and what its message shows."""

    progress: ProgressLine
    updated_at: float
    message: MessageActor | None = None
    """Actor of the message that shows the line; None before it is shown."""
    shown: str = ""
    """Shown text without its duration."""
    edited_at: float = 0.0
    """Time of the last edit."""

    @property
    def has_message(self) -> bool:
        """Return whether a message shows the line, and its final text is not being sent yet."""
        return self.message is not None and self.message.grows

    def next_text(self, now: float) -> str:
        """Return the text to show if it is worth an edit, else an empty string."""
        line = self.progress.line()
        since_s = self.progress.since(now)
        time_due = since_s > 0 and now - self.edited_at >= max(SHOW_TIME_EVERY_S, since_s * SHOW_TIME_SHARE)
        return self.progress.line(now) if line and (line != self.shown or time_due) else ""

    def stale(self, now: float) -> bool:
        """Return whether no more events are expected for this line."""
        after_s = FORGET_WAITING_AFTER_S if self.progress.children_at_work else FORGET_LINE_AFTER_S
        return now - self.updated_at > (after_s if self.has_message else FORGET_AFTER_S)
