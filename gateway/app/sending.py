"""Wiring of what shows messages: message actors, delivery and live edits. Used by `app.build`."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.app.core import Core
from gateway.app.wiring import make_node_files
from gateway.domain.nodes import Role
from gateway.outbound.delivery import Delivery
from gateway.outbound.live_edits import LiveEdits
from gateway.outbound.message_actor import MessageActors
from gateway.outbound.rate_limit import RateLimiter
from gateway.ports import Channel


def make_messages(core: Core, channels: Mapping[str, Channel]) -> MessageActors:
    """Wire the actors that change messages."""
    return MessageActors(
        outbox=core.store,
        key_value=core.store,
        queries=core.store,
        channels=channels,
        approvals=core.approvals,
        clock=core.clock,
        metrics=core.metrics,
        points=core.points,
        redactor=core.redactor,
        owners=core.loaded.settings.owners,
        limiter=RateLimiter(core.clock),
        find=make_node_files(core).find,
    )


def make_delivery(core: Core, messages: MessageActors) -> Delivery:
    """Wire the delivery of due slots."""
    gate = core.gates[Role.DELIVERY]
    return Delivery(node=core.node, events=core.store.event_bus, messages=messages, gate=gate)


def make_live_edits(core: Core, messages: MessageActors) -> LiveEdits:
    """Wire the live edits of the messages that are delivered."""
    return LiveEdits(events=core.store.event_bus, messages=messages)
