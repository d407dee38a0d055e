"""Transitions of facts: sign-ins and their failures, open pages, named leases, signs of life, the key-value store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from gateway.domain.ids import NodeId, OwnerName
from gateway.domain.messages import Conversation
from gateway.domain.turns import NamedLease
from gateway.errors import Forbidden
from gateway.store.codec import from_us, load_conversation, to_us
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact

FAILURES_KEPT = timedelta(minutes=15)
"""Age limit of recorded failed sign-ins."""
FAILURES_ALLOWED = 10
"""Failed sign-ins of one source within `FAILURES_KEPT`; further attempts are refused unread."""
CODES, COOKIES, FAILURES, PAGES, NODES = "code", "cookie", "failure", "page", "node"
HOLDS, SENDERS = "hold", "sender"
"""Namespaces of facts."""
ALIVE = "alive"
NOTES = "note/"
"""Prefix of the namespaces of the key-value store."""


def add_code(part: Part, owner: OwnerName, code_sha: str, ttl: timedelta) -> None:
    """Store a sign-in code."""
    part.facts.put((CODES, code_sha), Fact(owner, part.now + ttl))


def redeem_code(part: Part, code_sha: str, cookie_sha: str, ttl: timedelta, source: str) -> OwnerName | None:
    """Exchange a code for a cookie, once."""
    found = part.facts.get((CODES, code_sha))
    if found is None or found.until is None or found.until <= part.now:
        known = part.facts.get((FAILURES, source))
        times = [int(at) for at in known.value.split()] if known is not None else []
        times = [at for at in times if at > to_us(part.now - FAILURES_KEPT)]
        if len(times) >= FAILURES_ALLOWED:
            raise Forbidden(
                "Too many failed sign-ins from this address.",
                cure="Run `dragoman link` (in a clone `./run link`) and open the new link: it works at once.",
            )
        text = " ".join(str(at) for at in [*times, to_us(part.now)])
        part.facts.put((FAILURES, source), Fact(text, part.now + FAILURES_KEPT))
        if found is not None:
            part.facts.delete((CODES, code_sha))
        return None
    part.facts.delete((CODES, code_sha))
    part.facts.put((COOKIES, cookie_sha), Fact(found.value, part.now + ttl))
    return OwnerName(found.value)


def sign_out(part: Part, cookie_sha: str) -> None:
    """Forget a cookie."""
    part.facts.delete((COOKIES, cookie_sha))


def saw_page(part: Part, owner: OwnerName) -> None:
    """Record that the owner's page is open."""
    part.facts.put((PAGES, owner), Fact(str(to_us(part.now))))


def alive(part: Part, _node: NodeId) -> None:
    """Record that this node is alive. Expired facts are deleted on this occasion."""
    part.forgets_expired = True
    part.facts.put((NODES, ALIVE), Fact(str(to_us(part.now))))


def hold(part: Part, name: str, node: NodeId, ttl: timedelta) -> NamedLease | None:
    """Acquire or renew a named lease."""
    fence, until, holder = _hold_of(part, name)
    if holder != node:
        if until > part.now:
            return None
        fence = part.next_fence(fence)
    part.facts.put((HOLDS, name), _hold_fact(fence, part.now + ttl, node))
    return NamedLease(name=name, node=node, fence=fence)


def is_held(part: Part, lease: NamedLease) -> bool:
    """Return whether nobody took the name since. A holder that comes late counts until somebody does."""
    fence, _, holder = _hold_of(part, lease.name)
    return (fence, holder) == (lease.fence, lease.node)


def free_holds(part: Part, is_leaving: Callable[[str], bool]) -> None:
    """Free the named leases of such nodes. The fences stay."""
    for name, _ in part.facts_in(HOLDS):
        fence, _, holder = _hold_of(part, name)
        if is_leaving(holder):
            part.facts.put((HOLDS, name), _hold_fact(fence, part.now, ""))


def _hold_of(part: Part, name: str) -> tuple[int, datetime, str]:
    """Return the fence of a name, the end of its lease, and its holder."""
    known = part.facts.get((HOLDS, name))
    if known is None:
        return 0, part.now, ""
    fence, until, holder = known.value.split(" ", 2)
    return int(fence), from_us(int(until)), holder


def _hold_fact(fence: int, until: datetime, holder: str) -> Fact:
    """Return a fact that outlives the lease: a fence must not restart."""
    return Fact(f"{fence} {to_us(until)} {holder}")


def leave(part: Part, node: NodeId) -> None:
    """Give up the named leases of a node, and the accounts that it sends for."""
    free_holds(part, lambda holder: holder == node)
    stop_sending(part, node)


def stop_sending(part: Part, node: NodeId) -> None:
    """Give up the accounts that a node sends for."""
    for key, fact in part.facts_in(SENDERS):
        if fact.value == node:
            part.facts.delete((SENDERS, key))
            part.touched.slots_due = True


def put(part: Part, namespace: str, key: str, value: str, ttl: timedelta | None) -> None:
    """Store a value."""
    part.facts.put((NOTES + namespace, key), Fact(value, None if ttl is None else part.now + ttl))


# --- reading facts --------------------------------------------------------------------------


def person_of(fact: Fact) -> tuple[Conversation, datetime]:
    """Return a person's last direct conversation and when it was used."""
    at, _, place = fact.value.partition(" ")
    return load_conversation(place), from_us(int(at))
