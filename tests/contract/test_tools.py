"""The contract of every built-in tool: its schema, its scope, its refusals, and the end of a call that is cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.tools import ARGUMENTS_AT_MOST, Effect, Preview, ResultStatus, Risk, SubjectKind
from gateway.system.cancellation import CancelReason
from gateway.toolcalls.output import HALF_BYTES, HINT_CHARS
from gateway.toolcalls.resolution import resolve_call
from gateway.toolcalls.tool_set import NAME, Tool, ToolSet
from tests.contract.tool_rig import EXAMPLES, TEXT, ToolBench, built_in, hangs, loaded, names, once
from tests.support.proof import times
from tests.support.turns import session

NAMES = names()
SCHEMA_BYTES = 2_000
DESCRIPTION_CHARS = 250
PLAIN = frozenset(
    {"action", "content", "edits", "files", "format", "new", "num_results", "old", "patch", "path", "pattern", "query"}
    | {"replace_all", "url", "question", "questions", "options", "text", "state"}
)
"""Names of fields that say what they are. Each other field has a description; together they are in every request."""
CHANGING = tuple(name for name in NAMES if name in {"apply_patch", "edit", "multiedit", "undo", "write"})
STRANGE_CHARS = 20_000
"""Characters of the longest arguments that are run here."""
RESULT_BYTES = 2 * HALF_BYTES + 500
"""Bytes of the longest text of a result, with the note about what was left out."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Tool]:
    """Return every built-in tool by name, as the daemon loads it."""
    return built_in(tmp_path_factory.mktemp("tools"))


def test_every_tool_is_loaded_and_has_an_example(tools: Mapping[str, Tool]) -> None:
    assert set(tools) == set(NAMES) == set(EXAMPLES)
    assert {name for name, tool in tools.items() if tool.check is not None} == set(CHANGING)


# --- what a tool says of itself ---------------------------------------------------------------------


def objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield every schema of an object within one."""
    yield schema
    yield from cast("dict[str, Mapping[str, Any]]", schema.get("$defs", {})).values()


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_closed_small_and_described(tools: Mapping[str, Tool], name: str) -> None:
    tool = tools[name]
    schema = tool.arguments.schema
    assert NAME.fullmatch(name)
    assert 0 < len(tool.spec.description) <= DESCRIPTION_CHARS
    assert len(json.dumps(schema, separators=(",", ":")).encode()) <= SCHEMA_BYTES
    for one in objects(schema):
        assert (one["type"], one["additionalProperties"]) == ("object", False)
        bare = {field for field, about in one.get("properties", {}).items() if "description" not in about}
        assert bare <= PLAIN, "describe these fields"


@pytest.mark.parametrize("name", NAMES)
def test_effect_fits_the_risk_and_the_checks(tools: Mapping[str, Tool], name: str) -> None:
    tool = tools[name]
    assert (tool.spec.effect is Effect.CHECKABLE) == (tool.check is not None)
    assert (tool.spec.risk is Risk.WRITE) == (name in CHANGING), "a change of files is shown, journalled and taken back"
    if tool.spec.effect is Effect.PURE:
        assert tool.spec.risk in (Risk.NONE, Risk.READ, Risk.NETWORK), "what changes something is not pure"
    if tool.spec.risk in (Risk.EXECUTE, Risk.WRITE):
        assert tool.spec.effect in (Effect.CHECKABLE, Effect.IDEMPOTENT, Effect.UNSAFE)
    assert 0 < tool.policy.timeout_s <= (tool.spec.max_timeout_s or 600)


# --- scope ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_scope_of_a_call_is_complete_and_always_the_same(tools: Mapping[str, Tool], name: str) -> None:
    tool = tools[name]
    text = json.dumps(EXAMPLES[name])
    first, second = (tool.scope_of(tool.arguments.parse(text)) for _ in range(2))
    assert first == second
    assert not first.refused
    kinds = {SubjectKind(subject.partition(":")[0]) for subject in first.subjects}
    assert tool.spec.subjects is None or kinds <= tool.spec.subjects
    touches = {"path", "patch", "files"} & set(EXAMPLES[name])
    assert not touches or SubjectKind.PATH in kinds, "a call that names a path touches it"
    assert "url" not in EXAMPLES[name] or (SubjectKind.HOST in kinds and first.sends == ("example.org",))
    assert "command" not in EXAMPLES[name] or SubjectKind.COMMAND in kinds


NOTHING: list[Any] = []
WRONG = (None, NOTHING, {"x": 1}, 1.5e300, True, "x", "", "a\0b", "a\nb", "\ud800", "x" * 300_000, [{"x": 1}] * 2_000)
"""Values that are wrong for most arguments, or strange."""


def mutants(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield (field, arguments) of calls with one field missing or wrong, and of text that is no object."""
    example = dict(EXAMPLES[tool.spec.name])
    for field in tool.arguments.schema.get("properties", {}):
        if field in tool.arguments.schema.get("required", []):
            yield field, json.dumps({key: value for key, value in example.items() if key != field})
        for wrong in WRONG:
            yield field, json.dumps({**example, field: wrong})
    yield "unheard_of", json.dumps({**example, "unheard_of": 1})
    for text in ("", "null", "[]", "{", "7", '"x"', "[" * 90_000, '{"a":' * 90_000, "x" * (ARGUMENTS_AT_MOST + 1)):
        yield "arguments", text


def refuse_to_touch() -> str:
    """Fail: a call without valid arguments touches nothing."""
    raise AssertionError("a malformed call was asked for its workspace")


@pytest.mark.parametrize("name", NAMES)
def test_malformed_arguments_are_refused_by_their_name(tools: Mapping[str, Tool], name: str) -> None:
    tool = tools[name]
    one, said = ToolSet([tool], sandboxed=True, presets=loaded().presets), list[DenyReason]()
    here = replace(session(), preset="plan" if tool.spec.leaves_plan else "")
    for field, text in mutants(tool):
        notes: list[str] = []
        found = resolve_call(one, here, name, lambda _, text=text: text, lambda: "/w", notes.append)
        if not isinstance(found, Deny):
            continue
        assert len(found.hint) <= HINT_CHARS
        said.append(found.reason)
        if found.reason is DenyReason.INVALID_ARGUMENTS:
            unnamed = field == "arguments" or len(text) > ARGUMENTS_AT_MOST or "Invalid JSON" in found.hint
            unnamed |= "of the arguments are wrong" in found.hint  # too many to name
            assert unnamed or field in found.hint, found.hint
            scopes = [note for note in notes if note.startswith("scope")]
            assert not scopes or "There is no " in found.hint, "only the names of sub-sessions are looked up later"
    assert said.count(DenyReason.INVALID_ARGUMENTS) >= 10
    assert set(said) <= {DenyReason.INVALID_ARGUMENTS, DenyReason.POLICY_ERROR, DenyReason.CONFIGURED}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "browser"])
async def test_a_strange_call_is_a_result_and_never_a_fault(tmp_path: Path, name: str) -> None:
    """Through the engine, with nobody asked except about the web: what is valid runs, and nothing crashes."""
    bench = await ToolBench.open(name, tmp_path)
    before = bench.files()
    fields = bench.tool.arguments.schema.get("properties", {})
    if bench.tool.spec.sandbox is not None:  # each program takes its time
        fields = {*bench.tool.arguments.schema["required"], "path", "workdir", "include"}
    calls = [text for field, text in mutants(bench.tool) if len(text) < STRANGE_CHARS and field in fields]
    for found in await bench.results(*calls[:: times(1, 1, small=2)]):
        if found is None:
            continue  # somebody is asked
        assert found.code != "crashed", (found.text, found.hint)
        assert "Traceback" not in found.text
        assert len(found.text.encode()) <= RESULT_BYTES
        assert found.status in (ResultStatus.OK, ResultStatus.ERROR, ResultStatus.DENIED)
        assert found.hint or found.status is ResultStatus.OK or found.text, "it says nothing"
    if bench.tool.spec.risk not in (Risk.WRITE, Risk.EXECUTE):
        assert bench.files() == before


LARGE: Mapping[str, Mapping[str, Any]] = {
    "glob": {"pattern": "**/*"},
    "grep": {"pattern": "word"},
    "list": {"path": "."},
    "read": {"path": "large"},
    "shell": {"command": "cat large large"},
}


@pytest.mark.parametrize("name", LARGE)
async def test_output_of_a_large_workspace_is_bounded(tmp_path: Path, name: str) -> None:
    bench = await ToolBench.open(name, tmp_path)
    (bench.workspace / "large").write_text(("word " * 40 + "\n") * 3_000)
    for n in range(500):
        (bench.workspace / f"{n:04}-{'long' * 12}").touch()
    (found,) = await bench.results(LARGE[name])
    assert found is not None
    assert found.status is ResultStatus.OK
    assert 5_000 < len(found.text.encode()) <= RESULT_BYTES


# --- a call that is cut -----------------------------------------------------------------------------


def others() -> set[asyncio.Task[Any]]:
    """Return the tasks beside the test's own."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@pytest.mark.parametrize("name", NAMES)
async def test_the_owners_timeout_ends_a_call_that_hangs(tmp_path: Path, name: str) -> None:
    begun = asyncio.Event()
    bench = await ToolBench.open(name, tmp_path, timeout_s=0.05, around=hangs(begun))
    before, tasks = bench.files(), others()
    found = await bench.result()
    assert (found.status, found.code) == (ResultStatus.TIMEOUT, "timeout")
    assert f"limit of {name}" in found.hint
    assert bench.files() == before
    assert others() <= tasks, "something is left running"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "browser"])
async def test_a_stop_ends_a_call_and_leaves_files_whole(tmp_path: Path, name: str) -> None:
    begun = asyncio.Event()
    bench = await ToolBench.open(name, tmp_path, around=hangs(begun))
    before, tasks = bench.files(), others()
    lease = await bench.cut(begun, CancelReason.STOP)
    (step,) = await bench.steps(lease)
    assert step.result is not None
    assert step.result.status is ResultStatus.CANCELLED
    assert bench.files() == before
    assert others() <= tasks, "something is left running"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", CHANGING)
async def test_a_change_that_a_crash_cut_happens_once(tmp_path: Path, name: str, after: bool) -> None:
    """Cut before the files change, or when all have changed. `test_file_changes` cuts between them."""
    begun = asyncio.Event()
    change = hangs(begun, lambda method: method == "apply", after)
    bench = await ToolBench.open(name, tmp_path, around=lambda tool: once(tool, change(tool)))
    before = bench.files()
    lease = await bench.cut(begun, CancelReason.LOST)
    assert (bench.files() != before) == after
    found = await bench.again(lease)
    assert found.status is ResultStatus.OK, found
    assert bench.files() != before
    assert ("complete" in found.text) == after


# --- changes that people see before they are made ---------------------------------------------------


@pytest.mark.parametrize("name", CHANGING)
async def test_a_preview_is_stable_and_changes_nothing(tmp_path: Path, name: str) -> None:
    bench = await ToolBench.open(name, tmp_path)
    before = bench.files()
    lease = await bench.plan(EXAMPLES[name])
    first, second = await bench.preview(lease), await bench.preview(lease)
    assert isinstance(first, Preview)
    assert first == second
    assert first.text
    assert set(first.state) >= {"notes"}
    assert bench.files() == before
    (bench.workspace / "notes").write_text(TEXT + "third line\n")
    assert await bench.preview(lease) != first


@pytest.mark.parametrize("name", CHANGING)
async def test_a_file_swapped_under_its_card_is_left_alone(tmp_path: Path, name: str) -> None:
    bench = await ToolBench.open(name, tmp_path, asks=True)
    lease = await bench.plan(EXAMPLES[name])
    assert not await bench.engine.settle(lease)
    (wait,) = await bench.engine.waits(lease.turn)
    (bench.workspace / "notes").write_text("by somebody else\n")
    await bench.engine.press(wait.id)
    assert await bench.engine.settle(lease)
    (step,) = await bench.steps(lease)
    assert step.result is not None
    assert step.result.status in (ResultStatus.ERROR, ResultStatus.DENIED)
    assert bench.files() == {"notes": b"by somebody else\n"}
