"""The store on Redis, for several machines: documents of rows, one compare-and-write script, and the kernel's rules.

The only package that imports redis. Imported for a `redis://` URL alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from gateway.domain.durability import STRICT, NotedStore, Reached, StoreTerms
from gateway.domain.ids import NodeId, TurnId, mint
from gateway.domain.slots import Slot
from gateway.domain.turns import Lease, TurnKind, company
from gateway.domain.views import Claimed
from gateway.errors import RowDamaged, StoreError
from gateway.ports import Clock
from gateway.store.kernel import turns
from gateway.store.kernel.part import Part
from gateway.store.redis import folds
from gateway.store.redis.checks import check_server, life_at
from gateway.store.redis.clock import ServerClock
from gateway.store.redis.connection import address_of
from gateway.store.redis.events import RedisEventBus
from gateway.store.redis.life import SharedKnowledge
from gateway.store.redis.queries import RedisQueries, history_of, source_of
from gateway.store.redis.replicas import waits_for
from gateway.store.redis.thread import RedisThread
from gateway.store.write_queue import LOOK_EVERY_S, WaitingClaims

T = TypeVar("T")


class RedisStore(RedisQueries):
    """`ports.Store` in Redis. Opened by `open_redis`."""

    def __init__(
        self,
        clock: ServerClock,
        writer: RedisThread,
        reader: RedisThread,
        events: RedisEventBus,
        known: SharedKnowledge,
    ) -> None:
        """Take the running threads; `close` ends them."""
        super().__init__(clock)
        self._writer, self._reader, self._events, self._known = writer, reader, events, known
        self.identity = known.life.store

    @property
    def terms(self) -> StoreTerms:
        """Return the durability of the store's present server."""
        return self._known.terms

    @property
    def reached(self) -> Reached:
        """Return its progress."""
        return self._known.reached

    @property
    def waits_for(self) -> StoreError | None:
        """Return why requests wait for Redis."""
        return self._known.waits_for

    @property
    def event_bus(self) -> RedisEventBus:
        """Return the store's event bus."""
        return self._events

    async def probe(self) -> None:
        """Write something durably."""
        await self.put("probe", "probe", "")

    async def close(self) -> None:
        """Finish queued work and close. Idempotent."""
        await self._reader.close()
        await self._writer.close()
        await self._events.close()

    async def run(self, transition: Callable[[Part], T]) -> T:
        """Run a transition and return when it is stored."""
        return await self._writer.submit(transition)

    async def fold(self, settled_for: timedelta) -> int:
        """Store ended turns in a smaller form."""
        return await self.run(lambda part: folds.fold(part, part.now - settled_for))

    async def view(self, view: Callable[[Part], T]) -> T:
        """Run a read."""
        return await self._reader.submit(view)

    async def claim_turns(
        self, take: Callable[[Part, TurnId], Claimed | None], limit: int, wait_s: float, home: str = ""
    ) -> list[Claimed]:
        """Claim ready turns; when there is none, wait for one."""

        def claim(part: Part) -> list[Claimed]:
            claimed, most = list[Claimed](), limit

            def add(turn: TurnId) -> None:
                nonlocal most
                taken = take(part, turn) if len(claimed) < most else None
                if taken is not None:
                    claimed.append(taken)
                    most = min(most, company(taken.begun))

            source_of(part).each(add, part.index.ready_turns(part.now, limit, home))
            return claimed

        return await self._claim(self._writer.turns, claim, limit, wait_s)

    async def claim_due(self, take: Callable[[Part], list[Slot]], limit: int, wait_s: float) -> list[Slot]:
        """Claim due slots; when there is none, wait for some."""
        return await self._claim(self._writer.slots, take, limit, wait_s)

    async def _claim(
        self, claims: WaitingClaims, claim: Callable[[Part], list[T]], limit: int, wait_s: float
    ) -> list[T]:
        """Claim. When there is nothing, look every second, and once more when a commit or another node calls."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while (left := end - loop.time()) > 0:
            until = loop.time() + min(left, LOOK_EVERY_S)
            taken = await self._writer.claim(claims, claim, limit, until - loop.time())
            if taken:
                return taken
            if loop.time() < until:
                return await self.run(claim)
        return [] if wait_s > 0 else await self.run(claim)

    async def claim(
        self, node: NodeId, limit: int = 1, *, wait_s: float = 0, history: int = 0, home: str = ""
    ) -> Sequence[Claimed]:
        """Lease turns that may run, the longest waiting first."""
        return await self.lease_turns(node, home, limit, wait_s, lambda part, lease: _claimed(part, lease, history))


def _claimed(part: Part, lease: Lease, history: int) -> Claimed:
    """Return a leased turn with its rows and its history, as far as that was asked for; a damaged one without."""
    try:
        view = turns.view_of(part, lease.turn)
        asked = history and view.turn.kind is TurnKind.MODEL
        found = history_of(part, view.session.id, view.turn.epoch, history) if asked else None
        return Claimed(lease=lease, view=view, history=found)
    except RowDamaged:  # the next read raises it
        return Claimed(lease=lease, view=None, history=None)


def open_redis(url: str, clock: Clock, terms: StoreTerms = STRICT, noted: NotedStore | None = None) -> RedisStore:
    """Open the store on the Redis at `url`, unless it is another than `noted`.

    Raises `ConfigError` or `StoreError` with a cure.
    """
    address, prefix = address_of(url)
    found = check_server(address, prefix, terms, begins=True, noted=noted)
    node, server_clock = mint("n"), ServerClock(clock)
    reached = Reached() if noted is None else noted.reached
    known = SharedKnowledge(life_at(address, prefix), replace(terms, durability=found.durability), terms, reached)
    server_clock.set(*found.time)
    events = RedisEventBus(address, prefix, node)
    writer, reader = (
        RedisThread(
            address, prefix, f"{node}/{name}", server_clock, events, known, waiting=waiting, guesses=name == "write"
        )
        for name, waiting in (("write", waits_for(terms.replicas, found)), ("read", None))
    )
    return RedisStore(server_clock, writer, reader, events, known)
