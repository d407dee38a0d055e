"""Replies of ingress: to a dropped message by its `domain.routes.DropReason`, to one for a turn that waits. Pure.

`policy.routing` finds the reason, and `ingress` that of a sender who is too fast. `Drop.told` says whether the sender
gets a reply: in a direct chat, never in a group. `store.kernel.drops` limits how often. `control_replies` has the
replies to control commands, `domain.waits` (`PRESSED_TEXT`) those to presses, `domain.turns` the texts of stops.
"""

from __future__ import annotations

from gateway.domain.ids import Principal
from gateway.domain.messages import Inbound
from gateway.domain.routes import DropReason
from gateway.domain.text import as_code
from gateway.ports import Waiting

REFUSAL = "I only talk to people that my owner has allowed. Your message was not read."
TOO_FAST = "You write faster than I read. This message and others were not read: send them again in a minute."
UNREADABLE = "I cannot read {unread} yet. Write it as text, please."
WAITING = Waiting(
    decision="Noted. This conversation waits for a decision on the card above. Your message is read after that.",
    answer="Noted. This conversation waits for an answer to the question above. Your message is read after that.",
    children="Noted. This conversation waits for its sub-sessions. Your message is read when they have ended.",
)
"""Replies to a message for a turn that is parked."""


def drop_text(reason: DropReason, message: Inbound) -> str:
    """Return the reply to a message that is dropped for this reason; empty where none is sent."""
    match reason:
        case DropReason.STRANGER:
            return stranger_text(message.principal)
        case DropReason.UNREADABLE:
            # A live location comes as an edit every few seconds; the first message was answered.
            return "" if message.edits else UNREADABLE.format(unread=message.unread)
        case DropReason.TOO_FAST:
            return TOO_FAST
        case DropReason.CHAT_NOT_ALLOWED | DropReason.EMPTY | DropReason.EDITED_LATE | DropReason.CONTEXT:
            return ""


def stranger_text(who: Principal) -> str:
    """Return the refusal of a stranger, with the id that an owner needs to allow them; no app shows that id."""
    return f"{REFUSAL} Your id is {as_code(who)}. The owner can add it to `allow` under `[people]`."
