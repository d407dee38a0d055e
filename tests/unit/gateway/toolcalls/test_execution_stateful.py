"""Tool context of stateful tools: key of the state, allowed scopes, artifacts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.domain.scopes import NO_SCOPES, Scopes
from gateway.domain.steps import StepState
from gateway.domain.tools import Action, CallScope, ResultStatus, Risk, SandboxMode, ToolResult
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.ports import ToolContext
from gateway.system.cancellation import Cancellation
from gateway.toolcalls.permits import Permit
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.workspaces import kept_for
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, done


@dataclass(slots=True)
class Seen:
    """Tool that records its context."""

    kept_for: list[str] = field(default_factory=list[str])
    sandboxes: list[SandboxMode | None] = field(default_factory=list[SandboxMode | None])
    scopes: list[Scopes] = field(default_factory=list[Scopes])

    async def body(self, ctx: ToolContext, _args: Text) -> ToolResult:
        """Record the context."""
        self.kept_for.append(ctx.kept_for)
        self.sandboxes.append(ctx.process.sandbox)
        self.scopes.append(ctx.scopes)
        return done()


def prepared(engine: Engine, view: TurnView, sandbox: SandboxMode | None, scopes: Scopes = NO_SCOPES) -> Prepared:
    """Return the first call of a turn, allowed with these scopes."""
    tool = engine.registry.snapshot().get("fake")
    assert tool is not None
    cwd = str(engine.workspaces.workspace(view.session.id))
    action = Action(tool="fake", arguments={}, cwd=cwd, sandbox=sandbox)
    step = replace(view.steps[1], state=StepState.STARTED)
    return Prepared(
        view=view,
        step=step,
        tool=tool,
        arguments=Text(),
        action=action,
        action_sha="sha",
        call_scope=CallScope(risk=Risk.NONE),
        scopes=scopes,
    )


async def run(engine: Engine, lease: Lease, call: Prepared) -> ToolResult:
    """Run a call."""

    async def partial(_: ToolResult) -> None:
        raise AssertionError("it was not cut")

    permit = Permit(lease, call.step.n, "sha")
    found = await engine.execution.run(permit, call, Cancellation(), partial)
    assert isinstance(found, ToolResult)
    return found


async def test_tool_context_has_session_containment_and_scopes(tmp_path: Path) -> None:
    seen = Seen()
    engine = Engine(tmp_path, [FakeTool(name="fake", body=seen.body)])
    lease = await engine.planned("fake")
    view = await engine.store.turn(lease.turn)
    await run(engine, lease, prepared(engine, view, SandboxMode.BASIC, Scopes(frozenset({"example.org"}))))
    anew = replace(view, turn=replace(view.turn, epoch=view.turn.epoch + 1))
    await run(engine, lease, prepared(engine, anew, None))

    assert seen.kept_for == [kept_for(view.session.id, 0), kept_for(view.session.id, 1)]
    assert seen.sandboxes == [SandboxMode.BASIC, None]
    assert [one.granted for one in seen.scopes] == [{"example.org"}, frozenset()]


async def test_file_that_cannot_be_stored_is_an_error_with_reason(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        return replace(done(), files=(await ctx.artifacts.file(Path("../secret"), "x", ""),))

    engine = Engine(tmp_path, [FakeTool(name="fake", body=saves)])
    lease = await engine.planned("fake")
    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)

    assert (found.status, found.files) == (ResultStatus.ERROR, ())
    assert found.hint == "'../secret' is not a regular file in the workspace. Name one that is."
