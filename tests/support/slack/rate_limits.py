"""Rate limits of the fake Slack: https://docs.slack.dev/apis/web-api/rate-limits. Off unless asked."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tests.support.slack.faults import Call, Fault, too_many
from tests.support.slack.wire import METHODS

POSTING = frozenset({"chat.postMessage", "chat.postEphemeral"})
"""Methods under the limit "one message a second and channel"."""
_MINUTE_S = 60.0


@dataclass(slots=True)
class Pace:
    """The limits, and who went over them."""

    tiers: float = 0.0
    """Factor on the documented calls a minute, method and workspace; 0: no such limit."""
    posts_per_s: float = 0.0
    """A channel; the documented number is 1. 0: no such limit."""
    burst: int = 3
    """So many posts of a channel may come at once."""
    over: list[Call] = field(default_factory=list[Call])
    """The calls that were too many."""
    _past: dict[tuple[str, str], deque[float]] = field(default_factory=dict[tuple[str, str], "deque[float]"])

    def refused(self, call: Call) -> Fault | None:
        """Return the refusal of a call beyond the limit. A refused call does not count for the next."""
        windows: list[tuple[deque[float], int, float]] = []
        if self.tiers:
            allowed = max(1, int(METHODS[call.method].per_minute * self.tiers))
            windows.append((self._window(call.team, call.method), allowed, _MINUTE_S))
        if self.posts_per_s and call.method in POSTING:
            windows.append((self._window(call.team, call.channel), self.burst, self.burst / self.posts_per_s))
        waits = [_wait(window, allowed, within_s, call.at_s) for window, allowed, within_s in windows]
        if any(waits):
            self.over.append(call)
            return too_many(math.ceil(max(waits)))
        for window, _, _ in windows:
            window.append(call.at_s)
        return None

    def _window(self, team: str, what: str) -> deque[float]:
        return self._past.setdefault((team, what), deque())


def _wait(window: deque[float], allowed: int, within_s: float, now_s: float) -> float:
    while window and window[0] <= now_s - within_s:
        window.popleft()
    return 0.0 if len(window) < allowed else window[-allowed] + within_s - now_s
