"""Calls that read the workspace before anybody is asked: what the card shows is what the approval binds."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.ids import main_session
from gateway.domain.steps import StepState
from gateway.domain.tools import CallScope, Effect, Preview, ResultStatus, Risk, ToolResult
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import Verb
from gateway.errors import NotFound
from gateway.ports import PrepareContext, ToolContext
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, done
from tests.support.makers import ANN
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import deciding, step

Prepare = Callable[[PrepareContext, Text], Awaitable[Preview | ToolResult]]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def look(ctx: PrepareContext, args: Text) -> Preview | ToolResult:
    """Preview of a tool that appends a line to `notes`."""
    old = await ctx.files.read("notes", 1000)
    return Preview(text=f"- {old.decode()}\n+ {args.text}\u202e", state={"sha256": digest(old)})


async def edit(ctx: ToolContext, args: Text) -> ToolResult:
    if digest(await ctx.files.read("notes", 1000)) != ctx.prepared["sha256"]:
        return ToolResult(status=ResultStatus.ERROR, text="", code="changed")
    await ctx.files.replace("notes", args.text.encode())
    return done()


def editing(prepare: Prepare = look, *, effect: Effect = Effect.UNSAFE) -> Tool:
    made = FakeTool(name="edit", risk=Risk.WRITE, effect=effect, body=edit).tool()
    return replace(made, prepare=prepare)


class Rig:
    """An engine with the tool, and the file that it edits."""

    def __init__(self, folder: Path, prepare: Prepare = look) -> None:
        self.engine = Engine(folder, [editing(prepare)])
        self.notes = self.engine.workspaces.workspace(main_session(ANN)) / "notes"
        self.notes.write_text("old")

    async def asked(self) -> Lease:
        lease = await self.engine.planned("edit:new")
        assert not await self.engine.settle(lease)
        return lease

    async def allow(self, lease: Lease) -> ToolResult:
        (wait,) = await self.engine.waits(lease.turn)
        await self.engine.press(wait.id)
        assert await self.engine.settle(lease)
        return await self.engine.result(lease.turn, 1)


async def test_the_card_shows_the_preview_whole_and_escaped(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    lease = await rig.asked()

    (wait,) = await rig.engine.waits(lease.turn)
    assert wait.approval is not None
    assert wait.approval.rendered == "new\n- old⏎\n+ new\\u{202E}"
    assert wait.approval.escaped
    assert wait.approval.prepared == {"sha256": digest(b"old")}


async def test_an_approved_call_runs_on_the_files_that_were_shown(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    assert (await rig.allow(await rig.asked())).status is ResultStatus.OK
    assert rig.notes.read_text() == "new"


async def test_an_approval_does_not_hold_when_the_file_changed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    lease = await rig.asked()
    rig.notes.write_text("edited under the open card")
    found = await rig.allow(lease)

    assert (found.status, found.code) == (ResultStatus.DENIED, "changed")
    assert "nothing was run" in found.hint
    assert rig.notes.read_text() == "edited under the open card"


async def test_an_approval_does_not_hold_when_the_file_is_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    lease = await rig.asked()
    rig.notes.unlink()

    assert (await rig.allow(lease)).code == "changed"


async def missing(ctx: PrepareContext, _args: Text) -> Preview | ToolResult:
    raise NotFound("There is no such text.", cure="Read the file first.")


async def refused(ctx: PrepareContext, _args: Text) -> Preview | ToolResult:
    return ToolResult(status=ResultStatus.ERROR, text="", code="unread", hint="Read the file first.")


async def broken(ctx: PrepareContext, _args: Text) -> Preview | ToolResult:
    raise LookupError("a fault of the tool")


@pytest.mark.parametrize(
    ("prepare", "code", "hint"),
    [
        (missing, "error", "There is no such text. Read the file first."),
        (refused, "unread", "Read the file first."),
        (broken, "crashed", "could not prepare this call, so nothing was run."),
    ],
)
async def test_nobody_is_asked_about_a_call_that_cannot_work(
    tmp_path: Path, prepare: Prepare, code: str, hint: str
) -> None:
    rig = Rig(tmp_path, prepare)
    lease = await rig.engine.planned("edit:new")

    assert await rig.engine.settle(lease)
    found = await rig.engine.result(lease.turn, 1)
    assert (found.status, found.code) == (ResultStatus.ERROR, code)
    assert hint in found.hint
    assert await rig.engine.waits(lease.turn) == []


async def test_a_preview_that_hangs_ends_at_its_timeout(tmp_path: Path) -> None:
    async def hangs(ctx: PrepareContext, _args: Text) -> Preview | ToolResult:
        await asyncio.sleep(3600)
        raise AssertionError("not reached")

    made = replace(editing(hangs), spec=replace(editing().spec, name="shell"))
    by = replace(deciding(tmp_path, made), prepared_within_s=0.01)
    one = step()

    found = await by.preview(turn_view(steps=[one]), one)
    assert isinstance(found, ToolResult)
    assert found.code == "crashed"


def test_an_unasked_edit_that_a_crash_cut_is_unknown(tmp_path: Path) -> None:
    """The content that it had seen was stored nowhere: done again, it could not tell its own edit from another's."""
    made = editing(effect=Effect.IDEMPOTENT)
    allowed = replace(made, spec=replace(made.spec, name="shell", risk=Risk.NONE))
    one = step(state=StepState.STARTED)
    found = deciding(tmp_path, allowed).later(turn_view(steps=[one]), one, None)

    assert isinstance(found, ToolResult)
    assert found.status is ResultStatus.UNKNOWN


async def looks_or_guesses(ctx: PrepareContext, args: Text) -> Preview | ToolResult:
    """Preview of a tool that does not find the text `guess` exactly."""
    old = await ctx.files.read("notes", 1000)
    return Preview(text=f"+ {args.text}", state={"sha256": digest(old)}, exact=args.text != "guess")


def notes_scope(_args: Text) -> CallScope:
    return CallScope(risk=Risk.WRITE, subjects=("path:notes",))


async def test_no_grant_covers_a_call_that_had_to_guess(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [replace(editing(looks_or_guesses), call_scope=notes_scope)])
    (engine.workspaces.workspace(main_session(ANN)) / "notes").write_text("old")
    lease = await engine.planned("edit:new")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.ALWAYS)
    await engine.press(wait.id, Verb.GRANT_CHAT)
    assert await engine.settle(lease)
    await engine.store.finish_turn(lease, TurnState.DONE, answer=None, given=(), slots=[], timers=[])

    lease = await engine.planned("edit:more")
    assert await engine.settle(lease)  # the grant covers it
    await engine.store.finish_turn(lease, TurnState.DONE, answer=None, given=(), slots=[], timers=[])
    lease = await engine.planned("edit:guess")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert wait.approval is not None
    assert wait.approval.always is None
