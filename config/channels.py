"""Reader of `[channels]`: the built-in channels, those of installed packages, and the owner's own. Used by `load`.

A package or a module is imported only when the configuration names it: installed is not trusted.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel, ValidationError

import channels
from channels._shared.settings import ONE_ACCOUNT
from config.accounts import account_tables
from config.plugins import own_module, part_of
from config.reading import Path, TableReader, suggest
from config.settings import ChannelModule, HttpSettings
from gateway.domain.ids import PAGE
from gateway.errors import ConfigError
from gateway.ports import CHANNEL_API, ChannelSpec, IdForm

ENTRY_POINTS = "dragoman.channels"
"""Group of entry points at which an installed package registers its `ChannelSpec`, by the channel's name."""
SPEC = "CHANNEL"
"""Name of the specification in a channel's package or module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredChannel:
    """Channel with its settings."""

    spec: ChannelSpec
    settings: Any
    """Instance of the spec's `settings`, or the table as written."""
    origin: str
    """Module or package of its origin; empty for a built-in one."""

    @property
    def accounts(self) -> Sequence[str]:
        """Return the names of its accounts; the one of a channel that knows none is `main`."""
        accounts: object = getattr(self.settings, "accounts", None)
        names = cast("Mapping[str, object]", accounts) if isinstance(accounts, Mapping) else (ONE_ACCOUNT,)
        return tuple(names)

    def warnings(self, named: Sequence[str]) -> list[str]:
        """Return sentences about dangerous settings. `named`: all people and chats with access."""
        try:
            return list(self.spec.warnings(self.settings, named))
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything; its failure becomes a warning
            return [f"channels.{self.spec.name}: its settings cannot be examined ({type(error).__name__})."]

    def describe(self) -> list[tuple[str, str]]:
        """Return (account, description) pairs; without accounts, where the channel comes from."""
        try:
            found = list(self.spec.describe(self.settings))
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything; `check` must print the rest
            found = [("", f"it cannot be described ({type(error).__name__})")]
        return found or [("", self.origin or "on")]


@cache
def built_in() -> Mapping[str, ChannelSpec]:
    """Return the specifications of the channels in `channels`, by name."""
    found: dict[str, ChannelSpec] = {}
    for module in pkgutil.iter_modules(channels.__path__):
        spec = getattr(importlib.import_module(f"{channels.__name__}.{module.name}"), SPEC, None)
        if isinstance(spec, ChannelSpec):
            found[spec.name] = spec
    return MappingProxyType(dict(sorted(found.items())))


def read_channels(
    raw: object, http: HttpSettings | None, reader: TableReader
) -> Mapping[str, ConfiguredChannel] | None:
    """Return all configured channels but the web page, by name. None when there was a problem; the reader has it.

    `http` is None when that table is unusable; checks that depend on it are skipped then.
    """
    found: dict[str, ConfiguredChannel] = {}
    complete = True
    for name, table in reader.table(raw, ("channels",)).items():
        if name == PAGE:
            continue
        channel = _read_channel(name, table, http, reader)
        complete = complete and channel is not None
        if channel is not None:
            found[name] = channel
    return found if complete else None


def named_channels(raw: object) -> Mapping[str, ChannelSpec]:
    """Return the channels whose people and chats the configuration may name, faulty tables included."""
    tables = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    own = {name: table for name, table in tables.items() if name != PAGE and name not in built_in()}
    specs = {name: spec for name, table in own.items() if (spec := _spec_or_none(name, table)) is not None}
    return {**built_in(), **specs}


def _spec_or_none(name: str, table: object) -> ChannelSpec | None:
    """Return the spec, or a stand-in for one that cannot be had: its ids cause no further problems."""
    stand_in = ChannelSpec(name=name, load=lambda: (_ for _ in ()).throw(ImportError(name)))
    try:
        spec, _ = _find(name, _module_of(table))
    except ConfigError:
        return stand_in
    return spec


def _read_channel(name: str, table: object, http: HttpSettings | None, reader: TableReader) -> ConfiguredChannel | None:
    path = ("channels", name)
    module = _module_of(table)
    if module is not None:
        named = reader.model(ChannelModule, {"module": module}, path)
        fits = _is_channel_name(name, reader)
        if named is None or not fits:
            return None
    try:
        spec, origin = _find(name, module)
    except ConfigError as error:
        reader.wrong((*path, "module") if module is not None else path, error.message, error.cure)
        return None
    if spec is None:
        cure = suggest(name, [*built_in(), PAGE])
        own = 'a channel of your own needs module = "package.module"'
        reader.wrong(path, f"there is no channel {name!r}", f"{cure}; {own}")
        return None
    keys = {key: value for key, value in reader.table(table, path).items() if key != "module"} if module else table
    settings = _settings(spec, keys, path, http, reader)
    return None if settings is None else ConfiguredChannel(spec=spec, settings=settings, origin=origin)


def _module_of(table: object) -> str | None:
    found = cast("dict[str, object]", table).get("module") if isinstance(table, dict) else None
    return found if found is None else str(found)


def _find(name: str, module: str | None) -> tuple[ChannelSpec | None, str]:
    """Return the spec of a channel and its origin; None when there is no such channel. Raises `ConfigError`."""
    if module is not None:
        path, _, attribute = module.partition(":")
        return _checked(part_of(own_module(path), attribute or SPEC), module), module
    if name in built_in():
        return built_in()[name], ""
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        return _of_package(entry), f"package {entry.dist.name if entry.dist else entry.value}"
    return None, ""


def _of_package(entry: EntryPoint) -> ChannelSpec:
    module = own_module(entry.module)
    return _checked(part_of(module, entry.attr or SPEC), entry.value)


def _checked(spec: object, where: str) -> ChannelSpec:
    """Return the object as a spec that this version understands. Raises `ConfigError`."""
    if not isinstance(spec, ChannelSpec):
        cure = f"Give it {SPEC} = ChannelSpec(…), as in gateway.ports"
        raise ConfigError(f"{where[:100]} has no {SPEC} that is a ChannelSpec", cure=cure)
    if spec.api != CHANNEL_API:
        cure = "Install a version of it that fits, or update Dragoman"
        raise ConfigError(
            f"{where[:100]} is written for channel interface {spec.api!r}; this is {CHANNEL_API}", cure=cure
        )
    wrong = [
        name for name in ("load", "secrets_of", "check", "warnings", "describe") if not callable(getattr(spec, name))
    ]
    if spec.account is not None and spec.settings is None:
        wrong.append("settings")
    wrong += [name for name in ("person", "chat") if not isinstance(getattr(spec, name), IdForm)]
    if not _are_patterns(spec.secret_patterns):
        wrong.append("secret_patterns")
    if wrong:
        raise ConfigError(f"{where[:100]}: {wrong[0]} of its {SPEC} is not valid", cure="Correct its code")
    return spec


def _are_patterns(patterns: object) -> bool:
    """Return whether these are regular expressions: the redactor compiles them, and must not fail at the start."""
    if not isinstance(patterns, tuple):
        return False
    try:
        for one in cast("tuple[object, ...]", patterns):
            re.compile(cast("str", one))
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True


def _settings(spec: ChannelSpec, table: object, path: Path, http: HttpSettings | None, reader: TableReader) -> Any:
    """Return the settings; None when there was a problem."""
    if spec.account is not None:
        return _with_accounts(spec, table, path, http, reader)
    if spec.settings is None:
        before = len(reader.problems)
        read = dict(reader.table(table, path))
        return read if len(reader.problems) == before else None
    read = reader.model(spec.settings, table, path)
    if read is None or not _accepted(spec, read, path, http, reader):
        return None
    return read


def _with_accounts(
    spec: ChannelSpec, table: object, path: Path, http: HttpSettings | None, reader: TableReader
) -> BaseModel | None:
    read: dict[str, BaseModel] = {}
    tables = account_tables(table, path, reader, needs=spec.needs)
    before = len(reader.problems)
    for name, (at, keys) in tables.items():
        account = reader.model(cast("type[BaseModel]", spec.account), keys, at)
        if account is not None and _accepted(spec, account, at, http, reader):
            read[name] = account
    if not tables or len(read) < len(tables) or len(reader.problems) > before:
        return None
    try:
        return cast("type[BaseModel]", spec.settings)(accounts=read)
    except ValidationError as error:
        reader.explain(error, path)
        return None


def _accepted(
    spec: ChannelSpec, account: BaseModel, path: Path, http: HttpSettings | None, reader: TableReader
) -> bool:
    """Let the channel check an account, and hide its further secrets. Its code may be foreign."""
    before = len(reader.problems)
    try:
        reader.secrets.extend(spec.secrets_of(account))
        for wrong in spec.check(account, None if http is None else http.public_url or ""):
            reader.wrong((*path, wrong.key) if wrong.key else path, wrong.what, wrong.cure)
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything; it becomes a problem of its table
        reader.wrong(path, f"{spec.name} cannot check it ({type(error).__name__})", "Correct the channel's code")
    return len(reader.problems) == before


def _is_channel_name(name: str, reader: TableReader) -> bool:
    fits = name.isascii() and name.isidentifier() and name == name.lower() and len(name) <= 32
    if not fits:
        reader.wrong(("channels", name), f"{name!r} cannot be a channel's name", "Use lower case letters, digits and _")
    return fits
