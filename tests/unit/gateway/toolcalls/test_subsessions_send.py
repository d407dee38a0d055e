"""Messages to sub-sessions, and their history, through the whole engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_tools import sessions_history, sessions_send, task
from gateway.domain.ids import SessionId, child_session
from gateway.domain.tools import ApprovalMode, Availability, ResultStatus, ToolResult
from gateway.domain.turns import Lease, TurnLimits, TurnState
from gateway.domain.waits import WaitKind
from gateway.system.redaction import HIDDEN
from tests.support.engine import Engine
from tests.support.fakes import CLEO_CHAT, CLEO_TELEGRAM, GROUP, FakeTool
from tests.support.makers import BOB, inbound
from tests.unit.gateway.toolcalls.subsession_rig import LIMITS, answered, call, ended, own_tool, planned, spawning

OK, DENIED, ERROR, EXPIRED = ResultStatus.OK, ResultStatus.DENIED, ResultStatus.ERROR, ResultStatus.EXPIRED
SECRET = "sk-proj-" + "a1B2" * 12


def talking(folder: Path, *, allowed: bool = True, everywhere: bool = False, limits: TurnLimits = LIMITS) -> Engine:
    """Return an engine with the tools that talk to sub-sessions.

    `allowed`: nobody in main is asked about messages. `everywhere`: the owner offers the history in groups too.
    """
    send, history = own_tool(sessions_send), own_tool(sessions_history)
    if allowed:
        send = replace(send, policy=replace(send.policy, approval={"main": ApprovalMode.ALLOW}))
    if everywhere:
        history = replace(history, policy=replace(history.policy, availability=Availability.ALWAYS))
    lists = FakeTool(name="todo_write")
    return spawning(folder, [FakeTool(name="read"), lists, send, history, own_tool(task)], limits=limits)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return talking(tmp_path)


async def ended_child(engine: Engine, text: str = "There are 7.") -> tuple[Lease, SessionId]:
    """Return a root's turn, whose one sub-session has answered, and that sub-session."""
    lease = await planned(engine, call("sessions_spawn", task="count the files"))
    assert not await engine.settle(lease)
    await ended(engine, await engine.claim(), text)
    assert await engine.settle(lease)
    return lease, child_session(lease.turn, 1)


async def asked(engine: Engine, lease: Lease, tool: str, **arguments: Any) -> int:
    """Let the turn make one more call. Return its step."""
    await answered(engine, lease, call(tool, 9, **arguments))
    return len((await engine.store.turn(lease.turn)).steps) - 1


async def result_of(engine: Engine, lease: Lease, tool: str, **arguments: Any) -> ToolResult:
    """Return the result of one more call, which has it at once."""
    n = await asked(engine, lease, tool, **arguments)
    assert await engine.settle(lease)
    return await engine.result(lease.turn, n)


# --- asking again -------------------------------------------------------------------------------


async def test_ended_child_answers_again_as_the_result(engine: Engine) -> None:
    """It is the same session, whose model is given what it did before; what it says is material."""
    lease, child = await ended_child(engine)
    n = await asked(engine, lease, "sessions_send", session=child, message="And the folders?", wait_s=60)
    assert not await engine.settle(lease)
    assert await engine.store.park(lease)
    again = await engine.claim()
    assert again.session == child
    (before,) = await engine.store.history(child, 0, 10)
    assert before.steps[-1].answer is not None
    assert before.steps[-1].answer.text == "There are 7."
    await ended(engine, again, "Three.")
    back = await engine.claim()
    assert back.turn == lease.turn
    assert await engine.settle(back)
    found = await engine.result(lease.turn, n)
    assert (found.status, found.text, found.untrusted) == (OK, "Three.", True)


async def test_message_without_a_wait_returns_at_once(engine: Engine) -> None:
    lease, child = await ended_child(engine)
    found = await result_of(engine, lease, "sessions_send", session=child, message="And the folders?")
    assert (found.status, found.text) == (OK, f"{child} has begun again. Its answer comes later, as a message.")
    found = await result_of(engine, lease, "sessions_send", session=child, message="And links?")
    assert (found.status, "is at work and has your message" in found.text) == (OK, True)


async def test_answer_that_is_late_comes_as_a_message(engine: Engine) -> None:
    lease, child = await ended_child(engine)
    n = await asked(engine, lease, "sessions_send", session=child, message="And the folders?", wait_s=5)
    assert not await engine.settle(lease)
    assert await engine.store.park(lease)
    again = await engine.claim()
    engine.clock.advance(6)
    await engine.store.expire_waits()
    back = await engine.claim()
    assert await engine.settle(back)
    found = await engine.result(lease.turn, n)
    assert (found.status, found.code) == (EXPIRED, "no_answer_yet")
    assert "goes on" in found.hint
    await ended(engine, back, "Asked.")
    await ended(engine, again, "Three.")
    told = await engine.store.turn((await engine.claim()).turn)
    assert [one.message.quoted for one in told.inputs] == ["Task: count the files\n\nThree."]


async def test_further_task_has_a_part_of_what_is_left(tmp_path: Path) -> None:
    """A sixth of the turn's tokens, or less when earlier tasks used them; nothing begins when all are used."""
    engine = talking(tmp_path, limits=TurnLimits(tokens=600, active=timedelta(minutes=15)))
    lease, child = await ended_child(engine)
    await result_of(engine, lease, "sessions_send", session=child, message="more")
    session = await engine.store.session(child)
    assert session is not None
    assert session.lineage is not None
    assert (session.lineage.tokens, session.lineage.active_s) == (100, 600)


async def test_first_message_to_a_child_is_asked_about(tmp_path: Path) -> None:
    """Once for each sub-session: the approval is good for later messages to it, and for no other."""
    engine = talking(tmp_path, allowed=False)
    lease, child = await ended_child(engine)
    await asked(engine, lease, "sessions_send", session=child, message="more")
    assert not await engine.settle(lease)
    (wait,) = [one for one in await engine.waits(lease.turn) if one.kind is WaitKind.APPROVAL]
    assert wait.approval is not None
    assert (wait.approval.scope, wait.approval.summary) == (child, f"Write to {child}")
    await engine.press(wait.id)
    assert await engine.settle(lease)
    assert (await result_of(engine, lease, "sessions_send", session=child, message="again")).status is OK


# --- tasks of agents ------------------------------------------------------------------------------


async def test_task_of_an_agent_can_be_gone_on_with(engine: Engine) -> None:
    """Its agent takes the lists away, and its id stands below its answer."""
    lease = await planned(engine, call("task", prompt="count the files", description="Count files"))
    assert not await engine.settle(lease)
    first = await engine.claim()
    child = (await engine.store.turn(first.turn)).session
    assert (child.title, child.lineage and child.lineage.agent) == ("Count files", "general")
    assert child.tools is not None
    assert "read" in child.tools
    assert not {"task", "todo_write"} & set(child.tools)
    await ended(engine, first, "Nine.")
    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).hint == f"From {child.id}."
    n = await asked(engine, lease, "task", prompt="and folders?", task_id=child.id)
    assert not await engine.settle(lease)
    (wait,) = [one for one in await engine.waits(lease.turn) if one.kind is WaitKind.APPROVAL]
    assert wait.approval is not None
    assert wait.approval.scope == child.id
    await engine.press(wait.id)
    assert not await engine.settle(lease)
    await ended(engine, await engine.claim(), "Three.")
    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, n)).text == "Three."


async def test_agent_that_explores_is_limited_by_its_preset(engine: Engine) -> None:
    lease = await planned(engine, call("task", prompt="look", agent="explore"))
    assert not await engine.settle(lease)
    child = (await engine.store.turn((await engine.claim()).turn)).session
    assert child.preset == "explore"


# --- what is out of reach -------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["own", "child:t0.1", "main:cleo", "chat:telegram/default/-1003"])
async def test_other_sessions_are_out_of_reach(engine: Engine, whose: str) -> None:
    """The hint says who can be written to, and is the same whatever there is."""
    lease, _ = await ended_child(engine)
    target = lease.session if whose == "own" else whose
    sent = await result_of(engine, lease, "sessions_send", session=target, message="hello")
    read = await result_of(engine, lease, "sessions_history", session=target)
    assert (sent.status, sent.code, read.status, read.code) == (ERROR, "not_found", ERROR, "not_found")
    assert (
        sent.hint
        == "You can write to sub-sessions that this session spawned itself, and to no others: see sessions_list."
    )
    assert read.hint == "This session has no such sub-session; sessions_list names them."


async def test_child_does_not_write_to_its_parent_or_sibling(engine: Engine) -> None:
    lease = await planned(engine, call("sessions_spawn", task="one"), call("sessions_spawn", 1, task="two"))
    assert not await engine.settle(lease)
    child = await engine.claim()
    for target in (lease.session, child_session(lease.turn, 2), child.session):
        found = await result_of(engine, child, "sessions_send", session=target, message="hello")
        assert (found.status, found.code) == (ERROR, "not_found")


async def test_child_at_work_tells_its_parent_without_a_question(tmp_path: Path) -> None:
    """A session that waits for it is not written to: it would read that after the answer."""
    engine = talking(tmp_path, allowed=False)
    lease = await planned(
        engine, call("sessions_spawn", task="one", mode="session"), call("sessions_spawn", 1, task="2")
    )
    assert not await engine.settle(lease)
    later, awaited = [await engine.claim() for _ in range(2)]
    told = await result_of(engine, later, "sessions_send", session="parent", message="Which folder?")
    assert told.status is OK
    refused = await result_of(engine, awaited, "sessions_send", session="parent", message="Which folder?")
    assert (refused.status, refused.code) == (DENIED, "awaited")


async def test_stopped_turn_writes_to_nobody(engine: Engine) -> None:
    lease, child = await ended_child(engine)
    await asked(engine, lease, "sessions_send", session=child, message="more")
    await engine.ingress.message(inbound("/stop"))
    await engine.settle(lease)
    assert len(await engine.store.history(child, 0, 10)) == 1
    (line,) = await engine.store.family(lease.session)
    assert line.turn.state is TurnState.DONE


async def test_sessions_that_write_in_turn_are_ended(engine: Engine) -> None:
    """Main asks, the end of the child begins a turn that asks again, and so on: the hint says what to do."""
    lease, child = await ended_child(engine)
    for _ in range(4):
        await result_of(engine, lease, "sessions_send", session=child, message="And now?")
        await ended(engine, lease, "Asked.")
        await ended(engine, await engine.claim(), "Ask me again!")
        lease = await engine.claim()
    found = await result_of(engine, lease, "sessions_send", session=child, message="And now?")
    assert (found.status, found.code) == (DENIED, "too_many_hops")
    assert found.hint.endswith("and no person did. Say what is there, and ask.")


# --- history --------------------------------------------------------------------------------------


async def test_history_has_what_was_said_and_no_secret(engine: Engine) -> None:
    """It is marked as material; calls are there when they are asked for."""
    lease = await planned(engine, call("sessions_spawn", task=f"use {SECRET}", mode="session"))
    assert await engine.settle(lease)
    child = await engine.claim()
    await answered(engine, child, call("read"))
    assert await engine.settle(child)
    await ended(engine, child, f"The key is {SECRET}.")
    found = await result_of(engine, lease, "sessions_history", session=child.session)
    assert (found.status, found.untrusted) == (OK, True)
    said = [line.partition("] ")[2] for line in found.text.split("\n\n")]
    assert said == [f"use {HIDDEN}", f"The key is {HIDDEN}."]
    whole = await result_of(engine, lease, "sessions_history", session=child.session, calls=True)
    assert "call of read] {}" in whole.text
    assert "result, ok] " in whole.text


async def test_secret_that_a_line_would_cut_is_hidden(engine: Engine) -> None:
    """Half of it would not be known as one, so it is hidden before the line is cut."""
    lease, child = await ended_child(engine, f"{'x ' * (sessions_history.LINE_CHARS // 2 - 5)}{SECRET} and more")
    found = await result_of(engine, lease, "sessions_history", session=child)
    assert SECRET[:8] not in found.text
    assert HIDDEN in found.text


async def test_history_of_a_childs_child_is_read_from_above(engine: Engine) -> None:
    lease = await planned(engine, call("sessions_spawn", task="one"))
    assert not await engine.settle(lease)
    child = await engine.claim()
    await answered(engine, child, call("sessions_spawn", task="two"))
    assert not await engine.settle(child)
    below = child_session(child.turn, 1)
    await ended(engine, await engine.claim(), "Deep.")
    assert await engine.settle(child)
    assert "Deep." in (await result_of(engine, child, "sessions_history", session=below)).text
    await ended(engine, child, "Up.")
    assert await engine.settle(lease)
    assert "Deep." in (await result_of(engine, lease, "sessions_history", session=below)).text
    assert (await result_of(engine, lease, "sessions_send", session=below, message="hi")).code == "not_found"


@pytest.mark.parametrize("reads", ["sessions_history", "sessions_stop"])
async def test_group_reaches_only_what_the_same_person_asked(tmp_path: Path, reads: str) -> None:
    """Another member's sub-session is theirs, in a conversation of several people."""
    engine = talking(tmp_path, everywhere=True)
    await engine.say(who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await ended(engine, await engine.claim(), "hello")
    first = await planned(engine, call("sessions_spawn", task="x", mode="session"), who=BOB, where=GROUP)
    assert not await engine.settle(first)
    (wait,) = await engine.waits(first.turn)
    await engine.press(wait.id, who=CLEO_TELEGRAM, where=CLEO_CHAT)
    assert await engine.settle(first)
    await ended(engine, first, "begun")
    child = await engine.claim()
    for who, code in ((BOB, ""), (CLEO_TELEGRAM, "not_yours")):
        lease = await planned(engine, call(reads, session=child.session), who=who, where=GROUP)
        assert await engine.settle(lease)
        assert (await engine.result(lease.turn, 1)).code == code
        await ended(engine, lease, "read")
