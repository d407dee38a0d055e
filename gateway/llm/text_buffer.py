"""Beside a model's answer: a text as it comes, in pieces that may split a character. Pure."""

from __future__ import annotations

from gateway.domain.text import mended


class TextBuffer:
    """One text of an answer. Each piece is mended when it comes, so that the end of a long text costs nothing.

    Whoever adds has looked at how long it is: mending costs much more than that.
    """

    def __init__(self) -> None:
        """Nothing came yet."""
        self._pieces: list[str] = []
        self._half = ""  # the first half of a surrogate pair that was split between two pieces

    def add(self, piece: str) -> str:
        """Take the next piece; return what it adds to the text."""
        if self._half:
            piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        if piece := mended(piece):
            self._pieces.append(piece)
        return piece

    def end(self) -> str:
        """Say that nothing follows; returns text as `add` does."""
        half, self._half = self._half, ""
        if half:
            self._pieces.append("\ufffd")
        return "\ufffd" if half else ""

    def __len__(self) -> int:
        """Return how many pieces there are; 0 when there is no text."""
        return len(self._pieces)

    def since(self, count: int) -> str:
        """Return what came after so many pieces."""
        return "".join(self._pieces[count:])

    def __str__(self) -> str:
        """Return all of it so far."""
        return self.since(0)
