"""Services of the daemon for a channel: leases, notices to owners, the command list, and a key-value namespace.

Handed to each channel at its start; its messages go to ingress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.turns import NamedLease
from gateway.inbound.commands import command_list
from gateway.ports import Clock, CommandInfo, KeyValue, Node, Outbox
from gateway.system.gate import Gate
from gateway.system.logging_setup import log
from gateway.toolcalls.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonChannelHost:
    """Channel host; a `ports.ChannelHost`, one for each channel."""

    node_id: NodeId
    node: Node
    outbox: Outbox
    owners: Mapping[OwnerName, Sequence[Principal]]
    """Principals of each owner, without the web page."""
    registry: Registry
    clock: Clock
    gate: Gate = field(default_factory=Gate)
    """Closed while this node receives nothing."""
    _held: set[str] = field(default_factory=set[str])

    async def hold(self, name: str, ttl: timedelta) -> NamedLease | None:
        """Take or renew a named lease. A node that receives nothing gives up the leases that it has."""
        if not self.gate.is_open:
            if name in self._held:
                self._held.discard(name)
                await self.node.hold(name, self.node_id, timedelta(0))
            return None
        lease = await self.node.hold(name, self.node_id, ttl)
        (self._held.discard if lease is None else self._held.add)(name)
        return lease

    async def alert(self, key: str, text: str, *, under: NamedLease | None = None) -> None:
        """Notify every owner and write a log entry."""
        log("channel_host").warning(text, alert=key)
        await self.outbox.tell_owners(key, text, self.owners, under=under)

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        """Return the commands of a kind of session, the control commands first."""
        found = Route(session=SessionId(""), kind=kind, origin=Origin.DIRECT, owner=None, title="")
        return command_list(self.registry.snapshot(), empty_session(found, self.clock.now()))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacedKeyValue:
    """Key-value store limited to one namespace; a `ports.ChannelKeyValue`."""

    key_value: KeyValue
    namespace: str

    async def read(self) -> Mapping[str, str]:
        """Return all entries."""
        return await self.key_value.items(self.namespace)

    async def get(self, key: str) -> str | None:
        """Return one entry."""
        return await self.key_value.get(self.namespace, key)

    async def keep(self, key: str, value: str, ttl: timedelta | None = None) -> None:
        """Store one entry."""
        await self.key_value.put(self.namespace, key, value, ttl)
