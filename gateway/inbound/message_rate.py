"""Message rate of each person: how many messages a minute are read. Used by ingress before anything else.

Owners are not limited. In memory: a restart resets it, and each machine counts what it receives.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from gateway.domain.ids import Principal
from gateway.domain.messages import Inbound
from gateway.policy.routing import AllowedPeople
from gateway.ports import Clock

MINUTE_S = 60.0
PEOPLE_KEPT = 10_000
"""People counted at a time; the sender of the oldest message is forgotten first."""


class MessageRate:
    """Counter of the messages that each principal addressed to the bot within a minute."""

    def __init__(self, per_minute: int, people: AllowedPeople, clock: Clock) -> None:
        """Take the limit; 0 is none."""
        self._most = per_minute
        self._people = people
        self._clock = clock
        self._read: OrderedDict[Principal, deque[tuple[float, str]]] = OrderedDict()
        """Times and keys of the messages read within the last minute, oldest first."""

    def exceeds(self, message: Inbound) -> bool:
        """Count a message. Return True when it is beyond the limit; such a message does not count.

        Edits and overheard messages ask nothing and are free. Pictures of one album are one message, as is an event
        that comes again.
        """
        asks = (message.direct or message.addressed) and not message.edits
        if not self._most or not asks or self._people.owner_of(message.principal) is not None:
            return False
        now, key = self._clock.monotonic(), message.album or message.event_key
        read = self._read.setdefault(message.principal, deque())
        self._read.move_to_end(message.principal)
        while len(self._read) > PEOPLE_KEPT:
            self._read.popitem(last=False)
        while read and now - read[0][0] >= MINUTE_S:
            read.popleft()
        if any(known == key for _, known in read):
            return False
        if len(read) >= self._most:
            return True
        read.append((now, key))
        return False
