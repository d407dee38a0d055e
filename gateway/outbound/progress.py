"""Beside a running turn: what was heard of its one line, of what the root does and each of its children."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gateway.domain.ids import SessionId
from gateway.domain.live import ProgressChanged
from gateway.domain.text import cut
from gateway.domain.waits import WaitKind
from gateway.system.redaction import Redactor, redacted_line
from gateway.system.status_text import LINE_CHARS, TEXT_CHARS, TITLE_CHARS, at_work, count, duration

CHILDREN_SHOWN = 6
CHILDREN_KEPT = 100
_FOR_CHILDREN = frozenset({WaitKind.CHILD})


@dataclass(slots=True, kw_only=True)
class ProgressLine:
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

    def hear(self, said: ProgressChanged, now: float) -> None:
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
