"""Reader of an owner's tool files by their text alone: nothing of a file runs here. Used by `own_folder`.

The arguments of `@tool`, the annotations and the docstring are all that the daemon goes by. So an untrusted file cannot
state one risk to the owner and another to the daemon.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.domain.text import cut, plain
from gateway.domain.tools import Availability, Effect, NetworkPolicy, Risk, SandboxPolicy, ToolSpec

FILE_BYTES = 1_000_000
"""Bytes of the largest file that is read."""
DESCRIPTION_CHARS = 500
"""Characters of an own tool's description, and of one of an argument."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WHOLE_FILE = frozenset({"tool", "default", "run", "main"})
"""Names of functions whose tool is named as the file."""
_SIMPLE: Mapping[str, Mapping[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "list": {"type": "array", "items": {}},
    "dict": {"type": "object", "additionalProperties": {}},
    "Any": {},
}
_TYPES_CURE = "Use str, int, float, bool, list[…], dict[str, …], Literal[…], Annotated[…], Any, and None with `|`"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "risk": tuple(Risk),
    "effect": tuple(one for one in Effect if one is not Effect.CHECKABLE),
    "permission": tuple(Availability),
    "network": tuple(NetworkPolicy),
}
LONGEST_S = 86_400
"""Longest timeout of an own tool, in seconds."""


class Unusable(Exception):
    """Reason why a file cannot be used, in a sentence with its cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTool:
    """One decorated function."""

    spec: ToolSpec
    function: str
    schema: Mapping[str, Any]
    context: str = ""
    """Name of the parameter that gets the context of the call; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFile:
    """File of the owner's tools folder, as it was at one moment."""

    path: Path
    source: str
    sha: str
    """Differs when its text does, or a helper of its folder."""
    tools: tuple[DeclaredTool, ...] = ()
    problem: str = ""
    """Why none of its tools can be used, with the cure; empty when nothing is wrong with its text."""
    plain: bool = False
    """True for a module with `SPEC`, `Args` and `run`."""


def read_file(path: Path, *, trusted: bool) -> OwnFile:
    """Read one file. Never raises: what is wrong is its `problem`."""
    source, sha = "", ""
    try:
        source = _text(path)
        sha = hashlib.sha256(source.encode()).hexdigest()
        tree = ast.parse(source)
        if any(name == "SPEC" for node in tree.body for name in _assigned(node)):
            return OwnFile(path=path, source=source, sha=sha, plain=True, problem=_plain(path, trusted=trusted))
        return OwnFile(path=path, source=source, sha=sha, tools=_tools(path.stem, tree, trusted=trusted))
    except SyntaxError as error:
        problem = f"line {error.lineno}: {plain(str(error.msg))}. Correct its code"
    except Unusable as error:
        problem = str(error)
    except (RecursionError, MemoryError, ValueError):
        problem = "its text cannot be read as Python. Correct its code"
    return OwnFile(path=path, source=source, sha=sha, problem=problem)


def _tools(stem: str, tree: ast.Module, *, trusted: bool) -> tuple[DeclaredTool, ...]:
    if not NAME.fullmatch(stem):
        raise Unusable("its name is no tool name. Use lower case letters, digits and `_`")
    tools = tuple(_declared(stem, tree, trusted=trusted))
    names = [one.spec.name for one in tools]
    if not tools:
        raise Unusable("it has no function with @tool. Write `from agent_tools.own import tool` and decorate one")
    if twice := [name for name in names if names.count(name) > 1]:
        raise Unusable(f"two of its tools are named {twice[0]}. Rename one of the functions")
    return tools


def _plain(path: Path, *, trusted: bool) -> str:
    if trusted:
        return ""
    return (
        f"it has a SPEC, so it would run in the daemon. Write trust = true in [tools.{path.stem}], "
        "or decorate a function with @tool"
    )


def _text(path: Path) -> str:
    if not path.is_file():  # opening a pipe would wait for its writer
        raise Unusable("it is no regular file. Remove it")
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror}). Let the daemon's user read it") from error
    except UnicodeDecodeError:
        raise Unusable("it is not UTF-8. Save it as UTF-8") from None
    if len(data) > FILE_BYTES:
        raise Unusable("it is larger than 1 MB. Make it smaller")
    return text


def _assigned(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _declared(stem: str, tree: ast.Module, *, trusted: bool) -> Iterator[DeclaredTool]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _last_name(call) == "tool":
                given = decorator.keywords if isinstance(decorator, ast.Call) else []
                if isinstance(decorator, ast.Call) and decorator.args:
                    raise Unusable(f'@tool of {node.name} takes names only. Write, for instance, risk="read"')
                yield _tool(stem, node, _policy(node.name, given), trusted=trusted)


def _policy(function: str, given: list[ast.keyword]) -> Mapping[str, Any]:
    """Return the values of a decorator. Raises `Unusable` for one that is not a literal, or not known."""
    policy: dict[str, Any] = {}
    for one in given:
        key = one.arg or "**"
        try:
            value = ast.literal_eval(one.value)
        except (ValueError, TypeError):
            raise Unusable(f"@tool of {function}: {key} is not a literal. Write its value there") from None
        if key in _CHOICES and value not in _CHOICES[key]:
            known = ", ".join(f'"{choice}"' for choice in _CHOICES[key])
            raise Unusable(f"@tool of {function}: there is no {key} {cut(repr(value), 50)}. Use one of {known}")
        if key not in _CHOICES and not _fits(key, value):
            cure = f"Known are {', '.join([*_CHOICES, 'timeout (seconds)', 'positional', 'indexed'])}"
            raise Unusable(f"@tool of {function}: {cut(key, 50)} = {cut(repr(value), 50)} is not known. {cure}")
        policy[key] = value
    return policy


def _fits(key: str, value: object) -> bool:
    if key == "timeout":
        return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= LONGEST_S
    return isinstance(value, str if key == "positional" else bool) if key in ("positional", "indexed") else False


def _tool(
    stem: str, node: ast.FunctionDef | ast.AsyncFunctionDef, policy: Mapping[str, Any], *, trusted: bool
) -> DeclaredTool:
    name = stem if node.name in (_WHOLE_FILE | {stem}) else f"{stem}_{node.name}"
    if not NAME.fullmatch(name):
        raise Unusable(f"{cut(name, 80)} is no tool name. Use lower case letters, digits and `_`")
    about = (ast.get_docstring(node) or "").strip()
    description = cut(plain(about.split("\n\n", 1)[0]), DESCRIPTION_CHARS)
    if not description:
        raise Unusable(f"{node.name} has no docstring, so nobody knows its use. Write one")
    schema = _schema(node, _described(about))
    positional = policy.get("positional") or None
    if positional is not None and positional not in schema["properties"]:
        raise Unusable(f"@tool of {node.name}: there is no argument {cut(positional, 50)!r}. Name one of its own")
    spec = ToolSpec(
        name=name,
        description=description,
        risk=Risk(policy.get("risk", Risk.EXECUTE)),
        effect=Effect(policy.get("effect", Effect.UNSAFE)),
        availability=Availability(policy.get("permission", Availability.MAIN)),
        timeout_s=float(policy.get("timeout", 30)),
        sandbox=None if trusted else SandboxPolicy.BASIC,
        network=NetworkPolicy(policy.get("network", NetworkPolicy.AUTO)),
        positional=positional,
        indexed=policy.get("indexed", True),
    )
    return DeclaredTool(spec=spec, function=node.name, schema=schema, context=_context(node))


def _context(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the name of the parameter that gets the call's context; empty for none."""
    every = [*node.args.args, *node.args.kwonlyargs]
    return next((one.arg for one in every if _is_context(one)), "")


def _is_context(argument: ast.arg) -> bool:
    node = argument.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition(".")[2] == "Context"
    return node is not None and _last_name(node) == "Context"


def _described(docstring: str) -> Mapping[str, str]:
    """Return the descriptions of arguments: lines `name: text` of the docstring."""
    lines = (re.fullmatch(r"\s*(\w+)(?:\s*\([^)]*\))?:\s+(\S.*)", line) for line in docstring.splitlines()[1:])
    return {found[1]: cut(plain(found[2]), DESCRIPTION_CHARS) for found in lines if found}


def _schema(node: ast.FunctionDef | ast.AsyncFunctionDef, about: Mapping[str, str]) -> Mapping[str, Any]:
    given = node.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise Unusable(f"{node.name} takes arguments without names. Name each one")
    missing: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    pairs = [*zip(given.args, [*missing, *given.defaults], strict=True)]
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    contexts = [argument.arg for argument, _ in pairs if _is_context(argument)]
    if len(contexts) > 1:
        raise Unusable(f"{node.name} takes {len(contexts)} contexts. Leave one of {' and '.join(contexts)} out")
    for argument, default in pairs:
        name = argument.arg
        if name in contexts:
            if default is not None:
                raise Unusable(f"{name} of {node.name} has a default. Write `{name}: Context` alone")
            continue
        if argument.annotation is None:
            raise Unusable(f"the argument {name} of {node.name} has no type. {_TYPES_CURE}")
        found = dict(_type(argument.annotation, name))
        if name in about:
            found.setdefault("description", about[name])
        if default is None:
            required.append(name)
        else:
            found["default"] = _literal(default, f"the default of {name}")
        properties[name] = found
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _type(node: ast.expr, name: str) -> Mapping[str, Any]:
    """Return the JSON Schema of an annotation. Raises `Unusable` for one that is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _type(ast.parse(node.value, mode="eval").body, name)
    found: Mapping[str, Any] | None = None
    if isinstance(node, ast.Constant) and node.value is None:
        found = _SIMPLE["None"]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        found = _either([_type(node.left, name), _type(node.right, name)])
    elif isinstance(node, ast.Name | ast.Attribute):
        found = _SIMPLE.get(_last_name(node))
    elif isinstance(node, ast.Subscript):
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = _generic(_last_name(node.value), inner, name)
    if found is None:
        raise Unusable(f"the type {cut(ast.unparse(node), 60)} of {name} is not known. {_TYPES_CURE}")
    return found


def _generic(of: str, inner: list[ast.expr], name: str) -> Mapping[str, Any] | None:
    """Return the schema of a type with parameters; None for one that is not known."""
    match of, inner:
        case "list" | "List", [one]:
            return {"type": "array", "items": _type(one, name)}
        case "dict" | "Dict", [key, one] if _last_name(key) == "str":
            return {"type": "object", "additionalProperties": _type(one, name)}
        case "Optional", [one]:
            return _either([_type(one, name), _SIMPLE["None"]])
        case "Literal", [_, *_]:
            values = [_literal(one, f"a choice of {name}") for one in inner]
            fit = all(isinstance(one, str | int) and not isinstance(one, bool) for one in values)
            return {"enum": values} if fit else None
        case "Annotated", [one, *notes]:
            texts = [note.value for note in notes if isinstance(note, ast.Constant) and isinstance(note.value, str)]
            told = {"description": cut(plain(texts[0]), DESCRIPTION_CHARS)} if texts else {}
            return {**_type(one, name), **told}
        case _:
            return None


def _either(found: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    options = [option for one in found for option in one.get("anyOf", [one])]
    return {"anyOf": options}


def _literal(node: ast.expr, what: str) -> Any:
    try:
        value = ast.literal_eval(node)
        return json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, TypeError):
        raise Unusable(f"{what} is not a literal JSON value. Write None, a text, a number or a list") from None


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
