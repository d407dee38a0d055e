"""The owner's folder as a source of tools, which follows its files between turns. Used by `app.core` and the CLI.

An untrusted file is read as text and imported only in contained workers. A trusted one is imported in the daemon.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_tools import own
from config.load import Loaded
from config.own_files import DeclaredTool, OwnFile
from config.own_folder import FOLDER_SOURCE, OwnFolder, OwnLine, Stamp, closed_policy, lines_of
from config.plugins import FOLDER_MODULES, said
from config.settings import SandboxSettings
from config.tools import policy_of
from gateway.domain.text import cut, plain
from gateway.domain.tools import ResultStatus, SandboxPolicy, ToolResult
from gateway.domain.workers import WorkerFile
from gateway.errors import ConfigError, SandboxMissing
from gateway.ports import ToolContext
from gateway.sandbox import Containment, ProcessLimits
from gateway.system.logging_setup import log
from gateway.toolcalls.registry import ToolSource
from gateway.toolcalls.schema_arguments import SchemaArguments
from gateway.toolcalls.tool_set import Run, Tool
from gateway.toolcalls.worker_program import TextLoader, as_text
from gateway.toolcalls.workers import Workers

PACKAGE = Path(own.__file__)
"""File with the decorator, which workers import."""
MB = 1024 * 1024
SIDE_BY_SIDE = 8
"""Files that are tried at once."""
BEGIN_S = 1.0
"""Seconds of one settling in which a file's try may begin."""
BAD_ARGUMENTS = SchemaArguments({"type": "object", "properties": {}, "additionalProperties": False})


class FolderSource:
    """Tools of the owner's folder. A file that cannot be used is one tool that nobody is offered, with the reason."""

    def __init__(
        self, folder: OwnFolder, *, taken: Collection[str], workers: Workers, containment: Containment
    ) -> None:
        """Read the folder. `taken`: names of all other tools. Runs nothing."""
        self._folder = folder
        self._taken = frozenset(taken)
        self._workers = workers
        self._containment = containment
        self._stamp: Stamp | None = None
        self._files: Sequence[OwnFile] = ()
        self._tried: dict[str, str] = {}
        """Result of trying a file in a worker, by the SHA-256 of its text; empty when it works."""
        self._modules: dict[str, ModuleType | str] = {}
        """Trusted modules, or what is wrong with them, by the SHA-256 of their text."""
        self._tools: tuple[Tool, ...] = ()
        self._one_at_a_time = asyncio.Lock()
        self._log: Any = log("own_tools")

    @property
    def name(self) -> str:
        """Name of the source."""
        return FOLDER_SOURCE

    def snapshot(self) -> Sequence[Tool]:
        """Return the tools. Reads the files again when one of them changed."""
        try:
            stamp = self._folder.stamp()
        except OSError:
            stamp = ()
        if stamp != self._stamp:
            self._stamp, self._files = stamp, self._folder.files()
            self._build()
        return self._tools

    async def settle(self) -> None:
        """Try new and changed untrusted files in workers, side by side: an import may fail, block or fork.

        A file is tried once until it changes. One that gets no place within a second, because others block, is left for
        the next time: so the wait is that of one import.
        """
        self.snapshot()
        if not self._containment.can_bwrap or not self._untried():
            return
        async with self._one_at_a_time:
            waiting = self._untried()
            last = asyncio.get_running_loop().time() + BEGIN_S
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(waiting), SIDE_BY_SIDE)):
                    group.create_task(self._try_each(waiting, last), name="try own tools")
            self._build()

    async def _try_each(self, waiting: list[OwnFile], last: float) -> None:
        """Try files from the front of `waiting`. Begin none after the loop's time `last`."""
        while waiting and asyncio.get_running_loop().time() < last:
            file = waiting.pop(0)
            self._tried[file.sha] = await self._workers.try_file(worker_file(file))

    async def settle_all(self) -> None:
        """Settle until no file is left."""
        await self.settle()
        while self._containment.can_bwrap and self._untried():
            await self.settle()

    async def follow(self) -> None:
        """Try all files once, so that the first turn need not wait. Never raises."""
        try:
            await self.settle_all()
        except Exception:  # noqa: BLE001 - it runs beside the daemon, which it must not end; the next turn tries again
            self._log.exception("own tools cannot be tried")

    def _untried(self) -> list[OwnFile]:
        return [
            file
            for file in self._files
            if file.tools and not file.problem and not self._trusts(file) and file.sha not in self._tried
        ]

    def _trusts(self, file: OwnFile) -> bool:
        return self._folder.trusts(file.path.stem)

    def _build(self) -> None:
        there = {file.sha for file in self._files}
        self._tried = {sha: why for sha, why in self._tried.items() if sha in there}
        self._modules = {sha: one for sha, one in self._modules.items() if sha in there}
        files = [self._known(file) for file in self._files if not file.plain or file.problem]
        self._tools = tuple(self._tool(line) for line in lines_of(files, self._taken))
        for tool in self._tools:
            if tool.missing:
                self._log.warning("own tool cannot be used", tool=tool.spec.name, why=tool.missing)

    def _known(self, file: OwnFile) -> OwnFile:
        """Return the file with what importing it said."""
        problem = file.problem or self._wrong_default(file)
        if not problem and self._trusts(file):
            module = self._module(file)
            problem = module if isinstance(module, str) else ""
        return replace(file, problem=problem or self._tried.get(file.sha, ""))

    @staticmethod
    def _wrong_default(file: OwnFile) -> str:
        try:
            for one in file.tools:
                SchemaArguments(one.schema)
        except ConfigError as error:
            return f"{error.message}. {error.cure or 'Correct the default'}"
        return ""

    def _module(self, file: OwnFile) -> ModuleType | str:
        if file.sha not in self._modules:
            self._modules[file.sha] = import_trusted(file)
        return self._modules[file.sha]

    def _tool(self, line: OwnLine) -> Tool:
        declared = line.declared
        if declared is None:
            return Tool(
                spec=line.spec,
                policy=closed_policy(line.spec),
                arguments=BAD_ARGUMENTS,
                run=_never,
                missing=line.problem,
            )
        policy = policy_of(line.spec, self._folder)
        trusted = self._trusts(line.file)
        if not trusted and policy.sandbox is not SandboxPolicy.FULL:
            policy = replace(policy, sandbox=SandboxPolicy.BASIC)  # never less, whatever the settings of the folder say
        return Tool(
            spec=line.spec,
            policy=policy,
            arguments=SchemaArguments(declared.schema),
            run=self._in_daemon(line.file, declared) if trusted else _in_worker(line.file, declared),
            missing="" if trusted else self._without_sandbox(line.file),
        )

    def _without_sandbox(self, file: OwnFile) -> str:
        if self._containment.can_bwrap:
            return ""
        why = self._containment.why_no_bwrap or "no sandbox was found"
        return (
            f"{plain(file.path.name)} runs in a sandbox only, and there is none here: {why.removesuffix('.')}. "
            f"Install bubblewrap, or write trust = true in [tools.{file.path.stem}] after reading the file."
        )

    def _in_daemon(self, file: OwnFile, declared: DeclaredTool) -> Run:
        module = self._module(file)

        async def run(ctx: ToolContext, arguments: Any) -> ToolResult:
            function: Callable[..., Any] = getattr(module, declared.function)
            with _given(ctx, declared.context) as context:
                if inspect.iscoroutinefunction(function):
                    result = await function(**arguments, **context)
                else:
                    result = await asyncio.to_thread(function, **arguments, **context)
            return ToolResult(status=ResultStatus.OK, text=as_text(result), untrusted=True)

        return run


def load_folder(
    loaded: Loaded, sources: Iterable[ToolSource], workers: Workers, containment: Containment
) -> FolderSource | None:
    """Return the source of the owner's folder, None without one. `sources`: all others, whose names are taken."""
    if loaded.folder is None:
        return None
    taken = [tool.spec.name for source in sources for tool in source.snapshot()]
    return FolderSource(loaded.folder, taken=taken, workers=workers, containment=containment)


def make_workers(loaded: Loaded, containment: Containment) -> Workers:
    """Return the workers of own tools. Starts none."""
    return Workers(containment=containment, limits=program_limits(loaded.sandbox), package=PACKAGE)


def program_limits(settings: SandboxSettings) -> ProcessLimits:
    """Return the limits of each program of a tool."""
    return ProcessLimits(
        memory_bytes=settings.memory_mb * MB,
        tree_bytes=settings.tree_mb * MB or None,
        file_bytes=settings.file_mb * MB,
        tmp_bytes=settings.tmp_mb * MB,
    )


def worker_file(file: OwnFile) -> WorkerFile:
    """Return the worker's part of a file."""
    return WorkerFile(
        name=file.path.name,
        source=file.source,
        sha=file.sha,
        folder=file.path.parent,
        functions=frozenset(one.function for one in file.tools),
    )


@contextmanager
def _given(ctx: ToolContext, parameter: str) -> Generator[Mapping[str, own.Context]]:
    """Give the argument with the context of a call, by its name; empty for a function without one.

    The end of the block, for any reason, ends the call: a thread that goes on sees that it is cancelled.
    """
    if not parameter:
        yield {}
        return
    loop = asyncio.get_running_loop()

    def show(text: str) -> None:
        with suppress(RuntimeError):  # the daemon has ended
            loop.call_soon_threadsafe(ctx.progress, text)

    context = own.Context(session=ctx.session, workspace=ctx.files.root, show=show, is_cancelled=lambda: False)
    try:
        yield {parameter: context}
    finally:
        context.end()


def _in_worker(file: OwnFile, declared: DeclaredTool) -> Run:
    of = worker_file(file)

    async def run(ctx: ToolContext, arguments: Any) -> ToolResult:
        text = await ctx.process.call(of, declared.function, arguments, context=declared.context)
        if text:
            ctx.output.write(text.encode(errors="replace"))
        return ToolResult(status=ResultStatus.OK, text="", untrusted=True)

    return run


async def _never(_ctx: ToolContext, _arguments: Any) -> ToolResult:
    """Refuse: the tool cannot be used, so that no decision lets a call come here."""
    raise SandboxMissing("This file cannot be used.", cure="See `dragoman tools list`.")


def import_trusted(file: OwnFile) -> ModuleType | str:
    """Import a trusted file in the daemon, by the text that was read. Return the module, or what is wrong."""
    name = f"{FOLDER_MODULES}.{file.path.stem}"
    loader = TextLoader(str(file.path), file.source)
    module = loader.module(name)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the owner's code may raise anything, also SystemExit: that is told
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        return f"it cannot be imported ({type(error).__name__}: {cut(plain(said(error)), 300)}). Correct its code"
    missing = [one.function for one in file.tools if not callable(getattr(module, one.function, None))]
    return f"it has no function {missing[0]} after its import. Define it once, at the top level" if missing else module
