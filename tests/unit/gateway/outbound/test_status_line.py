"""Status line, from the turn's side: its activity, when it gets a message, and its last text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.domain.children import Lineage, SpawnMode, child_place
from gateway.domain.events import ANSWERS, Activity, ProgressChanged
from gateway.domain.ids import CallId, NodeId, SessionId, TurnId, WaitId, main_session, status_slot
from gateway.domain.messages import Conversation
from gateway.domain.routes import WhileRunning
from gateway.domain.slots import NewSlot, Slot, SlotKind, SlotState
from gateway.domain.steps import Answer, Step, StepKind, StepState, Usage
from gateway.domain.tools import ToolCall
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.errors import LeaseLost, StoreError
from gateway.outbound.status_line import AT_WORK, TEXT_CHARS, TurnStatus
from gateway.store.memory import MemoryStore
from gateway.system.redaction import Redactor
from tests.support.clock import FakeClock
from tests.support.fakes import ANN_PAGE
from tests.support.makers import ANN, CHAT, EPOCH, answer, approval, beginning, inbound, result, route, said
from tests.support.patience import PATIENCE_S

TWO_CHILDREN = Activity(waits=(WaitKind.CHILD, WaitKind.CHILD))
SECRET = "correct-horse-battery"
NODE = NodeId("here#1")
CHILD = SessionId("child:t0.1")


class Store(MemoryStore):
    """Memory store that counts writes of status lines, and fails or is slow on request."""

    def __init__(self, clock: FakeClock) -> None:
        """Start without failures."""
        super().__init__(clock)
        self.opened: list[str] = []
        self.trouble: list[Exception] = []
        self.go = asyncio.Event()
        self.go.set()

    async def open_slot(self, lease: Lease, slot: NewSlot) -> bool:
        """Count the write, then fail, wait or store."""
        self.opened.append(slot.text)
        if self.trouble:
            raise self.trouble.pop(0)
        await self.go.wait()
        return await super().open_slot(lease, slot)


@dataclass(slots=True)
class World:
    """One claimed turn, and the events of its status line."""

    clock: FakeClock = field(default_factory=FakeClock)
    said: list[ProgressChanged] = field(default_factory=list[ProgressChanged])
    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Something was said."""
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        """Make the store."""
        self.store = Store(self.clock)

    async def claimed(self, where: Conversation = CHAT) -> tuple[Lease, TurnView]:
        """Return a claimed turn without calls."""
        message = inbound(where=where)
        await self.store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        (one,) = await self.store.claim(NODE)
        return one.lease, await self.store.turn(one.lease.turn)

    def status(self, lease: Lease, view: TurnView, *, streams: frozenset[str] = frozenset({"telegram"})) -> TurnStatus:
        """Return the status line under one lease."""
        return TurnStatus(
            view=view,
            lease=lease,
            journal=self.store,
            events=self.store.event_bus,
            clock=self.clock,
            redactor=Redactor([SECRET]),
            streams=streams,
            open_after_s=0.05,
            say_again_s=0.05,
        )

    async def a_call(self, lease: Lease, took_s: float) -> TurnView:
        """Make a call that takes that long."""
        view = await self.store.plan(lease, answer(calls=1), given=(), slots=())
        n = view.steps[-1].n
        await self.store.start_step(lease, n, None, beginning())
        self.clock.advance(took_s)
        await self.store.finish_step(lease, n, result())
        return await self.store.turn(lease.turn)

    async def ends(self, lease: Lease, slots: list[NewSlot]) -> None:
        """End the turn."""
        view = await self.store.turn(lease.turn)
        given = view.inputs
        done = await self.store.finish_turn(
            lease, TurnState.DONE, answer=answer(), given=given, slots=[said(), *slots], timers=()
        )
        assert done

    async def heard(self, times: int) -> None:
        """Wait for that many events. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.said) < times:
                self.more.clear()
                await self.more.wait()

    async def texts(self) -> list[str]:
        """Return the texts received by now."""
        await asyncio.sleep(0)
        return [one.text for one in self.said]

    def line(self, turn: TurnId) -> Slot | None:
        """Return the stored message of the line."""
        row = self.store.slots.get(status_slot(turn))
        return row.slot if row else None


@asynccontextmanager
async def listening() -> AsyncGenerator[World]:
    """Return a world with a subscriber to its status lines."""
    world = World()

    async def listen() -> None:
        async with world.store.event_bus.subscribe(ANSWERS) as events:
            async for event in events:
                if isinstance(event, ProgressChanged):
                    world.said.append(event)
                    world.more.set()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        ear = group.create_task(listen(), name="ear")
        await asyncio.sleep(0)
        yield world
        ear.cancel()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with listening() as found:
        yield found


def of_child(view: TurnView) -> TurnView:
    """Return the same turn, in a child of Ann's session."""
    lineage = Lineage(
        parent=main_session(ANN),
        turn=TurnId("t0"),
        n=1,
        root=view.session.id,
        root_turn=TurnId("t0"),
        conversation=CHAT,
        depth=1,
        mode=SpawnMode.RUN,
        active_s=600,
        tokens=0,
    )
    session = replace(view.session, id=CHILD, title="disk", lineage=lineage)
    return replace(view, session=session, turn=replace(view.turn, conversation=child_place(CHILD)))


def a_step(view: TurnView, n: int, began: float | None, ended: float | None, tool: str = "shell") -> Step:
    """Return a call with start and end at these seconds."""
    return Step(
        turn=view.turn.id,
        n=n,
        kind=StepKind.TOOL,
        state=StepState.FINISHED,
        call=ToolCall(id=CallId(f"c{n}"), tool=tool, arguments="{}"),
        started_at=None if began is None else EPOCH + timedelta(seconds=began),
        ended_at=None if ended is None else EPOCH + timedelta(seconds=ended),
    )


def a_wait(
    view: TurnView, kind: WaitKind, opened: float, decided: float, payload: Mapping[str, Any] | None = None
) -> Wait:
    """Return a wait opened and decided at these seconds."""
    return Wait(
        id=WaitId(f"w{opened}"),
        turn=view.turn.id,
        session=view.session.id,
        n=0,
        kind=kind,
        state=WaitState.CANCELLED,
        approval=approval(0) if kind is WaitKind.APPROVAL else None,
        payload=payload or {},
        opened_at=EPOCH + timedelta(seconds=opened),
        expires_at=EPOCH + timedelta(hours=1),
        decided_at=EPOCH + timedelta(seconds=decided),
    )


# --- what is said ---------------------------------------------------------------------------------


async def test_status_publishes_activity_only_on_change(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    for text in ["shell: df -h", "shell: df -h", "waits for a decision", ""]:
        status.set_activity(Activity(calls=(text,)))
    status.ended()
    status.ended()

    assert await world.texts() == ["shell: df -h", "waits for a decision", "thinking", ""]
    first = world.said[0]
    assert (first.turn, first.conversation, first.by, first.title) == (view.turn.id, CHAT, view.session.id, "")


async def test_turn_without_a_status_line_reports_no_end(world: World) -> None:
    status = world.status(*await world.claimed())
    status.ended()

    assert await world.texts() == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"shell: echo {SECRET}", "shell: echo [hidden]"),
        ("shell: echo correct-horse-\nbattery", "shell: echo correct-horse- battery"),
        ("shell: a\n\tb\r\n  c\u2028d", "shell: a b c d"),
        ("shell: `a` **b** [c](d) <b>", "shell: `a` **b** [c](d) <b>"),
        ("shell: \u202eabc\u200b\x1b[31m", "shell: abc [31m"),
        (" \n ", "thinking"),
    ],
)
async def test_status_text_is_one_plain_line_without_secrets(world: World, text: str, line: str) -> None:
    world.status(*await world.claimed()).set_activity(Activity(calls=(text,)))

    assert await world.texts() == [line]


@pytest.mark.parametrize("text", ["x" * 10_000, "shell: " + "very " * 2_000, " " * 9_000 + SECRET, "`" * 10_000_000])
async def test_status_text_is_short(world: World, text: str) -> None:
    world.status(*await world.claimed()).set_activity(Activity(calls=(text,)))

    (found,) = await world.texts()
    assert 0 < len(found) <= TEXT_CHARS


@pytest.mark.parametrize("before", range(4_990 - len(SECRET), 5_001))
async def test_status_text_hides_a_secret_at_its_cut(world: World, before: int) -> None:
    world.status(*await world.claimed()).set_activity(Activity(calls=(f"a{' ' * (before - 1)}{SECRET}{' ' * 100}",)))

    (found,) = await world.texts()
    assert found in ("a", "a [hidden]")


async def test_status_is_silent_when_channel_does_not_stream(world: World) -> None:
    lease, view = await world.claimed(ANN_PAGE)
    status = world.status(lease, view)
    status.set_activity(Activity(calls=("shell: sleep 10",)))
    async with status.watch():
        await asyncio.sleep(0.1)
    status.set_activity(TWO_CHILDREN)
    await status.parking()
    status.ended()

    assert (await world.texts(), world.store.opened, status.closing(view)) == ([], [], [])


async def test_child_status_goes_to_root_turn_without_own_line(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, of_child(view))
    await status.resume()
    status.set_activity(Activity(calls=("shell: df -h",)))
    async with status.watch():
        await world.heard(3)
    status.set_activity(TWO_CHILDREN)
    await status.parking()
    status.ended()

    assert await world.texts() == ["shell: df -h"] * 3 + ["waits for 2 sub-sessions", ""]
    assert (world.said[0].turn, world.said[0].conversation, world.said[0].by) == (TurnId("t0"), CHAT, CHILD)
    assert world.said[0].title == "disk"
    assert (world.store.opened, status.closing(view)) == ([], [])


@pytest.mark.parametrize(("title", "shown"), [("a\nb", "a b"), (" ", "sub-session"), (SECRET, "[hidden]")])
async def test_child_title_is_plain_and_never_empty(world: World, title: str, shown: str) -> None:
    lease, view = await world.claimed()
    child = of_child(view)
    status = world.status(lease, replace(child, session=replace(child.session, title=title)))
    status.set_activity(Activity())
    await world.texts()

    assert [one.title for one in world.said] == [shown]


# --- when it gets a message -----------------------------------------------------------------------


async def test_status_has_no_message_or_commit_when_calls_are_quick(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    await status.resume()
    async with status.watch():
        status.set_activity(Activity(calls=("shell: true",)))
        view = await world.a_call(lease, 0.02)
    closing = status.closing(view, answer())
    await world.ends(lease, closing)

    assert (world.store.opened, world.line(view.turn.id)) == ([], None)


async def test_status_opens_once_after_a_second_and_ends_in_summary(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    async with status.watch():
        status.set_activity(Activity(calls=(f"shell: sleep 2; echo {SECRET}",)))
        await asyncio.sleep(0.2)
        view = await world.a_call(lease, 2)
    assert world.store.opened == [f"{AT_WORK} shell: sleep 2; echo [hidden]"]
    line = world.line(view.turn.id)
    assert line is not None
    assert (line.kind, line.state, line.conversation, line.version) == (SlotKind.STATUS, SlotState.DUE, CHAT, 1)

    await world.ends(lease, status.closing(view, Answer(text="Done.", usage=Usage(input_tokens=1000))))
    line = world.line(view.turn.id)
    assert line is not None
    assert (line.text, line.version) == ("1 call (shell), 2 s, 1,000 tokens", 2)


async def test_several_quick_answers_count_together(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    for _ in range(2):
        async with status.watch():
            world.clock.advance(0.03)
    assert world.store.opened == []
    async with status.watch():
        await asyncio.sleep(0.01)
    assert len(world.store.opened) == 1


async def test_message_under_creation_at_the_end_of_calls_is_awaited(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    world.store.go.clear()
    async with status.watch():
        await asyncio.sleep(0.1)
        assert len(world.store.opened) == 1
        assert status.closing(view) == []  # nobody knows yet
        asyncio.get_running_loop().call_later(0.05, world.store.go.set)  # after the end of the calls

    assert len(status.closing(view)) == 1


async def test_a_store_that_fails_is_asked_again_and_harms_no_call(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    world.store.trouble = [StoreError("full")]
    async with status.watch():
        await asyncio.sleep(0.2)

    assert (len(world.store.opened), len(status.closing(view))) == (2, 1)


async def test_a_lease_that_is_lost_is_found_out_by_what_counts(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    world.store.trouble = [LeaseLost("gone")] * 50
    async with status.watch():
        await asyncio.sleep(0.12)
        done = "the calls went on"

    assert (done, status.closing(view)) == ("the calls went on", [])


async def test_calls_that_fail_or_are_cut_end_the_watching(world: World) -> None:
    status = world.status(*await world.claimed())
    with pytest.raises(ExceptionGroup) as raised:
        async with status.watch():
            raise StoreError("the store failed")
    assert raised.value.subgroup(StoreError)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), status.watch():
            await asyncio.sleep(10)
    await asyncio.sleep(0.1)
    assert world.store.opened == []


@pytest.mark.parametrize(
    ("activity", "opened"),
    [
        (Activity(waits=(WaitKind.CHILD,)), 1),
        (Activity(waits=(WaitKind.APPROVAL, WaitKind.CHILD)), 1),
        (Activity(waits=(WaitKind.APPROVAL,)), 0),
        (Activity(calls=("waits for a sub-session",)), 0),
    ],
)
async def test_status_opens_at_once_when_turn_parks_on_children(world: World, activity: Activity, opened: int) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    status.set_activity(activity)
    await status.parking()
    await status.parking()

    assert len(world.store.opened) == opened


# --- when the turn goes on in another holding -----------------------------------------------------


async def again(world: World, lease: Lease) -> tuple[Lease, TurnStatus, TurnView]:
    """Release the turn and claim it again."""
    await world.store.release(lease)
    (one,) = await world.store.claim(NODE)
    view = await world.store.turn(one.lease.turn)
    status = world.status(one.lease, view)
    await status.resume()
    return one.lease, status, view


@pytest.mark.parametrize(("took_s", "opened"), [(3, ["▸ thinking"]), (0.01, [])])
async def test_status_is_resumed_by_next_holder(world: World, took_s: float, opened: list[str]) -> None:
    """Quick calls do not open it again, though their decision opened it; it gets its summary all the same."""
    lease, view = await world.claimed()
    status = world.status(lease, view)
    status.set_activity(Activity(calls=("shell: make",)))
    async with status.watch():
        await asyncio.sleep(0.1)
        await world.a_call(lease, took_s)
    lease, status, view = await again(world, lease)
    assert world.store.opened == ["▸ shell: make", *opened]
    assert (await world.texts())[-1] == "thinking"

    await world.ends(lease, status.closing(view))
    line = world.line(view.turn.id)
    assert line is not None
    assert line.text.startswith("1 call (shell)")


async def test_the_next_holding_of_a_quick_turn_makes_no_line(world: World) -> None:
    lease, view = await world.claimed()
    for _ in range(2):
        await world.a_call(lease, 0.01)
    world.clock.advance(600)
    lease, status, view = await again(world, lease)
    await world.ends(lease, status.closing(view))

    assert (world.store.opened, world.line(view.turn.id)) == ([], None)


async def test_line_left_by_a_silent_holder_ends_with_the_stores_text(world: World) -> None:
    lease, view = await world.claimed()
    status = world.status(lease, view)
    async with status.watch():
        await asyncio.sleep(0.1)
    await world.ends(lease, [])

    line = world.line(view.turn.id)
    assert line is not None
    assert line.text == "Ended."
    assert not line.text.startswith(AT_WORK)  # `streams` takes it for the last word


@pytest.mark.parametrize(
    ("spans", "long"),
    [
        ([(0, 0.04), (1, 1.04)], True),  # after each other
        ([(0, 0.04), (0, 0.04), (0.01, 0.03)], False),  # side by side
        ([(0, None)], True),  # cut in half
        ([(None, 5)], False),  # refused, never begun
    ],
)
async def test_duration_of_calls_counts_their_union(
    world: World, spans: list[tuple[float | None, float | None]], long: bool
) -> None:
    lease, view = await world.claimed()
    world.clock.advance(10)
    steps = tuple(a_step(view, n, began, ended) for n, (began, ended) in enumerate(spans))
    await world.status(lease, replace(view, steps=steps)).resume()

    assert bool(world.store.opened) is long


async def test_a_turn_that_waited_for_a_child_has_a_line(world: World) -> None:
    lease, view = await world.claimed()
    steps = (a_step(view, 0, 0, 0.01),)
    waits = (a_wait(view, WaitKind.CHILD, 0, 0.01),)
    await world.status(lease, replace(view, steps=steps, waits=waits)).resume()

    assert len(world.store.opened) == 1
