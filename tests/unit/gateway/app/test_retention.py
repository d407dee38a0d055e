"""The loop of retention: rows go first, then the files that they named, on the node that has them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.app.retention import HistoryTrimmer
from gateway.app.wiring import make_history_trimmer
from gateway.domain.ids import NodeId, main_session
from gateway.domain.retention import Keep
from gateway.domain.tools import Risk
from gateway.domain.turns import Lease, TurnState
from gateway.toolcalls.workspaces import JOURNALS, Workspaces
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, in_background, until
from tests.support.makers import ANN, answer, beginning, fetched, result

MAIN = main_session(ANN)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])


def trimmer(engine: Engine) -> HistoryTrimmer:
    return replace(make_history_trimmer(engine.core), keep=Keep(turns=1))


async def ended(engine: Engine) -> Lease:
    """A turn that is done, with a call, an attachment, and files of each kind."""
    await engine.say()
    lease = await engine.claim()
    (received,) = (await engine.store.turn(lease.turn)).inputs
    message = received.id
    await engine.store.record_fetched(lease, message, [fetched(f"inbox/{message}-1.png")])
    await engine.store.plan(lease, answer(calls=1), given=[received], slots=[])
    await engine.store.finish_step(lease, 1, result())
    assert await engine.store.finish_turn(lease, TurnState.DONE, answer=answer(), given=[], slots=[], timers=[])
    spaces = engine.core.workspaces
    for path in files(spaces, lease, message):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    return lease


def files(spaces: Workspaces, lease: Lease, message: str) -> list[Path]:
    outputs, turn = spaces.outputs(MAIN), lease.turn
    journal = outputs / JOURNALS
    inbox = spaces.workspace(MAIN) / "inbox" / f"{message}-1.png"
    named = [outputs / f"{turn}-1.txt", outputs / f"{turn}-1-1.png", outputs / f"{turn}-2-spoken.ogg"]
    return [*named, journal / f"00000001.{turn}-1.json", journal / f"{turn}-1-0.before", inbox]


def left(engine: Engine) -> set[str]:
    roots = [engine.core.workspaces.outputs(MAIN), engine.core.workspaces.workspace(MAIN) / "inbox"]
    return {path.name for root in roots for path in root.rglob("*") if path.is_file()}


async def test_files_go_after_the_rows_that_name_them(engine: Engine) -> None:
    old, kept = await ended(engine), await ended(engine)
    before = left(engine)
    runner = trimmer(engine)
    assert await runner.trim(MAIN)
    assert left(engine) == before  # a crash here: the store names them
    assert [one.turn for one in await engine.store.lost_files()] == [old.turn]
    await trimmer(engine).clear_files()
    assert not [name for name in left(engine) if old.turn in name]
    assert len(left(engine)) * 2 == len(before)
    assert all((engine.core.workspaces.outputs(MAIN) / f"{kept.turn}{end}").exists() for end in ("-1.txt", "-1-1.png"))
    assert await engine.store.lost_files() == []


async def test_files_of_a_turn_that_is_partly_there_stay(engine: Engine) -> None:
    """A large turn goes in pieces; a crash between two of them leaves rows that name files."""
    await engine.say()
    lease = await engine.claim()
    inputs = (await engine.store.turn(lease.turn)).inputs
    await engine.store.plan(lease, answer(calls=99), given=inputs, slots=[])
    assert await engine.store.finish_turn(lease, TurnState.STOPPED, answer=None, given=[], slots=[], timers=[])
    output = engine.core.workspaces.outputs(MAIN) / f"{lease.turn}-1.txt"
    output.parent.mkdir(parents=True)
    output.write_text("kept")
    await ended(engine)
    assert (await engine.store.trim(MAIN, Keep(turns=1))).turns == 0
    assert len(await engine.store.lost_files()) == 1
    await trimmer(engine).clear_files()
    assert output.exists()
    assert await trimmer(engine).trim(MAIN)
    await trimmer(engine).clear_files()
    assert not output.exists()


async def test_a_node_leaves_files_of_others_to_them(engine: Engine, tmp_path: Path) -> None:
    await ended(engine)
    await ended(engine)
    elsewhere = Workspaces(tmp_path / "other")
    other = replace(trimmer(engine), is_alone=False, workspaces=elsewhere)
    assert await other.trim(MAIN)
    for _ in range(2):
        await other.clear_files()
        assert len(await engine.store.lost_files()) == 1
    await replace(trimmer(engine), is_alone=False).clear_files()
    assert await engine.store.lost_files() == []


async def test_one_node_removes_rows_at_a_time(engine: Engine) -> None:
    await ended(engine)
    await ended(engine)
    assert await engine.store.hold("retention", NodeId("there#1"), timedelta(seconds=60))
    held = replace(trimmer(engine), every_s=0.001)
    async with in_background(held.run()):
        await asyncio.sleep(0.02)
        assert not await gone(engine)
        engine.clock.advance(61)
        await until(lambda: gone(engine))
    assert engine.metrics.registry.get_sample_value("dragoman_swept_total", {"sweep": "retention"})


async def gone(engine: Engine) -> bool:
    return len(await engine.store.history(MAIN, 0, 10)) == 1


async def test_the_loop_removes_what_was_exported(engine: Engine) -> None:
    """A row that was changed holds up the removal of nothing else."""
    await engine.say()
    lease = await engine.claim()
    await engine.store.plan(lease, answer(calls=3), given=[], slots=[])
    for n in (1, 2, 3):
        await engine.store.start_step(lease, n, None, beginning(n))
    head = await engine.store.audit_head()
    assert await engine.store.note_export(head.seq, head.hash)
    await trimmer(engine).audit_rows()
    assert len(await engine.store.audit_rows(0, 9)) == 3
    await replace(trimmer(engine), audit_age=timedelta()).audit_rows()
    assert [row.seq for row in await engine.store.audit_rows(0, 9)] == [3]


async def test_the_loop_removes_what_was_set_aside_a_month_ago(engine: Engine) -> None:
    spaces = engine.core.workspaces
    spaces.workspace(MAIN)
    aside = spaces.set_aside(MAIN)
    assert aside is not None
    clock = FakeClock(datetime.now(UTC) + timedelta(days=29, hours=23))
    runner = replace(trimmer(engine), clock=clock, every_s=0.0)

    async def is_gone() -> bool:
        return not aside.exists()

    async with in_background(runner.run()):
        await asyncio.sleep(0.05)
        assert aside.exists()
        clock.advance(7200)
        await until(is_gone)
