"""The words of a status line: plain text on one line, times, money; and what was heard of one line. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gateway.model.ids import SessionId
from gateway.model.live import Doing
from gateway.model.text import cut, plain
from gateway.model.waits import WaitKind
from gateway.observe import Redactor

LINE_CHARS = 300
TEXT_CHARS = 200
"""Of what one session does."""
TITLE_CHARS = 40
READ_CHARS = 5_000
"""Of a text that is too long; more than a redactor holds back."""
CHILDREN_SHOWN = 6
CHILDREN_KEPT = 100
AT_WORK = "▸"
"""Stands before a line that will change. What stands without it is the line's last word: a summary, or "Ended."."""
THINKING = "thinking"
_FOR_CHILDREN = frozenset({WaitKind.CHILD})
_SYMBOLS = (("USD", "$"), ("EUR", "€"), ("GBP", "£"))


@dataclass(slots=True, kw_only=True)
class Doings:
    """What was heard of one line: what the root does, and each of its children."""

    redactor: Redactor
    ended: bool = False
    """Whether the root's turn was heard to have ended: what its line says then is not said here."""
    _own: str = ""
    _waits: frozenset[WaitKind] = frozenset()
    """What the root waits for, when it does nothing else."""
    _since: float = 0.0
    """When that was heard first, in seconds of the caller's clock."""
    _children: dict[SessionId, tuple[str, str]] = field(default_factory=dict[SessionId, tuple[str, str]])
    """Title and what it does; empty when it has ended. In the order they were heard of."""

    def hear(self, said: Doing, now: float) -> None:
        """Take what the root, or a child, does now."""
        text = redacted_line(said.text, TEXT_CHARS, self.redactor)
        if not said.title:
            self.ended, self._waits = not text, said.waits
            if text != self._own:
                self._own, self._since = text, now
        elif said.by in self._children or len(self._children) < CHILDREN_KEPT:
            self._children[said.by] = (redacted_line(said.title, TITLE_CHARS, self.redactor), text)

    @property
    def children_at_work(self) -> bool:
        """Whether a child was not heard to have ended."""
        return any(text for _, text in self._children.values())

    def since(self, now: float) -> float:
        """Seconds that the root has been at what the line says; 0 when that is only what its children do."""
        return now - self._since if self._shows_own else 0.0

    def line(self, now: float | None = None) -> str:
        """The line, at most 300 characters; with `now`, for how long. Empty when there is nothing to say."""
        if self.ended:
            return ""
        own = at_work(self._own) if self._shows_own else ""
        if own and now is not None and now - self._since >= 1:
            own = f"{own} · {duration(timedelta(seconds=now - self._since))}"
        # Once the root goes on, what its children were is said by what it does with it.
        children = self._of_children() if self._children and (self.children_at_work or not own) else ""
        return cut(" · ".join(filter(None, (own, children))), LINE_CHARS)

    @property
    def _shows_own(self) -> bool:
        """Whether what the root does is more than waiting for those that stand beside it."""
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


def redacted_line(text: str, limit: int, redactor: Redactor) -> str:
    """Make any text one plain line without secrets, of at most `limit` characters."""
    if len(text) > READ_CHARS:
        text = text[:READ_CHARS]
        text = text[: len(text) - redactor.pending(text)]  # no half of a secret that was cut in two
    hidden = redactor.text(text)
    # By spaces, and looked at once more: what is taken out must not join what stood around it to something secret.
    return cut(redactor.text(plain(hidden)), limit)


def money(micros: int, currency: str) -> str:
    """Millionths of a currency for people: `$0.012`, `3.40 CHF`; what is less than a tenth of a cent says so."""
    symbol = dict(_SYMBOLS).get(currency, currency)
    amount = micros / 1_000_000
    less = "<" if 0 < micros < 1_000 else ""
    figure = "0.001" if less else f"{amount:,.2f}" if amount >= 1 else f"{amount:.3f}"
    return f"{less}{figure} {symbol}" if symbol.isalnum() else f"{less}{symbol}{figure}"


def duration(time: timedelta) -> str:
    """A time for people: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    seconds = max(round(time.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def at_work(text: str) -> str:
    """A line that will change."""
    return f"{AT_WORK} {text or THINKING}"


def is_at_work(text: str) -> bool:
    """Whether a stored line is one of `at_work`: what stands without that mark is its last word."""
    return text.startswith(AT_WORK)


def count(number: int, what: str) -> str:
    """`1 call`, `2 calls`, `1,000 calls`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
