"""Approvals: what is asked (`asked`), what a button carries (`handles`), who may decide (`who`), where (`where`).

`Approvals` reads where approvers can be reached; all else is pure. The decision is one transition of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType

from gateway.approvals.action import (
    action_key,
    action_sha,
    name_of,
    needs_escape,
    outcome_line,
    render,
    render_action,
    title,
)
from gateway.approvals.audience import SUB_SESSION, Audience, audience, card_slots, is_shown_by, payload
from gateway.approvals.authorization import approvers, approving_owners, asks_reason, may_resolve
from gateway.approvals.button_token import ButtonTokens, cards_at, page_card, wait_of
from gateway.domain.ids import Handle, OwnerName, Principal
from gateway.domain.sessions import Session
from gateway.domain.slots import ANSWER_BY, Button, CardRow
from gateway.domain.tools import SandboxMode
from gateway.domain.turns import Turn
from gateway.domain.waits import ApprovalRequest, PressResult, PressVerdict, Verb, Wait, WaitState
from gateway.policy.routing import AllowedPeople
from gateway.ports import Accounts

__all__ = [
    "Approvals",
    "Audience",
    "ButtonTokens",
    "action_key",
    "action_sha",
    "approvers",
    "asks_reason",
    "card_slots",
    "cards_at",
    "is_shown_by",
    "name_of",
    "needs_escape",
    "page_card",
    "payload",
    "render",
    "render_action",
    "title",
    "wait_of",
]

_SANDBOXES: Mapping[SandboxMode | None, str] = MappingProxyType(
    {None: "none needed", SandboxMode.OFF: "none: it runs on the host", SandboxMode.BASIC: "basic"}
)


class Approvals:
    """What the engine needs of all this: where to ask, what a press means, what a card shows."""

    def __init__(self, people: AllowedPeople, accounts: Accounts, handles: ButtonTokens) -> None:
        """Take the configured people, and the store's knowledge of where they are."""
        self._people = people
        self._accounts = accounts
        self._handles = handles

    def is_owner(self, name: OwnerName) -> bool:
        """Whether the configuration names this owner now."""
        return name in self._people.owners

    async def audience(self, session: Session, turn: Turn, now: datetime) -> Audience:
        """Where to ask about calls of this turn."""
        owners = approving_owners(session, self._people)
        places = [await self._accounts.whereabouts(name, sorted(self._people.owners[name])) for name in owners]
        return audience(session, turn, places, now)

    def verdict(
        self, handle: Handle, wait: Wait, cards: Iterable[str], who: Principal, session: Session
    ) -> PressVerdict:
        """What this press may do to this wait, from the cards of the conversation where it was pressed."""
        verb = self._handles.verb(handle, wait.id, cards)
        if verb is None or wait.approval is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        return may_resolve(verb, who, wait.approval.requester, approvers(session, self._people))

    def denial(self, wait: Wait, who: Principal, session: Session) -> PressVerdict:
        """What a reason that is given later may do: deny, when this person may do that now as well."""
        if wait.approval is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        return may_resolve(Verb.DENY_REASON, who, wait.approval.requester, approvers(session, self._people))

    def row(self, wait: Wait, card: str) -> CardRow:
        """One row of a card, with its buttons while the approval is open."""
        request = wait.approval
        if request is None:
            raise ValueError(f"{wait.id} is not an approval")
        allow = "Allow" if request.scope else "Once"
        buttons = [(allow, Verb.ONCE), ("Deny", Verb.DENY), ("Deny with reason", Verb.DENY_REASON)]
        return CardRow(
            wait=wait,
            title=title(request),
            facts=self._facts(wait, request),
            buttons=tuple(
                Button(verb=verb, label=label, handle=self._handles.make(wait.id, card, verb))
                for label, verb in buttons
                if wait.state is WaitState.OPEN
            ),
            outcome=outcome_line(wait, self._people),
        )

    def _facts(self, wait: Wait, request: ApprovalRequest) -> tuple[tuple[str, str], ...]:
        facts = [
            ("Risk", request.risk.value),
            ("Covers", f"{render(request.scope)}, until /new" if request.scope else ""),
            ("Folder", render(request.action.cwd)),
            ("Sandbox", _SANDBOXES[request.action.sandbox]),
            ("Asked by", render(name_of(request.requester, self._people))),
            ("Sub-session", render(str(wait.payload.get(SUB_SESSION, "")))),
            ("Session", render(wait.session)),
            (ANSWER_BY, f"{wait.expires_at:%Y-%m-%d %H:%M} UTC"),
            ("Check", request.action_sha[:8]),
        ]
        return tuple(fact for fact in facts if fact[1])
