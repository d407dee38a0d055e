"""Hostile model: it never runs a hidden tool, reaches another session or gets more rights.

Random answers in a session of each kind and in the sub-sessions that it spawns, over the real decisions, the real
tools and the memory store; in most of the runs an owner allows whatever is asked.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_tools import sessions_history, sessions_send
from gateway.approvals import deciders
from gateway.domain.approvers import OWNERS_DECIDE
from gateway.domain.children import LIVE_BELOW_A_ROOT, MAX_DEPTH
from gateway.domain.ids import CallId, Principal, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, ResultStatus, Risk, ToolCall
from gateway.domain.turns import Lease
from gateway.domain.waits import WaitKind, WaitState
from gateway.errors import LeaseLost
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP, NODE, PEOPLE, FakeTool
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT
from tests.support.patience import PATIENCE_S
from tests.support.proof import examples
from tests.unit.gateway.toolcalls.subsession_rig import answered, call, ended, own_tool, planned, spawning

OWN = ("sessions_spawn", "sessions_list", "sessions_stop", "sessions_send", "sessions_history")
SEEN = {
    SessionKind.MAIN: {"read", "write", "mine", *OWN},
    SessionKind.DM: {"read", "write", "others", *OWN},
    SessionKind.NON_MAIN: {"read", "write", "others", *OWN},
}
"""Tools in a root of each kind, written out by hand."""
PLACES: dict[SessionKind, tuple[Principal, Conversation]] = {
    SessionKind.MAIN: (ANN_TELEGRAM, CHAT),
    SessionKind.DM: (BOB, BOB_CHAT),
    SessionKind.NON_MAIN: (BOB, GROUP),
}
SECRET = "the plan of cleo"

names = st.sampled_from(["read", "write", "mine", "others", "blocked", *OWN, "spawn", "nosuch", "READ", ""])
places = st.sampled_from(
    ["@self", "@parent", "@root", "@child", "@cleo", "@cleos child", "main:cleo", "child:x.1", "*"]
)
given_tools = st.lists(st.sampled_from(["read", "write", "sessions_spawn"]), unique=True)
tools_asked = given_tools | given_tools | st.lists(names, max_size=6) | st.sampled_from([None, "*", ["*"], 1])
spawn: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"task": st.sampled_from(["count", "x\ny", SECRET[:3]])},
    optional={
        "tools": tools_asked,
        "agent": st.sampled_from(["reader", "plain", "root", ""]),
        "model": st.sampled_from(["big", "huge"]),
        "mode": st.sampled_from(["run", "session", "main"]),
        "timeout": st.sampled_from([1, 60, 1e6, -1, "60"]),
    },
)
anything: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["task", "session", "text", "kind", "owner", "parent", "root", "depth", "lineage", "sandbox"]),
    places | st.sampled_from(["main", "ann", "off", 0, None, True]),
    max_size=4,
)
Made: TypeAlias = tuple[str, "dict[str, Any] | str"]
made: st.SearchStrategy[Made] = st.one_of(
    st.tuples(st.just("sessions_spawn"), st.fixed_dictionaries({"task": st.just("sub"), "tools": given_tools})),
    st.tuples(st.sampled_from(["sessions_list", "read", "write", "mine", "others"]), st.just(dict[str, Any]())),
    st.tuples(st.just("sessions_spawn"), spawn),
    st.tuples(st.sampled_from(["sessions_stop", "sessions_history"]), st.fixed_dictionaries({"session": places})),
    st.tuples(
        st.just("sessions_send"),
        st.fixed_dictionaries(
            {"session": places, "message": st.sampled_from(["more", SECRET[:3]])},
            optional={"wait_s": st.sampled_from([0, 60, -1])},
        ),
    ),
    st.tuples(names, st.fixed_dictionaries({}, optional={"text": st.text(max_size=3)})),
    st.tuples(names | st.text(max_size=5), anything | st.text(max_size=8)),
)
Act: TypeAlias = tuple[int, "list[Made] | str"]
acts: st.SearchStrategy[list[Act]] = st.lists(
    st.tuples(st.integers(0, 7), st.lists(made, min_size=1, max_size=3) | st.sampled_from(["done", SECRET[:5]])),
    min_size=3,
    max_size=10,
)


@dataclass(slots=True, kw_only=True)
class World:
    """World with one attacker, and Cleo with a sub-session outside of the attacker's rights."""

    engine: Engine
    tools: list[FakeTool]
    kind: SessionKind
    yes: bool
    root: SessionId = field(init=False)
    cleo: Lease = field(init=False)
    cleos_child: Lease = field(init=False)
    held: list[Lease] = field(default_factory=list[Lease])
    seen: set[TurnId] = field(default_factory=set[TurnId])
    """Every turn that the attacker ever had."""

    async def begin(self) -> None:
        """Start Cleo's work and claim the attacker's first turn."""
        self.cleo = await planned(self.engine, call("sessions_spawn", task=SECRET), who=CLEO_TELEGRAM, where=CLEO_CHAT)
        await self.engine.settle(self.cleo)
        self.cleos_child = await self.engine.claim()
        who, where = PLACES[self.kind]
        lease = await planned(self.engine, who=who, where=where)
        self.root = lease.session
        self._hold(lease)

    def _hold(self, lease: Lease) -> None:
        self.held.append(lease)
        self.seen.add(lease.turn)

    async def act(self, act: Act) -> None:
        """Give one answer in one of the attacker's turns, and settle its calls."""
        at, what = act
        if not self.held:
            return
        lease = self.held[at % len(self.held)]
        try:
            if isinstance(what, str):
                await ended(self.engine, lease, what)
                self.held.remove(lease)
            else:
                await self._answer(lease, what)
        except LeaseLost:  # it was stopped meanwhile
            self.held.remove(lease)
        for claimed in await self.engine.store.claim(NODE, 20):
            self._hold(claimed.lease)

    async def _answer(self, lease: Lease, what: list[Made]) -> None:
        view = await self.engine.store.turn(lease.turn)
        if all(step.result is not None for step in view.steps if step.call is not None):
            calls = [
                ToolCall(id=CallId("same"), tool=tool, arguments=await self._arguments(lease, arguments))
                for tool, arguments in what
            ]
            await answered(self.engine, lease, *calls)
        await self.engine.settle(lease)
        if self.yes:
            await self._allow(lease)
            await self.engine.settle(lease)

    async def _allow(self, lease: Lease) -> None:
        main = self.kind is SessionKind.MAIN
        who, where = (ANN_TELEGRAM, CHAT) if main else (CLEO_TELEGRAM, CLEO_CHAT)
        for wait in await self.engine.waits(lease.turn):
            if wait.kind is WaitKind.APPROVAL and wait.state is WaitState.OPEN:
                await self.engine.press(wait.id, who=who, where=where)

    async def _arguments(self, lease: Lease, arguments: dict[str, Any] | str) -> str:
        if isinstance(arguments, str):
            return arguments
        session = (await self.engine.store.turn(lease.turn)).session
        below = await self.engine.store.family(session.id)
        names = {
            "@self": session.id,
            "@parent": session.lineage.parent if session.lineage else "",
            "@root": self.root,
            "@child": below[0].session.id if below else "",
            "@cleo": self.cleo.session,
            "@cleos child": self.cleos_child.session,
        }
        return json.dumps({k: names.get(v, v) if isinstance(v, str) else v for k, v in arguments.items()})

    # --- what must hold -------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that no right was exceeded."""
        await self._nothing_hidden_ran()
        await self._cleo_is_left_alone()
        await self._every_child_is_less_than_its_parent()
        await self._every_call_has_its_result_or_waits()

    async def _nothing_hidden_ran(self) -> None:
        for tool in self.tools:
            for key in tool.keys:
                turn = await self.engine.store.turn(TurnId(key.partition("/")[0]))
                assert turn.turn.id in self.seen
                assert tool.name in SEEN[self.kind]
                assert turn.session.tools is None or tool.name in turn.session.tools

    async def _cleo_is_left_alone(self) -> None:
        store = self.engine.store
        assert await store.renew(self.cleo) == await store.renew(self.cleos_child) == "running"
        assert [one.session.id for one in await store.family(self.cleo.session)] == [self.cleos_child.session]
        for turn in self.seen:
            view = await store.turn(turn)
            assert view.session.id not in (self.cleo.session, self.cleos_child.session)
            for step in view.steps:
                said = f"{step.result.text} {step.result.hint}" if step.result else ""
                assert SECRET not in said
                assert self.cleos_child.session not in said

    async def _every_child_is_less_than_its_parent(self) -> None:
        store = self.engine.store
        lines = await store.family(self.root, 1000)
        family, live = [one.session for one in lines], {one.session.id for one in lines if one.turn.ended_at is None}
        root = await store.session(self.root)
        assert root is not None
        known: dict[SessionId, Session] = {root.id: root, **{one.id: one for one in family}}
        for child in family:
            line = child.lineage
            assert line is not None
            parent = known[line.parent]
            allowed = SEEN[self.kind] if parent.tools is None else set(parent.tools)
            assert child.tools is not None
            assert set(child.tools) <= allowed
            assert 1 <= line.depth <= MAX_DEPTH
            assert (line.root, child.owner, child.root_kind) == (root.id, root.owner, root.kind)
            assert child.kind is SessionKind.NON_MAIN
            assert deciders(child, PEOPLE, OWNERS_DECIDE, BOB) == deciders(root, PEOPLE, OWNERS_DECIDE, BOB)
            above = parent.lineage
            if child.id in live:  # else a further task of its parent may have less than this one had
                assert 0 < line.tokens <= (above.tokens if above else 600_000)
                assert 0 < line.active_s <= (above.active_s if above else 900)
            assert line.turn in self.seen
            assert (await store.turn(line.turn)).session.id == parent.id
        assert len(live) <= LIVE_BELOW_A_ROOT

    async def _every_call_has_its_result_or_waits(self) -> None:
        for turn in self.seen:
            view = await self.engine.store.turn(turn)
            waiting = {wait.n for wait in view.waits}
            for step in view.steps:
                assert step.call is None or step.result is not None or step.n in waiting


def talking(module: ModuleType) -> Tool:
    """Return a tool that reaches other sessions, in every kind of session and without asking."""
    tool = own_tool(module)
    approval = {kind.value: ApprovalMode.ALLOW for kind in SessionKind}
    return replace(tool, policy=replace(tool.policy, availability=Availability.ALWAYS, approval=approval))


def tools() -> list[FakeTool]:
    """Return tools: one for every session, one for each side, one for no session."""
    return [
        FakeTool(name="read", risk=Risk.READ),
        FakeTool(name="write", risk=Risk.WRITE),
        FakeTool(name="mine", risk=Risk.READ, availability=Availability.MAIN),
        FakeTool(name="others", risk=Risk.READ, availability=Availability.NON_MAIN),
        FakeTool(name="blocked", risk=Risk.NONE, availability=Availability.BLOCKED),
    ]


async def attack(folder: Path, kind: SessionKind, yes: bool, tried: list[Act]) -> World:
    """Let the model do each action, with a check after each."""
    made = tools()
    engine = spawning(folder, [*made, talking(sessions_send), talking(sessions_history)])
    world = World(engine=engine, tools=made, kind=kind, yes=yes)
    async with asyncio.timeout(PATIENCE_S):
        await world.begin()
        for act in tried:
            await world.act(act)
            await world.check()
    return world


@given(kind=st.sampled_from(list(SessionKind)), yes=st.sampled_from([True, True, False]), tried=acts)
@settings(deadline=None, max_examples=examples(150))
def test_hostile_model_gets_nothing_that_is_not_its_own(kind: SessionKind, yes: bool, tried: list[Act]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(attack(Path(folder), kind, yes, tried))


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_attack_runs_tools_and_spawns_where_allowed(tmp_path: Path, kind: SessionKind) -> None:
    """Without this the property above could hold because nothing ever happens."""
    tried: list[Act] = [
        (0, [("read", {"text": "a"}), ("blocked", {}), ("sessions_spawn", {"task": "count", "mode": "session"})]),
        (1, [("read", {"text": "b"}), ("sessions_spawn", {"task": "deeper", "tools": ["read"]})]),
        (2, [("read", {"text": "c"}), ("sessions_spawn", {"task": "deepest"})]),
        (0, [("sessions_send", {"session": "@child", "message": "m"}), ("sessions_history", {"session": "@child"})]),
        (0, [("sessions_stop", {"session": "@child"}), ("sessions_stop", {"session": "@cleos child"})]),
    ]
    world = await attack(tmp_path, kind, yes=True, tried=tried)

    assert world.tools[0].calls == ["a", "b", "c"]
    steps = [step for turn in world.seen for step in (await world.engine.store.turn(turn)).steps if step.call]
    talked = {step.call.tool for step in steps if step.call and step.result and step.result.status is ResultStatus.OK}
    assert {"sessions_send", "sessions_history"} <= talked
    depths = [one.session.lineage.depth for one in await world.engine.store.family(world.root) if one.session.lineage]
    assert sorted(depths) == [1, 2]
