"""Command lines, environment and limits that contain a tool's program. Starts no process. Used by `run` and `session`.

Four ways, best first: `basic` and `full` are bubblewrap with its own view of the files. `off` sees the host's files and
is bubblewrap with only a process namespace, or util-linux' unshare, or our own `gateway.sandbox.supervisor`.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, TracebackType

from gateway.domain.tools import NetworkMode, SandboxMode
from gateway.errors import BadRequest, NotFound, SandboxMissing
from gateway.sandbox import supervisor
from gateway.sandbox.masks import Masks

PATH = "/usr/local/bin:/usr/bin:/bin"
TMP = "/tmp"  # noqa: S108 - the sandbox's own, not the host's
KEYS = "/proc/keys"
"""Kernel file that lists the keys of all programs of an account, by name. Hidden in `basic`."""
GIT_READS: Mapping[str, str] = MappingProxyType({
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": "/dev/null",
    "GIT_CONFIG_KEY_2": "log.showSignature", "GIT_CONFIG_VALUE_2": "false",
    "GIT_PAGER": "cat", "GIT_OPTIONAL_LOCKS": "0",
})  # fmt: skip
"""Variables of programs that may only read: `git status` runs no monitor, hook, pager or verifier that the workspace
names. Filters and drivers, which `git diff` runs, have names of their own; the sandbox alone contains them."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "ca-certificates/extracted",
    "crypto-policies",
    "group",
    "hosts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
)
"""Entries of /etc that `basic` shows: for name resolution, certificates, time zones and the dynamic linker."""

INSIDE = "1000"
"""User id of a session's program if the daemon is root: as root a browser refuses to make its own sandbox."""

COPY_BYTES = 2**19
"""Bytes of the largest system file that a sandbox gets a copy of."""

# As process 1 a program would have no default signal handling, so a shell is process 1. Its own messages ("Killed")
# are not the program's output; a session of its own keeps `kill 0` from reaching the holder outside.
# It starts nothing before the daemon answers on its input. PDEATHSIG, which ties a tree to the daemon's life, is set by
# each process for itself and does nothing if the parent is dead already. When this shell runs all of it is set, and a
# daemon that has died since does not answer.
_READY = "exec 3>&2 2>/dev/null; echo >&0 && read -r go || exit 1; exec </dev/null; "
INIT = _READY + '(exec "$@" 2>&3 3>&-); exit $?'
# Output goes to the terminal already, and input comes from there; `setsid --ctty` makes it the program's own.
INIT_TERMINAL = _READY + '(exec "$@" <&3 2>&3 3>&-); exit $?'


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """Containment features of this machine. Made by `probe`."""

    can_bwrap: bool
    """Bubblewrap ran a program in `basic`."""
    can_pid_namespace: bool
    """unshare of util-linux ran a program in a process namespace; used for `off` when bubblewrap cannot."""
    why_no_bwrap: str = ""
    """Reason as a sentence for people; empty when bubblewrap works."""
    hardened: bool = False
    """Bubblewrap is 0.8 or newer: user namespaces inside are forbidden and its temporary folders are limited."""
    counts_processes: bool = False
    """The kernel counts each call's processes separately (user namespace, not root, Linux 5.14): RLIMIT_NPROC applies
    to this call alone. Elsewhere it counts all of the user's processes, or none for root: then `Tree` counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Resource limits of one call. None: no limit."""

    open_files: int | None = 1024
    file_bytes: int | None = 10 * 2**30
    """Size of each file written."""
    memory_bytes: int | None = None
    """Private memory of each process: heap, thread stacks, private mappings. Not of the whole tree."""
    tree_bytes: int | None = None
    """Memory of all processes of a call together, measured once a second. Not of a session's."""
    processes: int = 512
    """Processes at once in one call's tree."""
    tmp_bytes: int = 2**30
    """Size of each temporary folder in `basic`, which is memory."""
    umask: int = 0o022
    grace_s: float = 0.3
    """Seconds between TERM and KILL. All processes have ended about 0.1 s after that."""


NO_MASKS = Masks()


class Holder(StrEnum):
    """Program that contains a tree; decides how the tree is killed."""

    BWRAP = "bwrap"
    UNSHARE = "unshare"
    SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlace:
    """Folders of a call. All paths are absolute and resolved."""

    workspace: Path
    cwd: Path
    home: Path
    hide: Sequence[Path] = ()
    """Folders that `basic` shows empty, even beneath the workspace."""
    readable: Sequence[Path] = ()
    """Paths that `basic` shows read-only besides the system; missing ones are left out."""
    of_session: bool = False
    """A sandbox session: user namespaces are there, which a browser's own sandbox needs."""
    network: NetworkMode = NetworkMode.NONE
    """Network of a contained program. An egress proxy of its own is not a matter of the command line."""
    read_only: bool = False
    """True when the workspace is shown read-only."""
    masks: Masks = NO_MASKS
    """Paths of the workspace that `full` hides."""


class Copies:
    """Small system files to be copied into a sandbox. They stay open until its start: bubblewrap reads the descriptors.

    A copy costs 10 µs and needs no cleanup. A mount costs 0.3 ms to make and remove, and there are ten.
    """

    def __init__(self) -> None:
        """Start with no files."""
        self.descriptors: list[int] = []

    def open(self, path: str) -> int | None:
        """Return the descriptor of a regular file; None when it is missing, unreadable, or over `COPY_BYTES`."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > COPY_BYTES:
            os.close(fd)
            return None
        self.descriptors.append(fd)
        return fd

    def empty(self) -> int:
        """Return the descriptor of an empty file."""
        self.descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return self.descriptors[-1]

    def __enter__(self) -> Copies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the descriptors; the started process has its own by now."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def holder_for(mode: SandboxMode, containment: Containment) -> Holder:
    """Return the best available holder for a mode. Raises `SandboxMissing`; only `off` may be the host."""
    if containment.can_bwrap:
        return Holder.BWRAP
    if mode != SandboxMode.OFF:
        raise SandboxMissing(f"This needs the sandbox `{mode}`: {containment.why_no_bwrap or 'no probe was made'}.")
    return Holder.UNSHARE if containment.can_pid_namespace else Holder.SUPERVISOR


def environment(home: Path, extra: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return a program's whole environment: built from nothing, only the time zone is inherited. `extra` wins.

    Raises `BadRequest` for variables of the dynamic linker: they would act on the holder, which runs outside.
    """
    for name in extra:
        if name.startswith("LD_"):
            raise BadRequest(f"The variable {name} cannot be given to tools.", cure="Leave it out.")
    zone = os.environ.get("TZ")
    inherited = {"TZ": zone} if zone else {}
    return {"PATH": PATH, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **inherited, **extra}


def check_place(place: SandboxPlace, mode: SandboxMode) -> None:
    """Raise `NotFound` or `BadRequest` when a call cannot run in these folders."""
    if not place.cwd.is_dir():
        raise NotFound(f"The folder {place.cwd} is not there.", cure="Create it, or name another one.")
    if mode == SandboxMode.OFF:
        return
    if str(place.workspace) in {"/", *SYSTEM}:
        raise BadRequest(f"{place.workspace} cannot be a sandbox's workspace.", cure="Choose a folder of its own.")
    if not place.cwd.is_relative_to(place.workspace):
        raise BadRequest(
            f"The folder {place.cwd} is outside the workspace {place.workspace}.",
            cure="In a sandbox only the workspace is there: name a folder beneath it.",
        )


def check_program(program: str, mode: SandboxMode, place: SandboxPlace, env: Mapping[str, str]) -> None:
    """Raise `NotFound` when the program is missing, or not visible inside the sandbox."""
    name = str(place.cwd / program) if "/" in program else program
    found = shutil.which(name, path=env.get("PATH", PATH))
    if found is None:
        raise NotFound(f"There is no program `{program}`.", cure=f"Install it, or name one that is in {PATH}.")
    seen = [*SYSTEM, str(place.workspace), *map(str, place.readable)]
    if mode != SandboxMode.OFF and not any(Path(found).is_relative_to(root) for root in seen):
        raise NotFound(
            f"The program {found} cannot be seen in the sandbox.",
            cure="Install it under /usr, or put it into the workspace.",
        )


def helper(name: str) -> str:
    """Return the path of a containment program. Never by the call's own PATH: that may lead into the workspace.

    Raises `NotFound` when it is not installed.
    """
    found = shutil.which(name, path=PATH)
    if found is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux"
        raise NotFound(f"{package} is not installed.", cure=f"Install it: apt install {package}.")
    return found


def bounds(holder: Holder, limits: ProcessLimits, containment: Containment) -> dict[int, int]:
    """Return the resource limits of each process of a call, by their numbers.

    Address space is not limited: runtimes such as Node and Go reserve far more than they use. RLIMIT_DATA counts only
    writable memory.
    """
    counted = containment.counts_processes and holder is not Holder.SUPERVISOR
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.processes if counted else None,
    }
    found: dict[int, int] = {}
    for number, value in wanted.items():
        if value is not None:
            hard = resource.getrlimit(number)[1]  # only root may raise it; trying fails the whole call
            found[number] = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return found


def command(holder: Holder, mode: SandboxMode, argv: Sequence[str], place: SandboxPlace, *, limits: ProcessLimits,
            containment: Containment, copies: Copies, terminal: bool = False) -> list[str]:  # fmt: skip
    """Return the command line that contains `argv`. Its input is the control socket, see `gateway.sandbox.tree`.

    Pass it the descriptors that are in `copies` afterwards. `terminal`: its output is one, to be the program's own.
    """
    if holder is Holder.SUPERVISOR:
        bound = ",".join(f"{number}={value}" for number, value in bounds(holder, limits, containment).items())
        how = supervisor.WITH_TERMINAL if terminal else supervisor.WITHOUT
        return [sys.executable, "-I", "-S", supervisor.__file__, bound, how, *argv]
    init = INIT_TERMINAL if terminal else INIT
    if holder is Holder.UNSHARE:
        as_user = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
        # --kill-child ties process 1 to unshare, and setpriv ties unshare to the daemon.
        outside = [helper("setpriv"), "--pdeathsig", "KILL", helper("unshare"), *as_user]
        namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"]
        own_session = [helper("setsid"), "--ctty"] if terminal else [helper("setsid")]
        return [*outside, *namespace, "/bin/sh", "-c", init, "sh", *own_session, *argv]
    view = _host() if mode == SandboxMode.OFF else _contained(place, limits, containment, copies)
    own_session = [helper("setsid"), "--ctty"] if terminal else []
    tail = ["--chdir", str(place.cwd), "--", "/bin/sh", "-c", init, "sh", *own_session, *argv]
    return [helper("bwrap"), "--die-with-parent", "--new-session", "--as-pid-1", *view, *tail]


def _host() -> Iterator[str]:
    yield from ("--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "--proc", "/proc")


def _contained(place: SandboxPlace, limits: ProcessLimits, containment: Containment, copies: Copies) -> Iterator[str]:
    # Later mounts cover earlier ones: the workspace may be in the home or in /tmp, hidden folders in the workspace.
    yield from ("--unshare-user", "--unshare-all", "--cap-drop", "ALL")
    if place.network is NetworkMode.HOST:
        yield "--share-net"
    if place.of_session and os.geteuid() == 0:
        yield from ("--uid", INSIDE, "--gid", INSIDE)
    if not place.of_session and containment.hardened:
        yield "--disable-userns"
    yield from _system(copies, containment)
    # Kernel settings belong to the machine, and root writes them by its user id alone, without any capability.
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    if os.path.exists(KEYS):
        yield from ("--ro-bind-data", str(copies.empty()), KEYS)
    for folder in ("/dev/shm", TMP, str(place.home)):  # noqa: S108 - as TMP
        if containment.hardened:
            yield from ("--size", str(limits.tmp_bytes))
        yield from ("--tmpfs", folder)
    for path in place.readable:
        yield from ("--ro-bind-try", str(path.resolve()), str(path))
    bind = "--ro-bind" if place.read_only else "--bind"
    yield from ("--symlink", TMP, f"/var{TMP}", bind, str(place.workspace), str(place.workspace))
    for hidden in place.hide:
        if hidden.is_dir() and hidden.is_relative_to(place.workspace):
            yield from ("--tmpfs", str(hidden))
    yield from _masked(place.masks)
    yield from ("--remount-ro", "/", "--remount-ro", "/dev")


def _masked(masks: Masks) -> Iterator[str]:
    # A device does not work on a mount without devices: who opens the file is refused, rather than shown an empty one.
    for path in masks.files:
        yield from ("--ro-bind", os.devnull, path)
    for path in masks.folders:
        yield from ("--tmpfs", path, "--remount-ro", path)


def _system(copies: Copies, containment: Containment) -> Iterator[str]:
    # Plain strings, no `Path`s: those would block the event loop for a millisecond with each call.
    for name in SYSTEM:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    for name in ETC:
        path = f"/etc/{name}"
        target = os.path.realpath(path) if os.path.islink(path) else path
        if target.startswith("/usr/"):
            yield from ("--symlink", target, path)
        elif (fd := copies.open(target)) is not None:
            if containment.hardened:  # older versions lack it and make 0666, in a root that is mounted read-only
                yield from ("--perms", "0644")
            yield from ("--file", str(fd), path)
        elif os.path.exists(target):
            yield from ("--ro-bind-try", target, path)
