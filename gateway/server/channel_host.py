"""What a channel may do beside pushing messages: hold a lease, tell the owners, know the commands, keep small facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gateway.domain.ids import NodeId, OwnerName, Principal, SessionId
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Origin, SessionKind
from gateway.inbound.commands import command_list
from gateway.ports import Clock, CommandInfo, KeyValue, Node, Outbox
from gateway.system.logging_setup import log
from gateway.toolcalls.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonChannelHost:
    """`ports.Helm`, one for each channel."""

    node_id: NodeId
    node: Node
    outbox: Outbox
    owners: Mapping[OwnerName, Sequence[Principal]]
    """Each owner's principals besides the page."""
    registry: Registry
    clock: Clock

    async def hold(self, name: str, ttl: timedelta) -> bool:
        """Take or renew a named lease."""
        return await self.node.hold(name, self.node_id, ttl)

    async def alert(self, key: str, text: str) -> None:
        """Tell every owner, and the log."""
        log("channels").warning(text, alert=key)
        await self.outbox.tell_owners(key, text, self.owners)

    def commands(self, kind: SessionKind) -> Sequence[CommandInfo]:
        """The commands of a kind of session, the gateway's own first."""
        place = Route(session=SessionId(""), kind=kind, origin=Origin.DIRECT, owner=None, title="")
        return command_list(self.registry, empty_session(place, self.clock.now()))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacedKeyValue:
    """`ports.ChannelNotes`: what the store keeps in one room."""

    key_value: KeyValue
    room: str

    async def read(self) -> Mapping[str, str]:
        """All of them."""
        return await self.key_value.notes(self.room)

    async def keep(self, key: str, value: str) -> None:
        """Store one."""
        await self.key_value.note(self.room, key, value)
