"""Cards of approvals: where they are shown, the verdict on a press, and their rows with facts and buttons.

`Approvals` is what tool calls, inbound and delivery use of this package. It reads from the store where approvers can be
reached. Channels lay the rows out (`channels/_shared/card_layout.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType

from gateway.approvals.action import name_of, outcome_line, render, title
from gateway.approvals.audience import SUB_SESSION, Audience, audience
from gateway.approvals.authorization import approvers, approving_owners, may_resolve
from gateway.approvals.button_token import ButtonTokens
from gateway.domain.ids import Handle, OwnerName, Principal
from gateway.domain.sessions import Session
from gateway.domain.slots import ANSWER_BY, Button, CardRow
from gateway.domain.tools import SandboxMode
from gateway.domain.turns import Turn
from gateway.domain.waits import ApprovalRequest, PressResult, PressVerdict, Verb, Wait, WaitState
from gateway.policy.routing import AllowedPeople
from gateway.ports import Accounts

_SANDBOXES: Mapping[SandboxMode | None, str] = MappingProxyType(
    {None: "none needed", SandboxMode.OFF: "none: it runs on the host", SandboxMode.BASIC: "basic"}
)


class Approvals:
    """Facade over this package: the audience of a request, the verdict on a press, the rows of a card."""

    def __init__(self, people: AllowedPeople, accounts: Accounts, handles: ButtonTokens) -> None:
        """Take the configured people, the store's record of their last contacts, and the maker of button tokens."""
        self._people = people
        self._accounts = accounts
        self._handles = handles

    def is_owner(self, name: OwnerName) -> bool:
        """Return whether the current configuration names this owner."""
        return name in self._people.owners

    async def audience(self, session: Session, turn: Turn, now: datetime) -> Audience:
        """Return where to ask about calls of this turn."""
        owners = approving_owners(session, self._people)
        places = [await self._accounts.last_contact(name, sorted(self._people.owners[name])) for name in owners]
        return audience(session, turn, places, now)

    def verdict(
        self, handle: Handle, wait: Wait, cards: Iterable[str], who: Principal, session: Session
    ) -> PressVerdict:
        """Return what this press may do to this wait; `cards` are those of the conversation it came from."""
        verb = self._handles.verb(handle, wait.id, cards)
        if verb is None or wait.approval is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        return may_resolve(verb, who, wait.approval.requester, approvers(session, self._people))

    def denial(self, wait: Wait, who: Principal, session: Session) -> PressVerdict:
        """Return what a reason given later may do: deny, if this person may still do that now."""
        if wait.approval is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        return may_resolve(Verb.DENY_REASON, who, wait.approval.requester, approvers(session, self._people))

    def row(self, wait: Wait, card: str) -> CardRow:
        """Return one row of a card, with buttons while the approval is open. Raises `ValueError` for another wait."""
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
