"""Nodes: the daemons of one gateway, as registered in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.durability import STRICT, StoreTerms
from gateway.domain.ids import NodeId, TurnId

HOME_AWAY_AFTER = timedelta(seconds=60)
"""Default time for which a node may be silent before others take the sessions whose files it holds."""
LEFT_TIMES = 10
"""Times as long a home keeps its sessions that was drained or ended on purpose: files survive an upgrade."""
LIVES_FOR = timedelta(seconds=30)
"""Time after its last sign of life in which a node counts as alive."""


class KeySource(StrEnum):
    """Place of a node's secret key."""

    STATE = "state"
    """Key in its own state folder: no other machine has it."""
    CLUSTER = "cluster"
    """Key in the configuration, the same one for all nodes."""


class Role(StrEnum):
    """Work that a node takes."""

    INGRESS = "ingress"
    """Polls, sockets and webhooks of channels, and the page."""
    WORKER = "worker"
    """Turns."""
    DELIVERY = "delivery"
    """Sending of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMark:
    """Fingerprint of a secret key, as the store keeps it."""

    fingerprint: str
    source: KeySource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """A starting node, as it registers in the store."""

    node: NodeId
    """`<name>#<life>`."""
    key: KeyMark | None
    """None where no other node can open the store."""
    seat: str = ""
    """The state folder on the running system: two daemons cannot have the same one at the same time."""
    version: str = ""
    roles: frozenset[Role] = frozenset(Role)
    configuration: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fingerprints of the settings that decide, by what they are about."""
    home: str = ""
    """Id of the place that holds its workspaces; nodes that share it are one home. Empty: its files bind nobody."""
    shares: bool = False
    """True if that place is configured as one disk shared by all nodes."""
    away_after: timedelta = HOME_AWAY_AFTER
    """Time for which a home may be silent before this node takes its sessions."""
    address: str = ""
    """URL of its HTTP server for the other nodes; empty: they cannot read its files."""
    seen: frozenset[str] = frozenset()
    """Names of nodes that have the same files, as was seen on the disk. Only with them it may share its home."""
    asks: str = ""
    """Question to the nodes of a place, while this one checks that it has their files; it has no home then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeHolder:
    """A place that holds, or held, files of a session."""

    home: str
    """Its id."""
    name: str
    """Name of the node that was there last."""
    address: str
    """Address at which that node serves files; empty when it serves none."""
    alive_at: datetime | None
    """Its last sign of life; None: not within a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A node as a list shows it."""

    name: str
    node: NodeId
    """Its life."""
    version: str
    roles: frozenset[Role]
    configuration: Mapping[str, str]
    since: datetime
    alive_at: datetime
    lives: bool
    """True if its last sign of life is at most 30 s old."""
    drained: bool
    """True if it takes no new work until `resume`."""
    turns: tuple[TurnId, ...] = ()
    """Turns that it holds."""
    asks: str = ""
    """Question to nodes that may have its files; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Changes that a store had acknowledged and does not know any more."""

    life: int
    """Number of the life that began with it; the first loss begins life 1."""
    revisions: int
    """Changes that were lost, at least."""
    every: int
    """Changes that all losses so far took, at least."""
    at: datetime
    """Time at which a node noticed it."""
    is_again: bool = False
    """True if the owners were notified of an earlier, smaller loss."""

    @property
    def sentence(self) -> str:
        """Return the notice for the owners."""
        when = self.at.strftime("%Y-%m-%d %H:%M")
        count = f"at least {self.revisions}" if self.revisions else "nobody knows how many"
        what = "more than was known: of its last changes" if self.is_again else "its last changes,"
        return (
            f"Redis lost {what} {count} (noticed {when} UTC). Messages and decisions of "
            "the moments before may be missing. Approvals that were not used yet are asked again. A call that may have "
            "run is not run again, unless a repetition is harmless."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """This node as it stands now, for its health page."""

    name: str = ""
    roles: frozenset[Role] = frozenset(Role)
    drained: bool = False
    trouble: str = ""
    """Why it is no node of its gateway any more; empty while it is."""
    differs: Sequence[str] = ()
    """A sentence for each living node that is configured otherwise."""
    loss: Loss | None = None
    """Last loss of the store; None while it lost nothing."""
    terms: StoreTerms = STRICT
    """Durability terms of the store."""


def name_of(node: NodeId) -> str:
    """Return the name of a node, which outlives its process."""
    return node.rpartition("#")[0]


def differences(own: NodeLine, others: Sequence[NodeLine]) -> list[str]:
    """Return a sentence for each living node whose settings decide otherwise than this one's, by name."""
    lines: list[str] = []
    for other in sorted(others, key=lambda one: one.name):
        parts = {*own.configuration, *other.configuration}
        differ = sorted(part for part in parts if own.configuration.get(part) != other.configuration.get(part))
        if other.lives and other.name != own.name and differ:
            lines.append(f"{other.name} is configured otherwise: {', '.join(differ)}.")
    return lines
