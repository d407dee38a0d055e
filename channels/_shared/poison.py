"""Quarantine of events that crash the gateway. Used by each channel's `updates`: a few attempts, then put aside.

Some platforms hold back later events until one is acknowledged, others stop redelivering it. Either way such an event
must neither block a chat for ever nor be lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.messages import Refused, RefusedReason
from gateway.errors import StoreError
from gateway.ports import Sink

TRIES = 3
"""Attempts before an event is put aside; no platform redelivers fewer times."""
TRIES_KEPT = 1000
"""Events whose attempts are counted, at most."""
POISON_KEPT = 2_048
"""ASCII characters kept of an unusable event: enough to see its fault. Anybody who finds the bot can cause such events,
and each is kept as long as other events."""


@dataclass(slots=True, kw_only=True)
class Poison:
    """Counter of the events that crash the gateway, for one account."""

    channel: str
    account: str
    sink: Sink
    broken: Callable[[], None]
    """Callback for an event that was put aside."""
    _tries: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])

    async def put_aside(self, key: str, raw: str, error: Exception) -> bool:
        """Count a failed event. False: the platform shall redeliver it. True: it is stored as poison."""
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
