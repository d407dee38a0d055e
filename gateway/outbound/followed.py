"""What streams follow: a turn and the answer that it writes, the message that shows its beginning, a status line."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.domain.live import TextDelta
from gateway.domain.messages import Conversation
from gateway.domain.slots import Slot
from gateway.outbound.progress import ProgressLine
from gateway.outbound.rate_limit import SendPath
from gateway.system.redaction import Redactor

FORGET_AFTER_S = 7.0
"""`TurnActive` comes every 5 s."""
FORGET_LINE_AFTER_S = 60.0
"""A status line that has a message; one that has none yet goes like a turn."""
FORGET_WAITING_AFTER_S = 3_600.0
"""One on which a child was last said to be at something: a decision that it waits for may take long."""
TELL_TIME_EVERY_S = 5.0
TELL_TIME_SHARE = 0.1
"""Of the time that is told: what takes long is told of more rarely, for each edit takes the room of another message."""
KEPT_CHARS = 200_000
"""Of one answer; a longer one is shown when it is whole."""

_OF_A_WORD = "".join(map(chr, range(ord("!"), ord("~") + 1)))
"""The last word is not shown: what looks like a secret is recognised when all of it is there."""


@dataclass(slots=True, kw_only=True)
class FollowedTurn:
    """A turn that works, and the answer that it writes."""

    conversation: Conversation
    way: SendPath
    streams: bool
    seen_at: float
    type_at: float | None
    """When to show typing; None while there is something to see."""
    n: int = -1
    """The step whose text comes."""
    pieces: list[str] = field(default_factory=list[str])
    length: int = 0
    whole: bool = False
    """False when some of the text was missed, or it is too long."""
    text_at: float = 0.0
    shown: Slot | None = None
    """The answer that was shown last: its beginning, or all of it."""

    def hear(self, delta: TextDelta, now: float) -> None:
        """More of its answer came."""
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
            self.stop_keeping()

    def so_far(self, redactor: Redactor) -> str:
        """As much of its answer as may be shown."""
        text = redactor.text("".join(self.pieces)).lstrip()
        return text.rstrip(_OF_A_WORD).rstrip()

    def stop_keeping(self) -> None:
        """Forget the text, and what comes of it; until the next step."""
        self.pieces, self.whole = [], False


@dataclass(slots=True, kw_only=True)
class ShownDraft:
    """A message that shows the beginning of an answer."""

    slot: Slot
    shown: int
    """Characters that it shows."""
    looked: int = 0
    """Characters that had come when it was looked at last."""


@dataclass(slots=True, kw_only=True)
class StatusLine:
    """The status line of a root's turn: what was heard for it, and what its message shows."""

    conversation: Conversation
    way: SendPath
    progress: ProgressLine
    heard_at: float
    slot: Slot | None = None
    """What shows it; None before that, and from when its last words are sent."""
    shown: str = ""
    """What that says, but for the time."""
    told_at: float = 0.0
    """When it was changed last."""

    def news(self, now: float) -> str:
        """What it is to say, when that is worth an edit; else nothing."""
        said = self.progress.line()
        since_s = self.progress.since(now)
        time_told = since_s > 0 and now - self.told_at >= max(TELL_TIME_EVERY_S, since_s * TELL_TIME_SHARE)
        return self.progress.line(now) if said and (said != self.shown or time_told) else ""

    def stale(self, now: float) -> bool:
        """Whether nothing more is expected of it."""
        after_s = FORGET_WAITING_AFTER_S if self.progress.children_at_work else FORGET_LINE_AFTER_S
        return now - self.heard_at > (after_s if self.slot is not None else FORGET_AFTER_S)
