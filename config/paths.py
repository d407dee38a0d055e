"""Lookup of the configuration file and the state folder: option, then variable, then the user's folder."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from gateway.domain.text import cut
from gateway.errors import ConfigError

CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
STATE_VARIABLE = "DRAGOMAN_STATE"
STORE_BYTES = 504
"""Longest path of a store in bytes: SQLite takes 512, including the suffix of its journal."""
_SERVER = (r"[^/?#\s]+(/[0-9]*)?(\?(prefix|ca|cert|key)=[^#\s]+)?", "redis://user:password@host:6379/0")
_SENTINELS = (
    r"[^/?#\s]+/[\w.-]+(\?(prefix|db|ca|cert|key|sentinel_user|sentinel_password|sentinel_tls)=[^#\s]+)?",
    "redis+sentinel://user:password@one:26379,two:26379/name",
)
REDIS_URLS = {"redis": _SERVER, "rediss": _SERVER, "redis+sentinel": _SENTINELS, "rediss+sentinel": _SENTINELS}
"""Pattern of the rest of a store's URL on Redis, and an example, by scheme."""
_UNIT_CONFIG = "/etc/dragoman/config.toml"
"""Configuration path of the systemd unit, which sets it by variable."""
_NAME_BYTES = 255
"""Longest name in a path in bytes, on every usual file system."""
_STATE_BYTES = STORE_BYTES - len("/dragoman.db")
"""Longest path of a state folder in bytes: the store is in it by default."""


def find_config(given: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file: `given`, else `$DRAGOMAN_CONFIG`, else the one in the user's folder, else None.

    Raises `ConfigError` when a named file does not exist; only the default path may be absent.
    """
    if given is not None:
        return _named(_not_empty(given, "--config"), "--config", environ)
    if environ.get(CONFIG_VARIABLE):
        return _named(environ[CONFIG_VARIABLE], f"${CONFIG_VARIABLE}", environ)
    path = users_config(environ)
    try:
        path.stat()
    except PermissionError as error:  # the file may exist and be meant
        raise ConfigError(
            f"{path} cannot be looked for: {error.strerror}.",
            cure="Let this user enter that folder, or name the file with --config.",
        ) from None
    except OSError as error:
        if any(os.path.islink(one) and not os.path.exists(one) for one in (path, *path.parents)):
            raise ConfigError(
                f"{path} cannot be read: a link on its way leads nowhere ({error.strerror}).",
                cure="Correct the link, or remove it.",
            ) from None
        return None
    return path


def users_config(environ: Mapping[str, str]) -> Path:
    """Return the default path of the user's configuration, existing or not."""
    return _user_folder("XDG_CONFIG_HOME", ".config", environ) / "dragoman" / "config.toml"


def misplaced(place: Path) -> list[str]:
    """Return files that look like a configuration but are not at `place`, the only path that is read."""
    names = ["dragoman.toml", "config.toml", "config/config.toml", str(place.parent / "dragoman.toml")]
    names += [str(place.parents[1] / name) for name in ("dragoman.toml", "config.toml")] + [_UNIT_CONFIG]
    return [os.path.abspath(name) for name in names if os.path.isfile(name)]


def find_state(given: Path | str | None, environ: Mapping[str, str]) -> Path:
    """Return the state folder, absolute: `given`, else `$DRAGOMAN_STATE`, else the user's. It need not exist yet.

    Raises `ConfigError` for a path that cannot be part of the store's URL.
    """
    if given is not None:
        found = _absolute(_not_empty(given, "--state"), environ)
    elif environ.get(STATE_VARIABLE):
        found = _absolute(environ[STATE_VARIABLE], environ)
    else:
        found = _user_folder("XDG_STATE_HOME", ".local/state", environ) / "dragoman"
    if "#" in str(found) or "?" in str(found):
        raise ConfigError(f"The state folder {found} has a # or ? in its path.", cure="Name another one with --state.")
    if why := too_long(str(found), _STATE_BYTES):
        shown = cut(str(found), 100)
        raise ConfigError(f"The state folder {shown} cannot be used: {why}.", cure="Name a shorter one with --state.")
    return found


def too_long(path: str, most: int, suffix: str = "") -> str:
    """Return why a path with its suffix is too long for the system; empty when it is not."""
    size = len(os.fsencode(path))
    if size > most:
        return f"its path has {size} bytes, and {most} is the limit"
    longest = max((len(os.fsencode(name)) for name in f"{path}{suffix}".split("/")), default=0)
    if longest > _NAME_BYTES:
        return f"a name in its path has {longest - len(suffix)} bytes, and {_NAME_BYTES - len(suffix)} is the limit"
    return ""


def _not_empty(given: Path | str, option: str) -> str:
    if not str(given):  # an unset shell variable: another folder would be a guess
        raise ConfigError(f"{option} names nothing.", cure=f"Write a path behind it, or leave {option} out.")
    return str(given)


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
    path = _home(environ) / text[2:] if text.startswith("~/") else Path(text)
    if path.is_absolute():
        return path
    try:
        return path.absolute()
    except FileNotFoundError:
        raise ConfigError(
            f"The current folder was removed, so the relative path {text} cannot be resolved.",
            cure="Write the whole path.",
        ) from None


def _home(environ: Mapping[str, str]) -> Path:
    # The rules say that a relative path there counts as unset, too.
    return Path(environ["HOME"]) if environ.get("HOME", "").startswith("/") else _passwd_home()


def _passwd_home() -> Path:
    """Return the home folder of the user database. Raises `ConfigError` for an unknown user."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError(
            "This user has no home folder.", cure="Name files and folders by their whole paths."
        ) from None
