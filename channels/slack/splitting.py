"""Division of a long text into messages: lines are collected into pieces, and code blocks are closed and reopened.

Used by `markup`; `limits` has the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.text import visible

FAR_ENOUGH = 0.5
"""Share of a message that must be full before a better cut is preferred to a fuller message."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Code block: its lines and its fences."""

    begin: int
    end: int
    """Line after the block."""
    closed: bool
    """True if its last line is a fence; the end of a text or list also closes a block."""
    opens: str
    closes: str


class Cutter:
    """Collector of lines into pieces."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._piece: list[str] = []
        self._size = 0
        self._best = 0
        """Lines of the piece up to its last blank line outside code."""

    def take(self, line: str, fence: Fence | None, spare: int) -> Iterator[str]:
        """Add a line inside `fence`, leave `spare` characters after it, and yield full pieces."""
        while self._size + len(line) + 1 + spare > self._room:
            if self._piece and not self._just_opened(fence):
                yield from self._cut(fence)
                continue
            closing = len(fence.closes) + 1 if fence else 0  # also if the cut line itself closes the block
            at = self._within(line, self._room - self._size - 1 - max(spare, closing))
            self._add(line[:at])
            line = line[at:]
            yield from self._cut(fence)
        self._add(line)
        if fence is None and not line.strip():
            self._best = len(self._piece)

    def rest(self) -> Iterator[str]:
        """Yield the last piece."""
        if visible("".join(self._piece)):
            yield "\n".join(self._piece)

    def _add(self, line: str) -> None:
        self._piece.append(line)
        self._size += len(line) + 1

    def _just_opened(self, fence: Fence | None) -> bool:
        return fence is not None and self._piece == [fence.opens]

    def _cut(self, fence: Fence | None) -> Iterator[str]:
        """Yield the piece, cut at its best line; the lines after it begin the next piece."""
        kept: list[str] = []
        at = self._best
        if sum(map(len, self._piece[:at])) >= self._room * FAR_ENOUGH:
            kept, self._piece = self._piece[at:], self._piece[:at]
        elif fence is not None and len(self._piece) > 1 and self._piece[-1] == fence.opens:
            kept = [self._piece.pop()]
        elif fence is not None:
            self._piece.append(fence.closes)
            kept = [fence.opens]
        if visible("".join(self._piece)):
            yield "\n".join(self._piece)
        self._piece, self._best = kept, 0
        self._size = sum(len(line) + 1 for line in kept)

    @staticmethod
    def _within(line: str, room: int) -> int:
        """Return the cut of an overlong line: after a word, if one ends near enough."""
        room = max(room, 1)
        blank = line.rfind(" ", int(room * FAR_ENOUGH), room)
        return blank + 1 if blank > 0 else room
