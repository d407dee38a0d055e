"""Probe of this machine's containment features. Run once at start, before any tool is offered."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from gateway.domain.tools import SandboxMode
from gateway.errors import DragomanError
from gateway.sandbox.plan import PATH, Containment, ProcessLimits
from gateway.sandbox.run import Confinement, run_contained

PROBE_S = 5.0
"""Timeout in seconds for one probe."""
NPROC_BY_NAMESPACE = (5, 14)
"""First Linux version whose RLIMIT_NPROC counts each user namespace separately."""


class _Printed:
    """Output of a probe's program."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        """Store the first 4,096 bytes."""
        self.data = (self.data + data)[:4096]


async def probe() -> Containment:
    """Run a program once in each mode and return what works. Takes 20 ms, at most some seconds; never raises."""
    nothing = Containment(can_bwrap=False, can_pid_namespace=False)
    found, why_no_bwrap = nothing, "bubblewrap is not installed: apt install bubblewrap"
    if shutil.which("bwrap", path=PATH):
        for hardened in (True, False):
            asked = replace(nothing, can_bwrap=True, hardened=hardened)
            namespace, why_no_bwrap = await _try(SandboxMode.BASIC, asked)
            if namespace:
                found = replace(asked, counts_processes=_counts(namespace))
                break
    asked = replace(nothing, can_pid_namespace=True)
    namespace, _ = await _try(SandboxMode.OFF, asked)
    if namespace and not found.can_bwrap:
        found = replace(found, counts_processes=_counts(namespace))
    why = "" if found.can_bwrap else why_no_bwrap
    return replace(found, can_pid_namespace=bool(namespace), why_no_bwrap=why)


def _counts(namespace: str) -> bool:
    """Return True if RLIMIT_NPROC applies to one call alone, given the user namespace of the call."""
    version = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    own = str(Path("/proc/self/ns/user").readlink())
    return os.geteuid() != 0 and namespace != own and version >= NPROC_BY_NAMESPACE


async def _try(mode: SandboxMode, asked: Containment) -> tuple[str, str]:
    """Return the user namespace of a contained program, or empty and the reason why it did not run."""
    try:
        place = tempfile.TemporaryDirectory(prefix="dragoman-probe-")
    except OSError as error:
        return "", f"no temporary folder can be made ({error.strerror}): set TMPDIR to one with room"
    with place as folder:
        return await _try_in(Path(folder), mode, asked)


async def _try_in(folder: Path, mode: SandboxMode, asked: Containment) -> tuple[str, str]:
    printed = _Printed()
    try:
        async with asyncio.timeout(PROBE_S):
            ended = await run_contained(
                ["readlink", "/proc/self/ns/user"], within=Confinement(mode=mode), workspace=folder, cwd=folder,
                output=printed, containment=asked, limits=ProcessLimits(),
            )  # fmt: skip
    except TimeoutError:
        return "", f"the probe did not end in {PROBE_S:.0f} s"
    except (DragomanError, OSError) as error:
        return "", _reason(printed, str(error))
    text = printed.data.decode(errors="replace").strip()
    return (text, "") if ended.exit_code == 0 and text.startswith("user:") else ("", _reason(printed, "it failed"))


def _reason(printed: _Printed, otherwise: str) -> str:
    lines = printed.data.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else otherwise
    forbidden = re.search(r"namespace|permission|not permitted|uid map|No space left", last, re.IGNORECASE)
    return f"user namespaces are forbidden: {last}" if forbidden else last
