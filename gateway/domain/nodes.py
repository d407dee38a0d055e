"""Nodes: the daemons of one gateway, as they tell the store of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.ids import NodeId


class KeySource(StrEnum):
    """Place of a node's secret key."""

    STATE = "state"
    """In its own state folder: no other machine has it."""
    CLUSTER = "cluster"
    """In the configuration, the same one for all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMark:
    """Fingerprint of a secret key, as the store keeps it."""

    fingerprint: str
    source: KeySource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """A node that starts, as it tells the store."""

    node: NodeId
    key: KeyMark | None
    """None where no other node can open the store."""
