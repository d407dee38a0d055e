"""Audit: a call starts with its row, in one transition, and nothing else writes one."""

from __future__ import annotations

import pytest

from gateway.domain.audit import AuditHead, StartBasis
from gateway.domain.ids import NodeId
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.waits import StartOutcome
from gateway.policy.audit import verify
from gateway.ports import Store
from gateway.store.kernel.audit import ROWS_AT_ONCE
from tests.contract.scene import MAIN, NODE, OTHER_NODE, Scene
from tests.support.clock import FakeClock
from tests.support.makers import ANN_TELEGRAM, beginning, deny, seconds, sha


async def test_nothing_started_yet(store: Store) -> None:
    """The audit is empty, and whole."""
    head = await store.audit_head()
    assert (head.seq, len(head.hash)) == (0, 64)
    assert (await store.audit_rows(0, 10), await store.started_calls(0, 10)) == ([], [])
    assert (await verify(store)).broken is None


async def test_a_start_writes_its_row(scene: Scene, clock: FakeClock) -> None:
    """The row has person, tool, place and time, and none of the arguments."""
    lease = await scene.planned()
    clock.advance(2)
    await scene.start(lease, 1)
    (row,) = await scene.store.audit_rows(0, 10)
    assert (row.seq, row.at, row.session, row.turn, row.n) == (1, clock.now(), MAIN, lease.turn, 1)
    assert (row.lane, row.tool, row.action_sha, row.sandbox, row.node) == (
        TurnKind.MODEL,
        "shell",
        sha(1),
        "basic",
        NODE,
    )
    assert (row.basis, row.wait, row.decided_by) == (StartBasis.SETTINGS, None, None)
    assert await scene.store.audit_head() == AuditHead(
        since=(await scene.store.audit_head()).since, seq=1, hash=row.hash
    )


async def test_a_rule_is_named_with_its_place(scene: Scene) -> None:
    """A reader of the audit finds the line that let the call run, also after a restart, and not beside an approval."""
    place = "config.toml:41 (rules[2])"
    lease = await scene.planned()
    await scene.store.start_step(lease, 1, None, beginning(1, rule=place))
    found = await scene.store.audit_row(lease.turn, 1)
    assert found is not None
    assert (found.seq, found.basis, found.rule) == (1, StartBasis.RULE, place)
    await scene.finish(lease)

    asked = await scene.asked()
    await scene.press(asked.wait)
    await scene.store.start_step(asked.lease, 1, asked.wait, beginning(1, rule=place))
    found = await scene.store.audit_row(asked.lease.turn, 1)
    assert found is not None
    assert (found.basis, found.rule) == (StartBasis.APPROVAL, "")
    assert (await verify(scene.store)).broken is None


@pytest.mark.conformance
async def test_the_row_of_a_call_is_that_of_its_last_start(scene: Scene) -> None:
    """With the approval that let it start. It outlives the turn; a call that did not start has none."""
    asked = await scene.asked(2)
    await scene.press(asked.wait)
    await scene.start(asked.lease, 1, asked.wait)
    (row,) = await scene.store.audit_rows(0, 10)
    assert (row.basis, row.wait, row.decided_by) == (StartBasis.APPROVAL, asked.wait, ANN_TELEGRAM)
    await scene.lapse()
    again = await scene.claim()
    await scene.start(again, 1)
    found = await scene.store.audit_row(asked.turn, 1)
    assert found is not None
    assert (found.seq, found.basis) == (2, StartBasis.AGAIN)
    assert await scene.store.audit_row(asked.turn, 2) is None
    assert await scene.finish(again, TurnState.FAILED)
    whole = await verify(scene.store)
    assert (whole.rows, whole.calls, whole.broken) == (2, 1, None)
    assert whole.head == (await scene.store.audit_head()).hash


async def test_a_command_is_said_to_be_one(scene: Scene) -> None:
    """A person asked for it, not a model."""
    lease = await scene.planned(kind=TurnKind.COMMAND)
    await scene.start(lease, 1)
    assert [row.lane for row in await scene.store.audit_rows(0, 10)] == [TurnKind.COMMAND]


async def test_a_call_that_is_run_again_has_a_row_for_each_start(scene: Scene, clock: FakeClock) -> None:
    """Its step names the last one; both stay."""
    await scene.started()
    await scene.lapse()
    again = await scene.claim(OTHER_NODE)
    assert await scene.start(again, 1) is StartOutcome.STARTED
    first, second = await scene.store.audit_rows(0, 10)
    assert (first.basis, first.node, second.basis, second.node) == (
        StartBasis.SETTINGS,
        NODE,
        StartBasis.AGAIN,
        OTHER_NODE,
    )
    (call,) = await scene.store.started_calls(0, 10)
    assert (call.row, call.started_at) == (second, clock.now())


async def test_call_that_does_not_start_has_no_audit_row(scene: Scene, clock: FakeClock) -> None:
    """Refused, too late, stopped, without its approval, or begun already."""
    asked = await scene.asked(3)
    await scene.press(asked.waits[0], deny())
    await scene.press(asked.waits[1])
    assert await scene.start(asked.lease, 1, asked.waits[0]) is StartOutcome.NOT_APPROVED
    assert await scene.start(asked.lease, 3, asked.waits[2]) is StartOutcome.NOT_APPROVED
    clock.advance(301)
    assert await scene.start(asked.lease, 2, asked.waits[1]) is StartOutcome.TOO_OLD
    await scene.stop()
    assert await scene.start(asked.lease, 3, asked.waits[2]) is StartOutcome.STOPPING
    assert (await scene.store.audit_rows(0, 10), await scene.store.started_calls(0, 10)) == ([], [])


@pytest.mark.conformance
async def test_rows_and_calls_come_in_pages(scene: Scene) -> None:
    """In order, each once, whatever the size of a page."""
    lease = await scene.planned(5)
    for n in (2, 1, 3, 5, 4):
        await scene.start(lease, n)
    rows = [row for after in range(0, 5, 2) for row in await scene.store.audit_rows(after, 2)]
    assert [(row.seq, row.n) for row in rows] == [(1, 2), (2, 1), (3, 3), (4, 5), (5, 4)]
    calls = await scene.store.started_calls(0, 3)
    calls = [*calls, *await scene.store.started_calls(calls[-1].ord, 3)]
    assert [(call.n, call.row) for call in calls] == [
        (1, rows[1]),
        (2, rows[0]),
        (3, rows[2]),
        (4, rows[4]),
        (5, rows[3]),
    ]
    assert await scene.store.audit_rows(5, 2) == await scene.store.started_calls(calls[-1].ord, 3) == []


async def _exported(store: Store, seq: int) -> None:
    """Note an export that ended in this row."""
    (row,) = await store.audit_rows(seq - 1, 1)
    assert await store.note_export(seq, row.hash)


async def _numbers(store: Store, most: int = 10) -> list[int]:
    return [row.seq for row in await store.audit_rows(0, most)]


@pytest.mark.conformance
async def test_only_old_rows_behind_an_export_are_removed(scene: Scene, clock: FakeClock) -> None:
    """The remaining rows are whole from the mark on, calls of removed rows need none, and the chain goes on."""
    store = scene.store
    lease = await scene.planned(6)
    for n in (1, 2, 3, 4):
        await scene.start(lease, n)
        clock.advance(1)
    first = (await store.audit_rows(0, 10))[:2]
    assert (await store.trim_audit(seconds(0)), await store.removed_audit()) == (0, None)
    await _exported(store, 2)
    assert await store.trim_audit(seconds(4.5)) == 0
    assert (await store.trim_audit(seconds(3.5)), await _numbers(store)) == (1, [2, 3, 4])
    assert (await store.trim_audit(seconds(0)), await store.trim_audit(seconds(0))) == (1, 0)
    mark = await store.removed_audit()
    assert mark is not None
    assert (mark.seq, mark.hash, mark.at) == (2, first[1].hash, first[1].at)
    await scene.start(lease, 5)
    found = await verify(store)
    assert (found.rows, found.calls, found.broken, found.removed) == (3, 3, None, mark)
    assert [(call.seq, call.row is None) for call in await store.started_calls(0, 9)] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
        (5, False),
    ]
    assert (await store.audit_row(lease.turn, 1), await _numbers(store)) == (None, [3, 4, 5])
    assert await _numbers(store, 1) == [3], "removed rows count for no page"


@pytest.mark.conformance
async def test_the_last_row_of_the_audit_is_never_removed(scene: Scene, clock: FakeClock) -> None:
    """It is the head. An export that the store does not hold is not noted, and a later one takes over."""
    lease = await scene.planned(3)
    for n in (1, 2):
        await scene.start(lease, n)
    clock.advance(60)
    assert not await scene.store.note_export(2, "another")
    assert not await scene.store.note_export(3, (await scene.store.audit_head()).hash)
    await _exported(scene.store, 2)
    assert (await scene.store.trim_audit(seconds(1)), await _numbers(scene.store)) == (1, [2])
    assert (await scene.store.trim_audit(seconds(1)), (await verify(scene.store)).broken) == (0, None)
    await scene.start(lease, 3)
    assert (await scene.store.trim_audit(seconds(1)), await _numbers(scene.store)) == (1, [3])
    await _exported(scene.store, 3)
    assert (await verify(scene.store)).rows == 1


async def test_a_removal_of_many_rows_goes_in_small_steps(scene: Scene, clock: FakeClock) -> None:
    lease = await scene.planned(ROWS_AT_ONCE + 2)
    for n in range(1, ROWS_AT_ONCE + 3):
        await scene.start(lease, n)
    clock.advance(60)
    await _exported(scene.store, ROWS_AT_ONCE + 2)
    assert [await scene.store.trim_audit(seconds(1)) for _ in range(3)] == [ROWS_AT_ONCE, 1, 0]
    assert (await verify(scene.store)).broken is None


async def test_a_machine_is_named_as_it_was(scene: Scene) -> None:
    """Each row says which life of which daemon it was."""
    for node in (NODE, OTHER_NODE):
        await scene.say()
        lease = await scene.claim(NodeId(node))
        await scene.plan(lease)
        await scene.start(lease, 1)
        await scene.finish(lease)
    assert [row.node for row in await scene.store.audit_rows(0, 10)] == [NODE, OTHER_NODE]
