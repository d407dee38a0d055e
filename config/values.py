"""Parsers of single configuration values: durations, secrets, text from environment variables, TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gateway.domain.nesting import levels
from gateway.domain.text import cut

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
ENV_NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of the name of an environment variable."""
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_LONGEST = timedelta(days=3650)
_SECRET_BYTES = 65_536
"""Largest secret file in bytes."""
LEVELS_AT_MOST = 30
"""Most levels of nested tables and lists; settings need six."""
_KEY = r"""(?>[\w-]+|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\n]*+')"""
_ENDLESS_KEY = re.compile(rf"(?m)(?:^|[\[{{,])[ \t]*(?:{_KEY}[ \t]*\.[ \t]*){{{LEVELS_AT_MOST}}}", re.ASCII)


class Flaw(ValueError):
    """An invalid value: the reason, the cure, and the key inside its table when known."""

    def __init__(self, what: str, cure: str, *, key: str = "") -> None:
        """Take reason and cure as sentences without a full stop."""
        super().__init__(what)
        self.what, self.cure, self.key = what, cure, key


class EnvText(str):
    """A value from an environment variable, which is text for a key of any type."""

    __slots__ = ()


def duration(value: object) -> timedelta:
    """Parse `"120s"`, `"2m"`, `"1h"`, `"30d"` or a number of seconds; more than 0, at most ten years. Raises `Flaw`."""
    cure = 'Write a number with its unit, for instance "90s", "2m", "1h" or "30d"'
    seconds = math.nan
    if isinstance(value, str):
        found = DURATION.fullmatch(value.strip())
        seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    if not timedelta.resolution.total_seconds() <= seconds <= _LONGEST.total_seconds():
        raise Flaw(f"{_shown(value)} is not a duration", cure)
    return timedelta(seconds=seconds)


def spoken(value: timedelta) -> str:
    """Format a duration for `duration`, in the largest unit that gives a whole number."""
    seconds = value.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds % _UNITS[unit] == 0:
            return f"{int(seconds // _UNITS[unit])}{unit}"
    return f"{int(seconds)}s" if seconds.is_integer() else f"{seconds:.6f}".rstrip("0") + "s"


def secret(value: object, environ: Mapping[str, str]) -> SecretStr:
    """Resolve `"env:NAME"` or `"file:PATH"`. Raises `Flaw`; its text must never contain a possible secret."""
    if isinstance(value, str) and value.startswith("env:"):
        return _from_environment(value.removeprefix("env:"), environ)
    if isinstance(value, str) and value.startswith("file:"):
        return _from_file(value.removeprefix("file:"))
    if isinstance(value, str) and re.fullmatch(rf"\$\{{?{ENV_NAME}\}}?", value):
        raise Flaw("variables are not written with $ here", 'Write "env:NAME", with the name of the variable')
    raise Flaw(
        "a secret is not written here itself",
        'Put it into an environment variable and write "env:NAME", or into a file and write "file:/path"',
    )


def _from_environment(name: str, environ: Mapping[str, str]) -> SecretStr:
    if not re.fullmatch(ENV_NAME, name):
        raise Flaw('what follows "env:" is not the name of a variable', 'Write, for instance, "env:OPENAI_API_KEY"')
    text = environ.get(name, "").strip()
    if not text:
        raise Flaw(f"the environment variable {name} is not set", f"Set {name} before the start")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Flaw(f"the environment variable {name} is not UTF-8 text", f"Set {name} to plain text") from None
    return SecretStr(text)


def _from_file(name: str) -> SecretStr:
    path, cure = Path(name), 'Write, for instance, "file:/run/secrets/api-key"'
    if not name.isprintable():  # a path with a zero byte cannot even be checked
        raise Flaw("the path of the secret's file has characters that cannot be seen", cure)
    if not path.is_absolute():
        raise Flaw(f"{_shown(name)} is not an absolute path", cure)
    try:
        # Checked first: opening a named pipe would block until something writes to it.
        if path.exists() and not path.is_file():
            raise Flaw(f"the secret's file {path} is not a file", "Name a text file that has the secret in it")
        with path.open("rb") as file:
            data = file.read(_SECRET_BYTES + 1)
        if len(data) > _SECRET_BYTES:
            raise Flaw(f"the secret's file {path} is larger than {_SECRET_BYTES // 1024} KiB", "Name the right file")
        text = data.decode("utf-8-sig").strip()
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise Flaw(f"the secret's file {path} cannot be read ({reason})", "Create it, readable here") from None
    except UnicodeDecodeError:
        raise Flaw(f"the secret's file {path} is not UTF-8 text", "Write the secret into it as plain text") from None
    if not text:
        raise Flaw(f"the secret's file {path} is empty", "Write the secret into it as plain text")
    return SecretStr(text)


def integer(text: str) -> int | str:
    """Parse an integer; return the text when it is none."""
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text.strip()) else text


def number(text: str) -> float | str:
    """Parse a number; return the text when it is none."""
    return float(text) if re.fullmatch(r"[+-]?\d{1,18}(\.\d{1,18})?", text.strip()) else text


def boolean(text: str) -> bool | str:
    """Parse `true` or `false`; return the text when it is neither."""
    return {"true": True, "false": False}.get(text.strip().lower(), text)


def compound(text: str) -> Any:
    """Parse a list or table in TOML or JSON; return the text when it is neither."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        found = toml(f"value = {text.strip()}")["value"]
    except ValueError:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text if beyond([found]) else found


def toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises `ValueError` with the reason.

    A dotted key costs tomllib quadratic time: a second for 30,000 parts, which fit into 64 KiB. So keys of too many
    parts are refused first. A string may match too, but hardly ever has so many dots with one word between them.
    """
    if _ENDLESS_KEY.search(text):
        raise ValueError(f"it has a key of more than {LEVELS_AT_MOST} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:  # too deeply nested lists
        raise ValueError(str(error)) from None


def beyond(value: Mapping[str, Any] | list[Any]) -> str:
    """Describe a parsed value that no setting can have; empty when there is none.

    TOML limits integers to 64 bits; Python also parses longer ones, some of which it cannot print.
    """
    for n, parts in enumerate(levels(value)):
        if n == LEVELS_AT_MOST:
            return f"more than {LEVELS_AT_MOST} tables or lists in one another"
        if any(isinstance(part, int) and not -(2**63) <= part < 2**63 for part in parts):
            return "a whole number of more than 64 bits"
    return ""


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return cut(text, 80)
