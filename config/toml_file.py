"""Reader of TOML files, with errors that name the line and the cure. Used by `load` and `preset_files`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from config.syntax import explain
from config.values import beyond, toml
from gateway.domain.text import cut
from gateway.errors import ConfigError

_FILE_BYTES = 1_048_576
"""Largest file in bytes."""


def parse_file(file: Path, guide: str = "Write what config/example.toml explains.") -> tuple[dict[str, Any], str]:
    """Return the tables of a file, and its text. Raises `ConfigError`.

    `guide`: the cure for tables in a wrong form.
    """
    text = ""
    try:
        with file.open("rb") as stream:
            data = stream.read(_FILE_BYTES + 1)
        if len(data) > _FILE_BYTES:
            raise ConfigError(f"{file} is larger than 1 MiB.", cure="Name the right file.")
        text = data.decode("utf-8-sig")
        raw = toml(text)
    except OSError as error:
        cure = f"Name the file in it: {file / 'config.toml'}" if file.is_dir() else "Make it a readable file"
        raise ConfigError(f"{file} cannot be read: {error.strerror}.", cure=f"{cure}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{file} is not UTF-8 text (byte {error.start}, in line {line}).", cure="Save it as UTF-8."
        ) from None
    except ValueError as error:  # also numbers too long for Python
        mistake = explain(text, str(error))
        if mistake is None:
            raise ConfigError(f"{file} is not TOML: {cut(str(error), 500)}.", cure="Correct that line.") from None
        place = f"line {mistake.line}, column {mistake.column}"
        raise ConfigError(f"{file} is not TOML: {place}: {mistake.what}.", cure=f"{mistake.cure}.") from None
    if what := beyond(raw):
        raise ConfigError(f"{file} has {what}.", cure=guide)
    return raw, text
