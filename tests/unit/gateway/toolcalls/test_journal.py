"""Journal points of a call, its metrics, and the number of store reads and requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.domain.ids import TurnId
from gateway.domain.slots import SlotKind
from gateway.domain.tools import ApprovalMode, Risk, SandboxPolicy
from gateway.domain.views import TurnView
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FailingStore, FakeTool, calls, in_background
from tests.support.makers import ANN, BOB
from tests.support.patience import PATIENCE_S

OF_CALLS = ("J8", "WAITS", "J11", "J12", "J13", "J14")


async def test_a_call_passes_its_points_in_order(tmp_path: Path) -> None:
    """Deaths are tried at these points: one that is not passed would be a test of nothing."""
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])
    engine.points.armed = {"J1": ("raise", 1_000)}  # only what is armed is counted
    lease = await engine.planned("shell:ls")
    assert not await engine.settle(lease)
    assert [name for name in engine.points.passed if name in OF_CALLS] == ["J8", "WAITS"]

    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    assert await engine.settle(lease)
    assert [name for name in engine.points.passed if name in OF_CALLS] == [*OF_CALLS]
    assert {engine.points.passed[name] for name in OF_CALLS} == {1}


async def test_the_audit_says_in_which_sandbox_a_call_began(tmp_path: Path) -> None:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, sandbox=SandboxPolicy.OFF, approval={"main": ApprovalMode.ALLOW})
    engine = Engine(tmp_path, [shell])
    assert await engine.settle(await engine.planned("shell:ls"))
    (row,) = await engine.store.audit_rows(0, 10)
    assert (row.tool, row.sandbox) == ("shell", "off")


async def test_every_decision_is_counted_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE), FakeTool(name="read", risk=Risk.READ)])
    reads = [f"read:{n}" for n in range(12)]
    lease = await engine.planned("shell:a", "shell:b", *reads, "nosuch")
    assert not await engine.settle(lease)
    assert not await engine.settle(lease)

    counts = {
        (decision, reason): engine.metrics.registry.get_sample_value(
            "dragoman_decisions_total", {"decision": decision, "reason": reason}
        )
        for decision, reason in [("ask", ""), ("allow", ""), ("deny", "unknown_tool")]
    }
    assert counts == {("ask", ""): 2, ("allow", ""): 12, ("deny", "unknown_tool"): 1}


class CountingStore(FailingStore):
    """Store that counts reads of a turn."""

    reads = 0

    async def turn(self, turn: TurnId) -> TurnView:
        """Count the read, then read."""
        self.reads += 1
        return await super().turn(turn)


async def test_a_turn_is_not_read_for_a_call(tmp_path: Path) -> None:
    store = CountingStore(FakeClock())
    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ)], store=store)
    lease = await engine.planned("read")
    view, store.reads = await store.turn(lease.turn), 0

    assert await engine.settle_telling(view, lease) == await store.turn(lease.turn)
    assert store.reads == 1  # by this test


async def test_parallel_calls_report_without_reading_the_turn(tmp_path: Path) -> None:
    store, doing = CountingStore(FakeClock()), asyncio.Queue[str]()
    tools = [FakeTool(name=name, risk=Risk.READ, hold=True) for name in ("one", "two", "three")]
    engine = Engine(tmp_path, tools, store=store)
    lease = await engine.planned("one:a", "two:b", "three:c")
    view, store.reads = await store.turn(lease.turn), 0

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        settling = group.create_task(engine.settle_telling(view, lease, doing.put_nowait))
        for tool, told in zip(tools, ("one: a (and 2 more)", "two: b (and 1 more)", "three: c"), strict=True):
            assert await doing.get() == told
            tool.release.set()
    assert settling.result() is not None
    assert store.reads == 0


async def test_a_call_that_waits_for_its_turn_begins_while_others_run(tmp_path: Path) -> None:
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    write = FakeTool(name="write", risk=Risk.WRITE, approval={"main": ApprovalMode.ALLOW})
    engine = Engine(tmp_path, [read, write])
    lease = await engine.planned("read:a", "write:b", "write:c")

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        settling = group.create_task(engine.settle(lease))
        await write.until_begun(2)
        read.release.set()
    assert settling.result()
    assert write.calls == ["b", "c"]


async def test_group_gets_a_note_only_when_somebody_was_asked(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])
    lease = await engine.planned("shell:a", who=BOB, where=GROUP)
    assert await engine.settle(lease)
    assert [slot.kind for slot in await engine.slots(session=lease.session)] == []

    await engine.store.saw_page(ANN)
    await engine.store.plan(lease, calls("shell:b"), given=[], slots=[])
    assert not await engine.settle(lease)
    assert [(slot.kind, slot.text) for slot in await engine.slots(session=lease.session)] == [
        (SlotKind.NOTE, "An owner was asked to allow this: shell wants to run. It goes on when they decide.")
    ]


async def test_card_notes_that_there_is_no_sandbox(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, sandbox=SandboxPolicy.AUTO)])
    lease = await engine.planned("shell:a")
    assert not await engine.settle(lease)

    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert wait.approval.note == "No sandbox: this runs on the host with the daemon's rights."


async def test_call_task_is_named_after_its_call(tmp_path: Path) -> None:
    """A daemon that hangs is asked for its tasks: each says which turn it is of."""
    read = FakeTool(name="read", risk=Risk.READ, hold=True)
    engine = Engine(tmp_path, [read])
    lease = await engine.planned("read:a")
    async with in_background(engine.settle(lease)) as settling:
        await read.until_begun()
        names = {task.get_name() for task in asyncio.all_tasks()}
        read.release.set()
        await settling

    assert {f"call {lease.turn}/1", f"wakes of {lease.turn}"} <= names
