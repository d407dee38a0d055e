"""Protocols that a running tool may use. Implemented by `gateway.toolcalls`, `gateway.app`, `gateway.sandbox` and
`gateway.egress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.children import SpawnMode
from gateway.domain.file_changes import ChangeOutcome, FileChange, Undo
from gateway.domain.ids import SessionId
from gateway.domain.jobs import JobState
from gateway.domain.scopes import Scopes
from gateway.domain.tools import Park, SandboxMode, ToolResult
from gateway.domain.views import ChildLine
from gateway.domain.web import Fetched
from gateway.domain.workers import WorkerFile
from gateway.domain.workflows import WorkflowStep
from gateway.ports.outputs import Artifacts, Messages, Output
from gateway.ports.people import People


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """Result of a process."""

    exit_code: int
    """128 + signal number when a signal ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessText:
    """Result of a process with its output."""

    exit_code: int
    data: bytes
    cut: bool
    """True when there was more output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """File or folder of the workspace."""

    path: str
    """Path relative to the workspace."""
    folder: bool
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Request for a new sub-session. None or empty fields inherit from the parent."""

    text: str
    agent: str = ""
    model: str = ""
    tools: Sequence[str] | None = None
    mode: SpawnMode = SpawnMode.RUN
    timeout_s: float | None = None
    """Maximum seconds of work."""
    preset: str = ""
    title: str = ""
    """A few words for lists; empty: the first line of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessage:
    """Message to a sub-session that is there already."""

    session: SessionId
    text: str
    wait_s: float = 0
    """Longest time in seconds to wait for the answer; 0: it is a message later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """Something that was said or done in a sub-session: material, not an instruction."""

    ord: int
    """Place of its row in the session; grows."""
    who: str
    """Speaker, or the tool that was called."""
    text: str
    """Whole text, with secrets redacted."""


class Subsessions(Protocol):
    """Sub-sessions of the session that a call belongs to, and its own preset."""

    async def spawn(self, task: Task) -> ToolResult | Park:
        """Start a sub-session. Idempotent by the step; checks the rights of the session for every call.

        RUN returns `Park`, SESSION a result with the child's id. A refusal is a result too.
        """
        ...

    async def workflow(self, steps: Sequence[WorkflowStep]) -> ToolResult | Park:
        """Start a workflow whose shape was checked. Idempotent by the step; each step has a part of the rights here.

        Returns `Park`, or a refusal as a result.
        """
        ...

    async def send(self, message: SessionMessage) -> ToolResult | Park:
        """Send a message to a sub-session that this session spawned itself. Idempotent by the step.

        The task at work reads it; an ended sub-session begins a further task. Returns `Park` when the call waits for
        the answer. A refusal is a result too. Raises `NotFound` and `Forbidden` as `stop`.
        """
        ...

    async def tell(self, text: str) -> ToolResult:
        """Send a message to the session that gave this one its task, and go on. Idempotent by the step.

        A refusal is a result too. Raises `NotFound` in a session that works for no other.
        """
        ...

    async def history(self, child: SessionId, before: int | None, limit: int, *, calls: bool) -> Sequence[HistoryLine]:
        """Return what was said in a sub-session below this one, oldest first, and with `calls` what it did.

        These are the last `limit` lines of rows with `ord` < before (None: the newest). Raises as `stop`.
        """
        ...

    async def members(self) -> Sequence[ChildLine]:
        """Return all sub-sessions below this session, live ones first."""
        ...

    async def stop(self, child: SessionId) -> int:
        """Stop a sub-session and all below it. Return how many turns were stopped.

        Raises `NotFound`; raises `Forbidden` for another person's sub-session in a conversation of several people.
        """
        ...

    async def enter_plan(self) -> None:
        """Give this session the preset `plan`.

        Idempotent by the step. Raises `NotFound` in a sub-session, and where there is no such preset.
        """
        ...

    async def leave_plan(self) -> None:
        """Give this session the preset before its present one, else the default of its kind.

        Idempotent by the step. Raises `NotFound` in a sub-session.
        """
        ...


class FileReader(Protocol):
    """Files of the session's workspace, for reading. No link beneath the workspace is followed.

    A `path` is relative to the workspace, or absolute and inside it. Each method raises `BadRequest` for any other
    path, and for an irregular file. It raises `NotFound` for a missing file, and `TooLarge` for one above `most` bytes.
    """

    @property
    def root(self) -> Path:
        """The workspace folder."""
        ...

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the names from the workspace to a file, which need not exist."""
        ...

    def is_hidden(self, path: str) -> bool:
        """Return whether a rule denies this tool a path that it finds beneath a folder."""
        ...

    async def read(self, path: str, most: int) -> bytes:
        """Return the content of a file."""
        ...

    async def mode(self, path: str) -> int:
        """Return the permissions of a file, as the lowest nine bits of `st_mode`."""
        ...

    async def entries(self, path: str, most: int) -> tuple[Sequence[Entry], int]:
        """Return files and folders beneath a folder, those of upper levels first, and how many more there are.

        `.` is the workspace. Links are left out, and what a rule denies. Of more than 20,000 the rest is not counted.
        With `most` 0 only the folder itself is opened.
        """
        ...


class Files(FileReader, Protocol):
    """Files of the session's workspace. Missing folders of a new file are created.

    The folder `inbox` is for what people sent: writing there raises `BadRequest`.
    """

    def new_parts(self, path: str) -> tuple[str, ...]:
        """Return the names from the workspace to a file that may be written."""
        ...

    async def create(self, path: str, data: bytes) -> Path:
        """Write a new file and return its path. Raises `BadRequest` when it exists."""
        ...

    async def replace(self, path: str, data: bytes) -> Path:
        """Write a file, which may exist, and return its path. Readers see the old content or the new one."""
        ...

    async def take_in(self, source: Path, path: str, most: int) -> Path:
        """Copy a file from the tool's own folder to a new file of the workspace, and return its path there."""
        ...

    async def hand_over(self, path: str, folder: Path, most: int) -> Path:
        """Copy a file of the workspace into the tool's own folder, and return its path there."""
        ...


class KnownFiles(Protocol):
    """Contents that this session's history knows: a file is edited only when it is as it was read or written last."""

    async def seen(self, path: str) -> str:
        """Return the SHA-256 of a file's content when it was last read or written here; empty when it never was."""
        ...

    async def undo(self) -> Undo | None:
        """Return the changes that take back those of the last turn that made some; None when there are none.

        Raises `BadRequest` when an old content was too large to keep.
        """
        ...


class FileChanges(KnownFiles, Protocol):
    """Changes of workspace files that can be taken back, and whose outcome is known after a crash."""

    async def saw(self, path: str, data: bytes) -> None:
        """Record that this content of a file was read."""
        ...

    async def apply(self, changes: Sequence[FileChange], *, undoes: str = "") -> None:
        """Apply the changes of this call: each file has its old content or its new one, never a part of one.

        Old and new contents are stored first, durably. `undoes`: the turn whose changes are taken back. Raises
        `BadRequest` when a file is no longer as `FileChange.before` says; then none is changed.
        """
        ...

    async def resume(self) -> None:
        """Complete the changes of this call that a crash interrupted. Raises `BadRequest` as `apply`."""
        ...

    async def outcome(self) -> ChangeOutcome:
        """Return the outcome of this call's changes, from the files as they are now."""
        ...


class Process(Protocol):
    """Programs of one call."""

    @property
    def sandbox(self) -> SandboxMode | None:
        """Sandbox of this call's programs; None when it starts none."""
        ...

    async def run(self, argv: Sequence[str], *, cwd: Path | None = None, terminal: bool = False) -> ProcessEnd:
        """Run a program in this call's sandbox until it ends, with its output into `ToolContext.output`, stdin closed.

        `cwd`: None is the workspace. `terminal`: input and output are a terminal of its own. On cancellation the whole
        process tree is gone before `CancelledError` propagates. Raises `SandboxMissing` when the tool's spec names no
        sandbox.
        """
        ...

    async def read(self, argv: Sequence[str], most: int, *, cwd: Path | None = None) -> ProcessText:
        """Run a program as `run` does, and return the first `most` bytes of its output in place of showing it.

        The program may be an absolute path outside of the system's folders.
        """
        ...

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        terminal: bool = False,
        timeout_s: float | None = None,
    ) -> JobState:
        """Start a program as a job, which goes on after this call, in its sandbox and network.

        `timeout_s`: None is the most that the tool's settings permit. Returns a moment later, so that an immediate
        failure is reported. Raises `BadRequest` when the session's family has as many jobs as it may, and as `run`.
        """
        ...

    async def poll(self, job: str, *, typed: str = "", wait_s: float = 0.0) -> JobState:
        """Return the state of a job of the session's family, with its new output.

        `typed` goes to its terminal first. `wait_s`: longest wait in seconds for output. Raises `NotFound`; raises
        `BadRequest` when it takes no input.
        """
        ...

    async def kill(self, job: str) -> JobState:
        """End a job of the session's family with all its processes, and return its state. Raises `NotFound`."""
        ...

    async def call(self, file: WorkerFile, function: str, arguments: Mapping[str, Any], *, context: str = "") -> str:
        """Call a function in a worker of this session's history, in the call's sandbox, and return its text.

        `context`: name of its parameter for the context of the call. With one, a cancelled call has a moment to end.
        Output and cancellation: as in `run`. Raises `SandboxMissing`; raises `BadRequest` when no usable answer comes.
        """
        ...


class Net(Protocol):
    """Requests to the web, through an egress proxy that vets every address."""

    async def fetch(
        self,
        url: str,
        *,
        most: int,
        within_s: float,
        hosts: Sequence[str] = (),
        headers: Mapping[str, str] = ...,
        body: bytes | None = None,
    ) -> Fetched:
        """Return the answer to a GET, or with a body to a POST, with at most `most` decoded bytes.

        `hosts`: hosts that the owner permits although they are private. Redirects stay on the host of `url`. Raises
        `BadRequest` for an address that is refused and for a redirect to another host, and its kind `NoAnswer` when no
        usable answer comes.
        """
        ...


class PrepareContext(Protocol):
    """Everything that a tool may use before anybody is asked about a call: it changes nothing."""

    @property
    def files(self) -> FileReader:
        """Files of the workspace."""
        ...

    @property
    def changes(self) -> KnownFiles:
        """Contents and changes that this session knows."""
        ...


class CheckContext(Protocol):
    """Everything that a tool may use to find the outcome of its call after a crash."""

    @property
    def changes(self) -> FileChanges:
        """Changes of this call."""
        ...


class ToolContext(Protocol):
    """Everything that a tool may use, by parts. One for each call."""

    @property
    def files(self) -> Files:
        """Files of the workspace."""
        ...

    @property
    def changes(self) -> FileChanges:
        """Changes of workspace files."""
        ...

    @property
    def process(self) -> Process:
        """Programs in the call's sandbox."""
        ...

    @property
    def net(self) -> Net:
        """Requests to the web."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """Pictures and files for people."""
        ...

    @property
    def sessions(self) -> Subsessions:
        """Sub-sessions of this session."""
        ...

    @property
    def people(self) -> People:
        """The person whose turn it is."""
        ...

    @property
    def messages(self) -> Messages:
        """Posts to conversations."""
        ...

    @property
    def output(self) -> Output:
        """Output of the call. It becomes the result's text when `ToolResult.text` is empty."""
        ...

    @property
    def session(self) -> SessionId:
        """Session of the call."""
        ...

    def progress(self, text: str) -> None:
        """Show a line in the turn's status line. It is no part of the result.

        Cheap; call it in the event loop. It is made one plain line without secrets. Nobody sees it of a tool whose
        output goes through a hook.
        """
        ...

    @property
    def step_key(self) -> str:
        """Id of the step: the same when the call is run again after a crash. Usable as an idempotency key."""
        ...

    @property
    def kept_for(self) -> str:
        """Key for state that a tool keeps between calls: one per history of a session, so `/new` changes it. Contains
        only letters, digits, `-` and `_`.
        """
        ...

    @property
    def scopes(self) -> Scopes:
        """Scopes (`CallScope.scope`) that this call may reach, its own included: allowed by people, or by rules."""
        ...

    @property
    def prepared(self) -> Mapping[str, Any]:
        """`Preview.state` of this call, as it was shown and approved; empty for a tool that does not prepare.

        The files may have changed since: compare at the last moment.
        """
        ...
