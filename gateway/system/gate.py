"""Gate in front of one kind of work. A node that is drained, or lacks the role, keeps it closed."""

from __future__ import annotations

import asyncio


class Gate:
    """Switch that work loops check before they take something new."""

    def __init__(self, *, is_open: bool = True) -> None:
        """Begin open or closed."""
        self._opened = asyncio.Event()
        self.set(is_open)

    @property
    def is_open(self) -> bool:
        """Return whether new work may be taken."""
        return self._opened.is_set()

    def set(self, is_open: bool) -> None:
        """Open or close it. What is under way goes on."""
        if is_open:
            self._opened.set()
        else:
            self._opened.clear()

    async def wait(self, timeout_s: float) -> None:
        """Wait until it is open, at most so many seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
        except TimeoutError:
            return
