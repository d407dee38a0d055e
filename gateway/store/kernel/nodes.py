"""Transitions about the nodes of a gateway: who may join it, who lives, who is drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gateway.domain.ids import NodeId, TurnId
from gateway.domain.nodes import LIVES_FOR, KeyMark, KeySource, NodeEntry, NodeLine, Role, name_of
from gateway.errors import ConfigError, NotFound, StartError, UnseenNodes
from gateway.store.codec import dump_json, from_us, load_json, to_us
from gateway.store.kernel.facts import alive as record_alive
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact

KEY = ("gateway", "key")
"""Fact with the mark of the nodes' secret key."""
MEMBERS, DRAINED = "member", "drained"
"""Namespaces of facts, by name of the node."""
PLACES = "place"
"""Namespace of facts: by home the name of its node, since when that takes no work on purpose, and its last sign of life
when another node has its name now."""
KEPT_FOR = timedelta(days=1)
"""Time for which a node that is silent stands in the list."""
PLACE_KEPT_FOR = timedelta(days=30)
"""Time after its last node lived for which the name of a place is known."""


def join(part: Part, entry: NodeEntry) -> NodeLine:
    """Let a node in. Raises `ConfigError` or `StartError` for one that cannot be a node of this gateway."""
    name = name_of(entry.node)
    others = [line for line in nodes(part) if line.lives and line.name != name]
    if entry.key is not None:
        _check_key(part, entry.key, bool(others))
        _check_name(part, entry)
    _check_home(part, entry, others)
    now = to_us(part.now)
    before = _row_of(part, name)
    row = _row(entry) | {"since": now, "alive": now, "steady": now}
    if before is not None and before["home"] != entry.home:
        _record_last_sign(part, before)
    _put(part, name, row)
    _record_place(part, row)
    return _line(part, name, {})


def _check_key(part: Part, key: KeyMark, others: bool) -> None:
    """Keep the key of the first node; refuse any other. A key of all nodes takes the place of a state folder's."""
    known = _key_of(part)
    begins_cluster = key.source is KeySource.CLUSTER and not others
    if known is None or (known.source is KeySource.STATE and begins_cluster):
        part.facts.put(KEY, Fact(f"{key.source} {key.fingerprint}"))
    elif known.fingerprint != key.fingerprint:
        raise ConfigError(_OTHER_KEY[known.source, key.source], cure=_CURES[known.source])


_OTHER_KEY = {
    (KeySource.STATE, KeySource.STATE): "This store belongs to a node whose key is in another state folder.",
    (KeySource.STATE, KeySource.CLUSTER): "A node without a [cluster] key works on this store.",
    (KeySource.CLUSTER, KeySource.STATE): "The nodes of this store have a [cluster] key, and this one has none.",
    (KeySource.CLUSTER, KeySource.CLUSTER): "The nodes of this store have another [cluster] key than this one.",
}
_CURES = {
    KeySource.STATE: "Stop that node, set [cluster] key on every node, the same one, and start them again.",
    KeySource.CLUSTER: "Give every node the same [cluster] key.",
}


def _key_of(part: Part) -> KeyMark | None:
    fact = part.facts.get(KEY)
    if fact is None:
        return None
    source, _, fingerprint = fact.value.partition(" ")
    return KeyMark(fingerprint=fingerprint, source=KeySource(source))


def _check_name(part: Part, entry: NodeEntry) -> None:
    """Refuse a second node of one name: it would void the leases of the first, which lives."""
    name = name_of(entry.node)
    row = _row_of(part, name)
    if row is None or row["seat"] == entry.seat or not _lives(part, row):
        return
    raise StartError(
        f"A node called {name} works on this store already, on another machine or another state folder.",
        cure="Give this one another name: `dragoman run --node NAME`, or [cluster] node. If the other one has just "
        f"died, start again in {LIVES_FOR.total_seconds():.0f} s.",
    )


def _check_home(part: Part, entry: NodeEntry, others: Sequence[NodeLine]) -> None:
    """Refuse a node at the home of living ones whose files it has not seen, and one with another disk of all nodes.

    A copied folder brings the id of its home along. A node of an older version is not asked: it gives no answer.
    """
    rows = {line.name: _row_of(part, line.name) or {} for line in others if line.name not in entry.seen}
    unseen = [name for name, row in rows.items() if entry.home and row.get("home") == entry.home and "asks" in row]
    if unseen:
        raise UnseenNodes(unseen)
    for line in others if entry.shares and entry.home else ():
        row = _row_of(part, line.name) or {}
        if row.get("shares") and row["home"] not in ("", entry.home):
            raise StartError(
                f"The disk of [cluster] workspaces is another one here than on {line.name}.",
                cure="Mount the same disk on every node before its daemon starts.",
            )


def alive(part: Part, node: NodeId) -> NodeLine | None:
    """Record that a node is alive. Return its line; None when it must join again."""
    record_alive(part, node)
    name = name_of(node)
    row = _row_of(part, name)
    if row is None or row["node"] != node:
        return None
    now = to_us(part.now)
    silent = part.now - from_us(row["alive"]) > min(LIVES_FOR, timedelta(seconds=row["away_after"]) / 2)
    _put(part, name, row | {"alive": now, "steady": now if silent else row["steady"]})
    _keep_place(part, row["home"])
    return _line(part, name, {})


def resign(part: Part, node: NodeId) -> None:
    """Take a node that ends off the list."""
    row = _row_of(part, name_of(node))
    if row is not None and row["node"] == node:
        part.facts.delete((MEMBERS, name_of(node)))
        _record_place(part, row, left=True)


def nodes(part: Part) -> list[NodeLine]:
    """Return all nodes by name, with the turns that they hold."""
    held: dict[str, list[TurnId]] = {}
    for turn, node in part.index.held_turns():
        held.setdefault(node, []).append(turn)
    names = [name for name, fact in part.facts_in(MEMBERS) if fact.until is None or fact.until > part.now]
    return [_line(part, name, held) for name in sorted(names)]


def drain(part: Part, named: str, drained: bool) -> str:
    """Drain a node, or let it work again, also one that does not run now. Return its name. Raises `NotFound`."""
    known = sorted({*(line.name for line in nodes(part)), *(name for name, _ in part.facts_in(DRAINED))})
    found = [named] if named in known else [name for name in known if named and name.startswith(named)]
    if len(found) != 1:
        says = "Several nodes begin with" if found else "There is no node"
        raise NotFound(f"{says} {named[:80]!r}.", cure=f"Name one of them: {', '.join(known)}.")
    if drained:
        part.facts.put((DRAINED, found[0]), Fact(""))
    else:
        part.facts.delete((DRAINED, found[0]))
    row = _row_of(part, found[0])
    if row is not None:
        _record_place(part, row)
    return found[0]


def _record_last_sign(part: Part, row: Mapping[str, Any]) -> None:
    """Record when the node of a place lived last: its entry goes to a node of the same name at another place."""
    key = (PLACES, row["home"])
    fact = part.facts.get(key)
    if fact is not None and (place := load_json(fact.value))["name"] == name_of(row["node"]):
        part.facts.put(key, Fact(dump_json(place | {"seen": row["alive"]}), fact.until))


def _record_place(part: Part, row: Mapping[str, Any], *, left: bool = False) -> None:
    """Record whose place a home is, and since when its node takes no work on purpose."""
    if not row["home"]:
        return
    name = name_of(row["node"])
    works = not left and Role.WORKER in row["roles"] and part.facts.get((DRAINED, name)) is None
    since = None if works else to_us(part.now)
    part.facts.put((PLACES, row["home"]), place_fact(name, since, part.now))


def place_fact(name: str, left: int | None, now: datetime) -> Fact:
    """Return the stored facts of a place. `left`: since when it takes no work on purpose, in microseconds."""
    return Fact(dump_json({"name": name, "left": left}), now + PLACE_KEPT_FOR)


def _keep_place(part: Part, home: str) -> None:
    """Store the facts of a live node's place. Written twice a month."""
    fact = part.facts.get((PLACES, home))
    if fact is not None and fact.until is not None and fact.until - part.now < PLACE_KEPT_FOR / 2:
        part.facts.put((PLACES, home), Fact(fact.value, part.now + PLACE_KEPT_FOR))


# --- rows -------------------------------------------------------------------------------------


def _row(entry: NodeEntry) -> dict[str, Any]:
    return {
        "node": entry.node,
        "seat": entry.seat,
        "version": entry.version,
        "roles": sorted(entry.roles),
        "configuration": dict(entry.configuration),
        "home": entry.home,
        "away_after": entry.away_after.total_seconds(),
        "address": entry.address,
        "asks": entry.asks,
        "shares": entry.shares,
    }


def _row_of(part: Part, name: str) -> dict[str, Any] | None:
    fact = part.facts.get((MEMBERS, name))
    return None if fact is None else load_json(fact.value)


def _put(part: Part, name: str, row: Mapping[str, Any]) -> None:
    part.facts.put((MEMBERS, name), Fact(dump_json(row), part.now + KEPT_FOR))


def _lives(part: Part, row: Mapping[str, Any]) -> bool:
    return part.now - from_us(row["alive"]) <= LIVES_FOR


def is_alive(member: Fact, now: datetime) -> bool:
    """Return whether the node of this fact gave a sign of life within the last 30 s."""
    return now - from_us(load_json(member.value)["alive"]) <= LIVES_FOR


def _line(part: Part, name: str, held: Mapping[str, list[TurnId]]) -> NodeLine:
    row = _row_of(part, name)
    assert row is not None, "it is on the list"
    return NodeLine(
        name=name,
        node=NodeId(row["node"]),
        version=row["version"],
        roles=frozenset(Role(one) for one in row["roles"] if one in set(Role)),
        configuration=row["configuration"],
        since=from_us(row["since"]),
        alive_at=from_us(row["alive"]),
        lives=_lives(part, row),
        drained=part.facts.get((DRAINED, name)) is not None,
        turns=tuple(held.get(row["node"], ())),
        asks=row.get("asks", ""),
    )
