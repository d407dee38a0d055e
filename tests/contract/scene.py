"""Scene of the store contract: a store, its clock, and the setup that most tests share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from gateway.domain.ids import NodeId, Principal, SessionId, SlotId, TurnId, WaitId, main_session, mint
from gateway.domain.messages import Conversation, Inbound, Received
from gateway.domain.routes import Accepted, Drop, DropReason, Route, WhileRunning
from gateway.domain.slots import NewSlot, Slot, SlotKind
from gateway.domain.steps import Step
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import Item, Row, TurnView
from gateway.domain.waits import NewWait, Pressed, PressVerdict, StartOutcome, Wait, WaitKind, WaitState
from gateway.ports import Control, ControlEffect, Store, Waiting
from tests.support.clock import FakeClock
from tests.support.makers import (
    ANN,
    ANN_TELEGRAM,
    BOB,
    CHAT,
    OTHER_CHAT,
    answer,
    approve,
    beginning,
    card,
    control,
    inbound,
    new_wait,
    press,
    route,
    seconds,
)

NODE = NodeId("here#1")
OTHER_NODE = NodeId("there#1")


async def offer_again(store: Store) -> int:
    """Offer open cards again, as after a downtime."""
    await store.alive(NODE)
    return await store.begin(NODE, timedelta(days=-1))


MAIN = main_session(ANN)
Found = TypeVar("Found", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A turn with open approvals: step 0 is the answer, step `i + 1` waits for `waits[i]`."""

    lease: Lease
    waits: tuple[WaitId, ...]

    @property
    def turn(self) -> TurnId:
        """The turn."""
        return self.lease.turn

    @property
    def wait(self) -> WaitId:
        """Its first wait."""
        return self.waits[0]


class Scene:
    """Actions of a test on a store, in the engine's terms."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        """Take both."""
        self.store = store
        self.clock = clock

    # --- doing ------------------------------------------------------------------------------

    async def say(
        self,
        text: str = "hello",
        *,
        to: Route | None = None,
        who: Principal = ANN_TELEGRAM,
        where: Conversation = CHAT,
        kind: TurnKind = TurnKind.MODEL,
        running: WhileRunning = WhileRunning.QUEUE,
        say_if_waiting: Waiting | None = None,
        cut: bool = False,
        **more: Any,
    ) -> Accepted:
        """Accept a message; `more`: further fields of it."""
        message = replace(inbound(text, who=who, where=where), cut=cut, **more)
        return await self.store.accept(to or route(), message, kind, running=running, say_if_waiting=say_if_waiting)

    async def overhear(self, text: str, *, to: Route) -> Inbound:
        """Drop an overheard message; return it."""
        message = replace(inbound(text, direct=False, who=BOB), addressed=False)
        assert await self.store.drop(message, Drop(reason=DropReason.CONTEXT, told=False, route=to), "")
        return message

    async def edit(self, message: Inbound, text: str, *, who: Principal | None = None) -> bool:
        """Edit a message."""
        return await self.store.amend(
            replace(
                message, event_key=mint("e"), edits=message.event_key, text=text, principal=who or message.principal
            )
        )

    async def claim(self, node: NodeId = NODE) -> Lease:
        """Claim a turn that must be available."""
        claimed = await self.store.claim(node)
        assert claimed, "nothing could be claimed"
        return claimed[0].lease

    async def running(self, to: Route | None = None, *, kind: TurnKind = TurnKind.MODEL) -> Lease:
        """Return a message's turn, claimed; it must be the only claimable one."""
        accepted = await self.say(to=to, kind=kind)
        lease = await self.claim()
        assert lease.turn == accepted.turn
        return lease

    async def planned(self, calls: int = 1, *, to: Route | None = None, kind: TurnKind = TurnKind.MODEL) -> Lease:
        """Return a running turn whose first answer has so many calls, steps 1, 2, …"""
        lease = await self.running(to, kind=kind)
        await self.plan(lease, calls)
        return lease

    async def plan(self, lease: Lease, calls: int = 1) -> None:
        """Plan an answer with so many calls, every message given."""
        view = await self.view(lease.turn)
        ungiven = [received for received in view.inputs if received.given is None]
        await self.store.plan(lease, answer(calls=calls), given=ungiven, slots=[])

    async def asked(
        self,
        calls: int = 1,
        *,
        to: Route | None = None,
        where: Conversation = CHAT,
        ttl_s: float = 3600,
        kind: TurnKind = TurnKind.MODEL,
        wait_kind: WaitKind = WaitKind.APPROVAL,
    ) -> Asked:
        """Return a running turn that waits for a decision on every call, all on one card."""
        lease = await self.planned(calls, to=to, kind=kind)
        ttl = seconds(ttl_s)
        waits = [new_wait(n, expires_in=ttl, kind=wait_kind) for n in range(1, calls + 1)]
        return await self.ask(lease, waits, where=where)

    async def ask(self, lease: Lease, waits: Sequence[NewWait], *, where: Conversation = CHAT) -> Asked:
        """Open these waits with one card."""
        ids = tuple(wait.id for wait in waits)
        assert await self.store.open_waits(lease, waits, [card(*ids, where=where)])
        return Asked(lease=lease, waits=ids)

    async def parked(
        self, calls: int = 1, *, to: Route | None = None, where: Conversation = CHAT, ttl_s: float = 3600
    ) -> Asked:
        """Return a turn parked on its approvals."""
        asked = await self.asked(calls, to=to, where=where, ttl_s=ttl_s)
        assert await self.store.park(asked.lease)
        return asked

    async def press(
        self, wait: WaitId, verdict: PressVerdict | None = None, *, who: Principal = ANN_TELEGRAM
    ) -> Pressed:
        """Press a button; by default Once."""
        return await self.store.press(press(who=who), wait, verdict or approve())

    async def start(self, lease: Lease, n: int, wait: WaitId | None = None) -> StartOutcome:
        """Start step `n`, bound to the right action."""
        return await self.store.start_step(lease, n, wait, beginning(n))

    async def started(self) -> Lease:
        """Return a running turn whose step 1 was started."""
        lease = await self.planned()
        assert await self.start(lease, 1) is StartOutcome.STARTED
        return lease

    async def finish(self, lease: Lease, state: TurnState = TurnState.DONE) -> bool:
        """End the turn with a short answer, every message given."""
        view = await self.view(lease.turn)
        given = view.inputs
        return await self.store.finish_turn(lease, state, answer=answer(), given=given, slots=[], timers=[])

    async def came(self, lease: Lease, n: int, what: ToolResult, slots: Sequence[NewSlot] = ()) -> None:
        """Store a call's result."""
        await self.store.finish_step(lease, n, what, slots)
        assert (await self.step(lease.turn, n)).result == what

    async def ended(self, to: Route | None = None) -> TurnId:
        """Return a turn that is done."""
        lease = await self.running(to)
        assert await self.finish(lease)
        return lease.turn

    async def stop(
        self,
        effect: ControlEffect = ControlEffect.STOP,
        *,
        only: Principal | None = None,
        to: Route | None = None,
        with_: Control | None = None,
    ) -> int:
        """Send a control command from the owner's other chat; return how many turns it stopped."""
        said = inbound("/stop", where=OTHER_CHAT)
        count = await self.store.control(to or route(), said, with_ or control(effect, only=only))
        assert count is not None
        return count

    async def lapse(self) -> None:
        """Let a lease expire as if its holder died, and sweep."""
        self.clock.advance(16)
        await self.sweep(self.store.reclaim)

    async def offer_again(self) -> int:
        """Offer open cards again, as after a downtime."""
        return await offer_again(self.store)

    async def sweep(self, step: Callable[[], Awaitable[int]]) -> int:
        """Call a sweep until nothing is left."""
        total = 0
        while count := await step():
            total += count
        return total

    async def slot_of(self, turn: TurnId, kind: SlotKind) -> Slot:
        """Return the turn's one slot of this kind."""
        found = [slot for slot in await self.slots() if slot.turn == turn and slot.kind is kind]
        assert len(found) == 1, found
        return found[0]

    async def send_all(self) -> list[Slot]:
        """Send all due slots of a chat."""
        shown: list[Slot] = []
        while claimed := await self.store.claim_slots(NODE, ["telegram", "slack"], 50):
            for slot in claimed:
                await self.store.slot_sent(slot, slot.message_ids or (f"m-{slot.id}",))
            shown.extend(claimed)
        return shown

    # --- looking ----------------------------------------------------------------------------

    async def view(self, turn: TurnId) -> TurnView:
        """Return a turn with all its rows."""
        return await self.store.turn(turn)

    async def state(self, turn: TurnId) -> TurnState:
        """Return a turn's state."""
        return (await self.store.turn(turn)).turn.state

    async def step(self, turn: TurnId, n: int) -> Step:
        """One step."""
        return (await self.store.turn(turn)).steps[n]

    async def wait(self, wait: WaitId) -> Wait:
        """One wait."""
        found = await self.store.wait(wait)
        assert found is not None
        return found

    async def wait_state(self, wait: WaitId) -> WaitState:
        """Return a wait's state."""
        return (await self.wait(wait)).state

    async def rows(self, session: SessionId = MAIN) -> list[Row]:
        """Return every row of a session, by place."""
        rows = (await self.store.older(session, None, 1_000_000)).rows
        return list(rows)

    async def items(self, kind: type[Found], session: SessionId = MAIN) -> list[Found]:
        """Return every row's item of one type, by place."""
        return [row.item for row in await self.rows(session) if isinstance(row.item, kind)]

    async def slots(self, session: SessionId = MAIN, *, kind: SlotKind | None = None) -> list[Slot]:
        """Return the session's slots, oldest first."""
        return [slot for slot in await self.items(Slot, session) if kind is None or slot.kind is kind]

    async def slot(self, slot: SlotId, session: SessionId = MAIN) -> Slot:
        """One slot."""
        return next(found for found in await self.slots(session) if found.id == slot)

    async def received(self, text: str) -> Received:
        """Return the one message with this text."""
        (found,) = [received for received in await self.items(Received) if received.message.text == text]
        return found
