"""How a permitted call runs: under its permit, its timeout and its sandbox, with its output kept.

The only place that calls a tool's `run`. It demands a permit, which only `toolcalls` has the right to make.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import IO, Any

from pydantic import BaseModel

from gateway.errors import BadRequest, DragomanError, SandboxMissing
from gateway.family import Families
from gateway.model.ids import SessionId
from gateway.model.live import OutputDelta, session_topic
from gateway.model.sessions import Lease, home_of
from gateway.model.tools import (
    Action,
    KeptFile,
    Mode,
    Park,
    Picture,
    Reach,
    ResultStatus,
    Step,
    ToolPolicy,
    ToolResult,
    ToolSpec,
)
from gateway.model.views import TurnView
from gateway.observe import Meters, Redactor, log
from gateway.output import OutputBuffer
from gateway.ports import Clock, Ended, Family, Live, Output
from gateway.registry import Tool
from gateway.sandbox import Containment, Limits, run_contained

PICTURE_BYTES = 10_000_000
PICTURES: Mapping[str, str] = MappingProxyType(
    {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}
)
"""What is kept as a picture, and how its file ends."""
FILE_BYTES = 50_000_000
NAME_CHARS = 100
_MEDIA_TYPE = re.compile(r"[a-z]+/[A-Za-z0-9.+-]{1,100}")  # a page may have chosen it
_ENDING = re.compile(r"[A-Za-z0-9]{1,8}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in the way must not hold it up
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Interrupt(StrEnum):
    """Why a turn's work is cut short."""

    STOP = "stop"
    SHUTDOWN = "shutdown"
    LIMIT = "limit"
    """The turn has worked for as long as it may."""
    LOST = "lost"
    """Another holder has the turn; nothing may be written."""


@dataclass(slots=True)
class Cut:
    """Set before a turn's work is cancelled, so that what is cut can say why."""

    why: Interrupt | None = None


CUT_TEXT: Mapping[Interrupt, str] = MappingProxyType(
    {
        Interrupt.STOP: "cancelled by /stop",
        Interrupt.SHUTDOWN: "cancelled by shutdown",
        Interrupt.LIMIT: "cancelled: the turn's time is over",
        Interrupt.LOST: "cancelled",
    }
)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to run one exact action as one step under one lease. Only `PermitOffice.issue` makes one that holds."""

    mac: bytes


class PermitOffice:
    """Issues and verifies permits with a key that lives in this process only."""

    def __init__(self) -> None:
        """Make the key."""
        self._key = secrets.token_bytes(32)

    def issue(self, lease: Lease, n: int, action_sha: str) -> Permit:
        """Make the permit for this step. Called by `toolcalls` once the step is stored as started."""
        return Permit(self._mac(lease, n, action_sha))

    def holds(self, permit: Permit, lease: Lease, n: int, action_sha: str) -> bool:
        """Whether this permit is for exactly this."""
        return hmac.compare_digest(permit.mac, self._mac(lease, n, action_sha))

    def _mac(self, lease: Lease, n: int, action_sha: str) -> bytes:
        bound = f"{lease.turn}|{lease.fence}|{n}|{action_sha}"
        return hmac.new(self._key, bound.encode(), hashlib.sha256).digest()


def limit_s(spec: ToolSpec, policy: ToolPolicy, arguments: Mapping[str, Any]) -> float:
    """Seconds this call may take: those of `tool.action` before those of `tool`.

    An argument `timeout` lowers them, or raises them up to the tool's maximum.
    """
    action = arguments.get("action")
    base = policy.actions.get(action, policy.timeout_s) if isinstance(action, str) else policy.timeout_s
    asked = arguments.get("timeout")
    if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:  # NaN is not
        return base
    return min(float(asked), max(base, spec.max_timeout_s or base))


class Workspaces:
    """Each session's folders, inside the state folder and readable by the daemon's user alone."""

    def __init__(self, root: Path) -> None:
        """Take the state folder."""
        self.root = root

    def workspace(self, session: SessionId) -> Path:
        """Where the session's tools work; made when it is asked for. Links are followed: a card names what is used.

        Raises `DragomanError` when something else stands in its place: a tool on the host may put it there.
        """
        path = self.root / "workspaces" / _folder_name(session)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            return path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            text = f"The workspace {path} cannot be used: {error}."
            raise DragomanError(text, cure="Remove what stands there.") from error

    def outputs(self, session: SessionId) -> Path:
        """Where the session's long outputs are kept. Not made here."""
        return self.root / "outputs" / _folder_name(session)


class Gallery:
    """The pictures and files of one call, private to the daemon. Their names on the disk are the same in every run."""

    def __init__(self, folder: Path, stem: str) -> None:
        """Take the session's output folder, and what the names begin with."""
        self._folder = folder
        self._stem = stem
        self._kept = 0
        self._files = 0

    def keep(self, data: bytes, media_type: str) -> Picture:
        """Write one. Raises `BadRequest` for a type that is not shown, or more than 10 MB."""
        ending = PICTURES.get(media_type)
        if ending is None:
            raise BadRequest(f"{media_type[:64]!r} is no picture.", cure=f"Use one of {', '.join(PICTURES)}.")
        if len(data) > PICTURE_BYTES:
            raise BadRequest(f"The picture has {len(data):,} bytes.", cure=f"At most {PICTURE_BYTES:,} are kept.")
        self._kept += 1
        name = f"{self._stem}-{self._kept}.{ending}"
        try:
            with self._new(name) as file:
                file.write(data)
        except OSError as error:
            raise DragomanError(f"The picture could not be kept: {error}.", cure="Free space on the disk.") from error
        return Picture(file=name, media_type=media_type)

    def copy(self, workspace: Path, path: Path, name: str, media_type: str) -> KeptFile:
        """Copy a file of the workspace. Raises `BadRequest` for what is no regular file in it, or more than 50 MB."""
        with os.fdopen(_open_beneath(workspace, path), "rb") as source:
            self._files += 1
            ending = PurePath(name).suffix.removeprefix(".")
            kept = f"{self._stem}-f{self._files}.{ending.lower() if _ENDING.fullmatch(ending) else 'bin'}"
            try:
                with self._new(kept) as file:
                    whole = _copied(source, file)
            except OSError as error:
                raise DragomanError(f"The file could not be kept: {error}.", cure="Free space on the disk.") from error
        if not whole:
            (self._folder / kept).unlink(missing_ok=True)
            raise BadRequest("The file is too large.", cure=f"At most {FILE_BYTES:,} bytes are kept.")
        known = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
        return KeptFile(file=kept, name=_shown_name(name) or kept, media_type=known)

    def _new(self, name: str) -> IO[bytes]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(self._folder / name, _WRITE, 0o600), "wb")


def _open_beneath(workspace: Path, path: Path) -> int:
    """Open a regular file beneath a folder for reading. No link is followed: what runs there can put one anywhere."""
    wrong = BadRequest(f"{str(path)[:200]!r} is no regular file in the workspace.", cure="Name one that is.")
    try:
        parts = (path.relative_to(workspace) if path.is_absolute() else path).parts
        if not parts or ".." in parts:
            raise wrong
        folder = os.open(workspace, _FOLDER)
        try:
            for part in parts[:-1]:
                below = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            found = os.open(parts[-1], _READ, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError) as error:
        raise wrong from error
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise wrong
    return found


def _copied(source: IO[bytes], to: IO[bytes]) -> bool:
    """Copy, and return False when there is more than is kept: a file may grow while it is read."""
    left = FILE_BYTES
    while data := source.read(min(1 << 20, left + 1)):
        left -= len(data)
        if left < 0:
            return False
        to.write(data)
    return True


def _shown_name(name: str) -> str:
    """A name for people: one line, no path."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return " ".join("".join(char if char.isprintable() else " " for char in last).split())[:NAME_CHARS]


def keeper_of(session: SessionId, epoch: int) -> str:
    """Name whose things a tool keeps: a session's, until its history begins anew. Letters, digits, `-` and `_`."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", session)[:24]
    return f"{readable}-{epoch}-{hashlib.sha256(f'{epoch} {session}'.encode()).hexdigest()[:16]}"


def _folder_name(session: SessionId) -> str:
    readable = "".join(c if c.isalnum() or c in "-_" else "-" for c in session)[:40]
    return f"{readable}-{hashlib.sha256(session.encode()).hexdigest()[:12]}"


@dataclass(slots=True, kw_only=True)
class _Context:
    """`ports.ToolContext` of one call."""

    cwd: Path
    output: Output
    step_key: str
    action: Action
    containment: Containment
    state: Path
    family: Family
    gallery: Gallery
    keeper: str
    scopes: frozenset[str]

    @property
    def sandbox(self) -> Mode | None:
        """How this call's programs are contained."""
        return self.action.sandbox

    async def picture(self, data: bytes, media_type: str) -> Picture:
        """Keep a picture beside the output. Raises `BadRequest` for what is none, or too large."""
        return await asyncio.to_thread(self.gallery.keep, data, media_type)

    async def keep(self, path: Path, name: str, media_type: str) -> KeptFile:
        """Copy a file of the workspace beside the output. Raises `BadRequest` for what is none, or too large."""
        return await asyncio.to_thread(self.gallery.copy, self.cwd, path, name, media_type)

    async def spawn(self, argv: Sequence[str], *, cwd: Path | None = None) -> Ended:
        """Run a program in this call's sandbox."""
        if self.action.sandbox is None:
            raise SandboxMissing("This tool was not planned to start a process.")
        zone = os.environ.get("TZ")
        return await run_contained(
            argv,
            mode=self.action.sandbox,
            workspace=self.cwd,
            cwd=cwd or self.cwd,
            env={"TZ": zone} if zone else {},
            output=self.output,
            containment=self.containment,
            limits=Limits(),
            hide=[self.state],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that was decided: what will run, exactly."""

    view: TurnView
    """The turn as it was when that was decided."""
    step: Step
    tool: Tool
    arguments: BaseModel
    action: Action
    action_sha: str
    reach: Reach | None = None
    """What its tool said that it reaches; None when that is what the spec says."""
    scopes: frozenset[str] = frozenset()
    """What people allowed this tool for longer than one call, this call's own with it."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """Runs prepared calls."""

    office: PermitOffice
    workspaces: Workspaces
    containment: Containment
    clock: Clock
    live: Live
    meters: Meters
    redactor: Redactor
    families: Families
    _log: Any = field(default_factory=lambda: log("execution"))

    async def run(
        self, permit: Permit, call: Prepared, lease: Lease, cut: Cut, done: Callable[[ToolResult], Any]
    ) -> ToolResult | Park:
        """Run the call and return its result.

        When it is cut, `done` gets the partial result before the cancellation goes on.

        Raises `PermissionError` when the permit does not hold. A tool's failure or timeout is a result.
        """
        if not self.office.holds(permit, lease, call.step.n, call.action_sha):
            raise PermissionError("This permit is for something else.")
        name = call.tool.spec.name
        output = self._output(lease, call.step)
        began = self.clock.monotonic()
        limit = limit_s(call.tool.spec, call.tool.policy, call.action.arguments)
        try:
            outcome = await self._limited(call, lease, output, limit)
        except asyncio.CancelledError:
            why = cut.why
            if why is not None and why is not Interrupt.LOST:
                result = ToolResult(status=ResultStatus.CANCELLED, text="", code=why.value, hint=CUT_TEXT[why])
                await done(self._whole(result, output, began, name))
            raise
        if isinstance(outcome, Park):
            output.close()
            return outcome
        return self._whole(outcome, output, began, name)

    async def _limited(self, call: Prepared, lease: Lease, output: OutputBuffer, limit: float) -> ToolResult | Park:
        scope = asyncio.timeout(limit)
        try:
            context = self._context(call, lease, output)
            async with scope:
                return await call.tool.run(context, call.arguments)
        except TimeoutError:
            if not scope.expired():
                return ToolResult(status=ResultStatus.ERROR, text="", code="error", hint="Something inside timed out.")
            hint = f"Stopped after {limit:g} s, the limit of {call.tool.spec.name}."
            return ToolResult(status=ResultStatus.TIMEOUT, text="", code="timeout", hint=hint)
        except DragomanError as error:
            return ToolResult(status=ResultStatus.ERROR, text="", code="error", hint=str(error))
        except Exception as error:  # noqa: BLE001 - a tool's failure is a result (house rule 9)
            self._log.exception("tool failed", tool=call.tool.spec.name)
            # Strangers may have put words into it: a page, a file's name.
            text = self.redactor.text(f"{type(error).__name__}: {error}"[:500])
            hint = f"{call.tool.spec.name} failed by a fault of its own."
            return ToolResult(status=ResultStatus.ERROR, text=text, code="crashed", hint=hint, untrusted=True)

    def _context(self, call: Prepared, lease: Lease, output: OutputBuffer) -> _Context:
        """Make the call's surroundings. Raises `DragomanError` when its folder is not the one that was allowed."""
        cwd = self.workspaces.workspace(home_of(call.view.session))
        # By its own name, which is the root's: another machine keeps its state elsewhere.
        if cwd.name != Path(call.action.cwd).name:
            raise DragomanError(
                f"The workspace is {cwd} now, and this was allowed for {call.action.cwd}. Nothing was run.",
                cure="Ask for it again.",
            )
        return _Context(
            cwd=cwd,
            output=output,
            step_key=f"{call.step.turn}/{call.step.n}",
            action=call.action,
            containment=self.containment,
            state=self.workspaces.root,
            gallery=Gallery(self.workspaces.outputs(lease.session), f"{call.step.turn}-{call.step.n}"),
            family=self.families.of(call.view, call.step.n, lease),
            keeper=keeper_of(call.view.turn.session, call.view.turn.epoch),
            scopes=call.scopes,
        )

    def _output(self, lease: Lease, step: Step) -> OutputBuffer:
        def show(start: int, text: str) -> None:
            delta = OutputDelta(
                session=lease.session, turn=step.turn, n=step.n, start=start, text=self.redactor.text(text)
            )
            self.live.publish(session_topic(lease.session), delta)

        folder = self.workspaces.outputs(lease.session)
        return OutputBuffer(folder, f"{step.turn}-{step.n}.txt", self.clock, show)

    def _whole(self, result: ToolResult, output: OutputBuffer, began: float, tool: str) -> ToolResult:
        seconds = self.clock.monotonic() - began
        output.close()
        self.meters.calls.labels(tool, result.status.value).inc()
        self.meters.call_seconds.labels(tool).observe(seconds)
        return replace(
            result,
            text=self.redactor.text(result.text or output.text()),
            duration_ms=round(seconds * 1000),
            dropped_bytes=output.dropped_bytes,
            full_output=output.full_output,
        )
