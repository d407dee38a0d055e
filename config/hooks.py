"""Reader of `[[hooks]]`: programs and functions of the owner that see calls before and after they run."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field

from config.basics import SettingsTable
from config.plugins import package_hook
from config.reading import Path as KeyPath
from config.reading import TableReader, suggest
from gateway.domain.hooks import HookConfig, HookEvent
from gateway.errors import ConfigError

HOOKS_AT_MOST = 20
"""Hooks in one configuration."""
_Word = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


class HookSettings(SettingsTable):
    """One `[[hooks]]`."""

    event: HookEvent = Field(
        description='"before_tool_call" may change arguments or refuse, "after_tool_call" may change the output.'
    )
    command: tuple[_Word, ...] = Field(
        default=(), description="The program, as an absolute path, and its arguments: JSON on its input and output."
    )
    package: Annotated[str, Field(max_length=100)] = Field(
        default="", description="An installed package with the entry point `dragoman.hooks`, in place of a program."
    )
    tools: tuple[str, ...] | None = Field(
        default=None, description="The only tools whose calls it sees. Default: every tool."
    )


def read_hooks(raw: object, tools: Collection[str], state: Path, reader: TableReader) -> tuple[HookConfig, ...]:
    """Return the hooks in order. The reader collects what is wrong. `state`: the state folder, which agents write."""
    if not isinstance(raw, list):
        reader.wrong(("hooks",), "it is not a list of tables", "Write [[hooks]], in double brackets, above each hook")
        return ()
    tables = cast("list[object]", raw)
    if len(tables) > HOOKS_AT_MOST:
        reader.wrong(("hooks",), f"there are {len(tables)} hooks", f"Write at most {HOOKS_AT_MOST}; each takes time")
        return ()
    found = [_hook(table, ("hooks", n), tools, state, reader) for n, table in enumerate(tables)]
    return tuple(hook for hook in found if hook is not None)


def _hook(table: object, path: KeyPath, tools: Collection[str], state: Path, reader: TableReader) -> HookConfig | None:
    read = reader.model(HookSettings, table, path)
    if read is None:
        return None
    if bool(read.command) == bool(read.package):
        reader.wrong(path, "it needs a program or a package, one of both", 'Write command = ["/path/of/program"]')
    if read.command:
        _check_program(Path(read.command[0]), (*path, "command"), state, reader)
    if read.package:
        try:
            package_hook(read.package)
        except ConfigError as error:
            reader.wrong((*path, "package"), error.message, error.cure)
    if read.tools == ():
        reader.wrong((*path, "tools"), "it is empty, so the hook never runs", "Remove the key, or name a tool")
    for tool in read.tools or ():
        if tool not in tools:
            reader.wrong((*path, "tools"), f"there is no tool {tool!r}", suggest(tool, tools))
    name = read.package or (Path(read.command[0]).name if read.command else "")
    return HookConfig(
        name=name,
        event=read.event,
        tools=frozenset(read.tools or ()),
        command=read.command,
        package=read.package,
    )


def _check_program(program: Path, path: KeyPath, state: Path, reader: TableReader) -> None:
    if not program.is_absolute():
        reader.wrong(path, "the program is not an absolute path", 'Write it whole: ["/usr/local/bin/check-call"]')
    elif program.resolve().is_relative_to(state.resolve()):
        reader.wrong(path, "the program is in the state folder, where agents write", "Move it elsewhere")


def hook_warnings(hooks: Collection[HookConfig]) -> Iterator[str]:
    """Yield a sentence for each program that cannot be run, or that others may change."""
    for hook in hooks:
        program = hook.command[0] if hook.command else ""
        if not program:
            continue
        effect = "every call that it sees is refused" if hook.event is HookEvent.BEFORE else "output is withheld"
        if not os.access(program, os.X_OK) or os.path.isdir(program):
            yield f"hooks: {program} is no program that can be run, so {effect}; create it, and run: chmod +x {program}"
        elif os.stat(program).st_mode & stat.S_IWOTH:
            yield f"hooks: {program} can be changed by every user of this machine; run: chmod o-w {program}"
