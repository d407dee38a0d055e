"""State of a slot between send attempts. Used by `adapter` and `showing`; lost with the process."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum

from gateway.domain.ids import SlotId

FIRST_S = 2.0
"""Backoff in seconds after the first unanswered request; doubled with each further one, up to `LONGEST_S`."""
LONGEST_S = 60.0
"""Longest backoff in seconds."""
PATIENT_FOR_S = 6 * 3600.0
"""Seconds of uncounted retries per slot. An outage is over by then; a slot that breaks Slack each time must not block
its channel for ever."""
KEPT = 1_000
"""Slots remembered, at most."""


@dataclass(slots=True)
class Look:
    """Progress of the lookup of one part. Some apps get few messages per answer, and one answer a minute."""

    number: int
    """Index of the part in its slot, from 0."""
    cursor: str = ""
    """Cursor of the next page; empty at the beginning."""
    pages: int = 0
    """Pages read so far."""


class Form(IntEnum):
    """Form of a text; each next form needs less space in messages."""

    WHOLE = 0
    """Text in messages, unless it needs too many by our own limits."""
    BEGINNING = 1
    """The beginning in a message, the whole in a file. On a card: of each row."""
    FILE = 2
    """The whole in a file, with a message that says so."""


@dataclass(slots=True)
class SendStates:
    """State of one slot from its earlier attempts."""

    look: Look | None = None
    """Unfinished lookup of an uncertain message."""
    form: Form = Form.WHOLE
    """Form of the slot's text."""
    _silences: int = 0
    _since_s: float = 0.0

    def silent(self, now_s: float) -> float:
        """Record an unanswered or failed request, and return the backoff in seconds for an uncounted retry; 0 once the
        outage is so long that the attempt counts. `now_s`: monotonic time.
        """
        self._since_s = self._since_s if self._silences else now_s
        self._silences += 1
        if now_s - self._since_s > PATIENT_FOR_S:
            return 0.0
        return min(FIRST_S * 2.0 ** min(self._silences - 1, 10), LONGEST_S)

    def look_for(self, number: int) -> Look:
        """Return the lookup of a part, to continue it; drop another part's."""
        if self.look is None or self.look.number != number:
            self.look = Look(number)
        return self.look


class Unfinished:
    """LRU cache of the send states of slots not yet shown."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: OrderedDict[SlotId, SendStates] = OrderedDict()

    def of(self, slot: SlotId) -> SendStates:
        """Return a slot's state."""
        tries = self._kept.setdefault(slot, SendStates())
        self._kept.move_to_end(slot)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return tries

    def shown(self, slot: SlotId) -> None:
        """Drop a slot that is shown."""
        self._kept.pop(slot, None)
