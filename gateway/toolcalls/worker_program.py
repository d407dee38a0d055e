"""Program of a contained worker: runs the functions of one own tool's file. Started by `gateway.toolcalls.workers`.

It talks over a socket, in lines of JSON. The first line has the file's text; the answer has the decorated functions, or
the fault of the file. Each further line is a call. While one with a context runs, a line says that it is cancelled, and
lines with its progress go the other way.

Only light imports, all from Python's own library: none of our other modules is visible in the sandbox.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import select
import socket
import sys
import threading
import traceback
import types
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.abc import ExecutionLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

MARK = "__dragoman_tool__"
TEXT_CHARS = 1_000_000
"""Characters of the longest result; the rest is left out, with a note."""
WHY_CHARS = 1_000
"""Characters of an error's text."""


def main(descriptor: int, package: str) -> None:
    """Load the file that the first line brings, then answer calls until the socket is closed."""
    wire = socket.socket(fileno=descriptor)
    wire.set_inheritable(False)
    lines = wire.makefile("rb")
    begun_in, workspace = os.getpid(), Path.cwd()
    first = json.loads(lines.readline())
    sys.path[:0] = [package, first["folder"]]
    loader = TextLoader(first["file"], first["source"])
    module = loader.module(first["name"])
    sys.modules[first["name"]] = module
    why = _load(module, loader)
    if os.getpid() != begun_in:
        os._exit(1)  # a process that the file forked: only its parent answers
    if not why and _has_children():
        why = "it starts a process when it is imported"
    names = [name for name, one in vars(module).items() if getattr(one, MARK, False) is True]
    _send(wire, {"error": why} if why else {"functions": names})
    while line := lines.readline():
        call = json.loads(line)
        if "cancel" in call:  # it came when the call had ended
            continue
        context = _context(wire, workspace, call)
        answer = _called(module, call, context)
        if os.getpid() != begun_in:
            os._exit(1)
        leaves = _has_children() or threading.active_count() > 1
        _send(wire, {"id": call["id"], "leaves": leaves, **answer})


class TextLoader(ExecutionLoader):
    """Loader of a module from a text that was read before: what was checked is what runs."""

    def __init__(self, path: str, text: str) -> None:
        """Take the path that tracebacks name."""
        self.path, self.text = path, text

    def get_filename(self, fullname: str) -> str:
        """Return the path."""
        return self.path

    def get_source(self, fullname: str) -> str:
        """Return the text."""
        return self.text

    def module(self, name: str) -> types.ModuleType:
        """Return the module before it runs."""
        spec = ModuleSpec(name, self, origin=self.path)
        spec.has_location = True  # so that the module has its path
        return module_from_spec(spec)


def _load(module: types.ModuleType, loader: TextLoader) -> str:
    """Run the file; return why that failed, empty when it did not."""
    try:
        loader.exec_module(module)
    except SystemExit as error:
        return f"it exits when it is imported ({_text_of(error).removeprefix('SystemExit: ')})"
    except BaseException as error:  # noqa: BLE001 - the owner's code may raise anything: that is the answer
        return f"it cannot be imported ({_text_of(error)})"
    finally:
        _flush()
    return ""


def _context(wire: socket.socket, workspace: Path, call: dict[str, Any]) -> dict[str, Any]:
    """Return the argument with the context of a call, by its name; empty for a function without one."""
    if "context" not in call:
        return {}
    one_at_a_time = threading.Lock()

    def show(text: str) -> None:
        with one_at_a_time, suppress(OSError):
            _send(wire, {"progress": text})

    of = import_module("agent_tools.own").Context  # the one module of ours that a worker sees
    return {
        call["context"]: of(
            session=call["session"], workspace=workspace, show=show, is_cancelled=partial(_is_readable, wire)
        )
    }


def _is_readable(wire: socket.socket) -> bool:
    """Return whether a line came, or the end: during a call both mean that it is cancelled."""
    looked = select.poll()
    looked.register(wire, select.POLLIN)
    return bool(looked.poll(0))


def _called(module: types.ModuleType, call: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call, as `text`, or why there is none, as `error`."""
    try:
        result = getattr(module, call["function"])(**call["arguments"], **context)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return {"text": _cut(as_text(result))}
    except BaseException as error:  # noqa: BLE001 - the owner's code may raise anything: that is the answer
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{_text_of(error)} (line {where.lineno} of {where.name})"}
    finally:
        for one in context.values():
            one.end()
        _flush()


def _flush() -> None:
    """Write out what was printed, so that it is read before the answer."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # the tool may have removed or closed it
            stream.flush()


def as_text(result: object) -> str:
    """Return a function's result as text: text as it is, all else as JSON. Raises `TypeError` for other values."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the result is neither text nor JSON: {error}; return one of the two") from None


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS:
        return text
    return f"{text[:TEXT_CHARS]}\n[{len(text) - TEXT_CHARS:,} more characters were left out]"


def _text_of(error: BaseException) -> str:
    """Return the type and the words of an error; `traceback` bears one that cannot say any."""
    return " ".join("".join(traceback.format_exception_only(error)).split())[:WHY_CHARS]


def _has_children() -> bool:
    """Return whether there is a process that nobody waited for, ended or not."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _send(wire: socket.socket, answer: dict[str, Any]) -> None:
    # As UTF-8, so that a character has at most 6 bytes; lone surrogates, as in names of files, are no JSON.
    wire.sendall(json.dumps(answer, ensure_ascii=False).encode(errors="replace") + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
