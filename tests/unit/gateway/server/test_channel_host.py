from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from gateway.domain.ids import NodeId
from gateway.server.channel_host import DaemonChannelHost
from gateway.store.memory import MemoryStore
from gateway.system.gate import Gate
from tests.support.clock import FakeClock

LEASE = timedelta(seconds=30)


async def test_a_node_that_receives_nothing_gives_up_its_polls() -> None:
    """When the channel asks for the lease the next time, and is refused: until then it polls."""
    store = MemoryStore(clock := FakeClock())
    nodes = [NodeId("here#1"), NodeId("there#1")]
    here, there = (
        DaemonChannelHost(
            node_id=one, node=store, outbox=store, owners={}, registry=cast(Any, None), clock=clock, gate=Gate()
        )
        for one in nodes
    )
    assert await here.hold("telegram/main", LEASE)
    assert await there.hold("telegram/main", LEASE) is None
    here.gate.set(False)
    assert await there.hold("telegram/main", LEASE) is None
    assert await here.hold("telegram/main", LEASE) is None
    taken = await there.hold("telegram/main", LEASE)
    assert taken is not None
    assert await here.hold("telegram/main", LEASE) is None, "it takes nothing away from the next one"
    assert await there.hold("telegram/main", LEASE) == taken
    here.gate.set(True)
    clock.advance(31)
    assert await here.hold("telegram/main", LEASE)
