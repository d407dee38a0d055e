"""What the way in hands to the store beside a message: what a control command does, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.ids import Principal
from gateway.domain.waits import WaitKind


class ControlEffect(StrEnum):
    """What a control command changes."""

    NONE = "none"
    STOP = "stop"
    """Stop what is under way in the session; queued messages stay."""
    RESET = "reset"
    """STOP, and a new history; queued messages move into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control command's effect and the reply that is stored with it."""

    effect: ControlEffect
    only: Principal | None
    """Stop only turns of this person; None: all of the session's."""
    reply: str
    """The reply, when something was stopped or nothing had to be."""
    idle: str
    """The reply when there was nothing to stop."""
    stopped_text: str
    """What a turn that is stopped here says in its own conversation, where the reply does not stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What somebody is told whose message comes while the session's model turn is parked. Empty: nothing."""

    decision: str
    """It waits for a decision."""
    children: str
    """It waits for nothing but sub-sessions."""

    def text(self, open_waits: Collection[WaitKind]) -> str:
        """Choose by the kinds of the waits that are open. Where a card is open, that comes first."""
        only_children = bool(open_waits) and all(kind is WaitKind.CHILD for kind in open_waits)
        return self.children if only_children else self.decision
