"""Cards of approvals: where they are shown, the verdict on a press, and their rows with facts and buttons.

`Approvals` is what tool calls, inbound and delivery use of this package. It reads from the store where approvers can be
reached. Channels lay the rows out (`channels/_shared/card_layout.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from gateway.approvals import always, questions
from gateway.approvals.action import name_of, outcome_line, render, subject, title
from gateway.approvals.audience import NOBODY, SUB_SESSION, Audience, Contact, audience
from gateway.approvals.authorization import Deciders, asked_later, deciders, first_asked, may_resolve
from gateway.approvals.button_token import ButtonTokens
from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.grants import GRANT_LASTS, GrantOffer
from gateway.domain.ids import Handle, OwnerName, Person, Principal, web_principal
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.slots import ANSWER_BY, VOTES, Button, CardRow, QuestionCard
from gateway.domain.tools import Action, NetworkMode, SandboxMode
from gateway.domain.turns import Turn
from gateway.domain.waits import (
    ALLOWING,
    ESCALATED,
    ApprovalRequest,
    PressResult,
    PressVerdict,
    Verb,
    Vote,
    Wait,
    WaitKind,
    WaitState,
)
from gateway.policy.routing import AllowedPeople, may_see
from gateway.ports import Accounts

_SANDBOXES: Mapping[SandboxMode | None, str] = MappingProxyType(
    {
        None: "none needed",
        SandboxMode.OFF: "none: it runs on the host",
        SandboxMode.BASIC: "basic",
        SandboxMode.FULL: "full: secret files are hidden",
    }
)
_NETWORKS: Mapping[NetworkMode | None, str] = MappingProxyType(
    {
        None: "",
        NetworkMode.NONE: "none",
        NetworkMode.PUBLIC: "public hosts only",
        NetworkMode.HOST: "the host's, with private networks",
    }
)


RulesOf = Callable[[str], ApproverRules]


def owners_decide(_tool: str) -> ApproverRules:
    """Return the rules where none are configured."""
    return OWNERS_DECIDE


class Approvals:
    """Facade over this package: the audience of a request, the verdict on a press, the rows of a card."""

    def __init__(
        self,
        people: AllowedPeople,
        accounts: Accounts,
        tokens: ButtonTokens,
        rules_of: RulesOf = owners_decide,
        grant_lasts: timedelta = GRANT_LASTS,
    ) -> None:
        """Take the configured people, the store's record of their last contacts, and the maker of button tokens.

        `rules_of`: the present approver rules of a tool. `grant_lasts`: lifetime of a grant that is given now.
        """
        self._people = people
        self._accounts = accounts
        self._tokens = tokens
        self._rules_of = rules_of
        self._grant_lasts = grant_lasts

    def is_owner(self, name: OwnerName) -> bool:
        """Return whether the current configuration names this owner."""
        return name in self._people.owners

    async def audience(self, session: Session, turn: Turn, tool: str, now: datetime) -> Audience:
        """Return the audience for calls of this tool in this turn; nowhere when too few could allow them."""
        rules, who = self._rules_of(tool), turn.principal
        found = deciders(session, self._people, rules, who)
        if not found.enough:
            return NOBODY
        contacts = [await self._contact(name, found.persons[name], session, who) for name in found.persons]
        later = asked_later(session, self._people, rules, first_asked(session, self._people, rules, who))
        owners = all(name in self._people.owners for name in found.persons)
        place = audience(session, turn, contacts, now, found.quorum)
        return replace(
            place,
            asked="An owner" if owners else "An approver",
            later=tuple(tuple(sorted(principals)) for principals in later.values()),
        )

    async def _contact(
        self, name: Person, principals: frozenset[Principal], session: Session, requester: Principal
    ) -> Contact:
        """Return the contact of an approver."""
        owner, whole = OwnerName(name), self._people.owners.get(OwnerName(name))
        main = session.root_kind is SessionKind.MAIN and session.owner == name
        return Contact(
            seen=await self._accounts.last_contact(owner, sorted(principals)),
            here=main and (principals == whole or requester in principals),
            sees_page=web_principal(owner) in principals and may_see(owner, session.owner, session.root_kind),
        )

    def _deciders(self, wait: Wait, request: ApprovalRequest, session: Session) -> Deciders:
        """Return the present deciders of an approval."""
        escalated = wait.payload.get(ESCALATED) is True
        rules = self._rules_of(request.action.tool)
        return deciders(session, self._people, rules, request.requester, escalated=escalated)

    def approvers_later(self, wait: Wait, session: Session) -> frozenset[Principal]:
        """Return the principals that may decide an open approval once the further approvers were asked too. Pure."""
        request = wait.approval
        if request is None:
            return frozenset()
        rules = self._rules_of(request.action.tool)
        return deciders(session, self._people, rules, request.requester, escalated=True).allowing

    def verdict(
        self, handle: Handle, wait: Wait, cards: Iterable[str], who: Principal, session: Session, text: str = ""
    ) -> PressVerdict:
        """Return the verdict on this press for this wait; `cards` are those of the conversation it came from.

        `text`: what the person wrote with it.
        """
        if wait.kind is WaitKind.QUESTION:
            pick = questions.picked(handle, wait, cards, text, self._tokens)
            return questions.verdict_of(wait, pick, who, session, self._people)
        verb = self._tokens.verb(handle, wait.id, cards)
        request = wait.approval
        if verb is None or request is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        verdict = may_resolve(verb, who, request.requester, self._deciders(wait, request, session))
        if verb not in ALLOWING or verb is Verb.ONCE or verdict.refusal is not None:
            return verdict
        if self._offer(request) is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        return always.verdict_of(verb, verdict, self._grant_lasts)

    def _offer(self, request: ApprovalRequest) -> GrantOffer | None:
        return always.offered(request, self._rules_of(request.action.tool))

    def denial(self, wait: Wait, who: Principal, session: Session) -> PressVerdict:
        """Return the verdict on a later reason: deny, if this person may still do that now."""
        if wait.approval is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        who_decides = self._deciders(wait, wait.approval, session)
        return may_resolve(Verb.DENY_REASON, who, wait.approval.requester, who_decides)

    def question(self, wait: Wait, card: str) -> QuestionCard:
        """Return a card of questions, with buttons while they can be answered."""
        return questions.question_card(wait, card, self._people, self._tokens)

    def row(self, wait: Wait, card: str) -> CardRow:
        """Return one row of a card, with buttons while the approval is open. Raises `ValueError` for another wait."""
        request = wait.approval
        if request is None:
            raise ValueError(f"{wait.id} is not an approval")
        offer = self._offer(request)
        buttons = always.buttons(wait, offer, "Allow" if request.scope else "Once")
        return CardRow(
            wait=wait,
            title=title(request),
            subject=subject(request),
            facts=self._facts(wait, request),
            buttons=tuple(
                Button(verb=verb, label=label, handle=self._tokens.make(wait.id, card, verb))
                for verb, label in buttons
                if wait.state is WaitState.OPEN
            ),
            outcome=outcome_line(wait, self._people),
            question=always.question(wait, offer, self._grant_lasts),
        )

    def _facts(self, wait: Wait, request: ApprovalRequest) -> tuple[tuple[str, str], ...]:
        facts = [
            ("Risk", request.risk.value),
            ("Covers", f"{render(request.scope)}, until /new" if request.scope else ""),
            ("Node", render(request.node)),
            ("Folder", render(request.action.cwd)),
            ("Sandbox", _sandbox(request.action)),
            ("Network", _NETWORKS[request.action.network]),
            ("Asked by", render(name_of(request.requester, self._people))),
            ("Sub-session", _cut_title(str(wait.payload.get(SUB_SESSION, "")))),
            ("Session", render(wait.session)),
            (VOTES, self._votes(wait, request)),
            (ANSWER_BY, f"{wait.expires_at:%Y-%m-%d %H:%M} UTC"),
            ("Check", request.action_sha[:8]),
        ]
        return tuple(fact for fact in facts if fact[1])

    def _votes(self, wait: Wait, request: ApprovalRequest) -> str:
        """Return how many of the persons who must allow an open approval did; empty when one is enough."""
        quorum = self._rules_of(request.action.tool).quorum
        if quorum == 1 or wait.state is not WaitState.OPEN:
            return ""
        names = ", ".join(render(vote.person) for vote in Vote.of(wait))
        return f"{len(Vote.of(wait))} of {quorum}{f': {names}' if names else ''}"


def _cut_title(title: str) -> str:
    """Render a title; the mark of one that was cut stays, which stands for nothing else."""
    whole = title.removesuffix("…")
    return f"{render(whole)}{title[len(whole) :]}"


def _sandbox(action: Action) -> str:
    return f"{_SANDBOXES[action.sandbox]}{'; it cannot write here' if action.read_only else ''}"
