"""Where the configuration and the state are found, before anything is read: option, variable, user's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gateway.errors import ConfigError

CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
STATE_VARIABLE = "DRAGOMAN_STATE"


def find_config(given: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file: `given`, else `$DRAGOMAN_CONFIG`, else the one in the user's folder, else None.

    Raises `ConfigError` when a file that was named does not exist; only the last place may be empty.
    """
    if given:
        return _named(str(given), "--config", environ)
    if environ.get(CONFIG_VARIABLE):
        return _named(environ[CONFIG_VARIABLE], f"${CONFIG_VARIABLE}", environ)
    path = _user_folder("XDG_CONFIG_HOME", ".config", environ) / "dragoman" / "config.toml"
    return path if os.path.exists(path) else None


def find_state(given: Path | str | None, environ: Mapping[str, str]) -> Path:
    """Return the state folder, absolute: `given`, else `$DRAGOMAN_STATE`, else the user's. It need not exist yet."""
    if given:
        return _absolute(str(given), environ)
    if environ.get(STATE_VARIABLE):
        return _absolute(environ[STATE_VARIABLE], environ)
    return _user_folder("XDG_STATE_HOME", ".local/state", environ) / "dragoman"


def _named(text: str, by: str, environ: Mapping[str, str]) -> Path:
    path = _absolute(text, environ)
    # os.path, because Path.exists raises where a folder on the way is closed to us.
    if not os.path.exists(path):
        raise ConfigError(
            f"{by} names {path}, and there is no such file that can be read.", cure=f"Create it, or leave {by} out."
        )
    return path


def _user_folder(variable: str, below_home: str, environ: Mapping[str, str]) -> Path:
    folder = environ.get(variable, "")
    # The XDG rules say that a relative path there counts as unset.
    return Path(folder) if folder.startswith("/") else _home(environ) / below_home


def _absolute(text: str, environ: Mapping[str, str]) -> Path:
    return (_home(environ) / text[2:] if text.startswith("~/") else Path(text)).absolute()


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()
