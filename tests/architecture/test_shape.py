"""Length limits of functions and files. Exceptions are named and may only shrink."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.support.syntax import tree_of

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gateway", "channels", "agent_tools", "config", "tests")
FILE_LINES = 500
FUNCTION_LINES = 60

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    """Return our Python files, and the start script."""
    return [ROOT / "run", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))]


def name_of(path: Path) -> str:
    """Return a file's name as pyproject.toml writes it."""
    return path.relative_to(ROOT).as_posix()


def allowed(what: str) -> dict[str, int]:
    """Return the exceptions of pyproject.toml: name and size."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return cast("dict[str, int]", project["tool"]["dragoman"]["shape"][what])


def code_lines(function: Function, lines: list[str]) -> int:
    """Count a function's lines without its docstring, blank lines and comments."""
    documented = ast.get_docstring(function, clean=False) is not None
    head = range(function.lineno, function.body[0].lineno if documented else function.lineno)
    rest = function.body[1:] if documented else function.body
    body = range(rest[0].lineno, (function.end_lineno or 0) + 1) if rest else range(0)
    texts = (lines[n - 1].strip() for n in {*head, *body, function.lineno})
    return sum(1 for text in texts if text and not text.startswith("#"))


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function under a node with its qualified name; nested ones count in their outer one too.

    Expressions, most of a tree by far, have no functions with a name in them.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def file_sizes() -> dict[str, int]:
    """Return lines by file."""
    return {name_of(path): len(path.read_text().splitlines()) for path in sources()}


def function_sizes() -> dict[str, int]:
    """Return code lines by `file::function`."""
    sizes: dict[str, int] = {}
    for path in sources():
        text = path.read_text()
        lines = text.splitlines()
        for name, function in functions(tree_of(text, filename=str(path))):
            key = f"{name_of(path)}::{name}"
            sizes[key] = max(sizes.get(key, 0), code_lines(function, lines))  # overloads share a name
    return sizes


def too_long(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    """Return what is over its limit, each with its figures."""
    return [
        f"{name} has {size} lines, {exceptions.get(name, limit)} are allowed"
        for name, size in sizes.items()
        if size > exceptions.get(name, limit)
    ]


def stale(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    """Return exceptions that are not needed, or larger than needed, or name nothing."""
    return [name for name, size in exceptions.items() if sizes.get(name, 0) <= limit or sizes[name] < size]


def test_files_are_short() -> None:
    assert too_long(file_sizes(), FILE_LINES, allowed("files")) == []


def test_exceptions_for_files_exist_and_only_shrink() -> None:
    """An exception names something that exists, is needed, and is set to exactly today's size."""
    assert stale(file_sizes(), FILE_LINES, allowed("files")) == []


def test_functions_are_short_and_exceptions_only_shrink() -> None:
    """Both in one test: parsing every file takes seconds, and two tests may be two processes."""
    sizes, exceptions = function_sizes(), allowed("functions")
    assert too_long(sizes, FUNCTION_LINES, exceptions) == []
    assert stale(sizes, FUNCTION_LINES, exceptions) == []


def test_lint_exceptions_name_existing_files() -> None:
    """Each per-file exception of the linter names an existing file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns: list[str] = list(project["tool"]["ruff"]["lint"]["per-file-ignores"])
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f():\n    return 1\n", 2),
        ('def f():\n    """Say.\n\n    More.\n    """\n    # why\n\n    return 1\n', 2),
        ('def f(\n    a,\n    b,\n):\n    """Say."""\n    return (\n        a\n    )\n', 7),
        ('def f():\n    """Say."""\n', 1),
    ],
)
def test_the_measure_counts_code_only(text: str, lines: int) -> None:
    ((_, function),) = functions(tree_of(text))
    assert code_lines(function, text.splitlines()) == lines
