from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from gateway.domain.ids import CallId
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import Availability, ResultStatus, Risk, ToolCall
from gateway.domain.turns import Lease, TurnLimits
from gateway.domain.waits import PressResult, StartOutcome, Verb, WaitState
from gateway.toolcalls.tool_set import Tool
from tests.contract.scene import offer_again
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FakeTool, Text, ToolBox, in_background
from tests.support.makers import ANN_TELEGRAM, BOB, beginning

OK, DENIED, ERROR, EXPIRED, CANCELLED, UNKNOWN = (
    ResultStatus.OK,
    ResultStatus.DENIED,
    ResultStatus.ERROR,
    ResultStatus.EXPIRED,
    ResultStatus.CANCELLED,
    ResultStatus.UNKNOWN,
)


@pytest.fixture
def tools() -> ToolBox:
    return ToolBox()


@pytest.fixture
def engine(tmp_path: Path, tools: ToolBox) -> Engine:
    return Engine(tmp_path, tools.all)


async def parked(engine: Engine, *named: str) -> Lease:
    """Return a parked turn whose calls are settled as far as possible."""
    lease = await engine.planned(*named)
    assert not await engine.settle(lease)
    assert await engine.store.park(lease)
    return lease


async def woken(engine: Engine, lease: Lease) -> Lease:
    """Claim the same turn again."""
    again = await engine.claim()
    assert again.turn == lease.turn
    return again


# --- deciding -----------------------------------------------------------------------------------


async def test_allowed_call_runs_denied_does_not_and_asked_waits(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned("read:a", "blocked", "shell:ls", "nosuch", "think")

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [OK, DENIED, None, ERROR, OK]
    assert (await engine.result(lease.turn, 2)).code == "blocked"
    assert (await engine.result(lease.turn, 4)).code == "unknown_tool"
    (wait,) = await engine.waits(lease.turn)
    assert (wait.n, wait.state) == (3, WaitState.OPEN)
    assert tools.shell.calls == tools.blocked.calls == []


async def test_all_calls_are_decided_before_any_runs(engine: Engine, tools: ToolBox) -> None:
    tools.read.hold = True
    lease = await engine.planned("read", "shell:ls", "blocked")
    async with in_background(engine.settle(lease)) as settling:
        await tools.read.until_begun()

        assert await engine.results(lease.turn) == [None, None, DENIED]
        assert [wait.n for wait in await engine.waits(lease.turn)] == [2]
        tools.read.release.set()
        await settling


async def test_asked_calls_share_cards_of_eight_rows(engine: Engine) -> None:
    lease = await engine.planned(*(f"shell:{n}" for n in range(10)))
    await engine.settle(lease)

    cards = [slot for slot in await engine.slots() if slot.kind is SlotKind.CARD]
    assert [len(card.waits) for card in cards] == [8, 2]
    assert [w for card in cards for w in card.waits] == [wait.id for wait in await engine.waits(lease.turn)]


async def test_an_approval_binds_the_action_as_it_is_shown(engine: Engine) -> None:
    lease = await engine.planned("shell:ls \u202e")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)

    assert wait.approval is not None
    assert wait.approval.rendered == r"ls \u{202E}"
    assert wait.approval.escaped
    assert wait.approval.action.arguments == {"text": "ls \u202e"}
    assert wait.approval.requester == ANN_TELEGRAM
    assert wait.expires_at - wait.opened_at == engine.calls.expiry[(await engine.store.turn(lease.turn)).session.kind]


async def test_call_too_long_to_show_is_denied(engine: Engine) -> None:
    lease = await engine.planned("shell:" + "é" * 11_000)

    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).code == "too_long_to_show"


async def test_call_is_denied_when_nobody_can_be_asked(engine: Engine) -> None:
    lease = await engine.planned("shell:ls", who=BOB, where=GROUP)

    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).code == "nobody_to_ask"


@pytest.mark.parametrize("arguments", ["", "{", "null", "[]", '{"text": 1}', '{"other": ""}', "\x00"])
async def test_malformed_arguments_are_an_error_and_run_nothing(engine: Engine, tools: ToolBox, arguments: str) -> None:
    turn = await engine.say()
    lease = await engine.claim()
    call = ToolCall(id=CallId("c1"), tool="trusted", arguments=arguments)
    await engine.store.plan(lease, Answer(text="", calls=(call,)), given=[], slots=[])

    assert await engine.settle(lease)
    found = await engine.result(turn, 1)
    assert (found.status, found.code) == (ERROR, "invalid_arguments")
    assert tools.trusted.calls == []


async def test_the_fifty_first_call_of_a_turn_is_refused(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned(*(f"think:{n}" for n in range(51)))

    assert await engine.settle(lease)
    assert len(tools.think.calls) == 50
    assert (await engine.results(lease.turn))[-1] is DENIED


async def test_call_limit_of_a_turn_is_configurable(engine: Engine, tools: ToolBox, tmp_path: Path) -> None:
    later = Engine(tmp_path, tools.all, store=engine.store)
    later.calls = replace(later.calls, limits=TurnLimits(calls=1))
    lease = await later.planned("think:a", "think:b")

    assert await later.settle(lease)
    assert await later.results(lease.turn) == [OK, DENIED]
    assert "may make 1 calls" in (await later.result(lease.turn, 2)).hint


async def test_repeated_call_of_a_turn_is_asked_then_denied(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned(*["think:same"] * 12)

    assert not await engine.settle(lease)
    assert tools.think.calls == ["same"] * 3
    assert await engine.results(lease.turn) == [OK] * 3 + [None] * 7 + [DENIED] * 2
    waits = await engine.waits(lease.turn)
    assert [wait.n for wait in waits] == list(range(4, 11))
    assert waits[0].approval is not None
    assert waits[0].approval.note == "The same call was made 3 times before in this turn."
    assert (await engine.result(lease.turn, 12)).code == "loop"

    await engine.press(waits[0].id)
    assert not await engine.settle(lease)
    assert tools.think.calls == ["same"] * 4


async def test_a_loop_that_nobody_can_be_asked_about_ends(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned(*["think:same"] * 4, who=BOB, where=GROUP)

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [OK] * 3 + [DENIED]
    assert (await engine.result(lease.turn, 4)).code == "loop"


# --- nonsense of a model (F13) ------------------------------------------------------------------


async def nonsense(engine: Engine, *made: ToolCall) -> Lease:
    """Return a claimed turn whose answer makes these calls."""
    await engine.say()
    lease = await engine.claim()
    await engine.store.plan(lease, Answer(text="", calls=made), given=[], slots=[])
    return lease


async def test_calls_beyond_the_limit_of_fifty_are_denied(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned(*(f"think:{n}" for n in range(200)))

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [OK] * 50 + [DENIED] * 150
    assert tools.think.most <= 4


async def test_calls_with_one_id_are_distinguished_by_their_place(engine: Engine) -> None:
    same = CallId("c0")
    made = [ToolCall(id=same, tool="think", arguments=Text(text=one).model_dump_json()) for one in ("a", "b", "b")]
    lease = await nonsense(engine, *made)

    assert await engine.settle(lease)
    assert [(await engine.result(lease.turn, n)).text for n in (1, 2, 3)] == ["think a", "think b", "think b"]


async def test_ten_megabytes_of_arguments_are_refused_at_once(engine: Engine, tools: ToolBox) -> None:
    vast = Text(text="x" * 10_000_000).model_dump_json()
    made = [ToolCall(id=CallId(f"c{n}"), tool="trusted", arguments=vast) for n in range(5)]
    lease = await nonsense(engine, *made)
    began = time.perf_counter()

    assert await engine.settle(lease)
    assert time.perf_counter() - began < 1
    assert await engine.results(lease.turn) == [ERROR] * 5
    assert tools.trusted.calls == []


@pytest.mark.parametrize("name", ["", "SHELLS", "shell ", "shell\x00", "../shell", "x" * 100_000, "invalid", "ѕhell"])
async def test_a_tool_that_there_is_not_is_a_short_result(engine: Engine, tools: ToolBox, name: str) -> None:
    lease = await nonsense(engine, ToolCall(id=CallId("c0"), tool=name, arguments="{}"))

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert (found.status, found.code) == (ERROR, "unknown_tool")
    assert len(found.hint) < 300
    assert tools.shell.calls == []


class Faulty(Text):
    """Arguments without a canonical form."""

    number: float = float("nan")


async def test_a_decision_that_fails_is_a_refusal_and_the_others_go_on(tmp_path: Path) -> None:
    """I02. NaN passes validation and then has no canonical form: the decision itself raises."""
    faulty = FakeTool(name="faulty", risk=Risk.NONE, arguments=Faulty)
    read = FakeTool(name="read", risk=Risk.READ)
    engine = Engine(tmp_path, [without_null(faulty), read])
    lease = await engine.planned("faulty", "read")

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [DENIED, OK]
    assert (await engine.result(lease.turn, 1)).code == "policy_error"
    assert faulty.calls == []


def without_null(tool: FakeTool) -> Tool:
    """Return a tool whose arguments keep NaN in JSON."""

    class Keeps(Faulty):
        model_config = ConfigDict(ser_json_inf_nan="constants")

    return replace(tool.tool(), arguments=Keeps)


# --- running ------------------------------------------------------------------------------------


async def test_reads_run_side_by_side_but_not_more_than_four(engine: Engine, tools: ToolBox) -> None:
    tools.read.hold = True
    lease = await engine.planned(*(f"read:{n}" for n in range(7)))
    async with in_background(engine.settle(lease)) as settling:
        await tools.read.until_begun(4)
        await asyncio.sleep(0.02)
        assert tools.read.running == 4
        tools.read.release.set()
        await settling

    assert tools.read.most == 4
    assert tools.read.calls == [str(n) for n in range(7)]
    assert await engine.results(lease.turn) == [OK] * 7


async def test_writing_calls_run_one_at_a_time_beside_reads(engine: Engine, tools: ToolBox) -> None:
    tools.trusted.hold = tools.read.hold = True
    lease = await engine.planned("trusted:a", "read", "trusted:b", "think")
    async with in_background(engine.settle(lease)) as settling:
        await tools.trusted.until_begun()
        await tools.read.until_begun()
        await tools.think.until_begun()
        await asyncio.sleep(0.02)
        assert tools.trusted.running == 1
        tools.trusted.release.set()
        tools.read.release.set()
        await settling

    assert tools.trusted.most == 1
    assert tools.trusted.calls == ["a", "b"]


async def test_call_approved_during_another_starts_after_it(engine: Engine, tools: ToolBox) -> None:
    tools.trusted.hold = True
    lease = await engine.planned("trusted", "shell:ls")
    async with in_background(engine.settle(lease)) as settling:
        await tools.trusted.until_begun()
        (wait,) = await engine.waits(lease.turn)
        assert (await engine.press(wait.id)).result is PressResult.APPROVED
        await asyncio.sleep(0.02)
        assert tools.shell.calls == []  # both change something: one at a time
        tools.trusted.release.set()
        await settling

    assert tools.shell.calls == ["ls"]
    assert await engine.results(lease.turn) == [OK, OK]
    assert (await engine.waits(lease.turn))[0].state is WaitState.CONSUMED


async def test_a_press_while_a_read_runs_starts_its_call_beside_it(engine: Engine, tools: ToolBox) -> None:
    tools.read.hold = True
    lease = await engine.planned("read", "shell:ls")
    async with in_background(engine.settle(lease)) as settling:
        await tools.read.until_begun()
        (wait,) = await engine.waits(lease.turn)
        await engine.press(wait.id)
        await tools.shell.until_begun()
        assert tools.read.running == 1
        tools.read.release.set()
        await settling


async def test_each_press_runs_its_own_call_and_one_approval_runs_once(engine: Engine, tools: ToolBox) -> None:
    lease = await parked(engine, "shell:a", "shell:b")
    first, second = await engine.waits(lease.turn)
    await engine.press(second.id)
    lease = await woken(engine, lease)
    assert not await engine.settle(lease)
    assert tools.shell.calls == ["b"]
    assert await engine.store.park(lease)

    await engine.press(first.id)
    lease = await woken(engine, lease)
    assert await engine.settle(lease)
    assert await engine.settle(lease)
    assert tools.shell.calls == ["b", "a"]
    assert (await engine.press(second.id)).result is PressResult.ALREADY


@pytest.mark.parametrize(
    ("verb", "reason", "hint"),
    [
        (Verb.DENY, "", "Nothing was run."),
        (Verb.DENY_REASON, "use trash instead", "The person who denied it says: use trash instead Nothing was run."),
    ],
)
async def test_a_denial_is_a_result_with_its_reason(
    engine: Engine, tools: ToolBox, verb: Verb, reason: str, hint: str
) -> None:
    lease = await parked(engine, "shell:rm")
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, verb, reason=reason)
    lease = await woken(engine, lease)

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert (found.status, found.code, found.hint) == (DENIED, "denied", hint)
    assert tools.shell.calls == []


async def test_deny_with_reason_withdraws_the_siblings(engine: Engine, tools: ToolBox) -> None:
    lease = await parked(engine, "shell:a", "shell:b", "write:c")
    waits = await engine.waits(lease.turn)
    await engine.press(waits[1].id, Verb.DENY_REASON, reason="no")
    lease = await woken(engine, lease)

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [CANCELLED, DENIED, CANCELLED]
    assert tools.shell.calls == tools.write.calls == []


async def test_nobody_decided_in_time_and_nothing_was_run(engine: Engine, tools: ToolBox) -> None:
    lease = await parked(engine, "shell:a")
    engine.clock.advance(3601)
    assert await engine.store.expire_waits() == 1
    lease = await woken(engine, lease)

    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).status is EXPIRED
    assert tools.shell.calls == []


async def test_a_decision_that_is_too_old_runs_nothing(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned("shell:a")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    engine.clock.advance(301)

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert found.status is EXPIRED
    assert tools.shell.calls == []


async def test_approval_expired_in_a_downtime_is_asked_again_once(engine: Engine, tools: ToolBox) -> None:
    lease = await parked(engine, "shell:a")
    engine.clock.advance(3601)
    assert await offer_again(engine.store) == 1
    lease = await woken(engine, lease)
    assert not await engine.settle(lease)
    first, second = await engine.waits(lease.turn)
    assert (first.state, second.state) == (WaitState.SUPERSEDED, WaitState.OPEN)
    assert (await engine.press(first.id)).result is PressResult.EXPIRED

    await engine.press(second.id)
    assert await engine.settle(lease)
    assert tools.shell.calls == ["a"]


# --- the approved action is what runs -----------------------------------------------------------


async def test_an_approval_does_not_start_another_action(engine: Engine, tools: ToolBox) -> None:
    lease = await engine.planned("shell:ls", "shell:rm")
    await engine.settle(lease)
    wait, _ = await engine.waits(lease.turn)
    await engine.press(wait.id)
    assert wait.approval is not None

    assert await engine.store.start_step(lease, 1, wait.id, beginning(action_sha="0" * 64)) is StartOutcome.NOT_APPROVED
    assert (
        await engine.store.start_step(lease, 2, wait.id, beginning(action_sha=wait.approval.action_sha))
        is StartOutcome.NOT_APPROVED
    )
    assert not await engine.settle(lease)
    assert tools.shell.calls == ["ls"]  # its own one, once


async def test_action_changed_in_the_store_does_not_run(engine: Engine, tools: ToolBox) -> None:
    """c9: what runs is hashed again, so that nothing between the button and the tool can swap it."""
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    row = engine.store.waits[wait.id]
    assert row.wait.approval is not None
    swapped = replace(row.wait.approval, action=replace(row.wait.approval.action, arguments={"text": "rm -rf /"}))
    engine.store.waits[wait.id] = replace(row, wait=replace(row.wait, approval=swapped))

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert (found.status, found.code) == (DENIED, "not_approved")
    assert tools.shell.calls == []


async def test_stored_action_runs_when_the_tool_was_reloaded(engine: Engine, tools: ToolBox, tmp_path: Path) -> None:
    lease = await parked(engine, "shell:ls")
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)

    class Other(BaseModel):
        text: str
        mode: str

    changed = FakeTool(name="shell", risk=Risk.EXECUTE, arguments=Other)
    later = Engine(tmp_path, [changed], store=engine.store)
    lease = await woken(later, lease)
    assert await later.settle(lease)
    found = await later.result(lease.turn, 1)
    assert (found.status, found.code) == (ERROR, "invalid_arguments")
    assert changed.calls == tools.shell.calls == []


async def test_approved_call_does_not_run_when_its_tool_is_blocked(
    engine: Engine, tools: ToolBox, tmp_path: Path
) -> None:
    lease = await parked(engine, "shell:ls")
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    later = Engine(tmp_path, [FakeTool(name="shell", availability=Availability.BLOCKED)], store=engine.store)
    lease = await woken(later, lease)

    assert await later.settle(lease)
    assert (await later.result(lease.turn, 1)).code == "blocked"
    assert tools.shell.calls == []
