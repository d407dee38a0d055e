"""Form of docstrings, test names and commit subjects. Exceptions are counted per folder and may only shrink."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.support.syntax import tree_of

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("gateway", "channels", "agent_tools", "config")
NOT_FIRST = re.compile(
    r"(?:Who|What|Whether|Where|How|Whatever|Whoever|Beside|Before|Below|Under|Between|Within|After|On the way)"
    r"(?![\w-])"
)
"""Words that open a relative clause or place a thing before it is named."""
AFTER_HEAD = "\nfrom __future__ import"
"""Start of the first statement after a module's docstring; to parse what follows takes seconds."""
AVOIDED = re.compile(r"\b(?:anew|looked at|told apart|whoever|whatever|by itself)\b", re.IGNORECASE)
"""Words for again, read or checked, distinguished, a named person, any, automatically."""
TEXT = re.compile(r'^ *r?"+(.*)', re.MULTILINE)
"""Line that begins with a text, and its first words."""
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
NO_SUBJECT = re.compile(
    r"test_(?:who|what|whether|where|how|which|whose|whom|whatever|whoever|wherever|while|when|after|before|below|under|"
    r"beside|of|with|they)(?:_|$)"
)
"""Names of tests that begin with a clause or a placing word, not with their subject."""
NAME_LENGTH = 60
SUBJECT_LENGTH = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_/., -]*: \S")
FIRST_SUBJECT = "gateway: arrange the code in rooms"
"""Start of the subject of the oldest commit after which subjects are checked."""

Found: TypeAlias = tuple[str, str]
"""A file, and the text in it that breaks a rule."""


Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources(top: str) -> Mapping[str, str]:
    """Return the texts of the modules of a top-level folder by path."""
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / top).rglob("*.py")}


def definitions(block: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the classes and functions in a block of statements, at any depth."""
    for node in getattr(block, "body", ()):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        yield from definitions(node)


def opens_badly(node: Documented) -> str | None:
    """Return the first line of a docstring that opens with a relative or placing word."""
    text = (ast.get_docstring(node) or "").partition("\n")[0]
    return text if NOT_FIRST.match(text) else None


def bad_heads(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield module heads that open badly."""
    for file, source in modules.items():
        if text := opens_badly(tree_of(source.partition(AFTER_HEAD)[0])):
            yield file, text


def suspects(modules: Mapping[str, str]) -> Iterator[tuple[str, ast.Module]]:
    """Yield files with a line that opens badly. Walking each statement of all the others would take seconds."""
    for file, source in modules.items():
        if any(NOT_FIRST.match(text) for text in TEXT.findall(source)):
            yield file, tree_of(source)


def bad_docstrings(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield docstrings of classes and functions that open badly. That of a test may tell its story."""
    for file, tree in suspects(modules):
        for node in definitions(tree):
            if not node.name.startswith("test_") and (text := opens_badly(node)):
                yield file, f"{node.name}: {text}"


def statements(block: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node, those of branches and handlers too."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for node in getattr(block, field, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from statements(node)


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a bare text: a docstring, or the explanation of the value before it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def bad_values(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield explanations of attributes and constants that open badly."""
    for file, tree in suspects(modules):
        blocks = [node for node in (tree, *statements(tree)) if isinstance(node, Documented)]
        firsts = {node.body[0] for node in blocks if node.body}
        for node in statements(tree):
            if is_text(node) and node not in firsts:
                text = ast.literal_eval(cast("ast.Expr", node).value).partition("\n")[0]
                if NOT_FIRST.match(text):
                    yield file, f"line {node.lineno}: {text}"


def bad_words(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield docstrings and explanations of values that avoid the field's word."""
    for file, source in modules.items():
        if AVOIDED.search(source):
            for node in statements(tree_of(source)):
                if is_text(node) and (found := AVOIDED.search(ast.unparse(node))):
                    yield file, f"line {node.lineno}: {found[0]}"


def long_names(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield names of tests that are too long."""
    for file, source in modules.items():
        for name in TEST_NAME.findall(source):
            if len(name) > NAME_LENGTH:
                yield file, name


def names_without_subject(modules: Mapping[str, str]) -> Iterator[Found]:
    """Yield names of tests that do not begin with their subject."""
    for file, source in modules.items():
        for name in TEST_NAME.findall(source):
            if NO_SUBJECT.match(name):
                yield file, name


Rule: TypeAlias = Callable[[Mapping[str, str]], Iterator[Found]]
RULES: Mapping[str, tuple[Rule, Sequence[str]]] = {
    "heads": (bad_heads, (*PRODUCT, "tests")),
    "docstrings": (bad_docstrings, (*PRODUCT, "tests")),
    "values": (bad_values, (*PRODUCT, "tests")),
    "words": (bad_words, PRODUCT),
    "test_names": (long_names, ("tests",)),
    "test_subjects": (names_without_subject, ("tests",)),
}
"""Each rule by its table in `[tool.dragoman.language]`, with the folders it holds for."""


def allowed(rule: str) -> dict[str, int]:
    """Return the exceptions of pyproject.toml: how many, by folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return cast("dict[str, int]", project["tool"]["dragoman"]["language"][rule])


def unkept(found: Sequence[Found], exceptions: Mapping[str, int]) -> list[str]:
    """Return a sentence for each folder that has more or fewer exceptions than its line allows.

    A file counts for the longest folder that has a line, else for its top-level folder, where none are allowed.
    """
    by_folder: dict[str, list[str]] = {folder: [] for folder in exceptions}
    for file, text in found:
        above = [folder for folder in exceptions if file.startswith(f"{folder}/")]
        folder = max(above, key=len, default=file.partition("/")[0])
        by_folder.setdefault(folder, []).append(f"{file}: {text}")
    sentences: list[str] = []
    for folder, texts in by_folder.items():
        most = exceptions.get(folder, 0)
        if len(texts) > most:
            sentences.append("\n".join([f"{folder} has {len(texts)}, {most} are allowed:", *sorted(texts)]))
        elif len(texts) < most:
            sentences.append(f"{folder} has {len(texts)}, {most} are allowed: lower the number in pyproject.toml")
        elif folder in exceptions and most == 0:
            sentences.append(f"{folder} has none: remove its line from pyproject.toml")
    return sentences


@pytest.mark.parametrize("rule", RULES)
def test_language_rule_holds_and_exceptions_shrink(rule: str) -> None:
    check, folders = RULES[rule]
    found = [one for top in folders for one in check(sources(top))]
    assert "\n".join(unkept(found, allowed(rule))) == ""


def test_language_exceptions_name_rules_and_folders() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tables = cast("dict[str, dict[str, int]]", project["tool"]["dragoman"]["language"])
    assert set(tables) == set(RULES)
    assert [folder for table in tables.values() for folder in table if not (ROOT / folder).is_dir()] == []


def git(*arguments: str) -> str:
    """Return what git prints in this checkout. Skip the test where git or a full history is missing."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed: commit subjects cannot be read")
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"not a git checkout that can be read: {done.stderr.strip()[:200]}")
    return done.stdout


def test_commit_subjects_have_an_area_and_are_short() -> None:
    if Path(git("rev-parse", "--show-toplevel").strip()).resolve() != ROOT:
        pytest.skip("not a git checkout of this project: a folder inside another repository")
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone: the history does not reach back to the first commit to check")
    starts = [line for line in git("log", "--format=%H %s").splitlines() if line[41:].startswith(FIRST_SUBJECT)]
    if not starts:
        pytest.skip(f'the history has no commit "{FIRST_SUBJECT}…"')
    subjects = git("log", "--no-merges", "--format=%s", f"{starts[-1][:40]}..HEAD").splitlines()
    assert [text for text in subjects if not is_subject(text)] == []


def is_subject(text: str) -> bool:
    """Return whether a subject is `area: summary` in one short line."""
    return len(text) <= SUBJECT_LENGTH and SUBJECT.match(text) is not None


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("store: requeue turns whose lease expired during an outage", True),
        ("channels/telegram: make an album one message", True),
        ("config, cli: mend weak texts", True),
        ("Tests say things once, and wait less", False),
        ("Store: requeue turns", False),
        ("store:requeue turns", False),
        ("store: " + "x" * 66, False),
    ],
)
def test_subject_form_is_recognised(text: str, good: bool) -> None:
    assert is_subject(text) is good


@pytest.mark.parametrize(
    ("docstring", "good"),
    [
        ("Rate limiter for outgoing messages. What it counts stands below.", True),
        ("What a channel wants.", False),
        ("On the way out: claims slots.", False),
        ("Before a model is asked.", False),
        ("Before-hooks of a call.", True),
        ("Whatsoever.", True),
    ],
)
def test_opening_word_is_recognised(docstring: str, good: bool) -> None:
    text = f'"""{docstring}"""'
    lines = [text, "A = 1", text, "class B:", text, "C = 1", text, "def _f(self):", text, "self.d = 1", text]
    depths = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    modules = {"a/b.py": "\n".join(f"{'    ' * depth}{line}" for depth, line in zip(depths, lines, strict=True))}
    found = [len(list(rule(modules))) for rule in (bad_heads, bad_docstrings, bad_values)]
    assert found == ([0, 0, 0] if good else [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "bad"),
    [("Ask again.", 0), ("Ask anew.", 1), ("Looked at twice, whatever comes.", 1), ("Manew and whateverness.", 0)],
)
def test_avoided_word_is_recognised(text: str, bad: int) -> None:
    code = f'A = "anew"  # anew\n"""{text}"""\n'
    assert len(list(bad_words({"a/b.py": code}))) == bad


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("test_denied_page_is_not_opened", (0, 0)),
        ("test_what_is_denied_is_not_opened", (0, 1)),
        ("test_how", (0, 1)),
        ("test_after_a_stop_the_next_turn_runs", (0, 1)),
        ("test_whatsapp_is_unknown", (0, 0)),
        ("test_" + "x" * 55, (0, 0)),
        ("test_" + "x" * 56, (1, 0)),
    ],
)
def test_form_of_a_test_name_is_recognised(name: str, bad: tuple[int, int]) -> None:
    modules = {"tests/x.py": f"async def {name}() -> None: ..."}
    assert (len(list(long_names(modules))), len(list(names_without_subject(modules)))) == bad


@pytest.mark.parametrize(
    ("exceptions", "sentence"),
    [
        ({"a": 1, "a/b": 1}, ""),
        ({"a": 2}, ""),
        ({}, "a has 2, 0 are allowed:"),
        ({"a": 1}, "a has 2, 1 are allowed:"),
        ({"a": 3}, "a has 2, 3 are allowed: lower the number"),
        ({"a": 2, "c": 0}, "c has none: remove its line"),
    ],
)
def test_exceptions_hold_exactly(exceptions: dict[str, int], sentence: str) -> None:
    sentences = "\n".join(unkept([("a/x.py", "Who"), ("a/b/y.py", "What")], exceptions))
    assert sentences.startswith(sentence)
    assert bool(sentences) is bool(sentence)
