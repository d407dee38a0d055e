"""Reader of raw tables into typed models. Collects every problem with its path and cure; none stops the reading."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr, ValidationError

from channels._shared.settings import ProxyUrl
from config.key_index import place_of
from config.values import EnvText, Flaw, boolean, compound, duration, integer, number, secret
from gateway.domain.text import cut, unshown_options
from gateway.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_PLAIN: Mapping[str, tuple[str, str]] = types.MappingProxyType(
    {
        "missing": ("it is missing", "Add it"),
        "int_type": ("it is not a whole number", "Write it in digits, without quotes"),
        "finite_number": ("it is not a number that can be reckoned with", "Write a plain number"),
        "float_type": ("it is not a number", "Write it in digits, without quotes"),
        "bool_type": ("it is neither true nor false", "Write true or false, without quotes"),
        "string_type": ("it is not text", "Write it in quotes"),
        "tuple_type": ("it is not a list", 'Write a list: ["one", "two"]'),
        "dict_type": ("it is not a table", "Write a table of key = value"),
        "model_type": ("it is not a table", "Write a table of key = value"),
        "time_delta_type": ("it is not a duration", 'Write, for instance, "90s" or "2m"'),
    }
)
"""Reason and cure by pydantic's error type."""
_SWITCHES = frozenset({"enabled", "enable", "disabled", "disable", "active"})
"""Keys that people try for switching a tool on or off."""
_NO_LINES: Mapping[str, Sequence[int]] = types.MappingProxyType({})
PROBLEMS_TOLD = 100
"""Most problems in one error."""
WHAT_CHARS, CURE_CHARS = 500, 1_000
"""Most characters of a reason and of a cure; some list everything known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of the configuration."""

    where: str
    """The file, or `$NAME` for an environment variable."""
    key: str
    what: str
    cure: str

    def __str__(self) -> str:
        """Return the problem as one line."""
        key = f"{self.key}: " if self.key else ""
        return f"{self.where}: {key}{self.what}. {self.cure}."


def as_error(problems: Sequence[Problem]) -> ConfigError:
    """Make one error that lists all problems, at most the first hundred: nobody fixes more in one attempt."""
    if len(problems) == 1:
        one = problems[0]
        key = f"{one.key}: " if one.key else ""
        return ConfigError(f"{one.where}: {key}{one.what}.", cure=f"{one.cure}.")
    lines = "\n".join(f"  {problem}" for problem in problems[:PROBLEMS_TOLD])
    more = len(problems) - PROBLEMS_TOLD
    rest = f"\n  and {more:,} more, shown once some of these are fixed." if more > 0 else ""
    return ConfigError(f"The configuration has {len(problems):,} problems:\n{lines}{rest}")


def suggest(word: str, known: Iterable[str], table: str = "", *, alike: bool = True) -> str:
    """Return a sentence with the known names and, if `alike`, the one that `word` is close to."""
    names = sorted(known)
    close = difflib.get_close_matches(word.lower(), names, n=1) if alike else []
    meant = f'Did you mean "{close[0]}"? ' if close else ""
    place = f"[{table}] knows" if table else "Known are"
    return f"{meant}{place}: {', '.join(names)}" if names else f"{meant}Remove it"


def unknown(key: str, value: object, known: Iterable[str], table: str = "") -> str:
    """Return the cure for an unknown key: its table or spelling, and the known keys."""
    names = list(known)
    if key.lower() in _SWITCHES and "permission" in names:
        return f'Write permission = "blocked" to switch the tool off. {suggest(key, names, table, alike=False)}'
    if difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.7):
        return suggest(key, names, table)
    near = bool(difflib.get_close_matches(key.lower(), names, n=1))
    place = place_of(key, is_table=isinstance(value, dict), exactly=near)
    return f"{place}. {suggest(key, names, table, alike=False)}" if place else suggest(key, names, table)


def secrets_in(url: str) -> list[SecretStr]:
    """Return the secret parts of a URL with a sign-in: all of it, its user and its passwords."""
    options = [one for one in unshown_options(url) if not one.startswith("sentinel_user=")]
    found = [value for one in options if (value := one.partition("=")[2])]
    place = url.partition("?")[0] if options else url
    if user := place.partition("://")[2].rpartition("@")[0] or place.rpartition("@")[0]:
        found += [user, user.partition(":")[2] or user]
    hidden = [url, *found] if found else []
    return [SecretStr(one) for text in hidden for one in dict.fromkeys((text, unquote(text)))]


def dotted(path: Path) -> str:
    """Return a path in TOML notation: `model.fallback[0].name`, quoted where needed."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("_", "").replace("-", "").isalnum() and part.isascii()
            text += f".{part}" if bare else f'."{part}"'
    return text.removeprefix(".")


class TableReader:
    """Converter of raw tables to models that collects problems."""

    def __init__(
        self,
        *,
        file: str,
        variables: Mapping[tuple[str, ...], str],
        environ: Mapping[str, str],
        lines: Mapping[str, Sequence[int]] = _NO_LINES,
    ) -> None:
        """Take the file's name, the keys set by environment variables, and the environment for secrets.

        `lines`: by array of tables, the line of each table in the file.
        """
        self.problems: list[Problem] = []
        self.secrets: list[SecretStr] = []
        self.named: set[str] = set()
        self.secret_files: list[str] = []
        self._file = file
        self._set_by: Mapping[Path, str] = {**variables}
        self._places: set[Path] = set()
        """Paths with a problem."""
        self._environ = environ
        self._lines = lines

    def place(self, array: str, n: int) -> str:
        """Return for people where a table of an array stands: `config.toml:41 (rules[2])`."""
        line = self._line((array, n))
        file = self._file.rpartition("/")[2]
        return f"{file}:{line} ({array}[{n}])" if line else f"{array}[{n}]"

    def _line(self, path: Path) -> int | None:
        """Return the line of the table that a path leads through; None when it is not known."""
        lines = self._lines.get(str(path[0]), ()) if len(path) > 1 else ()
        n = path[1] if len(path) > 1 else None
        return lines[n] if isinstance(n, int) and n < len(lines) else None

    def wrong(self, path: Path, what: str, cure: str) -> None:
        """Record a problem at `path`."""
        named = next((name for n in range(len(path) + 1) if (name := self._set_by.get(path[:n]))), None)
        line = self._line(path)
        file = self._file if line is None else f"{self._file}:{line}"
        where = file if named is None else f"${cut(named, 100)}"
        key, what, cure = cut(dotted(path), 200), cut(what, WHAT_CHARS), cut(cure, CURE_CHARS)
        self.problems.append(Problem(where=where, key=key, what=what, cure=cure))
        self._places.add(path)

    def is_wrong(self, path: Path) -> bool:
        """Return whether there is a problem at `path` or below it."""
        return any(place[: len(path)] == path for place in self._places)

    def flaw(self, path: Path, flaw: Flaw) -> None:
        """Record a value's flaw."""
        self.wrong((*path, flaw.key) if flaw.key else path, flaw.what, flaw.cure)

    def table(self, raw: object, path: Path) -> Mapping[str, Any]:
        """Return `raw` as a table; otherwise record a problem and return an empty one."""
        value = compound(raw) if isinstance(raw, EnvText) else raw
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        if value and _has_tables(value):
            self.wrong(path, "there can be one such table only", f"Write [{dotted(path)}], in single brackets")
        else:
            self.wrong(path, _PLAIN["dict_type"][0], f"Write [{dotted(path)}], and below it key = value")
        return {}

    def model(self, model: type[M], raw: object, path: Path) -> M | None:
        """Read a table into `model`. Record all problems; return None when there was one."""
        before = len(self.problems)
        data = self._known(model, self.table(raw, path), path)
        try:
            read = model.model_validate(data)
        except ValidationError as error:
            self.explain(error, path)
            return None
        return read if len(self.problems) == before else None

    def explain(self, error: ValidationError, path: Path) -> None:
        """Record every problem that a model found in a table at `path`."""
        for one in error.errors(include_url=False):
            context = {"input": one["input"], **one.get("ctx", {})}
            self._explain(one["type"], one["msg"], (*path, *one["loc"]), context)

    def value(self, kind: Any, value: object, path: Path) -> Any:
        """Convert one value for a key of type `kind`: durations, secrets, environment text. Raises `Flaw`."""
        kind = _bare(kind)
        if isinstance(value, EnvText):
            value = _typed(kind, value)
        if kind is timedelta:
            return duration(value)
        if kind is SecretStr:
            return self._secret(value)
        if _is_of_tables(kind) and not _has_tables(value):
            raise Flaw("it is a list of tables", f"Write [[{dotted(path)}]], in double brackets, for each of them")
        if kind is ProxyUrl:
            return self._proxy(value)
        if isinstance(value, list):
            inner = (get_args(kind) or (Any,))[0]
            return [self._item(inner, one, (*path, n)) for n, one in enumerate(cast("list[object]", value))]
        if isinstance(value, dict):
            return self._below(kind, cast("dict[str, Any]", value), path)
        return value

    def _below(self, kind: Any, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """Convert a nested table: one with known keys, or named tables of that kind."""
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self._known(kind, value, path)
        inner = get_args(kind)[-1] if get_origin(kind) is dict else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return {key: self._item(inner, one, (*path, key)) for key, one in value.items()}
        return value

    def _secret(self, value: object) -> SecretStr:
        if isinstance(value, str) and value.startswith("env:"):
            self.named.add(value.removeprefix("env:"))
        read = secret(value, self._environ)
        if isinstance(value, str) and value.startswith("file:"):
            self.secret_files.append(value.removeprefix("file:"))
        self.secrets.append(read)
        return read

    def _proxy(self, value: object) -> object:
        """Convert a proxy URL, plain or a secret. Record its user name and password as secrets, for the redactor."""
        if not isinstance(value, str):
            return value
        text = self._secret(value).get_secret_value() if value.startswith(("env:", "file:")) else value
        self.secrets += secrets_in(text)
        return ProxyUrl(text)

    def _item(self, kind: Any, value: object, path: Path) -> Any:
        try:
            return self.value(kind, value, path)
        except Flaw as flaw:
            self.flaw(path, flaw)
            return value

    def _known(self, model: type[BaseModel], raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return the converted keys of the model; record others as problems unless the model allows extras."""
        fields = model.model_fields
        data: dict[str, Any] = {}
        for key, value in raw.items():
            if key in fields:
                try:
                    data[key] = self.value(fields[key].annotation, value, (*path, key))
                except Flaw as flaw:
                    self.flaw((*path, key), flaw)
            elif model.model_config.get("extra") == "allow":
                data[key] = compound(str(value)) if isinstance(value, EnvText) else value
            else:
                self.wrong((*path, key), "unknown key", unknown(key, value, fields, dotted(path)))
        return data

    def _explain(self, kind: str, message: str, path: Path, context: Mapping[str, Any]) -> None:
        path = tuple(part for part in path if part != "[key]")
        error = context.get("error")
        key = error.key if isinstance(error, Flaw) else context.get("key") if kind == "flaw" else None
        if ((*path, key) if key else path) in self._places:
            return  # it is there, and was left out because of what is wrong with it
        if isinstance(error, Flaw):
            self.flaw(path, error)
        elif kind == "flaw":  # of a channel's settings, which know nothing of this package
            self.flaw(path, Flaw(context["what"], context["cure"], key=context["key"]))
        elif kind in _PLAIN:
            what, cure = _PLAIN[kind]
            self.wrong(path, what, _example(kind, path, context["input"]) or cure)
        elif kind in {"enum", "literal_error"}:
            choices = str(context["expected"]).replace("'", '"')
            self.wrong(path, "it is none of the choices", f"Write one of {choices}")
        elif kind in {"greater_than_equal", "less_than_equal"}:
            limit: float = context.get("ge", context.get("le", 0))
            what = "small" if "ge" in context else "large"
            self.wrong(path, f"it is too {what}", f"Write {int(limit)} or {'more' if 'ge' in context else 'less'}")
        else:
            self.wrong(path, message[:1].lower() + message[1:], "Correct it")


def _example(kind: str, path: Path, value: object) -> str:
    """Return a cure that shows the key with a value; empty where the usual cure does."""
    key = str(path[-1]) if path else ""
    if kind == "missing" and key.endswith(("token", "secret", "api_key")):
        return f'Add {key} = "env:NAME", and set that variable before the start'
    if kind == "missing":
        return f"Add {key} = …"
    if kind == "tuple_type" and isinstance(value, str) and value.isprintable():
        return f'Write a list: ["{cut(value, 80)}"]'
    return ""


def _is_of_tables(kind: Any) -> bool:
    inner = get_args(kind)[0] if get_origin(kind) is tuple else None
    return isinstance(inner, type) and issubclass(inner, BaseModel)


def _has_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in cast("list[object]", value))


def _bare(kind: Any) -> Any:
    """Strip `Annotated` and `| None` from a type."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in {Union, types.UnionType}:
            kind = next(part for part in get_args(kind) if part is not type(None))
        else:
            return kind


def _typed(kind: Any, text: EnvText) -> Any:
    plain = str(text)
    if kind is int:
        return integer(plain)
    if kind is float:
        return number(plain)
    if kind is bool:
        return boolean(plain)
    if get_origin(kind) is tuple:
        found = compound(plain)
        return [part.strip() for part in plain.split(",") if part.strip()] if isinstance(found, str) else found
    if get_origin(kind) is dict:
        return compound(plain)
    return plain
