"""I12: a child has a part of its parent's rights, whatever it asks for, and the same approvers."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.approvals import deciders
from gateway.domain.approvers import OWNERS_DECIDE
from gateway.domain.children import MAX_DEPTH, Agent
from gateway.domain.ids import OwnerName, Principal, SessionId
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.tools import Availability, SandboxMode, SandboxPolicy
from gateway.errors import SandboxMissing
from gateway.policy.permission import available
from gateway.policy.routing import may_see
from gateway.ports import Task
from gateway.sandbox import Containment, choose
from gateway.toolcalls.subsessions import Left, Rights, SpawnDenied, rights_of_child
from tests.support.fakes import CLEO, PEOPLE
from tests.support.makers import ANN, ANN_TELEGRAM, EPOCH
from tests.support.proof import examples

CHILD = Session(
    id=SessionId("child:1"),
    kind=SessionKind.NON_MAIN,
    origin=Origin.CHILD,
    owner=ANN,
    title="a child",
    epoch=0,
    root_kind=SessionKind.MAIN,
    created_at=EPOCH,
    active_at=EPOCH,
)
TOOLS = ("shell", "read", "browser", "sessions_archive", "spawn", "tend", "*", "")
OF_CHILDREN = frozenset({"spawn", "tend"})
Asked: TypeAlias = tuple[Task, Agent | None, Left]

names = st.lists(st.sampled_from(TOOLS), max_size=7)
seconds = st.floats(allow_nan=True, allow_infinity=True)
tasks = st.builds(Task, text=st.just("do it"), tools=st.none() | names, timeout_s=st.none() | seconds)
agents = st.none() | st.builds(
    Agent, name=st.just("a"), description=st.just(""), tools=st.none() | names.map(lambda found: tuple(found))
)
rights = st.builds(
    Rights,
    tools=st.frozensets(st.sampled_from(TOOLS)),
    active_s=st.floats(min_value=0.001, max_value=1e6),
    tokens=st.integers(min_value=0, max_value=10**9),
    depth=st.integers(min_value=0, max_value=MAX_DEPTH + 1),
)
lefts = st.builds(
    Left, active_s=st.floats(min_value=-10, max_value=1e6), tokens=st.integers(min_value=-10, max_value=10**9)
)
PLENTY = Left(active_s=1e9, tokens=10**9)


def within(child: Rights, parent: Rights) -> bool:
    """Return True when one has no right that the other lacks; 0 tokens is no limit."""
    tokens = parent.tokens == 0 or 0 < child.tokens <= parent.tokens
    return child.tools <= parent.tools and 0 < child.active_s <= parent.active_s and tokens


@given(parent=rights, asked=st.lists(st.tuples(tasks, agents, lefts), min_size=1, max_size=5))
@settings(deadline=None, max_examples=examples(500))
def test_a_child_never_has_more_than_its_parent(parent: Rights, asked: list[Asked]) -> None:
    above = parent
    for task, agent, left in asked:
        found = rights_of_child(above, left, task, agent, 600, OF_CHILDREN)
        if isinstance(found, SpawnDenied):
            assert found.hint
            return
        assert within(found, above)
        assert within(found, parent)
        assert found.active_s <= left.active_s
        assert above.tokens == 0 or found.tokens <= min(left.tokens, max(1, above.tokens // 6))
        assert found.depth == above.depth + 1 <= MAX_DEPTH
        assert task.tools is None or found.tools <= set(task.tools) <= above.tools
        assert agent is None or agent.tools is None or found.tools <= set(agent.tools)
        if task.tools is None and (agent is None or agent.tools is None):
            assert above.tools - found.tools == (OF_CHILDREN & above.tools if found.depth == MAX_DEPTH else set())
        assert found.depth < MAX_DEPTH or not found.tools & OF_CHILDREN
        above = found


@given(parent=rights, task=tasks, agent=agents)
@settings(deadline=None, max_examples=examples(200))
def test_spawn_beyond_the_parents_tools_is_denied_by_name(parent: Rights, task: Task, agent: Agent | None) -> None:
    lacking = set(task.tools or ()) - parent.tools
    if not lacking or parent.depth >= MAX_DEPTH:
        return
    found = rights_of_child(parent, PLENTY, task, agent, 600, OF_CHILDREN)

    assert isinstance(found, SpawnDenied)
    assert found.code == "not_granted"
    assert all(name in found.hint for name in lacking)


@pytest.mark.parametrize("wanted", list(SandboxPolicy))
@pytest.mark.parametrize("can_bwrap", [True, False])
def test_a_child_is_contained_at_least_as_well_as_its_root(wanted: SandboxPolicy, can_bwrap: bool) -> None:
    """By its own kind, which is never main: it is at least basic, or it does not run."""
    machine = Containment(can_bwrap=can_bwrap, can_pid_namespace=False)
    try:
        found = choose(wanted, CHILD.kind is SessionKind.MAIN, machine)
    except SandboxMissing:
        assert not can_bwrap
    else:
        assert found in (SandboxMode.BASIC, SandboxMode.FULL)


@pytest.mark.parametrize("availability", list(Availability))
def test_a_child_has_nothing_but_what_it_was_given(availability: Availability) -> None:
    given_shell = replace(CHILD, tools=("shell",))

    assert available("browser", availability, given_shell) is not None
    lost = (Availability.BLOCKED, Availability.NON_MAIN)  # its root is a main session
    assert (available("shell", availability, given_shell) is None) is (availability not in lost)


@pytest.mark.parametrize(("owner", "seen"), [(ANN, True), (CLEO, False)])
def test_a_child_of_a_main_session_is_seen_by_its_owner_alone(owner: OwnerName, seen: bool) -> None:
    assert may_see(owner, CHILD.owner, CHILD.root_kind) is seen


def approvers(session: Session) -> frozenset[Principal]:
    return deciders(session, PEOPLE, OWNERS_DECIDE, ANN_TELEGRAM).denying


def test_child_of_main_is_approved_by_its_owner_alone() -> None:
    assert approvers(CHILD) == PEOPLE.owners[ANN]


def test_child_of_an_ownerless_main_has_no_approver() -> None:
    assert approvers(replace(CHILD, owner=None)) == frozenset()
    assert approvers(replace(CHILD, kind=SessionKind.MAIN, owner=OwnerName("gone"))) == frozenset()


def test_child_below_a_group_is_approved_by_every_owner() -> None:
    everybody = frozenset(who for principals in PEOPLE.owners.values() for who in principals)
    assert approvers(replace(CHILD, owner=None, root_kind=SessionKind.NON_MAIN)) == everybody
