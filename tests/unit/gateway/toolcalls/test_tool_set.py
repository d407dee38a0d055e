from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.ids import SessionId
from gateway.domain.presets import Ceiling, Preset, Presets
from gateway.domain.sessions import Origin, Session, SessionKind, rights_of
from gateway.domain.tools import (
    ARGUMENTS_AT_MOST,
    ApprovalMode,
    Availability,
    Effect,
    Risk,
    SandboxPolicy,
    ToolPolicy,
    ToolResult,
    ToolSpec,
)
from gateway.errors import ConfigError
from gateway.ports import ToolContext
from gateway.toolcalls.arguments import ModelArguments, check_arguments
from gateway.toolcalls.tool_aliases import ALIASES
from gateway.toolcalls.tool_set import RIGHTS_KEPT, Tool, ToolSet
from tests.support.fakes import FakeTool, Text, done
from tests.support.makers import EPOCH
from tests.support.turns import lineage

READ = FakeTool(name="read", risk=Risk.READ)
MINE = FakeTool(name="mine", availability=Availability.MAIN)
SHELL = FakeTool(name="shell", risk=Risk.EXECUTE, sandbox=SandboxPolicy.AUTO)
GONE = FakeTool(name="gone", availability=Availability.BLOCKED)


class Strict(BaseModel):
    """Arguments with a limit."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=1, le=9)
    name: str = ""


async def nothing(_ctx: ToolContext, _args: Strict) -> ToolResult:
    return done()


STRICT = Tool(
    spec=ToolSpec(
        name="strict", description="Counts.", risk=Risk.READ, effect=Effect.PURE, availability=Availability.ALWAYS
    ),
    policy=ToolPolicy(availability=Availability.ALWAYS, approval={}, timeout_s=1, actions={}, sandbox=None),
    arguments=ModelArguments(Strict),
    run=nothing,
)


def session(kind: SessionKind = SessionKind.MAIN, *, root: SessionKind | None = None) -> Session:
    return Session(
        id=SessionId("s"),
        kind=kind,
        origin=Origin.DIRECT,
        owner=None,
        title="",
        epoch=0,
        root_kind=root or kind,
        created_at=EPOCH,
        active_at=EPOCH,
    )


def checked(tool: Tool, text: str) -> Any:
    return check_arguments(tool.arguments, text, tool.syntax)


def tool_set(*, sandboxed: bool = True) -> ToolSet:
    return ToolSet([one.tool() for one in (READ, MINE, SHELL, GONE)], sandboxed=sandboxed)


def names(found: ToolSet, of: Session) -> list[str]:
    return [tool.spec.name for tool in found.seen_by(of)]


def test_session_and_model_see_the_same_tools() -> None:
    found = tool_set()

    for kind, seen in ((SessionKind.MAIN, ["mine", "read", "shell"]), (SessionKind.DM, ["read", "shell"])):
        assert names(found, session(kind)) == seen
        assert [offer.name for offer in found.offers(session(kind))] == seen


class Watched(Session):
    """A session that notes which of its fields are read."""

    __slots__ = ()
    noted: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        Watched.noted.add(name)
        return super().__getattribute__(name)


def read_by(look: Callable[[Session], object], at: Session) -> set[str]:
    """The fields that this look at a session reads."""
    watched = Watched(**{one.name: getattr(at, one.name) for one in fields(at)})
    Watched.noted.clear()
    look(watched)
    return set(Watched.noted)


def test_nothing_but_rights_decides_which_tools_there_are() -> None:
    off = replace(session(), tools_off=("mine",), preset="looks")
    child = replace(session(), tools=("read",), lineage=lineage(), presets_above=("looks",))
    looks = Preset(name="looks", generation=1, ceilings=(Ceiling(preset="looks", risks=frozenset({Risk.READ})),))
    tools = [one.tool() for one in (READ, MINE, SHELL, GONE)]
    found = ToolSet(tools, sandboxed=False, presets=Presets(by_name={"looks": looks, "build": Preset(name="build")}))

    for one in (session(), session(SessionKind.DM), off, child):
        assert read_by(found.hidden_from, one) <= read_by(rights_of, one)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"kind": SessionKind.DM, "root_kind": SessionKind.DM}, ["read"]),
        ({"root_kind": SessionKind.NON_MAIN}, ["read", "shell"]),
        ({"tools": ("read",)}, ["read"]),
        ({"tools_off": ("read",)}, ["mine", "shell"]),
        ({"preset": "looks"}, ["read"]),
        ({"lineage": lineage(), "presets_above": ("looks",)}, ["read"]),
    ],
)
def test_a_session_sees_its_own_tools_after_another_one(change: dict[str, Any], seen: list[str]) -> None:
    looks = Preset(name="looks", ceilings=(Ceiling(preset="looks", risks=frozenset({Risk.READ})),))
    presets = Presets(by_name={"looks": looks, "build": Preset(name="build")})
    found = ToolSet([one.tool() for one in (READ, MINE, SHELL, GONE)], sandboxed=False, presets=presets)

    assert names(found, session()) == ["mine", "read", "shell"]
    assert names(found, replace(session(), **change)) == seen
    assert names(found, session()) == ["mine", "read", "shell"]


def test_tools_of_few_kinds_of_sessions_are_kept() -> None:
    found = tool_set()
    kinds = [replace(session(), tools_off=(f"tool {n}",)) for n in range(RIGHTS_KEPT + 1)]

    first, *_, last = [found.seen_by(one) for one in kinds]

    assert found.seen_by(kinds[-1]) is last
    assert found.seen_by(kinds[0]) is not first
    assert names(found, kinds[0]) == ["mine", "read", "shell"]


@pytest.mark.parametrize(
    ("own", "configured", "kind", "root", "seen"),
    [
        ({}, {"dm": ApprovalMode.DENY}, SessionKind.DM, SessionKind.DM, False),
        ({}, {"dm": ApprovalMode.DENY}, SessionKind.MAIN, SessionKind.MAIN, True),
        ({}, {"dm": ApprovalMode.DENY}, SessionKind.NON_MAIN, SessionKind.DM, False),
        ({"non-main": ApprovalMode.DENY}, {}, SessionKind.NON_MAIN, SessionKind.NON_MAIN, False),
        (
            {"non-main": ApprovalMode.DENY},
            {"non-main": ApprovalMode.ASK},
            SessionKind.NON_MAIN,
            SessionKind.NON_MAIN,
            True,
        ),
        ({}, {"main": ApprovalMode.DENY}, SessionKind.NON_MAIN, SessionKind.MAIN, False),
    ],
)
def test_a_tool_denied_outright_is_neither_offered_nor_resolved(
    own: dict[str, ApprovalMode], configured: dict[str, ApprovalMode], kind: SessionKind, root: SessionKind, seen: bool
) -> None:
    made = SHELL.tool()
    made = replace(made, spec=replace(made.spec, approval=own), policy=replace(made.policy, approval=configured))
    found, where = ToolSet([made], sandboxed=True), session(kind, root=root)

    assert (names(found, where), len(found.offers(where))) == (["shell"] if seen else [], int(seen))
    resolved = found.resolve("shell", where, openly=True)
    assert (resolved.reason if isinstance(resolved, Deny) else None) is (None if seen else DenyReason.CONFIGURED)


def test_an_offer_has_the_schema_that_the_tool_gives() -> None:
    schema = {"type": "object", "properties": {"action": {"enum": ["open"]}}}
    (offer,) = ToolSet([replace(READ.tool(), schema=schema)], sandboxed=True).offers(session())

    assert offer.schema == schema


def test_tool_names_and_commands_are_unique_and_plain() -> None:
    with pytest.raises(ConfigError, match=r"^Two tools are named read\. Remove one of them\.$"):
        ToolSet([READ.tool(), READ.tool()], sandboxed=True)
    with pytest.raises(ConfigError, match=r"^No tool may be named tools\. Give it another name\.$"):
        ToolSet([FakeTool(name="tools").tool()], sandboxed=True)
    for name in ("", "Shell", "a b", "a-b", "1a", "a" * 65, "shell\n", "ѕhell"):
        with pytest.raises(ConfigError, match="not a valid tool name"):
            ToolSet([FakeTool(name=name).tool()], sandboxed=True)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("read", SessionKind.DM, None),
        ("nosuch", SessionKind.MAIN, DenyReason.UNKNOWN_TOOL),
        ("READ", SessionKind.MAIN, None),
        ("bash", SessionKind.MAIN, None),
        ("Read_File", SessionKind.DM, None),
        ("write_file", SessionKind.MAIN, DenyReason.UNKNOWN_TOOL),
        ("", SessionKind.MAIN, DenyReason.UNKNOWN_TOOL),
        ("gone", SessionKind.MAIN, DenyReason.BLOCKED),
        ("mine", SessionKind.DM, DenyReason.ONLY_IN_MAIN),
    ],
)
def test_a_name_is_resolved_or_refused_with_a_reason(name: str, kind: SessionKind, reason: DenyReason | None) -> None:
    found = tool_set().resolve(name, session(kind), openly=True)

    assert (found.reason if isinstance(found, Deny) else None) is reason


@pytest.mark.parametrize(
    "where",
    [session(SessionKind.DM), session(SessionKind.NON_MAIN), session(SessionKind.NON_MAIN, root=SessionKind.DM)],
)
@pytest.mark.parametrize("name", ["mine", "gone", "MINE"])
def test_hidden_tool_is_refused_like_one_that_nobody_has(where: Session, name: str) -> None:
    found = tool_set().resolve(name, where)
    nobodys = tool_set().resolve("none", where)

    assert isinstance(found, Deny)
    assert isinstance(nobodys, Deny)
    assert (found.reason, found.hint) == (nobodys.reason, nobodys.hint.replace("'none'", repr(name)))
    assert tool_set().is_hidden(name, where)
    assert not tool_set().is_hidden("none", where)


def test_owner_is_told_why_a_tool_is_hidden() -> None:
    found = tool_set().resolve("gone", session(SessionKind.MAIN))

    assert isinstance(found, Deny)
    assert found.reason is DenyReason.BLOCKED


def test_alias_of_a_tool_is_not_offered() -> None:
    tools = tool_set()

    assert tools.get("bash") is tools.get("shell")
    assert not {offer.name for offer in tools.offers(session())} & set(ALIASES)


def test_set_offers_by_the_preset_of_the_session() -> None:
    plan = Preset(name="plan", ceilings=(Ceiling(preset="plan", risks=frozenset({Risk.NONE, Risk.READ})),))
    presets = Presets(by_name={"build": Preset(name="build"), "plan": plan})
    tools = [one.tool() for one in (READ, SHELL)]
    found = ToolSet(tools, sandboxed=True, presets=presets)
    planning = replace(session(), preset="plan")

    assert names(found, session()) == ["read", "shell"]
    assert names(found, planning) == ["read"]
    assert [offer.name for offer in found.offers(planning)] == ["read"]
    assert [(tool.spec.name, deny.reason) for tool, deny in found.hidden_from(planning)] == [
        ("shell", DenyReason.CONFIGURED)
    ]
    assert isinstance(found.resolve("bash", planning), Deny)


def test_unknown_tool_is_denied_with_the_names_available_here() -> None:
    found = tool_set().resolve("x" * 1000, session(SessionKind.DM))

    assert isinstance(found, Deny)
    assert found.hint.endswith("Available: read, shell.")
    assert len(found.hint) < 200


def test_without_a_sandbox_what_needs_one_exists_in_main_alone() -> None:
    found = tool_set(sandboxed=False)

    assert names(found, session()) == ["mine", "read", "shell"]
    assert names(found, session(SessionKind.DM)) == ["read"]
    refused = found.resolve("shell", session(SessionKind.NON_MAIN), openly=True)
    assert isinstance(refused, Deny)
    assert refused.reason is DenyReason.SANDBOX_MISSING
    # Nor in a child of a main session: nobody reads along when it runs on the host.
    assert isinstance(found.resolve("shell", session(SessionKind.NON_MAIN, root=SessionKind.MAIN)), Deny)


def test_command_has_the_tools_name_and_its_short_one() -> None:
    spawn = FakeTool(name="sessions_spawn").tool()
    spawn = replace(spawn, spec=replace(spawn.spec, command="spawn"))
    found = ToolSet([spawn, READ.tool()], sandboxed=True)

    assert {word: spec.name for word, spec in found.commands.items()} == {
        "read": "read",
        "sessions_spawn": "sessions_spawn",
        "spawn": "sessions_spawn",
    }
    assert list(found.specs) == ["read", "sessions_spawn"]
    assert spawn.syntax == "Usage: /spawn <text>"
    # A model calls it by its name alone.
    assert isinstance(found.resolve("spawn", session()), Deny)


@pytest.mark.parametrize(
    ("command", "says", "cure"),
    [
        ("read", "Two tools are called by /read", "Remove one of them."),
        ("a b", "'a b' is not a command", "Use lower case letters, digits and `_`."),
        ("Spawn", "'Spawn' is not a command", "Use lower case letters, digits and `_`."),
    ],
)
def test_a_shorter_name_is_plain_and_unique(command: str, says: str, cure: str) -> None:
    spawn = FakeTool(name="sessions_spawn").tool()
    with pytest.raises(ConfigError, match=says) as found:
        ToolSet([replace(spawn, spec=replace(spawn.spec, command=command)), READ.tool()], sandboxed=True)
    assert found.value.cure == cure


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "arguments: Invalid JSON"),
        ("{", "arguments: Invalid JSON"),
        ("{}", "count: Field required"),
        ("null", "arguments"),
        ("[]", "arguments"),
        ('"x"', "arguments"),
        ('{"count": 0}', "count:"),
        ('{"count": 10}', "count:"),
        ('{"count": "many"}', "count:"),
        ('{"count": 1, "extra": true}', "extra:"),
        ('{"count": 1, "name": 7}', "name:"),
        ('{"count": 1} {"count": 2}', "Invalid JSON"),
        ("x" * (ARGUMENTS_AT_MOST + 1), "longer than a million characters"),
        ('{"count":' + "[" * 5000, ""),
        ('{"count": 1, "name": "\ud800"}', ""),
        (r'{"count": 1, "name": "\ud800"}', "Invalid JSON"),
        ('{"count": NaN}', "count:"),
        ('{"count": 1' + "".join(f', "k{n}": 1' for n in range(100)) + "}", "k0: Extra inputs are not permitted; k1:"),
        ('{"count": 1' + "".join(f', "k{n}": 1' for n in range(101)) + "}", "101 of the arguments are wrong"),
        ('{"count": [' + "[]," * 100_000 + "1]}", "more than 100000 opening brackets"),
    ],
    ids=range(20),
)
def test_arguments_that_are_wrong_are_refused_with_what_is_wrong(text: str, says: str) -> None:
    found = checked(STRICT, text)

    assert isinstance(found, Deny)
    assert found.reason is DenyReason.INVALID_ARGUMENTS
    assert says in found.hint
    assert len(found.hint) < 1000


@given(st.text())
@settings(deadline=None)
def test_no_text_makes_the_check_of_arguments_fail(text: str) -> None:
    found = checked(STRICT, text)

    assert isinstance(found, Deny | Strict)


def test_arguments_that_are_right_are_given_with_their_defaults() -> None:
    assert checked(STRICT, '{"count": 3}') == Strict(count=3, name="")


def test_the_usage_shows_how_it_is_called_by_hand() -> None:
    assert READ.tool().syntax == "Usage: /read <text>"
    assert STRICT.syntax == "Usage: /strict count=<number> [name=…]"


def test_schema_for_a_model_has_no_class_names() -> None:
    (offer,) = ToolSet([STRICT], sandboxed=True).offers(session())

    text = json.dumps(dict(offer.schema))
    assert "Strict" not in text
    assert "title" not in text
    assert offer.schema["required"] == ["count"]


def test_every_tool_of_the_catalogue_can_be_registered(tmp_path: Path) -> None:
    from agent_tools import shell

    policy = ToolPolicy(
        availability=Availability.MAIN, approval={}, timeout_s=1, actions={}, sandbox=shell.SPEC.sandbox
    )
    found = ToolSet(
        [Tool(spec=shell.SPEC, policy=policy, arguments=ModelArguments(shell.Args), run=shell.run)], sandboxed=True
    )

    assert found.get("shell") is not None
    assert found.specs["shell"] is shell.SPEC
    assert isinstance(Text(), BaseModel)


def test_argument_error_keeps_the_tools_own_words() -> None:
    class Args(BaseModel):
        command: str

        @field_validator("command")
        @classmethod
        def _known(cls, command: str) -> str:
            raise ValueError("there is no such command: name another one")

    denied = checked(replace(SHELL.tool(), arguments=ModelArguments(Args)), '{"command": "x"}')
    assert isinstance(denied, Deny)
    assert denied.hint.startswith("command: there is no such command: name another one.")
