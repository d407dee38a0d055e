"""The tools of sub-sessions, over a fake that records its requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools import sessions_history, sessions_list, sessions_send, sessions_spawn, sessions_stop, shell, task
from gateway.domain.children import Lineage, SpawnMode
from gateway.domain.ids import SessionId, TurnId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, Effect, Park, ResultStatus, Risk, ToolPolicy, ToolResult
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import ChildLine
from gateway.domain.workflows import WorkflowStep
from gateway.errors import Forbidden, NotFound
from gateway.ports import HistoryLine, SessionMessage, Task
from gateway.system.redaction import Redactor
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.output import OutputBuffer
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.support.calls import BareCall
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH

PARKED = Park(wait=WaitId("w1"))
KNOWN, OTHERS = SessionId("child:t1.1"), SessionId("child:t2.1")


@dataclass(slots=True)
class FakeFamily:
    """Fake sub-session service with one child."""

    tasks: list[Task] = field(default_factory=list[Task])
    stopped: list[SessionId] = field(default_factory=list[SessionId])
    lines: Sequence[ChildLine] = ()
    plans_left: int = 0
    plans_begun: int = 0
    sent: list[SessionMessage] = field(default_factory=list[SessionMessage])
    told: list[str] = field(default_factory=list[str])
    read: list[tuple[int | None, int, bool]] = field(default_factory=list[tuple[int | None, int, bool]])
    said: Sequence[HistoryLine] = ()

    async def spawn(self, task: Task) -> ToolResult | Park:
        self.tasks.append(task)
        return PARKED

    async def workflow(self, steps: Sequence[WorkflowStep]) -> ToolResult | Park:
        raise AssertionError(f"these tools declare no workflow, not even of {len(steps)} steps")

    async def send(self, message: SessionMessage) -> ToolResult | Park:
        self._reach(message.session)
        self.sent.append(message)
        return PARKED

    async def tell(self, text: str) -> ToolResult:
        if text == "no parent":
            raise NotFound("it works for no other session")
        self.told.append(text)
        return ToolResult(status=ResultStatus.OK, text="told")

    async def history(self, child: SessionId, before: int | None, limit: int, *, calls: bool) -> Sequence[HistoryLine]:
        self._reach(child)
        self.read.append((before, limit, calls))
        return self.said

    def _reach(self, child: SessionId) -> None:
        if child == OTHERS:
            raise Forbidden("somebody else's", cure="ask them")
        if child != KNOWN:
            raise NotFound("no such child")

    async def members(self) -> Sequence[ChildLine]:
        return self.lines

    async def enter_plan(self) -> None:
        if self.plans_left:
            raise NotFound("there is no preset plan", cure="say it")
        self.plans_begun += 1

    async def leave_plan(self) -> None:
        self.plans_left += 1

    async def stop(self, child: SessionId) -> int:
        self._reach(child)
        self.stopped.append(child)
        return 0 if len(self.stopped) > 1 else 1


class Call(BareCall):
    """A `ToolContext` with only sub-sessions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.output = OutputBuffer(folder, "step.txt", FakeClock(), Redactor())
        self.family = FakeFamily()

    @property
    def sessions(self) -> FakeFamily:
        return self.family


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return Call(tmp_path)


def line(title: str, *, depth: int = 1, state: TurnState = TurnState.RUNNING, waiting: int = 0) -> ChildLine:
    session, turn = SessionId(f"child:t{depth}.1"), TurnId(f"t{depth}0")
    place = Conversation(channel="web", account="child", chat=session)
    lineage = Lineage(
        parent=SessionId("main:ann"), turn=TurnId("t1"), n=1, root=SessionId("main:ann"), root_turn=TurnId("t1"),
        conversation=CHAT, depth=depth, mode=SpawnMode.RUN, active_s=60, tokens=0,
    )  # fmt: skip
    return ChildLine(
        session=Session(
            id=session, kind=SessionKind.NON_MAIN, origin=Origin.CHILD, owner=ANN, title=title, epoch=0,
            root_kind=SessionKind.MAIN, tools=(), created_at=EPOCH, active_at=EPOCH, lineage=lineage,
        ),
        turn=Turn(
            id=turn, session=session, epoch=0, kind=TurnKind.MODEL, state=state, conversation=place,
            principal=ANN_TELEGRAM, created_at=EPOCH, started_at=EPOCH, ended_at=None, active_ms=0,
        ),
        waiting=waiting, input_tokens=1000, output_tokens=200,
    )  # fmt: skip


def test_specs_of_the_session_tools() -> None:
    spawn, listed, stop = sessions_spawn.SPEC, sessions_list.SPEC, sessions_stop.SPEC

    assert [spec.name for spec in (spawn, listed, stop)] == ["sessions_spawn", "sessions_list", "sessions_stop"]
    assert {spec.availability for spec in (spawn, listed, stop)} == {Availability.ALWAYS}
    assert {spec.risk for spec in (spawn, listed, stop)} == {Risk.NONE}
    assert [spec.effect for spec in (spawn, listed, stop)] == [Effect.IDEMPOTENT, Effect.PURE, Effect.IDEMPOTENT]
    assert spawn.approval == {"main": ApprovalMode.ALLOW, "dm": ApprovalMode.ASK, "non-main": ApprovalMode.ASK}
    assert [spec.of_children for spec in (spawn, listed, stop)] == [True] * 3
    assert [spec.returns_child_text for spec in (spawn, listed, stop)] == [True, False, False]
    assert (spawn.command, spawn.positional, spawn.shows) == ("spawn", "task", "task")


async def test_a_task_alone_leaves_the_rest_to_the_parent(call: Call) -> None:
    assert await sessions_spawn.run(call, sessions_spawn.Args(task=" count the files \n")) == PARKED
    assert call.family.tasks == [Task(text="count the files")]


@pytest.mark.parametrize("named", ["timeout", "timeout_s", "timeout_seconds"])
async def test_everything_that_is_asked_is_passed_on(call: Call, named: str) -> None:
    args = {
        "task": "x", "agent": "a", "model": "m", "preset": "p", "tools": ["shell"], "mode": "session", named: 5,
    }  # fmt: skip
    await sessions_spawn.run(call, sessions_spawn.Args.model_validate(args))

    assert call.family.tasks == [
        Task(text="x", agent="a", model="m", preset="p", tools=["shell"], mode=SpawnMode.SESSION, timeout_s=5)
    ]


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"task": ""},
        {"task": " \n "},
        {"task": "x" * (sessions_spawn.TASK_CHARS + 1)},
        {"task": "x", "kind": "main"},
        {"task": "x", "owner": "ann"},
        {"task": "x", "sandbox": "off"},
        {"task": "x", "tools": "*"},
        {"task": "x", "tools": [""]},
        {"task": "x", "tools": ["t"] * 101},
        {"task": "x", "mode": "detached"},
        {"task": "x", "agent": ""},
        {"task": "x", "timeout": 0},
        {"task": "x", "timeout": "NaN"},
        {"task": "x", "timeout": 1e9},
    ],
)
def test_nothing_else_can_be_asked(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sessions_spawn.Args.model_validate(args)


async def test_stored_arguments_of_a_spawn_validate_again() -> None:
    """The arguments that an approval keeps are validated again before they run."""
    args = sessions_spawn.Args.model_validate({"task": "x", "timeout": 7, "tools": []})

    assert sessions_spawn.Args.model_validate(args.model_dump(mode="json", by_alias=False)) == args


async def test_the_list_says_of_each_its_id_state_and_title(call: Call) -> None:
    call.family.lines = [line("count"), line("below", depth=2, state=TurnState.PARKED, waiting=2)]
    found = await sessions_list.run(call, sessions_list.Args())

    assert found.status is ResultStatus.OK
    assert found.text.splitlines() == [
        "child:t1.1 running, 1200 tokens: count",
        "  child:t2.1 parked, waits for 2 decisions, 1200 tokens: below",
    ]


async def test_an_empty_list_says_so(call: Call) -> None:
    assert (await sessions_list.run(call, sessions_list.Args())).text == "There are no sub-sessions."


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ({"state": "parked"}, ["below"]),
        ({"name": " COUNT "}, ["count the files", "Count again"]),
        ({"name": "t2.1"}, ["below"]),
        ({"name": "count", "state": "done"}, ["Count again"]),
        ({"limit": 3}, ["count the files", "below", "Count again"]),
        ({"limit": 1}, ["count the files", "2 more match; raise limit to see them."]),
        ({"name": "count", "limit": 1}, ["count the files", "1 more match; raise limit to see them."]),
        ({"state": "failed"}, ["No sub-session matches; leave filters out to see all."]),
    ],
)
async def test_a_list_has_only_what_is_asked_for(call: Call, args: dict[str, Any], shown: list[str]) -> None:
    call.family.lines = [
        line("count the files"),
        line("below", depth=2, state=TurnState.PARKED),
        line("Count again", state=TurnState.DONE),
    ]
    found = await sessions_list.run(call, sessions_list.Args.model_validate(args))

    assert [each.rpartition(": ")[2] for each in found.text.splitlines()] == shown


def test_a_list_can_be_asked_for_every_state() -> None:
    assert [sessions_list.Args.model_validate({"state": one}).state for one in TurnState] == list(TurnState)


@pytest.mark.parametrize(
    "args", [{"state": "asleep"}, {"name": " "}, {"name": "x" * 101}, {"limit": 0}, {"limit": 51}, {"owner": "ann"}]
)
def test_a_list_has_no_other_filters(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sessions_list.Args.model_validate(args)


async def test_stopping_twice_is_safe_and_says_so(call: Call) -> None:
    args = sessions_stop.Args(session=KNOWN)

    assert (await sessions_stop.run(call, args)).text == "Stopped."
    assert (await sessions_stop.run(call, args)).text == "It had ended already."


@pytest.mark.parametrize("session", ["main:ann", "child:t9.9", "chat:telegram/default/-1003", "'; drop table"])
async def test_session_outside_the_family_cannot_be_stopped(call: Call, session: str) -> None:
    found = await sessions_stop.run(call, sessions_stop.Args(session=session))

    assert (found.status, found.code, call.family.stopped) == (ResultStatus.ERROR, "not_found", [])
    assert session not in found.hint


# --- by the names of other programs --------------------------------------------------------------


async def test_task_is_a_new_sub_session_of_an_agent(call: Call) -> None:
    args = task.Args.model_validate({"prompt": " count the files "})
    assert await task.run(call, args) == PARKED
    args = task.Args(prompt="look", agent="explore", description="Look around")
    assert await task.run(call, args) == PARKED
    assert call.family.tasks == [
        Task(text="count the files", agent="general"),
        Task(text="look", agent="explore", title="Look around"),
    ]
    assert task.scope(args, None).risk is task.SPEC.risk is Risk.NONE, "its own calls are decided"


async def test_task_goes_on_with_an_earlier_one(call: Call) -> None:
    args = task.Args(prompt="and the folders?", task_id=KNOWN)
    assert await task.run(call, args) == PARKED
    assert call.family.sent == [SessionMessage(session=KNOWN, text="and the folders?", wait_s=task.WAITS_S)]
    assert (task.scope(args, None).risk, task.scope(args, None).scope) == (Risk.EXECUTE, KNOWN)
    found = await task.run(call, task.Args(prompt="x", task_id="child:t9.9"))
    assert isinstance(found, ToolResult)
    assert (found.code, "Leave `task_id` out" in found.hint) == ("not_found", True)


@pytest.mark.parametrize(
    "args", [{}, {"prompt": " "}, {"agent": ""}, {"task_id": ""}, {"description": "x" * 101}, {"mode": "run"}]
)
def test_task_has_no_other_arguments(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        task.Args.model_validate({} if not args else {"prompt": "x", **args})


# --- talking to one that is there ---------------------------------------------------------------


@pytest.mark.parametrize(("named", "wait_s"), [({}, 0), ({"wait_s": 5}, 5), ({"timeout_s": 6}, 6), ({"timeout": 7}, 7)])
async def test_message_is_passed_on_with_its_wait(call: Call, named: dict[str, Any], wait_s: float) -> None:
    args = sessions_send.Args.model_validate({"session": KNOWN, "message": " and then? \n", **named})

    assert await sessions_send.run(call, args) == PARKED
    assert call.family.sent == [SessionMessage(session=KNOWN, text="and then?", wait_s=wait_s)]
    assert sessions_send.scope(args, None).scope == KNOWN


@pytest.mark.parametrize(
    ("text", "wait_s", "code"), [("Halfway.", 0, ""), ("Halfway.", 5, "cannot_wait"), ("no parent", 0, "not_found")]
)
async def test_message_to_the_parent_needs_no_id(call: Call, text: str, wait_s: float, code: str) -> None:
    args = sessions_send.Args(session="parent", message=text, wait_s=wait_s)
    found = await sessions_send.run(call, args)
    assert isinstance(found, ToolResult)
    assert (found.code, call.family.told) == (code, [] if code else [text])
    assert (sessions_send.scope(args, None).risk, sessions_send.scope(args, None).scope) == (Risk.NONE, "")


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"message": ""},
        {"message": " "},
        {"message": "x" * (sessions_send.MESSAGE_CHARS + 1)},
        {"message": "x", "wait_s": -1},
        {"message": "x", "wait_s": 86_401},
        {"message": "x", "wait_s": "NaN"},
        {"message": "x", "session": ""},
        {"message": "x", "agent": "a"},
    ],
)
def test_message_has_no_other_arguments(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sessions_send.Args.model_validate({"session": KNOWN, **args})


@pytest.mark.parametrize(
    ("session", "status", "code"), [(OTHERS, ResultStatus.DENIED, "not_yours"), ("x", ResultStatus.ERROR, "not_found")]
)
async def test_sessions_of_others_are_refused_with_why(
    call: Call, session: str, status: ResultStatus, code: str
) -> None:
    found = [
        await sessions_send.run(call, sessions_send.Args(session=session, message="x")),
        await sessions_history.run(call, sessions_history.Args(session=session)),
        await sessions_stop.run(call, sessions_stop.Args(session=session)),
    ]

    assert [(one.status, one.code) for one in found if isinstance(one, ToolResult)] == [(status, code)] * 3
    assert all(isinstance(one, ToolResult) and one.hint and session not in one.hint.split() for one in found)


async def test_history_is_material_with_numbers_and_speakers(call: Call) -> None:
    call.family.said = [HistoryLine(ord=3, who="task", text="count"), HistoryLine(ord=7, who="answer", text="7")]
    found = await sessions_history.run(call, sessions_history.Args(session=KNOWN, limit=5, before=9, calls=True))

    assert found.text == "[3, task] count\n\n[7, answer] 7"
    assert (found.status, found.untrusted, found.hint) == (ResultStatus.OK, True, "Earlier ones: before=3.")
    assert call.family.read == [(9, 5, True)]


async def test_history_is_bounded_and_keeps_the_newest(call: Call) -> None:
    """A long line is cut, and lines that do not fit are those before the number in the hint."""
    call.family.said = [HistoryLine(ord=n, who="answer", text=f"{n} {'x' * 5_000}") for n in range(1, 31)]
    found = await sessions_history.run(call, sessions_history.Args(session=KNOWN))

    shown = found.text.split("\n\n")
    assert shown[-1].startswith("[30, answer] 30 x")
    assert all(len(one) < sessions_history.LINE_CHARS + 30 for one in shown)
    assert 5 < len(shown) < 12
    assert found.hint == f"Earlier ones: before={31 - len(shown)}."


async def test_history_that_has_nothing_says_so(call: Call) -> None:
    found = await sessions_history.run(call, sessions_history.Args(session=KNOWN, before=1))
    assert (found.text, found.hint, found.untrusted) == ("", "There is nothing before that.", False)


def test_schemas_of_all_tools_are_short() -> None:
    """The first request with every tool stays within 12 KB, most of it the system prompt."""
    modules = (sessions_spawn, sessions_list, sessions_stop, shell)
    tools = [
        Tool(
            spec=module.SPEC,
            policy=ToolPolicy(
                availability=Availability.ALWAYS, approval={}, timeout_s=30, actions={}, sandbox=module.SPEC.sandbox
            ),
            arguments=ModelArguments(module.Args),
            run=module.run,
        )
        for module in modules
    ]
    main = replace(line("x").session, kind=SessionKind.MAIN, tools=None)
    offers = ToolSet(tools, sandboxed=True).offers(main)

    size = sum(len(json.dumps([one.name, one.description, dict(one.schema)])) for one in offers)
    assert len(offers) == 4
    assert size < 4_500
