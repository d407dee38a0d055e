"""Run of one tool's program to its end. Called by a tool's `spawn`; chooses the holder, starts and ends the tree.

See `gateway.sandbox.plan` for the command line and `gateway.sandbox.tree` for the kill.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from gateway.domain.tools import SandboxMode
from gateway.errors import SandboxMissing
from gateway.ports import Output, ProcessEnd
from gateway.sandbox.plan import (
    SYSTEM,
    Containment,
    Copies,
    ProcessLimits,
    SandboxPlace,
    check_place,
    check_program,
    command,
    environment,
    holder_for,
)
from gateway.sandbox.tree import Tree


async def run_contained(
    argv: Sequence[str],
    *,
    mode: SandboxMode,
    workspace: Path,
    cwd: Path,
    output: Output,
    containment: Containment,
    limits: ProcessLimits,
    hide: Sequence[Path] = (),
) -> ProcessEnd:
    """Run a program and return its exit; its output (both streams, in order) is in `output` by then.

    There is no timeout here: cancel instead. However this returns, all processes of the call have ended first (up to
    `limits.grace_s` for TERM, about 0.1 s more for KILL) and all output was read. Processes left in the background are
    killed at once. `hide` names folders that `basic` shows empty even beneath the workspace. Not idempotent.
    Raises `NotFound` or `BadRequest` (folder, program), `SandboxMissing` without `basic`; nothing ran then.
    """
    place = _place(mode, workspace, cwd, hide)
    variables = environment(place.home)
    holder = holder_for(mode, containment)
    check_place(place, mode)
    check_program(argv[0], mode, place, variables)
    tree = Tree(holder, output, limits, containment, watched=True)
    with Copies() as copies:
        contained = command(holder, mode, argv, place, limits=limits, containment=containment, copies=copies)
        tree.start(contained, place, variables, copies.descriptors)
    try:
        code = await tree.ended()
    finally:
        await tree.close()
    if not tree.program_ran:
        raise SandboxMissing(f"{holder} could not contain the program; its message is in the output.")
    if why := tree.why(code):
        output.write(f"\n[{why}]\n".encode())
    return ProcessEnd(exit_code=code)


def _place(mode: SandboxMode, workspace: Path, cwd: Path, hide: Sequence[Path]) -> SandboxPlace:
    root = workspace.resolve()
    folder = root if cwd == workspace else cwd.resolve()
    return SandboxPlace(workspace=root, cwd=folder, home=_home(mode), hide=[path.resolve() for path in hide])


def _home(mode: SandboxMode) -> Path:
    """Return the account's home; in `basic` another path where an empty folder there would hide the system."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = "/"
    unfit = home in {"", "/", "/nonexistent", *SYSTEM} or home.startswith(tuple(f"{root}/" for root in SYSTEM))
    if mode == SandboxMode.BASIC and unfit:
        return Path("/home/dragoman")
    return Path(home)
