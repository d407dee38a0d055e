"""Run of one tool's program to its end, with its network, masks and terminal. Called by the part of a tool's context.

See `gateway.sandbox.plan` for the command line and `gateway.sandbox.tree` for the kill.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.domain.tools import NetworkMode, SandboxMode
from gateway.errors import SandboxMissing
from gateway.ports import Output, ProcessEnd
from gateway.sandbox.masks import secrets_in
from gateway.sandbox.plan import (
    GIT_READS,
    SYSTEM,
    Containment,
    Copies,
    Holder,
    ProcessLimits,
    SandboxPlace,
    check_place,
    check_program,
    command,
    environment,
    holder_for,
)
from gateway.sandbox.public import PublicNetwork, Serve
from gateway.sandbox.terminal import Terminal
from gateway.sandbox.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """Decided reach of one call's programs: sandbox, network and the right to write."""

    mode: SandboxMode
    network: NetworkMode = NetworkMode.NONE
    """Network of the program; without effect in `off`, which shares the host's."""
    read_only: bool = False
    """True when the workspace is shown read-only. Of no effect in `off`."""


async def run_contained(
    argv: Sequence[str],
    *,
    within: Confinement,
    workspace: Path,
    cwd: Path,
    output: Output,
    containment: Containment,
    limits: ProcessLimits,
    hide: Sequence[Path] = (),
    serve: Serve | None = None,
    terminal: Terminal | None = None,
    readable: Sequence[Path] = (),
    lent: Sequence[int] = (),
) -> ProcessEnd:
    """Run a program and return its exit; its output (both streams, in order) is in `output` by then.

    There is no timeout here: cancel instead. However this returns, all processes of the call have ended first (up to
    `limits.grace_s` for TERM, about 0.1 s more for KILL) and all output was read. Processes left in the background are
    killed at once. `hide` names folders that a sandbox shows empty even beneath the workspace. `serve` serves the
    egress proxy of the network `public`. `terminal`: the program's input and output. `readable`: paths that a sandbox
    shows besides the system and the workspace. `lent`: descriptors that the program gets too, by the same numbers. Not
    idempotent.
    Raises `NotFound` or `BadRequest` (folder, program, a workspace that cannot be masked), `SandboxMissing` without the
    sandbox or the proxy; nothing ran then.
    """
    place = _place(within, workspace, cwd, hide, readable)
    variables = environment(place.home, GIT_READS if within.read_only else {})
    holder = holder_for(within.mode, containment)
    check_place(place, within.mode)
    check_program(argv[0], within.mode, place, variables)
    if within.mode is SandboxMode.FULL:
        place = replace(place, masks=await asyncio.to_thread(secrets_in, place.workspace))
    tree = Tree(holder, output, limits, containment, watched=True, terminal=terminal)
    with ExitStack() as stack:
        way = _way_out(within, output, serve)
        given: list[int] = [*lent]
        if way is not None:
            stack.callback(way.close)
            shown = [*readable, *way.readable(place.workspace)]
            place, argv, given = replace(place, readable=shown), way.argv(argv, lent), [*given, *way.given]
        with Copies() as copies:
            contained = command(holder, within.mode, argv, place, limits=limits, containment=containment,
                                copies=copies, terminal=terminal is not None)  # fmt: skip
            tree.start(contained, place, variables, [*given, *copies.descriptors])
        return await _to_its_end(tree, holder, output, way)


async def _to_its_end(tree: Tree, holder: Holder, output: Output, way: PublicNetwork | None) -> ProcessEnd:
    try:
        if way is None:
            code = await tree.ended()
        else:
            way.started()
            async with way.served():
                code = await tree.ended()
    finally:
        await tree.close()
    if not tree.program_ran:
        raise SandboxMissing(f"{holder} could not contain the program; its message is in the output.")
    if why := tree.why(code):
        output.write(f"\n[{why}]\n".encode())
    return ProcessEnd(exit_code=code)


def _way_out(within: Confinement, output: Output, serve: Serve | None) -> PublicNetwork | None:
    """Return the way out of a program in the network `public`, else None. Raises `SandboxMissing` without a proxy."""
    if within.mode is SandboxMode.OFF or within.network is not NetworkMode.PUBLIC:
        return None
    if serve is None:
        raise SandboxMissing("There is no egress proxy for this program.", cure="Set its network to none, or host.")
    return PublicNetwork(serve, output)


def _place(
    within: Confinement, workspace: Path, cwd: Path, hide: Sequence[Path], readable: Sequence[Path]
) -> SandboxPlace:
    root = workspace.resolve()
    return SandboxPlace(
        workspace=root,
        cwd=root if cwd == workspace else cwd.resolve(),
        home=_home(within.mode),
        hide=[path.resolve() for path in hide],
        network=within.network,
        read_only=within.read_only,
        readable=readable,
    )


def _home(mode: SandboxMode) -> Path:
    """Return the account's home; in a sandbox another path where an empty folder there would hide the system."""
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = "/"
    unfit = home in {"", "/", "/nonexistent", *SYSTEM} or home.startswith(tuple(f"{root}/" for root in SYSTEM))
    if mode != SandboxMode.OFF and unfit:
        return Path("/home/dragoman")
    return Path(home)
