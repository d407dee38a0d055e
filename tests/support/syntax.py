"""Syntax trees of source files, for tests that read the code."""

from __future__ import annotations

import ast
import gc


def tree_of(text: str, filename: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module. Garbage collection is off meanwhile.

    A finalizer may log a traceback, which parses a line of source. CPython 3.11 then takes the outer parse for damaged
    and raises `SystemError: AST constructor recursion depth mismatch`.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, filename=filename)
    finally:
        if enabled:
            gc.enable()
