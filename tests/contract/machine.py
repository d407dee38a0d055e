"""Two stores under one clock, and the state machine's actions besides turns: time, sending, reading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.domain.ids import NodeId
from gateway.domain.turns import Lease
from gateway.errors import LeaseLost, StoreError
from gateway.ports import Store
from gateway.store.sqlite import open_sqlite
from tests.contract.promises import Seen
from tests.contract.scene import offer_again
from tests.contract.world import NOTHING, SESSIONS, Snapshot, World
from tests.support.clock import FakeClock
from tests.support.faulty_store import Faults, FaultyMemoryStore, faulty_connection
from tests.support.makers import ANN, ANN_TELEGRAM, BOB

NODES = (NodeId("here#1"), NodeId("here#2"), NodeId("there#1"))
IN_MEMORY = Path("/dev/shm")
FAULT_EVERY = 4
"""One move of so many fails first."""
FAULTS_WITHIN = 13
"""Loads or statements among which one fails; few transitions have more."""
FAILED = object()
TIMES = ("nothing", "expire_waits", "reclaim", "fire_timers", "page seen")

back = st.integers(0, 4)
nodes = st.sampled_from(NODES)


class Pair(RuleBasedStateMachine):
    """Two stores, one clock, one trace."""

    moves: ClassVar[list[int]] = []
    """Moves of each run, effective or not. On the class, since nobody keeps the object of a run."""
    struck: ClassVar[list[str]] = []
    """The stores that failed in the middle of a transition, once for each failure."""

    def __init__(self) -> None:
        """Open both."""
        super().__init__()
        self.runner = asyncio.Runner()
        # What reaches the disk is tried elsewhere: waiting for it was half of the time here.
        self.folder = TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self.clock = FakeClock()
        self.numbers = count()
        self.moves.append(0)
        self.worlds = [self._world(open_) for open_ in (self._memory, self._durable)]
        self.seen = Seen()

    def _world(self, open_: Callable[[Faults], Store]) -> World:
        async def begin() -> World:
            faults = Faults()
            return World(lambda: open_(faults), open_(faults), faults)

        return self.runner.run(begin())

    def _memory(self, faults: Faults) -> Store:
        store = FaultyMemoryStore(self.clock)
        store.faults = faults
        return store

    def _durable(self, faults: Faults) -> Store:
        return open_sqlite(f"{Path(self.folder.name).resolve()}/dragoman.db", self.clock, faulty_connection(faults))

    def teardown(self) -> None:
        """Close both."""

        async def end() -> None:
            for world in self.worlds:
                await world.store.close()

        self.runner.run(end())
        self.runner.close()
        self.folder.cleanup()

    def both(self, doing: Callable[[World], Awaitable[object]]) -> None:
        """Do the same to both, compare results and all readable rows, check the invariants.

        Now and then the first transition of it fails in the middle: then nothing is stored, and it is done once more.
        """

        async def do() -> None:
            outcomes: list[str] = []
            snapshots: list[Snapshot] = []
            for world in self.worlds:
                outcome = await self._with_a_fault(world, doing) if self.moves[-1] % FAULT_EVERY == 0 else FAILED
                if outcome is FAILED:
                    outcome = await _done(world, doing)
                outcomes.append(world.said(outcome))
                if outcome is not NOTHING:
                    snapshots.append(await world.snapshot())
            assert outcomes[0] == outcomes[1]
            if snapshots:
                assert snapshots[0].text == snapshots[1].text
                self.seen.look(snapshots[1])

        self.moves[-1] += 1
        self.runner.run(do())

    async def _with_a_fault(self, world: World, doing: Callable[[World], Awaitable[object]]) -> object:
        """Do it with a fault in its first transition. Return its outcome when it ended before, else `FAILED`."""
        before = (await world.snapshot()).text
        known = [*world.leases], [*world.claimed], [*world.messages]
        place = self.moves[-1] // FAULT_EVERY
        world.faults.arm(1 + place * 7 % FAULTS_WITHIN, whole=place % 3 == 0)
        try:
            return await _done(world, doing)
        except StoreError:
            assert world.faults.struck, "a failure that nobody ordered"
            self.struck.append(type(world.store).__name__)
        finally:
            world.faults.disarm()
        world.leases, world.claimed, world.messages = known
        assert (await world.snapshot()).text == before
        return FAILED

    def leased(self, which: int, doing: Callable[[World, Lease], Awaitable[object]]) -> None:
        """Act under one of the last leases."""

        async def do(world: World) -> object:
            lease = world.lease(which)
            return await doing(world, lease) if lease is not None else NOTHING

        self.both(do)

    def fresh_key(self) -> str:
        """Return an unused event key."""
        return f"e{next(self.numbers)}"


async def _done(world: World, doing: Callable[[World], Awaitable[object]]) -> object:
    try:
        return await doing(world)
    except LeaseLost:
        return "lease lost"


def has_claimed_slots(machine: Pair) -> bool:
    """Return whether anything was ever claimed for sending."""
    return bool(machine.worlds[0].claimed)


class WayOut(Pair):
    """Actions of time, sending and reading."""

    # --- time and machines ------------------------------------------------------------------

    @rule(
        by=st.sampled_from((0.5, 1.5, 6, 16, 61, 301, 3600)),
        what=st.sampled_from(TIMES),
    )
    def time(self, by: float, what: str) -> None:
        """Advance the clock and sweep, or open the page."""
        self.clock.advance(by)

        async def do(world: World) -> object:
            if what == "page seen":
                return await world.store.saw_page(ANN)
            sweeps = {
                "expire_waits": world.store.expire_waits,
                "reclaim": world.store.reclaim,
                "fire_timers": world.store.fire_timers,
            }
            return await sweeps[what]() if what in sweeps else None

        self.both(do)

    @rule(offer=st.booleans())
    def restart(self, offer: bool) -> None:
        """Restart the daemon: only rows on disk remain; the memory store acts likewise."""

        async def do(world: World) -> object:
            if world is self.worlds[1]:
                await world.store.close()
                world.store = world.open()
            voided = await world.store.void_leases("here")
            return voided, await offer_again(world.store) if offer else 0

        self.both(do)

    # --- outbox -----------------------------------------------------------------------------

    @rule(node=nodes, limit=st.integers(1, 5))
    def claim_slots(self, node: NodeId, limit: int) -> None:
        """Claim slots as a sender."""

        async def do(world: World) -> object:
            slots = await world.store.claim_slots(node, ["telegram", "slack"], limit)
            for slot in slots:
                if slot.session is None:  # an alert, which is no row of a session
                    await world.store.slot_sent(slot, ("m",))
            world.claimed += [slot for slot in slots if slot.session is not None]
            return list(slots)

        self.both(do)

    @precondition(has_claimed_slots)
    @rule(
        which=back,
        how=st.sampled_from(("sent", "sent", "part", "retry", "later", "uncertain", "unsettled", "dead", "over")),
    )
    def report(self, which: int, how: str) -> None:
        """Report the result of sending one of the last slots, sometimes late or twice."""

        async def do(world: World) -> object:
            slot = world.slot(which)
            if slot is None:
                return NOTHING
            if how == "sent":
                made, unsettled = slot.message_ids or (f"m{slot.attempts}",), slot.version % 3 == 0
                return await world.store.slot_sent(slot, made, unsettled=unsettled)
            if how == "part":
                return await world.store.slot_part(slot, (f"m{slot.attempts}",))
            if how == "over":
                return await world.store.slot_overwritten(slot.id, slot.version)
            if how == "dead":
                return await world.store.slot_dead(slot, "gone")
            doubts = {"uncertain": how == "uncertain", "unsettled": how == "unsettled"}
            return await world.store.slot_retry(slot, timedelta(), **doubts, counted=how != "later")

        self.both(do)

    @rule(key=st.sampled_from(("a", "b")))
    def tell(self, key: str) -> None:
        """Notify the owners and store a value."""

        async def do(world: World) -> object:
            told = await world.store.tell_owners(key, "Look.", {ANN: [ANN_TELEGRAM, BOB]})
            await world.store.put("namespace", key, str(told), timedelta(seconds=30) if key == "a" else None)
            return told, await world.store.items("namespace")

        self.both(do)

    @rule()
    def send(self) -> None:
        """Act as a sender."""
        self.claim_slots(NODES[0], 5)
        for _ in range(3):
            if has_claimed_slots(self):
                self.report(0, "sent")

    # --- reading ----------------------------------------------------------------------------

    @rule(size=st.sampled_from((1, 3, 20)), way=st.sampled_from(SESSIONS))
    def follow(self, size: int, way: Any) -> None:
        """Check in each store that replaying all changes gives the rows read back."""

        async def do(world: World) -> None:
            found: dict[int, Any] = {}
            after, more = 0, True
            while more:
                page = await world.store.changes(way.session, after, size)
                found |= {row.ord: row for row in page.rows}
                after, more = page.rev, page.more
            rows = (await world.store.older(way.session, None, 1_000_000)).rows
            assert [found[place] for place in sorted(found)] == list(rows)

        self.both(do)
