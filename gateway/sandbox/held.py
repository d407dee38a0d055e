"""A tree of processes that lives on its own until somebody closes it, for `gateway.sandbox.session`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.ports import Output
from gateway.sandbox.plan import Containment, Holder, ProcessLimits
from gateway.sandbox.tree import Tree


class HeldTree(Tree):
    """A `Tree` whose end is told when it comes.

    How many processes it has is not watched: that would wake the daemon ten times a second for days.
    """

    def __init__(self, holder: Holder, output: Output, limits: ProcessLimits, containment: Containment) -> None:
        super().__init__(holder, output, limits, containment, watched=False)

    def when_ended(self, tell: Callable[[int], None]) -> None:
        """When the program ended kill the rest, and call `tell` with its exit code (128 + signal for a signal)."""
        leader = self._fds["leader"]
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(leader)
            code = self._leader.wait()
            self._kill()
            for _ in range(64):
                if not self._read():
                    break
            tell(code if code >= 0 else 128 - code)

        loop.add_reader(leader, ended)

    def kill(self) -> None:
        """Kill all of it, or keep it from beginning. Does not wait; twice is safe."""
        self._kill()

    async def close(self) -> None:
        """Return when nothing of the tree is left. Call once."""
        asyncio.get_running_loop().remove_reader(self._fds["leader"])
        await super().close()
