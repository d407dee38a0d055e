"""Hooks around calls: each fires, a change is checked and decided again, and whatever fails refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.app.hook_loader import load_hooks
from gateway.domain.file_changes import FileChange, content_hash
from gateway.domain.hooks import HookConfig, HookEvent
from gateway.domain.rules import Rule, Verdict
from gateway.domain.steps import StepState
from gateway.domain.tools import ApprovalMode, CallScope, Effect, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease
from gateway.ports import ToolContext
from gateway.sandbox import ProcessLimits
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.toolcalls.hook_programs import ask_program
from gateway.toolcalls.hooks import FILES_TOLD, Hook, Hooks
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import NO_SANDBOX, FakeTool, Text, until
from tests.unit.gateway.toolcalls.rig import deciding, first, step

SECRET = "123456789:AAExampleExampleExample"
BEFORE, AFTER = HookEvent.BEFORE, HookEvent.AFTER


def program(folder: Path, script: str, name: str = "check") -> str:
    """Return the path of a small program."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def engine_with(folder: Path, tool: FakeTool | Tool, *hooks: tuple[HookEvent, str], within_s: float = 5.0) -> Engine:
    """Return an engine with one tool, and a program for each hook."""
    (folder / "hooks").mkdir()
    engine = Engine(folder / "state", [tool], secrets=[SECRET])
    configured = [
        HookConfig(name=f"check{n}", event=event, command=(program(folder / "hooks", script, f"check{n}"), "--now"))
        for n, (event, script) in enumerate(hooks)
    ]
    loaded = load_hooks(configured, NO_SANDBOX, ProcessLimits(), engine.redactor)
    engine.use_hooks(Hooks(hooks=loaded.hooks, redactor=engine.redactor, within_s=within_s))
    return engine


async def settled(engine: Engine, text: str = "ls") -> tuple[Lease, ToolResult]:
    lease = await engine.planned(f"shell:{text}")
    assert await engine.settle(lease)
    return lease, await engine.result(lease.turn, 1)


def of_command(args: Text) -> CallScope:
    return CallScope(risk=Risk.NONE, subjects=(f"command:{args.text}",))


def says(answer: object) -> str:
    return f"cat >/dev/null; printf '%s' '{json.dumps(answer)}'"


# --- before a call --------------------------------------------------------------------------------


async def test_a_hook_before_a_call_fires_and_is_told_about_it(tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, f"cat >{asked}; echo '{{}}'; echo \"$# $*\" >{asked}.argv"))
    lease, result = await settled(engine)

    assert (result.status, tool.calls) == (ResultStatus.OK, ["ls"])
    assert json.loads(asked.read_text()) == {
        "event": "before_tool_call",
        "tool": "shell",
        "arguments": {"text": "ls"},
        "session": "main:ann",
        "kind": "main",
        "turn": lease.turn,
        "step": 1,
        "by": "model",
        "principal": "telegram:1001",
        "workspace": str(engine.workspaces.workspace(lease.session)),
    }
    assert (tmp_path / "asked.json.argv").read_text() == "1 --now\n"
    step = await engine.step(lease.turn, 1)
    assert step.hook_outcome is not None
    assert (step.hook_outcome.by, step.hook_outcome.arguments, step.hook_outcome.refused) == ("", None, "")


@pytest.mark.parametrize("name", ["shell", "bash", "Shell", "SHELL"])
async def test_no_spelling_of_a_tool_escapes_its_hooks(tmp_path: Path, name: str) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, says({"refuse": "never"})))
    engine.use_hooks(
        Hooks(
            hooks=[replace(one, tools=frozenset({"shell"})) for one in engine.execution.hooks.hooks],
            redactor=engine.redactor,
        )
    )
    lease = await engine.planned(f"{name}:rm")
    assert await engine.settle(lease)
    assert ((await engine.result(lease.turn, 1)).code, tool.calls) == ("hook", [])


def test_a_call_that_no_hook_could_see_is_refused(tmp_path: Path) -> None:
    decider = deciding(tmp_path)
    decider.hooked = lambda name: name == "shell"
    found = first(decider, step())
    assert isinstance(found, ToolResult)
    assert found.code == "hook"


async def test_a_hook_changes_the_arguments_that_run(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, says({"arguments": {"text": "safe"}})))
    lease, result = await settled(engine, "dangerous")

    assert (result.text, tool.calls) == ("shell safe", ["safe"])
    step = await engine.step(lease.turn, 1)
    assert step.call is not None
    assert json.loads(step.call.arguments) == {"text": "dangerous"}, "the transcript says what the model asked for"
    assert json.loads(step.arguments) == {"text": "safe"}


async def test_hooks_see_what_the_one_before_left(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    seen = tmp_path / "seen"
    engine = engine_with(
        tmp_path, tool, (BEFORE, says({"arguments": {"text": "one"}})), (BEFORE, f"cat >{seen}; echo '{{}}'")
    )
    await settled(engine)
    assert json.loads(seen.read_text())["arguments"] == {"text": "one"}
    assert tool.calls == ["one"]


async def test_a_hook_refuses_with_its_reason(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, says({"refuse": "not on\n a 123456789:AAExampleExampleExample"})))
    _, result = await settled(engine)

    assert (result.status, result.code, tool.calls) == (ResultStatus.DENIED, "hook", [])
    assert result.hint == "The hook check0 refuses this: not on a [hidden]"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "it ended with exit code 3"),
        ("kill -9 $$", "it ended with exit code 137"),
        ("true", "it printed nothing"),
        ("echo no", "it printed no JSON"),
        ("echo '{} {}'", "it printed no JSON"),
        (r"printf '\377'", "it printed no JSON"),
        ("yes '[' | head -n 50000 | tr -d '\\n'", "it printed no JSON"),
        ("echo '[]'", "its answer is not a JSON object"),
        ("""echo '{"allow": true}'""", "its answer has other keys than one of: arguments, refuse"),
        ("""echo '{"arguments": {}, "refuse": "x"}'""", "its answer has other keys than one of: arguments, refuse"),
        ("""echo '{"arguments": "ls"}'""", "`arguments` in its answer is not an object"),
        ("""echo '{"refuse": false}'""", "`refuse` in its answer is not text"),
        ("yes", "it printed more than 4 MiB"),
        (
            "head -c 1100000 /dev/zero | tr '\\0' a | sed 's/.*/{\"refuse\": \"&\"}/'",
            "longer than a million characters",
        ),
    ],
)
async def test_a_hook_that_fails_refuses_the_call(tmp_path: Path, script: str, why: str) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, f"cat >/dev/null; {script}"), within_s=30)
    _, result = await settled(engine)

    assert (result.status, result.code, tool.calls) == (ResultStatus.DENIED, "hook", [])
    assert result.hint.startswith("The hook check0 failed, so the call is refused: ")
    assert why in result.hint


async def test_a_missing_program_refuses_the_call(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, "true"))
    (tmp_path / "hooks" / "check0").unlink()
    _, result = await settled(engine)
    assert (result.code, tool.calls) == ("hook", [])


async def test_a_slow_hook_refuses_and_its_whole_tree_ends(tmp_path: Path) -> None:
    tool, left = FakeTool(name="shell"), tmp_path / "left"
    script = f"setsid sleep 300 & echo $! >{left}; sleep 300"
    engine = engine_with(tmp_path, tool, (BEFORE, script), within_s=0.5)
    _, result = await settled(engine)

    assert (result.code, tool.calls) == ("hook", [])
    assert "it took longer than 0.5 s" in result.hint
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.read_text()), 0)


async def test_a_hook_has_a_constructed_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the key")
    monkeypatch.setenv("LD_PRELOAD", "")
    found = tmp_path / "env"
    engine = engine_with(tmp_path, FakeTool(name="shell"), (BEFORE, f"env >{found}; pwd >>{found}; echo '{{}}'"))
    await settled(engine)
    names = {line.partition("=")[0] for line in found.read_text().splitlines() if "=" in line}
    assert names <= {"PATH", "HOME", "LANG", "TERM", "TZ", "PWD", "SHLVL", "_", "OLDPWD"}
    assert "dragoman-hook-" in found.read_text().splitlines()[-1], "a folder of its own"


async def test_changed_arguments_are_validated_again(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (BEFORE, says({"arguments": {"txet": 5}})))
    _, result = await settled(engine)
    assert (result.status, result.code, tool.calls) == (ResultStatus.ERROR, "invalid_arguments", [])


async def test_a_hook_cannot_lift_a_deny(tmp_path: Path) -> None:
    """The rules decide about its arguments, and a hook has no word for allow."""
    tool = FakeTool(name="shell", approval={"main": ApprovalMode.DENY})
    engine = engine_with(tmp_path, tool, (BEFORE, says({"arguments": {"text": "ok"}})))
    _, result = await settled(engine)
    assert (result.code, tool.calls) == ("configured", [])


async def test_rules_decide_about_arguments_from_a_hook(tmp_path: Path) -> None:
    made = FakeTool(name="shell")
    rule = Rule(tool="shell", pattern="rm *", decision=Verdict.DENY, kinds=frozenset({"main"}), where="rules[0]")
    tool = replace(made.tool(), call_scope=of_command, policy=replace(made.tool().policy, rules=(rule,)))
    engine = engine_with(tmp_path, tool, (BEFORE, says({"arguments": {"text": "rm -rf x"}})))
    _, result = await settled(engine)
    assert (result.code, made.calls) == ("configured", [])
    assert "rules[0]" in result.hint


async def test_the_card_shows_what_a_hook_changed(tmp_path: Path) -> None:
    tool = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    count = tmp_path / "count"
    engine = engine_with(tmp_path, tool, (BEFORE, f"echo x >>{count}; {says({'arguments': {'text': 'safe'}})}"))
    lease = await engine.planned("shell:dangerous")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert "safe" in wait.approval.rendered
    assert "dangerous" not in wait.approval.rendered
    assert "Not as it was asked for: changed by check0, a hook." in wait.approval.note

    # The hook is replaced by one that would change it back: it does not run a second time, in another life either.
    program(tmp_path / "hooks", says({"arguments": {"text": "worse"}}), "check0")
    await engine.press(wait.id)
    assert await engine.settle(lease)
    assert (tool.calls, count.read_text()) == (["safe"], "x\n")


async def test_a_restart_does_not_run_the_hooks_again(tmp_path: Path) -> None:
    """A call that a crash cut in half runs again with the arguments that it was started with."""
    count = tmp_path / "count"
    held = FakeTool(name="shell", risk=Risk.READ, effect=Effect.PURE, hold=True)
    engine = engine_with(tmp_path, held, (BEFORE, f"echo x >>{count}; {says({'arguments': {'text': 'safe'}})}"))
    lease = await engine.planned("shell:dangerous")
    task = asyncio.create_task(engine.settle(lease))
    await held.until_begun()
    task.cancel()
    await asyncio.wait([task])
    assert (await engine.step(lease.turn, 1)).state is StepState.STARTED

    program(tmp_path / "hooks", says({"refuse": "changed my mind"}), "check0")
    engine.clock.advance(60)
    await engine.store.reclaim()
    held.hold = False
    assert await engine.settle(await engine.claim())
    assert (held.calls, count.read_text()) == (["safe", "safe"], "x\n")


async def test_a_stop_ends_a_running_hook(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    engine = engine_with(tmp_path, FakeTool(name="shell"), (BEFORE, f"echo x >{begun}; sleep 300"))
    lease = await engine.planned("shell:ls")
    task = asyncio.create_task(engine.settle(lease))
    await until(lambda: asyncio.to_thread(begun.exists))
    task.cancel()
    async with asyncio.timeout(3):
        await asyncio.wait([task])
    assert (await engine.step(lease.turn, 1)).hook_outcome is None, "it had decided nothing"


async def test_hooks_of_other_tools_do_not_run(tmp_path: Path) -> None:
    tool = FakeTool(name="shell")
    engine = Engine(tmp_path, [tool])

    async def never(_: Mapping[str, Any]) -> object:
        raise AssertionError("not reached")

    others = [Hook(name="x", event=event, tools=frozenset({"browser"}), ask=never) for event in HookEvent]
    engine.use_hooks(Hooks(hooks=others))
    lease, result = await settled(engine)
    assert result.status is ResultStatus.OK
    assert (await engine.step(lease.turn, 1)).hook_outcome is None


async def test_a_call_that_is_refused_anyway_runs_no_hook(tmp_path: Path) -> None:
    count = tmp_path / "count"
    engine = engine_with(tmp_path, FakeTool(name="shell"), (BEFORE, f"echo x >>{count}; echo '{{}}'"))
    lease = await engine.planned("nothing:ls")
    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).code == "unknown_tool"
    assert not count.exists()


async def test_hooks_of_several_calls_run_side_by_side(tmp_path: Path) -> None:
    running, most = 0, 0

    async def slow(_: Mapping[str, Any]) -> object:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.01)
        running -= 1
        return {}

    tool = FakeTool(name="shell")
    engine = Engine(tmp_path, [tool])
    engine.use_hooks(Hooks(hooks=[Hook(name="slow", event=BEFORE, tools=frozenset(), ask=slow)]))
    lease = await engine.planned(*(f"shell:{n}" for n in range(10)))
    assert await engine.settle(lease)
    assert (len(tool.calls), most) == (10, 4)


# --- after a call ---------------------------------------------------------------------------------


async def test_a_hook_after_a_call_fires_on_one_shape_of_results(tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    engine = engine_with(tmp_path, FakeTool(name="shell"), (AFTER, f"cat >{asked}; echo '{{}}'"))
    _, result = await settled(engine)
    question = json.loads(asked.read_text())

    assert result.text == "shell ls"
    assert (question["event"], question["arguments"]) == ("after_tool_call", {"text": "ls"})
    shape = question["result"]
    assert shape.pop("duration_ms") >= 0
    assert shape == {
        "status": "ok", "text": "shell ls", "code": "", "hint": "", "exit_code": None, "untrusted": False,
        "approval_ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("count", "left_off"), [(2, 0), (FILES_TOLD + 3, 3)])
async def test_a_hook_after_a_call_is_told_the_changed_files(tmp_path: Path, count: int, left_off: int) -> None:
    async def changes(ctx: ToolContext, _: Text) -> ToolResult:
        (ctx.files.root / "0").write_bytes(b"x")
        was = [content_hash(b"x"), *[""] * (count - 1)]
        await ctx.changes.apply([FileChange(path=f"./{n}", before=sha, data=b"y") for n, sha in enumerate(was)])
        return ToolResult(status=ResultStatus.OK, text="")

    asked = tmp_path / "asked.json"
    engine = engine_with(tmp_path, FakeTool(name="shell", body=changes), (AFTER, f"cat >{asked}; echo '{{}}'"))
    await settled(engine)
    question = json.loads(asked.read_text())
    assert question["files"][:2] == [{"path": "0", "change": "changed"}, {"path": "1", "change": "added"}]
    assert (len(question["files"]), question["files_left_off"]) == (count - left_off, left_off)


async def test_the_time_of_a_decision_is_no_part_of_the_calls(tmp_path: Path) -> None:
    """S054: two numbers, since a person may take hours for a call of milliseconds."""
    asked = tmp_path / "asked.json"
    engine = engine_with(
        tmp_path, FakeTool(name="shell", approval={"main": ApprovalMode.ASK}), (AFTER, f"cat >{asked}; echo '{{}}'")
    )
    lease = await engine.planned("shell:ls")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    engine.clock.advance(120)
    await engine.press(wait.id)
    assert await engine.settle(lease)
    shape = json.loads(asked.read_text())["result"]
    assert (shape["approval_ms"], shape["duration_ms"] < 60_000) == (120_000, True)


async def test_a_changed_output_is_redacted_and_bounded(tmp_path: Path) -> None:
    script = f"cat >/dev/null; printf '{{\"text\": \"{SECRET} %s\"}}' $(head -c 200000 /dev/zero | tr '\\0' x)"
    engine = engine_with(tmp_path, FakeTool(name="shell"), (AFTER, script))
    _, result = await settled(engine)
    assert result.text.startswith("[hidden] xxx")
    assert len(result.text) < 71_000
    assert "bytes left out" in result.text


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "it ended with exit code 1"),
        ('echo \'{"refuse": "no"}\'', "its answer has other keys than one of: text"),
        ("echo '{\"text\": 5}'", "`text` in its answer is not text"),
    ],
)
async def test_a_failing_hook_withholds_the_output(tmp_path: Path, script: str, why: str) -> None:
    tool = FakeTool(name="shell")
    engine = engine_with(tmp_path, tool, (AFTER, script))
    _, result = await settled(engine)

    assert tool.calls == ["ls"]
    assert (result.status, result.code, result.text) == (ResultStatus.ERROR, "hook_failed", "")
    assert result.hint.startswith("The call ran and ended (ok), but its output is withheld: the hook check0 failed")
    assert why in result.hint


async def test_output_that_a_hook_may_hide_is_shown_nowhere_else(tmp_path: Path) -> None:
    async def long(ctx: ToolContext, _: Text) -> ToolResult:
        ctx.output.write(b"line\n" * 50_000)
        return ToolResult(status=ResultStatus.OK, text="")

    engine = engine_with(tmp_path, FakeTool(name="shell", body=long), (AFTER, says({"text": "nothing to see"})))
    lease, result = await settled(engine)
    assert (result.text, result.output_path, result.full_output) == ("nothing to see", "", "")
    workspace = engine.workspaces.workspace(lease.session)
    assert [one for one in workspace.rglob("*") if one.is_file()] == [], "no tool can read it either"


async def test_a_call_that_is_cut_short_shows_nothing_unseen(tmp_path: Path) -> None:
    async def writes(ctx: ToolContext, _: Text) -> ToolResult:
        ctx.output.write(b"half of it")
        await asyncio.sleep(300)
        raise AssertionError("not reached")

    tool = FakeTool(name="shell", body=writes)
    engine = engine_with(tmp_path, tool, (AFTER, says({})))
    lease = await engine.planned("shell:ls")
    cancellation = Cancellation()
    task = asyncio.create_task(engine.settle(lease, cancellation))
    await tool.until_begun()
    cancellation.why = CancelReason.STOP
    task.cancel()
    await asyncio.wait([task])
    result = await engine.result(lease.turn, 1)
    assert (result.status, result.text) == (ResultStatus.CANCELLED, "")
    assert "What it printed is withheld, since a hook has not seen it." in result.hint
    assert (result.output_path, result.full_output, result.pictures, result.files) == ("", "", (), ())


# --- functions of packages ------------------------------------------------------------------------


async def test_a_function_that_raises_or_hangs_refuses(tmp_path: Path) -> None:
    async def raises(_: Mapping[str, Any]) -> object:
        raise RuntimeError("123456789:AAExampleExampleExample")

    async def hangs(_: Mapping[str, Any]) -> object:
        await asyncio.sleep(300)
        raise AssertionError("not reached")

    async def odd(_: Mapping[str, Any]) -> object:
        return {"arguments": {"text": object()}}

    async def changes(call: Mapping[str, Any]) -> object:
        return {"arguments": {"text": f"{call['arguments']['text']} -n"}}

    found: list[str] = []
    for ask in (raises, hangs, odd, changes):
        engine = Engine(tmp_path / ask.__name__, [FakeTool(name="shell")])
        hook = Hook(name=ask.__name__, event=BEFORE, tools=frozenset(), ask=ask)
        engine.use_hooks(Hooks(hooks=[hook], within_s=0.05))
        _, result = await settled(engine)
        found.append(result.hint or result.text)
    assert found == [
        "The hook raises failed, so the call is refused: it raised RuntimeError.",
        "The hook hangs failed, so the call is refused: it took longer than 0.05 s.",
        "The hook odd failed, so the call is refused: its answer is not JSON.",
        "shell ls -n",
    ]


# --- the guide ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("ls", {}),
        ("ssh prod1 reboot", {"refuse": "Nothing touches production from here."}),
        ("pip install x", {"arguments": {"command": "uv pip install x"}}),
    ],
)
async def test_the_program_of_the_guide_works(tmp_path: Path, command: str, answer: object) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "hooks.md").read_text()
    (code,) = re.findall(r"```python check_call.py\n(.*?)```", guide, re.DOTALL)
    written = program(tmp_path, code.partition("\n")[2])
    question = {"arguments": {"command": command}}
    argv = [sys.executable, written]
    assert await ask_program(argv, question, containment=NO_SANDBOX, limits=ProcessLimits()) == answer
