"""Transitions about the nodes of a gateway: who may join it."""

from __future__ import annotations

from gateway.domain.nodes import KeyMark, KeySource, NodeEntry
from gateway.errors import ConfigError
from gateway.store.kernel.part import Part
from gateway.store.kernel.rows import Fact

KEY = ("gateway", "key")
"""Fact with the mark of the nodes' secret key."""
SAME_KEY = "Give every node the same [cluster] key."


def join(part: Part, entry: NodeEntry) -> None:
    """Let a node in. Raises `ConfigError` with its cure for one that cannot be a node of this gateway."""
    if entry.key is not None:
        _check_key(part, entry.key)


def _check_key(part: Part, key: KeyMark) -> None:
    """Keep the key of the first node; refuse any other. A key of all nodes takes the place of a state folder's."""
    known = _key_of(part)
    if known is None or (known.source is KeySource.STATE and key.source is KeySource.CLUSTER):
        part.facts.put(KEY, Fact(f"{key.source} {key.fingerprint}"))
    elif known.fingerprint != key.fingerprint:
        raise ConfigError(_OTHER_KEY[known.source, key.source], cure=_CURES[known.source])


_OTHER_KEY = {
    (KeySource.STATE, KeySource.STATE): "This store belongs to a node whose key is in another state folder.",
    (KeySource.CLUSTER, KeySource.STATE): "The nodes of this store have a [cluster] key, and this one has none.",
    (KeySource.CLUSTER, KeySource.CLUSTER): "The nodes of this store have another [cluster] key than this one.",
}
_CURES = {
    KeySource.STATE: "Set [cluster] key on every node, the same one, or start this node with that state folder.",
    KeySource.CLUSTER: SAME_KEY,
}


def _key_of(part: Part) -> KeyMark | None:
    fact = part.facts.get(KEY)
    if fact is None:
        return None
    source, _, fingerprint = fact.value.partition(" ")
    return KeyMark(fingerprint=fingerprint, source=KeySource(source))
