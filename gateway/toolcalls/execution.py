"""Execution of one permitted call, with timeout, sandbox and output buffer. Used by `scheduler`.

The only module that calls a tool's `run`. It demands a permit, which only `scheduler` may issue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.domain.events import FILES, FileChanged, OutputDelta, session_topic
from gateway.domain.file_changes import FileChangeKind
from gateway.domain.hooks import HookEvent
from gateway.domain.ids import SessionId
from gateway.domain.scopes import Scopes
from gateway.domain.sessions import branch_of, works_in
from gateway.domain.text import mended
from gateway.domain.tools import (
    Artifact,
    Park,
    Picture,
    ResultStatus,
    ToolResult,
)
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.egress import Egress, Requests
from gateway.errors import DragomanError
from gateway.ports import (
    Artifacts,
    Clock,
    EventBus,
    FileChanges,
    Files,
    KeyValue,
    Messages,
    Net,
    Output,
    People,
    Process,
    Subsessions,
)
from gateway.sandbox import Containment, ProcessLimits
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor, redacted_line
from gateway.toolcalls.artifacts import ArtifactStore
from gateway.toolcalls.file_changes import CallFileChanges
from gateway.toolcalls.files import WorkspaceFiles
from gateway.toolcalls.hooks import Hooks
from gateway.toolcalls.inquiries import InquiryService
from gateway.toolcalls.jobs import Jobs
from gateway.toolcalls.last_line import LastLine, OnLine
from gateway.toolcalls.output import OnText, OutputBuffer, bounded, too_long
from gateway.toolcalls.permits import Permit
from gateway.toolcalls.posts import MessageService
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.processes import CallProcess, ProcessHost, job_limit_s, limit_s, network_hint
from gateway.toolcalls.subsessions import SubsessionService
from gateway.toolcalls.workers import Workers
from gateway.toolcalls.workspaces import JOURNALS, READABLE, Workspaces, kept_for

PROGRESS_CHARS = 200
"""Characters of the longest line of progress."""
FAULT_CHARS = 500
"""Characters of the error text of a tool that crashed."""
CANCELLED_HINTS: Mapping[CancelReason, str] = MappingProxyType(
    {
        CancelReason.STOP: "cancelled by /stop",
        CancelReason.SHUTDOWN: "cancelled by shutdown",
        CancelReason.LIMIT: "cancelled: the turn's time is over",
    }
)
"""Hint in the result of a cancelled call. `LOST` has none: a holder that lost the turn may write no result.

Nor has `RELEASE`: when it is set, the work has failed and none of its calls runs any more.
"""


def _unheard(_: str) -> None:
    """Take no notice of a line."""


def cut_short(cancellation: Cancellation) -> ToolResult | None:
    """Return the result of a cancelled call; None when the reason forbids to write one."""
    why = cancellation.why
    if why is None or why not in CANCELLED_HINTS:
        return None
    return ToolResult(status=ResultStatus.CANCELLED, text="", code=why.value, hint=CANCELLED_HINTS[why])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Artifacts:
    """`ports.Artifacts` of one call."""

    store: ArtifactStore
    workspace: Path

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Store a picture with the call's output. Raises `BadRequest` for an unsupported or too large one."""
        return await asyncio.to_thread(self.store.picture, data, media_type)

    async def file(self, path: Path, name: str, media_type: str) -> Artifact:
        """Store a copy of a workspace file. Raises `BadRequest` for one that is not regular, or too large."""
        return await asyncio.to_thread(self.store.file, self.workspace, path, name, media_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """`ports.ToolContext` of one call."""

    files: Files
    changes: FileChanges
    process: Process
    net: Net
    artifacts: Artifacts
    sessions: Subsessions
    people: People
    messages: Messages
    output: Output
    session: SessionId
    tell: Callable[[str], None]
    step_key: str
    kept_for: str
    scopes: Scopes
    prepared: Mapping[str, Any]

    def progress(self, text: str) -> None:
        """Show a line in the turn's status line."""
        self.tell(text)


@dataclass(slots=True, kw_only=True)
class Execution:
    """Runner of prepared calls."""

    workspaces: Workspaces
    containment: Containment
    clock: Clock
    events: EventBus
    metrics: Metrics
    redactor: Redactor
    subsessions: SubsessionService
    inquiries: InquiryService
    messages: MessageService
    key_value: KeyValue
    jobs: Jobs
    workers: Workers | None = None
    """Contained workers of own tools; None: no such tool runs."""
    hooks: Hooks = field(default_factory=Hooks)
    program_limits: ProcessLimits = field(default_factory=ProcessLimits)
    """Limits of each program that a call starts."""
    egress: Egress = field(default_factory=Egress)
    """Maker of the egress proxies of programs in the network `public`."""
    _log: Any = field(default_factory=lambda: log("execution"))

    async def run(
        self,
        permit: Permit,
        call: Prepared,
        cancellation: Cancellation,
        done: Callable[[ToolResult], Any],
        on_line: OnLine = _unheard,
    ) -> ToolResult | Park:
        """Run the call under the permit's lease and return its result. A tool's failure or timeout is a result.

        On cancellation, `done` gets the partial result before the cancellation goes on. `on_line` is given the last
        line that the call printed, about once a second. Raises `PermissionError` when the permit is for something else.
        """
        if not permit.is_for(call.step.turn, call.step.n, call.action_sha):
            raise PermissionError("This permit is for something else.")
        lease = permit.lease
        line = LastLine(on_line)
        output = self._output(call, lease, line)
        began = self.clock.monotonic()
        changed = dict[str, FileChangeKind]()
        try:
            context = partial(self._context, call, lease, output, partial(self._progress, call, line), changed)
            outcome = await self._limited(call, context)
        except asyncio.CancelledError:
            if (result := cut_short(cancellation)) is not None:
                await done(self.hooks.unseen(call, self._whole(result, call, lease, output, began)))
            raise
        finally:
            line.close()
        if isinstance(outcome, Park):
            output.close()
            return outcome
        result = self._whole(outcome, call, lease, output, began)
        try:
            return await self.hooks.after(call, result, changed)
        except asyncio.CancelledError:
            if cut_short(cancellation) is not None:
                await done(self.hooks.unseen(call, result))
            raise

    def _progress(self, call: Prepared, line: LastLine, text: str) -> None:
        """Report a line of progress, where no hook may hide what people see."""
        if not self._is_hooked(call):
            line.add(f"\n{redacted_line(text, PROGRESS_CHARS, self.redactor)}\n")

    async def _limited(self, call: Prepared, context: Callable[[], _Context]) -> ToolResult | Park:
        limit = limit_s(call.tool.spec, call.tool.policy, call.action.arguments)
        scope = asyncio.timeout(limit)
        try:
            made = context()
            async with scope:
                return await call.tool.run(made, call.arguments)
        except TimeoutError:
            if not scope.expired():
                return ToolResult(status=ResultStatus.ERROR, text="", code="error", hint="Something inside timed out.")
            hint = f"Stopped after {limit:g} s, the limit of {call.tool.spec.name}."
            return ToolResult(status=ResultStatus.TIMEOUT, text="", code="timeout", hint=hint)
        except DragomanError as error:
            return ToolResult(status=ResultStatus.ERROR, text="", code="error", hint=str(error))
        except Exception as error:  # noqa: BLE001 - a tool's failure is a result (house rule 9)
            self._log.exception("tool failed", tool=call.tool.spec.name)
            # The text may contain strangers' words: of a page, or a file's name.
            text = redacted_line(f"{type(error).__name__}: {error}", FAULT_CHARS, self.redactor)
            hint = f"{call.tool.spec.name} failed by a fault of its own."
            return ToolResult(status=ResultStatus.ERROR, text=text, code="crashed", hint=hint, untrusted=True)

    def _context(
        self, call: Prepared, lease: Lease, output: OutputBuffer, tell: OnLine, changed: dict[str, FileChangeKind]
    ) -> _Context:
        """Return the call's tool context, which notes changed files in `changed`.

        Raises `DragomanError` when its folder is not the one that was allowed.
        """
        cwd = self.workspaces.workspace(works_in(call.view.session))
        # Compare the folder's own name, which is the root's: another machine keeps its state elsewhere.
        if cwd.name != Path(call.action.cwd).name:
            raise DragomanError(
                f"The workspace is {cwd} now, and this was allowed for {call.action.cwd}. Nothing was run.",
                cure="Ask for it again.",
            )
        return _Context(
            files=WorkspaceFiles(cwd, call.hidden),
            changes=self.changes(call.view, call.step.n, cwd, changed),
            process=self._process(call, lease, output, cwd, tell),
            net=Requests(egress=self.egress),
            artifacts=_Artifacts(
                store=ArtifactStore(self.workspaces.outputs(lease.session), f"{call.step.turn}-{call.step.n}"),
                workspace=cwd,
            ),
            sessions=self.subsessions.of(call.view, call.step.n, lease),
            people=self.inquiries.of(call.view, call.step.n, lease),
            messages=self.messages.of(call.view, call.step.n),
            output=output,
            session=call.view.session.id,
            tell=tell,
            step_key=f"{call.step.turn}/{call.step.n}",
            kept_for=kept_for(call.view.turn.session, call.view.turn.epoch),
            scopes=call.scopes,
            prepared=call.prepared or {},
        )

    def _process(self, call: Prepared, lease: Lease, output: OutputBuffer, cwd: Path, progress: OnLine) -> CallProcess:
        name = f"{call.step.turn}-{call.step.n}-job.txt"
        return CallProcess(
            host=ProcessHost(
                containment=self.containment,
                limits=self.program_limits,
                hidden=self.workspaces.hidden,
                egress=self.egress,
                jobs=self.jobs,
                workers=self.workers,
            ),
            action=call.action,
            workspace=cwd,
            output=output,
            root=works_in(call.view.session),
            by=call.view.turn.principal,
            within=branch_of(call.view.session),
            kept_for=kept_for(call.view.turn.session, call.view.turn.epoch),
            session=call.view.session.id,
            progress=progress,
            buffer=lambda on_text: self._buffer(call, lease, name, on_text),
            job_s=partial(job_limit_s, call.tool.spec, call.tool.policy),
        )

    def changes(
        self, view: TurnView, n: int, workspace: Path, changed: dict[str, FileChangeKind] | None = None
    ) -> CallFileChanges:
        """Return the changes of workspace files by one call, each of which is published, and noted in `changed`."""

        def tell(path: str, kind: FileChangeKind) -> None:
            if changed is not None:
                changed[path] = kind
            event = FileChanged(session=view.session.id, turn=view.turn.id, n=n, path=path, kind=kind)
            self.events.publish_here(FILES, event)

        return CallFileChanges(
            key_value=self.key_value,
            workspace=workspace,
            folder=self.workspaces.outputs(works_in(view.session)) / JOURNALS,
            session=view.session.id,
            epoch=view.turn.epoch,
            turn=view.turn.id,
            n=n,
            tell=tell,
        )

    def _output(self, call: Prepared, lease: Lease, line: LastLine) -> OutputBuffer:
        step = call.step

        def show(start: int, text: str) -> None:
            delta = OutputDelta(session=lease.session, turn=step.turn, n=step.n, start=start, text=text)
            self.events.publish(session_topic(lease.session), delta)
            line.add(text)

        live = None if self._is_hooked(call) else show
        return self._buffer(call, lease, f"{step.turn}-{step.n}.txt", live)

    def _buffer(self, call: Prepared, lease: Lease, name: str, show: OnText | None = None) -> OutputBuffer:
        folder = self.workspaces.outputs(lease.session)
        # A hook may hide some of the output: nobody sees it before, and no tool can read the whole of it after.
        copy = partial(self.workspaces.readable_output, works_in(call.view.session))
        return OutputBuffer(folder, name, self.clock, self.redactor, show, None if self._is_hooked(call) else copy)

    def _is_hooked(self, call: Prepared) -> bool:
        return self.hooks.any_for(HookEvent.AFTER, call.tool.spec.name)

    def _whole(
        self, result: ToolResult, call: Prepared, lease: Lease, output: OutputBuffer, began: float
    ) -> ToolResult:
        """Return the result to store, with text and hint bounded; a tool's own text is cut like its output.

        Text that is left out is in a file.
        """
        seconds = self.clock.monotonic() - began
        tool = call.tool.spec.name
        output.close()
        self.metrics.calls.labels(tool, result.status.value).inc()
        self.metrics.call_seconds.labels(tool).observe(seconds)
        text = result.text
        if too_long(text):
            output = self._buffer(call, lease, f"{call.step.turn}-{call.step.n}-text.txt")
            output.write(mended(text).encode())
            output.close()
            text = ""
        whole = replace(
            result,
            text=self.redactor.text(text) or output.text(),
            duration_ms=round(seconds * 1000),
            dropped_bytes=output.dropped_bytes,
            full_output=output.full_output,
            output_path=f"{READABLE}/{output.full_output}" if output.has_copy else "",
            output_cut=output.copy_is_cut,
        )
        if whole.status is ResultStatus.ERROR and (why := network_hint(call.action, whole.text)):
            whole = replace(whole, hint=f"{whole.hint} {why}".strip())
        return bounded(whole)
