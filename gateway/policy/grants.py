"""Rules of grants: which calls may be offered one, where it holds, and what it matches. Pure.

Used by the call decider before a call is asked about, and by the store in the transition that starts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from gateway.domain.grants import CallPlace, Grant, GrantKind, GrantOffer, GrantPlace
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import CallScope, Risk, SubjectKind
from gateway.policy.shell import parse, rule_for_always

OFFERED_CHARS = 1_000
"""Characters of an action as shown, at most: what is granted for long must be read at a glance."""
_MAY: Mapping[Risk, str] = MappingProxyType(
    {
        Risk.NONE: "touch",
        Risk.READ: "read",
        Risk.WRITE: "change",
        Risk.EXECUTE: "run programs on",
        Risk.NETWORK: "use the network for",
    }
)


def is_grantable_command(command: str) -> bool:
    """Return whether a command may be granted: one whose every part is known, and runs no program of the workspace."""
    return rule_for_always(parse(command)) is not None


def of_history(grants: Iterable[Grant], session: Session) -> list[Grant]:
    """Return the grants that were given in the present history of a session."""
    return [
        one
        for one in grants
        if (one.session, one.epoch) == (session.id, session.epoch) and one.root_kind is session.root_kind
    ]


def places_for(session: Session) -> tuple[GrantPlace, ...]:
    """Return the possible places of a grant given in this session, in the order of the buttons.

    A sub-session ends with its task: nothing is granted for it alone. In main the person is the owner in every chat.
    """
    own = () if session.lineage else (GrantPlace.SESSION,)
    others = () if session.root_kind is SessionKind.MAIN else (GrantPlace.PERSON,)
    return (GrantPlace.CHAT, *own, *others)


def offer(
    tool: str,
    action_key: str,
    call_scope: CallScope,
    session: Session,
    rendered: str,
    *,
    in_order: bool = False,
    prepared: bool = False,
) -> GrantOffer | None:
    """Return the offer of an "Always" on this call; None: it is not offered.

    `rendered`: the action as its card shows it. `in_order`: the call depends on calls before it, such as an open page;
    only a scope can be granted. `prepared`: it depends on files that it has read; only its subjects can be granted.
    """
    if not rendered.strip() or len(rendered) > OFFERED_CHARS:
        return None
    places, subjects = places_for(session), call_scope.subjects
    if call_scope.scope:
        text = f"{tool} with {call_scope.scope}"
        return GrantOffer(kind=GrantKind.SCOPE, matches=(call_scope.scope,), places=places, shown=text)
    kinds = {subject.partition(":")[0] for subject in subjects}
    if in_order or not all(is_grantable_command(one) for one in _texts(subjects, SubjectKind.COMMAND)):
        return None
    if kinds and kinds <= {SubjectKind.PATH, SubjectKind.HOST}:
        if not _receivers(call_scope) <= {*subjects}:
            return None
        text = f"{tool} that may {_MAY[call_scope.risk]} {', '.join(one.partition(':')[2] for one in subjects)}"
        return GrantOffer(kind=GrantKind.SUBJECTS, matches=subjects, places=places, shown=text)
    if prepared:
        return None
    text = f"{tool} {' '.join(rendered.split())}"
    return GrantOffer(kind=GrantKind.ACTION, matches=(action_key,), places=places, shown=text)


def _texts(subjects: Iterable[str], kind: SubjectKind) -> list[str]:
    return [text for one, _, text in (subject.partition(":") for subject in subjects) if one == kind]


def _receivers(call_scope: CallScope) -> set[str]:
    """Return the hosts that may receive data, as subjects."""
    return {f"{SubjectKind.HOST}:{host}" for host in call_scope.sends}


def is_live(grant: Grant, now: datetime) -> bool:
    """Return whether a grant was neither revoked nor has expired."""
    return grant.revoked_at is None and not grant.expired and grant.expires_at > now


def holds(grant: Grant, here: CallPlace, now: datetime) -> bool:
    """Return whether a grant is live and holds for calls of this place."""
    if not is_live(grant, now):
        return False
    match grant.place:
        case GrantPlace.SESSION:
            return (grant.session, grant.epoch) in here.histories
        case GrantPlace.CHAT:
            return (grant.conversation, grant.root_kind) == (here.conversation, here.root_kind)
        case GrantPlace.PERSON:
            return (grant.principal, grant.root_kind) == (here.principal, here.root_kind)


def covers(grant: Grant, tool: str, action_key: str, call_scope: CallScope) -> bool:
    """Return whether a grant matches a call, wherever it holds."""
    if grant.tool != tool:
        return False
    match grant.kind:
        case GrantKind.ACTION:
            return grant.matches == (action_key,)
        case GrantKind.SUBJECTS:
            touched = {*call_scope.subjects, *_receivers(call_scope)}
            return bool(call_scope.subjects) and grant.risk is call_scope.risk and touched <= {*grant.matches}
        case GrantKind.SCOPE:
            return bool(call_scope.scope) and grant.matches == (call_scope.scope,)


def covering(grants: Iterable[Grant], tool: str, action_key: str, call_scope: CallScope) -> Grant | None:
    """Return the grant that allows a call, or None. `grants`: those that hold here."""
    return next((grant for grant in grants if covers(grant, tool, action_key, call_scope)), None)


def scopes_of(grants: Sequence[Grant], tool: str) -> frozenset[str]:
    """Return the scopes that grants allow a tool."""
    found = (grant.matches for grant in grants if grant.tool == tool and grant.kind is GrantKind.SCOPE)
    return frozenset(scope for matches in found for scope in matches)
