"""Program of a contained worker: runs the functions of one own tool's file. Started by `gateway.toolcalls.workers`.

It talks over a socket, in lines of JSON. The first line has the file's text; the answer tells the decorated functions,
or why the file cannot be used. Each further line is a call.

Only light imports, all from Python's own library: none of our other modules is visible in the sandbox.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import sys
import threading
import traceback
import types
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
    begun_in = os.getpid()
    first = json.loads(lines.readline())
    sys.path[:0] = [package, first["folder"]]
    module = types.ModuleType(first["name"])
    module.__file__ = first["file"]
    sys.modules[first["name"]] = module
    why = _load(module, first["source"])
    if os.getpid() != begun_in:
        os._exit(1)  # a process that the file forked: only its parent answers
    if not why and _has_children():
        why = "it starts a process when it is imported"
    names = [name for name, one in vars(module).items() if getattr(one, MARK, False) is True]
    _send(wire, {"error": why} if why else {"functions": names})
    while line := lines.readline():
        call = json.loads(line)
        answer = _called(module, call)
        if os.getpid() != begun_in:
            os._exit(1)
        leaves = _has_children() or threading.active_count() > 1
        _send(wire, {"id": call["id"], "leaves": leaves, **answer})


def _load(module: types.ModuleType, source: str) -> str:
    """Run the file; return why that failed, empty when it did not."""
    try:
        exec(compile(source, str(module.__file__), "exec"), vars(module))  # noqa: S102 - that is what a worker is for
    except SystemExit as error:
        return f"it exits when it is imported ({_text_of(error)})"
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything (house rule 9)
        return f"it cannot be imported ({type(error).__name__}: {_text_of(error)})"
    finally:
        _flush()
    return ""


def _called(module: types.ModuleType, call: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call, as `text`, or why there is none, as `error`."""
    try:
        result = getattr(module, call["function"])(**call["arguments"])
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return {"text": _cut(as_text(result))}
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything (house rule 9)
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {_text_of(error)} (line {where.lineno} of {where.name})"}
    finally:
        _flush()


def _flush() -> None:
    """Write out what was printed, so that it is read before the answer."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 - the tool may have closed or replaced it
            continue


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
    try:
        return str(error)[:WHY_CHARS]
    except BaseException:  # noqa: BLE001 - its __str__ is foreign code too
        return "it does not say why"


def _has_children() -> bool:
    """Return whether there is a process that nobody waited for, ended or not."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _send(wire: socket.socket, answer: dict[str, Any]) -> None:
    wire.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
