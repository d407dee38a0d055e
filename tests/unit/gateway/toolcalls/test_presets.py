"""Presets in a running session: commands that change them, the way out of a plan, and sub-sessions under them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_tools import plan_enter, plan_exit
from gateway.domain.children import Agent
from gateway.domain.ids import Principal, main_session
from gateway.domain.messages import Conversation
from gateway.domain.slots import SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import Availability, CallScope, Effect, ResultStatus, Risk
from gateway.domain.waits import Verb
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, GROUP, FakeTool
from tests.support.makers import ANN, ANN_TELEGRAM, BOB, CHAT, inbound
from tests.unit.gateway.toolcalls.subsession_rig import answered, call, own_tool, planned, spawning

OK, DENIED, ERROR = ResultStatus.OK, ResultStatus.DENIED, ResultStatus.ERROR
MAIN = main_session(ANN)


@pytest.fixture
def shell() -> FakeTool:
    return FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)


@pytest.fixture
def engine(tmp_path: Path, shell: FakeTool) -> Engine:
    owners = FakeTool(name="owners", availability=Availability.MAIN)
    return spawning(
        tmp_path, [shell, FakeTool(name="read", risk=Risk.READ), owners, own_tool(plan_enter), own_tool(plan_exit)]
    )


async def command(engine: Engine, text: str, *, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT) -> str:
    """Send a control command and return its reply."""
    message = inbound(text, who=who, where=where, direct=where != GROUP)
    assert await engine.ingress.message(message) is None
    sessions = [line.session.id for line in await engine.store.sessions()]
    slots = [slot for session in sessions for slot in await engine.slots(session=session)]
    return [slot.text for slot in slots if slot.kind is SlotKind.REPLY and slot.conversation == where][-1]


async def preset(engine: Engine) -> str:
    found = await engine.store.session(MAIN)
    assert found is not None
    return found.preset


# --- commands -------------------------------------------------------------------------------


async def test_plan_limits_the_session_at_once(engine: Engine, shell: FakeTool) -> None:
    said = await command(engine, "/plan")
    lease = await planned(engine, call("shell", text="rm x"), call("read", 1, text="x"))
    assert await engine.settle(lease)

    first, second = await engine.result(lease.turn, 1), await engine.result(lease.turn, 2)

    assert "The preset is now `plan`" in said
    assert (first.status, first.code) == (DENIED, "configured")
    assert "The preset plan does not permit shell" in first.hint
    assert second.status is OK
    assert shell.calls == []


async def test_turn_under_way_meets_the_new_preset(engine: Engine, shell: FakeTool) -> None:
    lease = await planned(engine, call("shell", text="rm x"))
    await command(engine, "/plan")

    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).code == "configured"
    assert shell.calls == []


async def test_approval_does_not_outlive_a_plan(engine: Engine, shell: FakeTool) -> None:
    lease = await planned(engine, call("shell", text="rm x"))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await command(engine, "/plan")
    await engine.press(wait.id)

    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).status is DENIED
    assert shell.calls == []


def writes_source(_: object) -> CallScope:
    return CallScope(risk=Risk.WRITE, subjects=("path:src/a.py",))


async def test_approved_write_does_not_outlive_a_plan(tmp_path: Path) -> None:
    """The tool stays: a plan may write its own files. The call that was allowed writes another one."""
    edit = FakeTool(name="edit", risk=Risk.WRITE, effect=Effect.UNSAFE)
    engine = spawning(tmp_path, [replace(edit.tool(), call_scope=writes_source)])
    lease = await planned(engine, call("edit", text="x"))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await command(engine, "/plan")
    await engine.press(wait.id)

    assert await engine.settle(lease)

    assert "It may write plans/*.md only." in (await engine.result(lease.turn, 1)).hint
    assert edit.calls == []


async def test_build_ends_the_limits(engine: Engine) -> None:
    await command(engine, "/plan")

    assert "The preset is now `build`" in await command(engine, "/build")
    lease = await planned(engine, call("shell", text="date"))

    assert not await engine.settle(lease), "somebody is asked"


@pytest.mark.parametrize(
    ("text", "reply", "after"),
    [
        ("/preset explore", "The preset is now `explore`", "explore"),
        ("/preset plan", "The preset is now `plan`", "plan"),
        ("/preset", "The preset here is `build`. Choose with `/preset NAME`", ""),
        ("/preset nonsense", "There is no preset `nonsense` for this session. There are: `build`, `explore`", ""),
        ("/build", "The preset `build` is in force already", ""),
        ("/plan fix the bug", "Write what is to be done as a message of its own.", "plan"),
    ],
)
async def test_preset_is_chosen_by_name(engine: Engine, text: str, reply: str, after: str) -> None:
    assert reply in await command(engine, text)
    assert await preset(engine) == after


@pytest.mark.parametrize("text", ["/plan", "/build", "/preset explore", "/tools off read", "/tools on read"])
@pytest.mark.parametrize(("who", "where"), [(BOB, BOB_CHAT), (BOB, GROUP)])
async def test_only_an_owner_changes_limits(engine: Engine, text: str, who: Principal, where: Conversation) -> None:
    reply = await command(engine, text, who=who, where=where)
    sessions = [line.session for line in await engine.store.sessions()]

    assert reply.startswith("Only an owner can")
    assert [(one.preset, one.tools_off) for one in sessions] == [("", ())]


async def test_owner_changes_the_preset_of_a_group(engine: Engine) -> None:
    assert "now `explore`" in await command(engine, "/preset explore", where=GROUP)

    (line,) = await engine.store.sessions()
    assert (line.session.id != MAIN, line.session.preset) == (True, "explore")


async def test_tool_switched_off_does_not_run(engine: Engine) -> None:
    """Neither is it offered, nor does a call of it run, whoever makes it (D63)."""
    said = await command(engine, "/tools off read")
    lease = await planned(engine, call("read", text="x"))
    assert await engine.settle(lease)

    result = await engine.result(lease.turn, 1)

    assert said == "`read` is off in this session. It comes back with `/tools on read`."
    assert (result.status, result.code) == (DENIED, "configured")
    assert "/tools off read" in result.hint


async def test_tool_switched_off_during_a_turn_does_not_run(engine: Engine) -> None:
    lease = await planned(engine, call("read", text="x"))
    await command(engine, "/tools off read")

    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).code == "configured"


@pytest.mark.parametrize(
    ("texts", "reply"),
    [
        (["/tools off read", "/tools on read"], "`read` is on in this session."),
        (["/tools off read", "/tools off read"], "`read` is off here already."),
        (["/tools on read"], "`read` is on here already."),
        (["/tools off spawn"], "`sessions_spawn` is off in this session."),
        (["/tools off reed"], "There is no tool `reed`. Did you mean `read`?"),
        (["/tools off"], "There is no tool without a name."),
    ],
)
async def test_tools_are_switched_by_name(engine: Engine, texts: list[str], reply: str) -> None:
    replies = [await command(engine, text) for text in texts]

    assert reply in replies[-1]


async def test_tools_tells_owners_why_and_others_what_exists(engine: Engine) -> None:
    """S042 to S047: what is hidden is not named to people who may not have it."""
    await command(engine, "/plan")
    owners, others = await command(engine, "/tools"), await command(engine, "/tools", who=BOB, where=BOB_CHAT)

    assert "Not here (the preset is `plan`):" in owners
    assert "- `shell`: The preset plan does not permit shell here, since its risk is execute." in owners
    assert "`owners`" in owners
    assert "owners" not in others
    assert "Not here" not in others


async def test_hidden_tool_is_an_unknown_command(engine: Engine) -> None:
    hidden = await command(engine, "/owners x", who=BOB, where=BOB_CHAT)
    unknown = await command(engine, "/nobodys x", who=BOB, where=BOB_CHAT)

    assert hidden.replace("owners", "nobodys") == unknown


async def test_model_is_told_of_the_plan_and_of_no_hidden_tool(engine: Engine) -> None:
    await command(engine, "/plan")
    engine.model.script.append(Answer(text="Done.", model="scripted"))
    await engine.say("plan this")
    await engine.run(await engine.claim())
    request = engine.model.requests[-1]

    names = [tool.name for tool in request.tools]

    assert names == ["owners", "plan_exit", "read", "sessions_spawn", "tools"]
    assert "this supersedes every other instruction" in request.system
    assert "shell" not in request.system


# --- the way out of a plan ------------------------------------------------------------------

PLAN = "1. Read.\n2. Change *one* line."


@pytest.mark.parametrize(("chosen", "before"), [("/preset explore", "explore"), ("/build", "")])
async def test_plan_is_shown_whole_and_left_when_allowed(engine: Engine, chosen: str, before: str) -> None:
    """It returns to what the session had, never to something wider (I19)."""
    await command(engine, chosen)
    await command(engine, "/plan")
    lease = await planned(engine, call("plan_exit", plan=PLAN))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert all(line in wait.approval.rendered for line in PLAN.splitlines())
    assert await preset(engine) == "plan"

    await engine.press(wait.id)
    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).text.startswith("The person agreed to the plan.")
    assert await preset(engine) == before


async def test_denied_plan_goes_on(engine: Engine) -> None:
    await command(engine, "/plan")
    lease = await planned(engine, call("plan_exit", plan=PLAN))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)

    await engine.press(wait.id, Verb.DENY)
    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).status is DENIED
    assert await preset(engine) == "plan"


async def test_plan_that_ended_meanwhile_is_not_left_again(engine: Engine) -> None:
    await command(engine, "/plan")
    lease = await planned(engine, call("plan_exit", plan=PLAN))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await command(engine, "/preset explore")
    assert (await engine.press(wait.id)).wait is not None

    assert await engine.settle(lease)

    assert (await engine.result(lease.turn, 1)).status is DENIED
    assert await preset(engine) == "explore"


@pytest.mark.parametrize("before", ["/build", "/preset explore"])
async def test_way_out_exists_in_a_plan_only(engine: Engine, before: str) -> None:
    await command(engine, before)
    lease = await planned(engine, call("plan_exit", plan=PLAN))

    assert await engine.settle(lease)

    assert "There is no plan to leave" in (await engine.result(lease.turn, 1)).hint


# --- the way into a plan --------------------------------------------------------------------


async def test_plan_is_begun_when_a_person_agrees(engine: Engine) -> None:
    """It goes back to what the session had: the model proposes, and the button decides."""
    await command(engine, "/build")
    lease = await planned(engine, call("plan_enter", why="Forty files."))
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert "Forty files." in wait.approval.rendered
    await engine.press(wait.id)
    assert await engine.settle(lease)
    assert await preset(engine) == "plan"

    await answered(engine, lease, call("plan_exit", plan=PLAN))
    assert not await engine.settle(lease)
    await engine.press((await engine.waits(lease.turn))[-1].id)
    assert await engine.settle(lease)
    assert await preset(engine) == ""


@pytest.mark.parametrize("before", ["/plan", "/preset explore"])
async def test_way_in_exists_where_nobody_plans(engine: Engine, before: str) -> None:
    await command(engine, before)
    lease = await planned(engine, call("plan_enter", why="Forty files."))
    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).status is DENIED


# --- sub-sessions ---------------------------------------------------------------------------


async def test_child_is_never_looser_than_its_parent(engine: Engine, shell: FakeTool) -> None:
    """The child was spawned before the plan, with no preset of its own (I12)."""
    parent = await planned(engine, call("sessions_spawn", task="count"))
    assert not await engine.settle(parent)
    child = await engine.claim()
    await command(engine, "/plan")
    await answered(engine, child, call("shell", text="rm x"))

    assert await engine.settle(child)

    result = await engine.result(child.turn, 1)
    assert (result.status, result.code) == (DENIED, "configured")
    assert shell.calls == []


async def test_child_has_the_preset_that_was_asked_for(engine: Engine) -> None:
    parent = await planned(engine, call("sessions_spawn", task="count", preset="explore"))
    assert not await engine.settle(parent)
    child = await engine.claim()
    await answered(engine, child, call("shell", text="rm x"))

    assert await engine.settle(child)

    assert "The preset explore does not permit shell" in (await engine.result(child.turn, 1)).hint
    assert await preset(engine) == ""


@pytest.mark.parametrize("name", ["plan", "nonsense"])
async def test_child_cannot_have_a_preset_of_people(engine: Engine, name: str) -> None:
    parent = await planned(engine, call("sessions_spawn", task="count", preset=name))

    assert await engine.settle(parent)

    result = await engine.result(parent.turn, 1)
    assert (result.status, result.code) == (ERROR, "invalid_arguments")
    assert result.hint == f"There is no preset {name!r}. There are: build, explore."
    assert len(await engine.store.sessions()) == 1


async def test_child_of_a_plan_cannot_leave_it(engine: Engine) -> None:
    await command(engine, "/plan")
    parent = await planned(engine, call("sessions_spawn", task="count", preset="build"))
    assert not await engine.settle(parent)
    child = await engine.claim()
    await answered(engine, child, call("plan_exit", plan=PLAN), call("shell", 1, text="x"))

    assert await engine.settle(child)

    assert await engine.results(child.turn) == [DENIED, DENIED]
    assert await preset(engine) == "plan"


async def test_agent_has_its_preset_and_generation(tmp_path: Path, shell: FakeTool) -> None:
    agents = {"scout": Agent(name="scout", description="Looks.", preset="explore", generation=6)}
    engine = spawning(tmp_path, [shell], agents=agents)
    parent = await planned(engine, call("sessions_spawn", task="count", agent="scout"))
    assert not await engine.settle(parent)

    view = await engine.store.turn((await engine.claim()).turn)

    assert (view.session.preset, view.session.presets_above) == ("explore", ("",))
    assert view.session.tools == ("shell",), "the tools of sub-sessions are of generation 7"
