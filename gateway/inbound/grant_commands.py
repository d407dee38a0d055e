"""Reply and effect of /grants: the grants that a person may see, and their revocation. Used by `control_replies`.

A grant is named by its id or the beginning of it. Only owners revoke; text never grants anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gateway.domain.grants import Grant, GrantPlace
from gateway.domain.ids import OwnerName, Principal, SessionId
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.text import as_code, one_line
from gateway.inbound.session_limits import answer
from gateway.policy.routing import may_see
from gateway.ports import Control, Grants, Queries
from gateway.system.figures import count

REVOKE = "revoke"
SHOWN = 50
"""Grants that one reply lists."""
ID_AT_LEAST = 4
"""Characters of an id that are enough, where no other grant begins with them."""
NameOf = Callable[[Principal], str]


async def seen_by(grants: Grants, queries: Queries, owner: OwnerName | None, here: Session) -> list[Grant]:
    """Return the live grants that a person may see: in an owner's main all that are not another owner's."""
    live = await grants.live_grants()
    if owner is None or here.kind is not SessionKind.MAIN:
        return [one for one in live if one.session == here.id]
    found = [await queries.session(session) for session in dict.fromkeys(one.session for one in live)]
    sessions: Mapping[SessionId, Session] = {one.id: one for one in found if one is not None}
    return [one for one in live if _is_visible(sessions.get(one.session), owner)]


def _is_visible(session: Session | None, owner: OwnerName) -> bool:
    return session is not None and may_see(owner, session.owner, session.root_kind)


def grants_command(rest: str, seen: Sequence[Grant], name_of: NameOf, *, owner: bool) -> Control:
    """Return the effect and reply of /grants. `rest`: the text after it; `owner`: an owner wrote."""
    word, _, named = rest.strip().partition(" ")
    if word.lower() != REVOKE:
        return answer(_list(seen, name_of))
    if not owner:
        return answer("Only an owner can take a grant back.")
    wanted = named.strip()
    found = matching(seen, wanted)
    if not wanted or not found:
        asked = as_code(wanted[:40]) if wanted else "without an id"
        return answer(f"There is no grant {asked} here. `/grants` lists them.")
    if len(found) > 1:
        return answer(f"{count(len(found), 'grant')} begin with {as_code(wanted)}. Write more of the id.")
    (grant,) = found
    said = f"Taken back: {as_code(one_line(grant.shown, 200))}. It asks again from the next call on."
    return replace(answer(said), revoke=grant.id)


def matching(grants: Sequence[Grant], wanted: str) -> list[Grant]:
    """Return the grants with this id, or whose id begins with at least four characters of it."""
    exact = [one for one in grants if one.id == wanted]
    return exact or [one for one in grants if len(wanted) >= ID_AT_LEAST and one.id.startswith(wanted)]


def _list(seen: Sequence[Grant], name_of: NameOf) -> str:
    if not seen:
        return "Nothing is granted here. A card offers it with its button Always."
    rows = [_line(one, name_of) for one in seen[:SHOWN]]
    left = [f"- and {len(seen) - SHOWN} more"] if len(seen) > SHOWN else []
    return "\n".join(["Allowed without a question; `/grants revoke ID` takes one back:", "", *rows, *left])


def _line(grant: Grant, name_of: NameOf) -> str:
    used = f"used {count(grant.used, 'time')}" if grant.used else "not used yet"
    last = f", last {grant.last_used_at:%Y-%m-%d %H:%M}" if grant.last_used_at else ""
    return (
        f"- {as_code(grant.id)} {as_code(one_line(grant.shown, 200))}: {where(grant, name_of)}, "
        f"given by {as_code(name_of(grant.granted_by))}, until {grant.expires_at:%Y-%m-%d}, {used}{last}"
    )


def where(grant: Grant, name_of: NameOf) -> str:
    """Return in words where a grant holds."""
    match grant.place:
        case GrantPlace.SESSION:
            return f"in the session {as_code(grant.session)} until /new"
        case GrantPlace.CHAT:
            return f"in the chat {as_code(grant.conversation.key)}"
        case GrantPlace.PERSON:
            return f"for {as_code(name_of(grant.principal))} in {grant.root_kind} sessions"
