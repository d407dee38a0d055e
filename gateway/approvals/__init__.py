"""Approvals: what is asked (`action`), who decides (`authorization`), where it is asked (`audience`), and the cards.

`cards` has `Approvals` and the rows with their facts; `button_token`, what a button carries. Used by tool calls,
inbound and delivery. The decision itself is one transition of the store.

A card expires after `[sessions] approval_expiry_main` or `approval_expiry_other`, a given approval after
`DECISION_GOOD_FOR_S`. The defaults and that constant are in `gateway/domain/waits.py`.
"""

from __future__ import annotations

from gateway.approvals.action import (
    action_key,
    action_sha,
    name_of,
    needs_escape,
    part_lines,
    render,
    render_action,
    title,
)
from gateway.approvals.audience import Audience, asking_place, card_slots, is_shown_by, payload
from gateway.approvals.authorization import asks_reason, deciders
from gateway.approvals.button_token import ButtonTokens, cards_at, page_card, wait_of
from gateway.approvals.cards import Approvals

__all__ = [
    "Approvals",
    "Audience",
    "ButtonTokens",
    "action_key",
    "action_sha",
    "asking_place",
    "asks_reason",
    "card_slots",
    "cards_at",
    "deciders",
    "is_shown_by",
    "name_of",
    "needs_escape",
    "page_card",
    "part_lines",
    "payload",
    "render",
    "render_action",
    "title",
    "wait_of",
]
