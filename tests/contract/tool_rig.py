"""Rig of the contract of tools: every built-in tool as the daemon loads it, in an engine of its own."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.domain.file_changes import FileChange
from gateway.domain.ids import CallId, SessionId
from gateway.domain.steps import Answer, Step, StepKind
from gateway.domain.tools import ApprovalMode, Park, Preview, ToolCall, ToolPolicy, ToolResult
from gateway.domain.turns import Lease, TurnLimits
from gateway.egress import Egress
from gateway.errors import BadRequest
from gateway.ports import FileChanges, FileReader, ToolContext
from gateway.sandbox import Containment, probe
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.toolcalls.file_changes import CallFileChanges
from gateway.toolcalls.files import WorkspaceFiles
from gateway.toolcalls.tool_set import Tool
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.fakes import NO_SANDBOX
from tests.support.makers import inbound

CONFIG = """
[channels.telegram]
token = "env:BOT_TOKEN"
[channels.slack]
bot_token = "env:SLACK_TOKEN"
app_token = "env:SLACK_APP"
[tools.websearch]
provider = "searxng"
url = "http://127.0.0.1:9"
[tools.codesearch]
provider = "exa"
url = "http://127.0.0.1:9"
api_key = "env:SEARCH_KEY"
"""
"""Gives the tools that need a service one at which nobody listens."""
BOT_TOKEN = f"1:{'A' * 35}"
TEXT = "a\nsecond line\n"
PATCH = "*** Begin Patch\n*** Update File: notes\n-a\n+b\n*** End Patch"
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "apply_patch": {"patch": PATCH},
    "ask_user": {"questions": [{"question": "Which day?", "options": ["Monday", "Friday"]}]},
    "browser": {"action": "open", "url": "https://example.org"},
    "codesearch": {"query": "asyncio timeout"},
    "edit": {"path": "notes", "old": "a\n", "new": "b\n"},
    "glob": {"pattern": "**/*"},
    "grep": {"pattern": "second"},
    "list": {"path": "."},
    "multiedit": {"files": [{"path": "notes", "edits": [{"old": "a\n", "new": "b\n"}]}]},
    "plan_enter": {"why": "It touches forty files."},
    "plan_exit": {"plan": "Change the notes."},
    "read": {"path": "notes"},
    "send_file": {"path": "notes"},
    "sessions_history": {"session": "child:none"},
    "sessions_list": {},
    "sessions_send": {"session": "child:none", "message": "And the folders?"},
    "sessions_spawn": {"task": "Count the files.", "mode": "session"},
    "sessions_stop": {"session": "child:none"},
    "shell": {"command": "cat notes"},
    "shell_kill": {"job": "none"},
    "shell_poll": {"job": "none"},
    "task": {"prompt": "Count the files."},
    "todo_read": {},
    "todo_write": {"todos": [{"text": "Buy rye flour", "state": "doing"}]},
    "slack": {"text": "Done."},
    "telegram": {"text": "Done."},
    "undo": {},
    "webfetch": {"url": "https://example.org"},
    "websearch": {"query": "rye bread"},
    "workflow": {"steps": [{"name": "count", "task": "Count the files."}]},
    "write": {"path": "notes", "content": "b\nsecond line\n"},
}
"""A valid call of each tool in the workspace that `ToolBench.open` prepares. A new tool needs a line here."""
WITHIN_S = 10.0


@cache
def loaded() -> Loaded:
    """The configuration under which every tool exists."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "config.toml")
        file.write_text(CONFIG)
        tokens = {"BOT_TOKEN": BOT_TOKEN, "SLACK_TOKEN": "xoxb-1", "SLACK_APP": "xapp-1"}
        return load(file, "/nowhere", {"HOME": "/nowhere", "SEARCH_KEY": "k", **tokens}, tool_specs())


def built_in(folder: Path) -> dict[str, Tool]:
    """Load every built-in tool as the daemon does, by name. Their hosts are in a folder."""
    hosts = ToolHosts(state=folder, clock=FakeClock(), containment=NO_SANDBOX, egress=Egress())
    sources, _ = load_tools(loaded(), hosts.of)
    return {tool.spec.name: tool for source in sources for tool in source.snapshot()}


@cache
def names() -> tuple[str, ...]:
    """Names of all built-in tools."""
    return tuple(sorted(tool_specs()))


@cache
def machine() -> Containment:
    """Return the containment of this machine: searches run in a sandbox only."""
    return asyncio.run(probe())


def allowed(policy: ToolPolicy) -> ToolPolicy:
    """Return the policy with which nobody is asked in main."""
    return replace(policy, approval={"main": ApprovalMode.ALLOW})


# --- contexts that do not answer --------------------------------------------------------------------


class Hanging:
    """A part of a tool's context. Its asynchronous methods hang when asked to; everything else is the real one's."""

    def __init__(self, real: Any, begun: asyncio.Event, stays: Callable[[str], bool]) -> None:
        """Take the real part. `stays`: whether a method, by its name, hangs."""
        self._real, self._begun, self._stays = real, begun, stays

    def __getattr__(self, name: str) -> Any:
        """Return the real attribute, or a method that hangs."""
        found = getattr(self._real, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return self._hang if self._stays(name) else found

    async def _hang(self, *_: Any, **__: Any) -> None:
        self._begun.set()
        await asyncio.Event().wait()


PARTS = ("files", "changes", "process", "net", "artifacts", "sessions", "people", "messages")


class HangingContext:
    """A `ToolContext` of which every part hangs; what only reads facts of the call does not."""

    def __init__(self, real: ToolContext, begun: asyncio.Event, stays: Callable[[str], bool]) -> None:
        """Wrap a real one."""
        for part in PARTS:
            setattr(self, part, Hanging(getattr(real, part), begun, stays))
        self._real = real

    def __getattr__(self, name: str) -> Any:
        """Return what is not a part."""
        return getattr(self._real, name)


def always(_: str) -> bool:
    """Let every method hang."""
    return True


@dataclass(slots=True, kw_only=True)
class ToolBench:
    """One tool in an engine, whose workspace has a file that its session knows and a turn with a change."""

    tool: Tool
    engine: Engine
    workspace: Path

    @classmethod
    async def open(
        cls,
        name: str,
        folder: Path,
        *,
        timeout_s: float | None = None,
        around: Callable[[Tool], Tool] | None = None,
        asks: bool = False,
    ) -> ToolBench:
        """Prepare everything. `around` replaces the tool; nobody is asked about its calls unless `asks`."""
        tools = built_in(folder / "tools")
        tool = tools[name]
        policy = tool.policy if asks else allowed(tool.policy)
        if timeout_s is not None:
            policy = replace(policy, timeout_s=timeout_s, actions=dict.fromkeys(policy.actions, timeout_s))
        tool = replace(tool, policy=policy)
        tools = {one: replace(other, policy=allowed(other.policy)) for one, other in tools.items()}
        tools[name] = around(tool) if around else tool
        contained = await asyncio.to_thread(machine)
        engine = Engine(folder / "state", tools.values(), limits=TurnLimits(calls=1000), containment=contained)
        bench = cls(tool=tool, engine=engine, workspace=engine.workspaces.workspace(SessionId("main:ann")))
        await bench._prepare()
        return bench

    async def _prepare(self) -> None:
        """Write the file in a turn before, so that the session knows it and can take it back."""
        lease = await self.plan("{}", tool="nothing")
        change = FileChange(path="notes", before="", data=TEXT.encode())
        await self._changes(lease).apply([change])
        await self.engine.settle(lease)
        await self.engine.run(lease)
        if self.tool.spec.leaves_plan:
            await self.engine.ingress.message(inbound("/plan"))

    def _changes(self, lease: Lease) -> CallFileChanges:
        return CallFileChanges(
            key_value=self.engine.store, workspace=self.workspace, session=lease.session, epoch=0, turn=lease.turn, n=1,
            folder=self.engine.workspaces.outputs(lease.session) / "changes",
        )  # fmt: skip

    async def preview(self, lease: Lease) -> Preview | ToolResult | str:
        """Let the tool look at the workspace for the example's call. Text: it refuses the call."""
        assert self.tool.prepare is not None
        arguments = self.tool.arguments.parse(json.dumps(EXAMPLES[self.tool.spec.name]))
        try:
            return await self.tool.prepare(Looking(WorkspaceFiles(self.workspace), self._changes(lease)), arguments)
        except BadRequest as error:
            return str(error)

    async def plan(self, *arguments: Mapping[str, Any] | str, tool: str = "") -> Lease:
        """Return a held turn whose answer makes these calls."""
        name = tool or self.tool.spec.name
        texts = [one if isinstance(one, str) else json.dumps(one) for one in arguments]
        calls = tuple(ToolCall(id=CallId(f"c{n}"), tool=name, arguments=text) for n, text in enumerate(texts))
        turn = await self.engine.say()
        lease = await self.engine.claim()
        view = await self.engine.store.turn(turn)
        given = view.inputs
        await self.engine.store.plan(lease, Answer(text="", calls=calls, model="scripted"), given=given, slots=[])
        return lease

    async def results(self, *arguments: Mapping[str, Any] | str, tool: str = "") -> list[ToolResult | None]:
        """Make calls and end their turn. None: the call waits for somebody."""
        lease = await self.plan(*arguments, tool=tool)
        if await self.engine.settle(lease):
            await self.engine.run(lease)
        return [step.result for step in await self.steps(lease)]

    async def example(self) -> Lease:
        """Return a held turn that makes the example's call, which is allowed."""
        lease = await self.plan(EXAMPLES[self.tool.spec.name])
        if self.tool.spec.leaves_plan:  # a person decides, whatever the settings say
            assert not await self.engine.settle(lease)
            (wait,) = await self.engine.waits(lease.turn)
            await self.engine.press(wait.id)
        return lease

    async def result(self) -> ToolResult:
        """Make the example's call and return its result."""
        lease = await self.example()
        assert await self.engine.settle(lease)
        (step,) = await self.steps(lease)
        assert step.result is not None
        return step.result

    async def steps(self, lease: Lease) -> Sequence[Step]:
        """Return the calls of a turn."""
        return [step for step in (await self.engine.store.turn(lease.turn)).steps if step.kind is StepKind.TOOL]

    async def cut(self, begun: asyncio.Event, why: CancelReason) -> Lease:
        """Begin the example's call, and end its holder when the event is set."""
        lease = await self.example()
        cancellation = Cancellation()
        work = asyncio.ensure_future(self.engine.settle(lease, cancellation))
        async with asyncio.timeout(WITHIN_S):
            await begun.wait()
            cancellation.why = why
            work.cancel()
            await asyncio.wait([work])
        return lease

    async def again(self, lease: Lease) -> ToolResult:
        """Let another holder take the turn of one that is lost, and return the call's result."""
        self.engine.clock.advance(16)
        await self.engine.store.reclaim()
        taken = await self.engine.claim()
        assert taken.turn == lease.turn
        assert await self.engine.settle(taken)
        (step,) = await self.steps(taken)
        assert step.result is not None
        return step.result

    def files(self) -> dict[str, bytes]:
        """Return the files of the workspace."""
        found = [path for path in self.workspace.rglob("*") if path.is_file()]
        return {path.relative_to(self.workspace).as_posix(): path.read_bytes() for path in found}


@dataclass(frozen=True, slots=True)
class Looking:
    """`ports.PrepareContext` of a call."""

    files: FileReader
    changes: FileChanges


def once(tool: Tool, changed: Tool) -> Tool:
    """Return a tool whose first run is that of the changed one."""
    runs = iter([changed.run])

    async def run(ctx: ToolContext, arguments: Any) -> ToolResult | Park:
        return await next(runs, tool.run)(ctx, arguments)

    return replace(tool, run=run)


def hangs(begun: asyncio.Event, stays: Callable[[str], bool] = always, after: bool = False) -> Callable[[Tool], Tool]:
    """Return a change of a tool: its context hangs, or with `after` the tool does when it is done."""

    def around(tool: Tool) -> Tool:
        async def run(ctx: ToolContext, arguments: Any) -> ToolResult | Park:
            if not after:
                return await tool.run(cast("ToolContext", HangingContext(ctx, begun, stays)), arguments)
            await tool.run(ctx, arguments)
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody ends this wait")

        return replace(tool, run=run)

    return around
