"""Entry of this daemon among the nodes of its store, with fingerprints of the configuration. Made by `app.build`."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from config.load import Loaded
from gateway.domain.ids import NodeId
from gateway.domain.nodes import KeyMark, NodeEntry, Role

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PLACES = frozenset({"where", "file", "folder"})
"""Fields that say where something is written: nodes may keep the same configuration in different files."""


def entry_of(loaded: Loaded, node: NodeId, key: KeyMark | None, home: str = "") -> NodeEntry:
    """Return the entry of a node with this configuration. `home`: id of the place of its workspaces."""
    return NodeEntry(
        node=node,
        key=key,
        seat=seat_of(loaded.state),
        version=own_version(),
        roles=roles_of(loaded),
        configuration=fingerprints(loaded),
        home=home,
        shares=bool(home) and loaded.shared is not None,
        address=loaded.settings.cluster.address,
        away_after=loaded.settings.cluster.home_away_after,
    )


def roles_of(loaded: Loaded) -> frozenset[Role]:
    """Return the configured roles."""
    return frozenset(Role(one) for one in loaded.settings.cluster.roles)


def seat_of(state: Path) -> str:
    """Return a text that only a daemon on this state folder of this running system has."""
    found = state.stat()
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = platform.node()
    return f"{boot}:{found.st_dev}:{found.st_ino}"


@cache
def own_version() -> str:
    """Return the installed version of Dragoman. Searched once: it takes 3 ms."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0"


def fingerprints(loaded: Loaded) -> dict[str, str]:
    """Return a fingerprint of each part of the configuration that decides."""
    settings = loaded.settings
    parts = {
        "owners": settings.owners,
        "people": settings.people,
        "chats": settings.chats,
        "sessions": settings.sessions,
        "tools": loaded.tools,
        "presets": loaded.presets,
        "agents": loaded.agents,
        "hooks": loaded.hooks,
        "home_away_after": settings.cluster.home_away_after.total_seconds(),
        "limits": [loaded.limits, loaded.budgets, loaded.messages_per_minute],
    }
    return {name: _fingerprint(part) for name, part in parts.items()}


def _fingerprint(part: object) -> str:
    text = json.dumps(_plain(part), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(value: object) -> Any:
    """Return a value as plain data in one order, without secrets and without places of files."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    # Before the abstract classes: for each type that is new to them, they ask all their subclasses.
    if isinstance(value, BaseModel) or is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _fields(value)} or type(value).__qualname__
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {str(_plain(key)): _plain(one) for key, one in pairs.items()}
    if isinstance(value, Set):
        return sorted((_plain(one) for one in cast("Set[object]", value)), key=str)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[object]", value)]
    return type(value).__qualname__


def _fields(value: object) -> list[str]:
    """Return the names of the fields to compare; none for a secret."""
    found: list[str] = []
    if isinstance(value, BaseModel):
        found = list(type(value).model_fields)
    elif is_dataclass(value):
        found = [one.name for one in fields(value)]
    return [name for name in found if name not in _PLACES]
