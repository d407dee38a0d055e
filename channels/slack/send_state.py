"""The way out, between two tries: what the earlier ones of a slot have left to know. It is lost with the process."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum

from gateway.domain.ids import SlotId

FIRST_S = 2.0
"""So long what may be repeated waits after a silence; after each further one twice as long, up to `LONGEST_S`."""
LONGEST_S = 60.0
PATIENT_FOR_S = 6 * 3600.0
"""Of one slot. An outage is over by then; what breaks Slack each time must not hold up its channel for ever."""
KEPT = 1_000


@dataclass(slots=True)
class Look:
    """How far one part was looked for. Some apps are given few messages at once, and one answer a minute."""

    number: int
    """The part's place in its slot, from 0."""
    cursor: str = ""
    """Where to go on; empty at the beginning."""
    pages: int = 0
    """Pages that were read."""


class Form(IntEnum):
    """How a text is shown; each next form takes less room in messages."""

    WHOLE = 0
    """In messages, unless it takes too many by our own limits."""
    BEGINNING = 1
    """The beginning in a message, all of it in a file."""
    FILE = 2
    """All of it in a file, and a message that says so."""


@dataclass(slots=True)
class SendStates:
    """What is known of one slot from its earlier tries."""

    look: Look | None = None
    """A look for what is in doubt that has not come to its end."""
    form: Form = Form.WHOLE
    """In which the slot's text is shown."""
    _silences: int = 0
    _since_s: float = 0.0

    def silent(self, now_s: float) -> float:
        """Slack said nothing, or failed. Return after how many seconds to try again without counting this as a try;
        0: it was silent for so long that it counts. `now_s`: by a clock that never goes back.
        """
        self._since_s = self._since_s if self._silences else now_s
        self._silences += 1
        if now_s - self._since_s > PATIENT_FOR_S:
            return 0.0
        return min(FIRST_S * 2.0 ** min(self._silences - 1, 10), LONGEST_S)

    def look_for(self, number: int) -> Look:
        """Return the look for a part, to go on with; another part's is forgotten."""
        if self.look is None or self.look.number != number:
            self.look = Look(number)
        return self.look


class Unfinished:
    """The tries of the slots that are not shown yet; those not asked for the longest are forgotten first."""

    def __init__(self) -> None:
        """Know of none."""
        self._kept: OrderedDict[SlotId, SendStates] = OrderedDict()

    def of(self, slot: SlotId) -> SendStates:
        """Return what is known of a slot."""
        tries = self._kept.setdefault(slot, SendStates())
        self._kept.move_to_end(slot)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return tries

    def shown(self, slot: SlotId) -> None:
        """Forget a slot: it is shown."""
        self._kept.pop(slot, None)
