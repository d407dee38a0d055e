"""Scene with sub-sessions: the family, and the setup that most of their tests share."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.children import NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import Principal, SessionId, TurnId, WaitId, child_session
from gateway.domain.routes import Route
from gateway.domain.sessions import Session
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import Lease, Turn, TurnState
from gateway.domain.waits import StartOutcome
from tests.contract.scene import MAIN, Scene
from tests.support.makers import ANN_TELEGRAM, answer, beginning, result, seconds

RUN, SESSION = SpawnMode.RUN, SpawnMode.SESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child and the step that spawned it."""

    parent: Lease
    n: int
    session: SessionId
    turn: TurnId
    """The one that does its task."""
    spawned: WaitId | None

    @property
    def wait(self) -> WaitId:
        """Return the wait of its parent, in mode RUN."""
        assert self.spawned is not None
        return self.spawned


def new_child(
    lease: Lease, n: int = 1, mode: SpawnMode = RUN, *, ttl_s: float = 3600, scene: Scene, title: str = "look"
) -> NewChild:
    """Return the child that step `n` of a turn asks for."""
    return NewChild(
        session=child_session(lease.turn, n),
        title=title,
        task="Look at the disk.",
        tools=("shell", "read"),
        mode=mode,
        agent="reader",
        model="small",
        active_s=60.0,
        tokens=1000,
        expires_in=seconds(ttl_s),
    )


def spent(text: str, read: int, written: int, cost: int, *, calls: int = 0) -> Answer:
    """Return an answer with this usage."""
    usage = Usage(input_tokens=read, output_tokens=written, cost_micros=cost)
    return Answer(text=text, model="test", usage=usage, calls=answer(calls=calls).calls)


class FamilyScene(Scene):
    """Actions of a test on parents and children."""

    async def at_work(self, calls: int = 1, *, to: Route | None = None, who: Principal = ANN_TELEGRAM) -> Lease:
        """Return a running turn of a root whose steps 1 to `calls` were started."""
        accepted = await self.say(to=to, who=who)
        lease = await self.claim()
        assert lease.turn == accepted.turn
        await self.begin_calls(lease, calls)
        return lease

    async def begin_calls(self, lease: Lease, calls: int = 1) -> None:
        """Plan an answer with so many calls and start each."""
        before = len((await self.view(lease.turn)).steps)
        await self.plan(lease, calls)
        for n in range(before + 1, before + 1 + calls):
            assert await self.store.start_step(lease, n, None, beginning()) is StartOutcome.STARTED

    async def spawn(
        self, lease: Lease, n: int = 1, mode: SpawnMode = RUN, *, ttl_s: float = 3600
    ) -> WaitId | SpawnRefusal | None:
        """Spawn a child by step `n`."""
        return await self.store.spawn(lease, n, new_child(lease, n, mode, ttl_s=ttl_s, scene=self))

    async def born(self, lease: Lease, n: int = 1, mode: SpawnMode = RUN, *, ttl_s: float = 3600) -> Child:
        """Return a queued child; in mode SESSION its step has its result."""
        spawned = await self.spawn(lease, n, mode, ttl_s=ttl_s)
        assert not isinstance(spawned, SpawnRefusal)
        if mode is SESSION:
            assert spawned is None
            await self.came(lease, n, result("begun"))
        id_ = child_session(lease.turn, n)
        (line,) = [line for line in await self.store.family(lease.session) if line.session.id == id_]
        return Child(parent=lease, n=n, session=id_, turn=line.turn.id, spawned=spawned)

    async def child(self, mode: SpawnMode = RUN, *, to: Route | None = None) -> Child:
        """Return a child of a running turn."""
        return await self.born(await self.at_work(to=to), 1, mode)

    async def work(self, child: Child) -> Lease:
        """Claim the child's turn; it must be the next one."""
        lease = await self.claim()
        assert (lease.turn, lease.session) == (child.turn, child.session)
        return lease

    async def end(self, child: Child, state: TurnState = TurnState.DONE, text: str = "All is well.") -> None:
        """Run a queued child to its end."""
        lease = await self.work(child)
        assert await self.end_held(lease, state, text)

    async def end_held(self, lease: Lease, state: TurnState = TurnState.DONE, text: str = "All is well.") -> bool:
        """End the turn with this text."""
        given = (await self.view(lease.turn)).inputs
        return await self.store.finish_turn(lease, state, answer=answer(text), given=given, slots=[], timers=[])

    async def session(self, session: SessionId) -> Session:
        """One session."""
        found = await self.store.session(session)
        assert found is not None
        return found

    async def turns(self, session: SessionId = MAIN) -> list[Turn]:
        """Return the turns of a session, oldest first."""
        return await self.items(Turn, session)
