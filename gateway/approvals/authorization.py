"""Authorization of presses: the deciders of an approval and the verdict on a press. Used by `Approvals`. Pure.

A person is an owner, with all accounts, or a principal of nobody else. Two accounts of one owner are one person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.domain.approvers import ApproverRules
from gateway.domain.ids import Principal, channel_of
from gateway.domain.messages import Press
from gateway.domain.sessions import Session, SessionKind, works_in
from gateway.domain.waits import ALLOWING, Person, PressResult, PressVerdict, Verb, Wait, WaitState
from gateway.policy.routing import AllowedPeople

Persons = Mapping[Person, frozenset[Principal]]
"""Persons, each with the principals by which they may press."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciders:
    """Persons who decide one approval now, by the present configuration."""

    persons: Persons
    """Those who may allow it."""
    denying: frozenset[Principal]
    """Principals that may deny it, besides the requester."""
    quorum: int = 1
    by_another: bool = False
    """True when the requester may not allow it."""

    @property
    def enough(self) -> bool:
        """Return whether they are as many as must allow it."""
        return len(self.persons) >= self.quorum

    @property
    def allowing(self) -> frozenset[Principal]:
        """Return the principals that may allow it."""
        return frozenset(who for principals in self.persons.values() for who in principals)

    def person_of(self, who: Principal) -> Person | None:
        """Return the person who may allow it by this principal."""
        return next((name for name, principals in self.persons.items() if who in principals), None)


def person_of(who: Principal, people: AllowedPeople) -> Person:
    """Return the person with this principal: the owner's name, else the principal itself."""
    return Person(people.owner_of(who) or who)


def first_asked(session: Session, people: AllowedPeople, rules: ApproverRules, requester: Principal) -> Persons:
    """Return the persons who are asked at once: those of the tool, else of the chat, else the owners.

    By default a main session's owner decides alone there. A tool that needs somebody else as well asks all owners.
    """
    if rules.approvers is not None:
        return _resolved(rules.approvers, people)
    if session.root_kind is not SessionKind.MAIN:
        named = (people.approvers[chat] for chat in _chats_of(session, requester) if chat in people.approvers)
        return _resolved(next(named, tuple(people.owners)), people)
    own = [name for name in people.owners if name == session.owner]
    return _resolved(tuple(people.owners) if own and not rules.one_decides else own, people)


def asked_later(session: Session, people: AllowedPeople, rules: ApproverRules, first: Persons) -> Persons:
    """Return the persons who are asked too when the first do not decide in time. A main session stays its owner's."""
    names: Sequence[str] = rules.escalate_to or ()
    if rules.escalate_to is None and (session.root_kind is not SessionKind.MAIN or rules.approvers is not None):
        names = tuple(people.owners)
    return {name: who for name, who in _resolved(names, people).items() if name not in first}


def deciders(
    session: Session,
    people: AllowedPeople,
    rules: ApproverRules,
    requester: Principal,
    *,
    escalated: bool = False,
) -> Deciders:
    """Return the present deciders, not those at the time of the request. `escalated`: the second list was asked too."""
    persons = dict(first_asked(session, people, rules, requester))
    if escalated:
        persons.update(asked_later(session, people, rules, persons))
    denying = frozenset(who for principals in persons.values() for who in principals)
    if not rules.requester_may_approve:
        persons.pop(person_of(requester, people), None)
    by_another = not rules.requester_may_approve
    return Deciders(persons=persons, denying=denying, quorum=rules.quorum, by_another=by_another)


def _resolved(names: Iterable[str], people: AllowedPeople) -> dict[Person, frozenset[Principal]]:
    """Return the persons of configured names. An owner's name stands for all accounts, a principal for itself."""
    found: dict[Person, frozenset[Principal]] = {}
    owners = {str(name): who for name, who in people.owners.items()}
    for name in names:
        principals = frozenset([Principal(name)]) if ":" in name else owners.get(name, frozenset())
        person = person_of(Principal(name), people) if ":" in name else Person(name)
        if principals:
            found[person] = found.get(person, frozenset()) | principals
    return found


def _chats_of(session: Session, requester: Principal) -> tuple[str, ...]:
    """Return the names that a group's configuration may have: its id, with the requester's workspace and without."""
    kind, _, place = str(works_in(session)).partition(":")
    channel, _, rest = place.partition("/")
    chat = rest.partition("/")[2].partition("/")[0]
    if kind != "chat" or not chat:
        return ()
    team, slash, _ = requester.partition(":")[2].partition("/")
    ours = channel_of(requester) == channel and slash
    return (*([f"{channel}:{team}/{chat}"] if ours else []), f"{channel}:{chat}")


def may_resolve(verb: Verb, who: Principal, requester: Principal, who_decides: Deciders) -> PressVerdict:
    """Return the verdict on a press: deciders decide, the requester may deny."""
    person = who_decides.person_of(who)
    if verb in ALLOWING:
        if person is None:
            return PressVerdict(refusal=PressResult.NOT_ALLOWED)
        if who_decides.quorum == 1:
            return PressVerdict(refusal=None, state=WaitState.APPROVED, by_another=who_decides.by_another)
        return PressVerdict(
            refusal=None,
            state=WaitState.APPROVED,
            quorum=who_decides.quorum,
            by_another=who_decides.by_another,
            person=person,
            among=frozenset(who_decides.persons),
        )
    if who in who_decides.denying or who == requester:
        return PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=verb is Verb.DENY_REASON)
    return PressVerdict(refusal=PressResult.NOT_ALLOWED)


def asks_reason(verdict: PressVerdict, press: Press, wait: Wait, now: datetime) -> bool:
    """Return whether to ask for the reason of a denial: the platform's buttons carry no text, and the wait is open.

    Only the verdict of "Deny with reason" withdraws the siblings.
    """
    without = press.can_ask_reason and not press.reason.strip()
    undecided = wait.state is WaitState.OPEN and wait.expires_at > now
    return verdict.refusal is None and verdict.withdraw_siblings and without and undecided
