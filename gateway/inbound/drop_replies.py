"""Replies to dropped messages: the text that the sender gets, by `domain.routes.DropReason`. Used by ingress. Pure.

`policy.routing` finds the reason, and `ingress` that of a sender who is too fast. `Drop.told` says whether the sender
gets a reply: in a direct chat, never in a group. `store.kernel.drops` limits how often.
"""

from __future__ import annotations

from gateway.domain.ids import Principal
from gateway.domain.messages import Inbound
from gateway.domain.routes import DropReason
from gateway.domain.text import as_code

REFUSAL = "I only talk to people that my owner has allowed. Your message was not read."
TOO_FAST = "You write faster than I read. This message and others were not read: send them again in a minute."
UNREADABLE = "I cannot read {unread} yet. Write it as text, please."


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
