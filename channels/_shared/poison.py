"""On the way in: events that break the gateway itself. They come again a few times, and are then put aside.

Some platforms hold back what follows until an event is taken, others give up telling it: either way it must neither
block a chat for ever nor be lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.messages import Refused, RefusedReason
from gateway.errors import StoreError
from gateway.ports import Sink

TRIES = 3
"""How often an event may break the gateway before it is put aside: no platform tells it more rarely."""
TRIES_KEPT = 1000
POISON_KEPT = 2_048
"""Characters, all of them ASCII, of an event that cannot be used: enough to see what was wrong with it. Anybody who
finds the bot can cause such events, and each is kept for as long as events are."""


@dataclass(slots=True, kw_only=True)
class Poison:
    """What broke the gateway, of one account."""

    channel: str
    account: str
    sink: Sink
    broken: Callable[[], None]
    """Told of an event that was put aside."""
    _tries: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    async def put_aside(self, key: str, raw: str, error: Exception) -> bool:
        """Count an event that breaks us. False: it shall come again. True: it is kept as poison, with what it was."""
        tries = self._tries.pop(key, 0) + 1
        if tries < TRIES:
            self._tries[key] = tries
            while len(self._tries) > TRIES_KEPT:
                self._tries.popitem(last=False)
            return False
        refused = Refused(
            channel=self.channel,
            account=self.account,
            event_key=key,
            reason=RefusedReason.POISON,
            detail=f"the gateway failed {TRIES} times: {type(error).__name__}",
            raw=raw[:POISON_KEPT],
        )
        try:
            await self.sink.refuse(refused)
        except StoreError:
            return False
        self.broken()
        return True
