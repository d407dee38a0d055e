"""Second question of an approval, before a grant is given: its text, its buttons and the verdict on their presses.

Pure; used by `cards`. The press that opens it grants nothing; only a press of one of its places does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from gateway.approvals.action import render
from gateway.domain.approvers import ApproverRules
from gateway.domain.grants import GrantKind, GrantOffer, NewGrant
from gateway.domain.waits import GRANTS, ApprovalRequest, PressVerdict, Verb, Wait, WaitState
from gateway.system.figures import duration

QUOTED_CHARS = 100
"""Characters of what a grant matches that the question repeats; the card shows a longer one above."""
EXAMPLES = 3
"""Examples of what a grant matches, in the question."""

LABELS: Mapping[Verb, str] = MappingProxyType(
    {
        Verb.GRANT_CHAT: "In this chat",
        Verb.GRANT_SESSION: "In this session",
        Verb.GRANT_PERSON: "For this person",
    }
)


def offered(request: ApprovalRequest, rules: ApproverRules) -> GrantOffer | None:
    """Return the grant that an approval offers now. None where one person alone may not allow the call."""
    return request.always if rules.one_decides else None


def verdict_of(verb: Verb, allowed: PressVerdict, lasts: timedelta) -> PressVerdict:
    """Return the verdict on the second question's press. `allowed`: that for one who may allow the call."""
    if verb in GRANTS:
        grant = NewGrant(place=GRANTS[verb], lasts=lasts)
        return PressVerdict(refusal=None, state=WaitState.APPROVED, grant=grant)
    return PressVerdict(refusal=None, question=verb is Verb.ALWAYS) if verb in (Verb.ALWAYS, Verb.BACK) else allowed


def buttons(wait: Wait, offer: GrantOffer | None, once: str) -> list[tuple[Verb, str]]:
    """Return the buttons of an open approval, in order. `once`: the label of the one that allows it without a grant.

    Where "Always" stood, the second question has "Back": a double tap grants nothing.
    """
    if offer is not None and wait.asks_always:
        places = [(verb, LABELS[verb]) for verb, place in GRANTS.items() if place in offer.places]
        return [(Verb.ONCE, "Just once" if once == "Once" else once), (Verb.BACK, "Back"), *places]
    always = [(Verb.ALWAYS, "Always…")] if offer is not None else []
    return [(Verb.ONCE, once), *always, (Verb.DENY, "Deny"), (Verb.DENY_REASON, "Deny with reason")]


def question(wait: Wait, offer: GrantOffer | None, lasts: timedelta) -> str:
    """Return the second question, at most 300 characters, with all that a grant would match; empty while not asked."""
    if offer is None or not wait.asks_always:
        return ""
    shown, time = render(offer.shown), duration(lasts)
    match offer.kind:
        case GrantKind.ACTION:
            what = f"“{shown}”" if len(shown) <= QUOTED_CHARS else "exactly the call above"
            return f"Always allow {what} for {time}? With these arguments, this folder and this sandbox, nothing else."
        case GrantKind.SUBJECTS:
            what = f"“{shown}”" if len(shown) <= QUOTED_CHARS else "what is named above"
            return f"Always allow {what} for {time}, whatever else the call says? {_examples(offer)}"
        case GrantKind.SCOPE:
            what = f"“{shown}”" if len(shown) <= QUOTED_CHARS else "the host above"
            return f"Always allow {what} for {time}? Every page of it that may be opened without a further question."


def _examples(offer: GrantOffer) -> str:
    names = [render(one.partition(":")[2])[:30] for one in offer.matches[:EXAMPLES]]
    return f"Examples: {', '.join(names)}."
