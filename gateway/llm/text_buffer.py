"""Buffer of a streamed text whose pieces may split a character. Used by the parsers of answers. Pure."""

from __future__ import annotations

from gateway.domain.text import mended


class TextBuffer:
    """Buffer of one text. Each piece is repaired on arrival, so that the end of a long text costs nothing.

    Check the length of a piece before adding it: the repair costs much more than the check.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._pieces: list[str] = []
        self._half = ""  # the first half of a surrogate pair that was split between two pieces

    def add(self, piece: str) -> str:
        """Add the next piece; return the repaired text that it adds."""
        if self._half:
            piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        if piece := mended(piece):
            self._pieces.append(piece)
        return piece

    def end(self) -> str:
        """Mark the end of the text; return text as `add` does."""
        half, self._half = self._half, ""
        if half:
            self._pieces.append("\ufffd")
        return "\ufffd" if half else ""

    def __len__(self) -> int:
        """Return the number of pieces; 0 without text."""
        return len(self._pieces)

    def since(self, count: int) -> str:
        """Return the text after the first `count` pieces."""
        return "".join(self._pieces[count:])

    def __str__(self) -> str:
        """Return the whole text so far."""
        return self.since(0)
