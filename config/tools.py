"""Reader of `[tools]`: policies from the owner's settings over each tool's own spec."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import create_model

from config.own_files import OwnFile
from config.own_folder import FOLDER_SOURCE, OwnFolder, taken_names
from config.plugins import file_module, own_module, package_tools, part_of, spec_of
from config.reading import Path as KeyPath
from config.reading import TableReader, suggest
from config.settings import ToolSettings
from config.values import Flaw, spoken
from gateway.domain.approvers import ApproverRules
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import (
    ApprovalMode,
    Availability,
    NetworkPolicy,
    Risk,
    SandboxPolicy,
    ToolPolicy,
    ToolSpec,
)
from gateway.errors import ConfigError

TIMEOUTS, FOLDER, PACKAGES = "timeouts", "folder", "packages"
"""Keys of `[tools]` that are not tools."""
WORKSPACES = "workspaces"
"""Folder of the state folder that holds all workspaces."""
EVERY = ":*"
"""End of a table's name that is for every tool of a source."""
BUILT_IN = "builtin"
"""Source of Dragoman's own tools."""
_LONGEST = timedelta(days=1)
"""Longest timeout of a tool that names none."""
_WARNED = frozenset({Risk.EXECUTE, Risk.NETWORK})
"""Risks of tools for which approval "allow" outside main gets a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """Tool that is not part of Dragoman."""

    module: str
    """Name in `sys.modules`, or import path."""
    spec: ToolSpec
    source: str
    """`folder`, the name of a package, or empty for a module with a table of its own."""
    file: str = ""
    """Name of the file that declares it with `@tool`; empty for a module with a `SPEC`."""


def read_folder(raw: object, base: Path | None, state: Path, reader: TableReader) -> OwnFolder | None:
    """Return the owner's folder of tools, or None. `base`: folder of the configuration, for a relative path.

    No folder of a workspace: a model could write itself a tool there.
    """
    tables = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    if FOLDER not in tables:
        return None
    try:
        text = reader.value(str, tables[FOLDER], ("tools", FOLDER))
        path = (base or Path()) / Path(str(text)).expanduser()
        os.listdir(path)
    except Flaw as flaw:
        reader.flaw(("tools", FOLDER), flaw)
        return None
    except OSError as error:
        reader.wrong(("tools", FOLDER), f"it cannot be read: {error.strerror}", "Name a folder with *.py files")
        return None
    if path.resolve().is_relative_to((state / WORKSPACES).resolve()):
        reader.wrong(("tools", FOLDER), "it is in a workspace, where agents write", "Move it elsewhere")
        return None
    trusted = frozenset(name for name, table in tables.items() if _is_trusted(table))
    return OwnFolder(path=path.absolute(), trusted=trusted, trusts_all=f"{FOLDER_SOURCE}{EVERY}" in trusted)


def _is_trusted(table: object) -> bool:
    """Return whether a table says `trust = true`: as TOML, or in a variable."""
    return isinstance(table, dict) and str(cast("dict[str, object]", table).get("trust")).lower() == "true"


def read_own_tools(
    raw: object, specs: Mapping[str, ToolSpec], folder: OwnFolder | None, reader: TableReader
) -> tuple[Mapping[str, OwnTool], OwnFolder | None]:
    """Return the tools of the owner's folder, of packages and of single modules, by name; and the folder again.

    Imports packages and modules. Of the folder it imports only trusted modules with a `SPEC`; it notes what is wrong
    with one of those, which harms no other tool.
    """
    tables = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    found: dict[str, OwnTool] = {}
    if folder is not None:
        folder = _read_files(folder, specs, found)
    for key, name, modules in _sources(tables, reader):
        for module in modules:
            try:
                spec = spec_of(module, module.__name__)
            except ConfigError as error:
                reader.wrong(key, error.message, error.cure)
                continue
            if spec.name in specs or spec.name in found:
                reader.wrong(key, f"{module.__name__}: there is a tool {spec.name!r} already", "Rename or remove one")
            else:
                found[spec.name] = OwnTool(module=module.__name__, spec=spec, source=name)
    for name, table in tables.items():
        path = cast("dict[str, object]", table).get("module") if isinstance(table, dict) else None
        if isinstance(path, str):
            own = _single(name, path, {**specs, **{one: tool.spec for one, tool in found.items()}}, reader)
            found.update({name: own} if own is not None else {})
    return found, folder


def _read_files(folder: OwnFolder, specs: Mapping[str, ToolSpec], found: dict[str, OwnTool]) -> OwnFolder:
    """Add the folder's usable tools to `found`. Return the folder with the results."""
    troubles: dict[str, str] = {}
    for file in folder.files():
        if file.plain and not file.problem:
            _import_file(file, specs, found, troubles)
        elif not file.problem and not taken_names(file, {*specs, *found}):
            for one in file.tools:
                new = OwnTool(module="", spec=one.spec, source=FOLDER_SOURCE, file=file.path.name)
                found[one.spec.name] = new
    workers = frozenset(name for name, one in found.items() if one.file and one.spec.sandbox is not None)
    return replace(folder, troubles=troubles, workers=workers)


def _import_file(
    file: OwnFile, specs: Mapping[str, ToolSpec], found: dict[str, OwnTool], troubles: dict[str, str]
) -> None:
    """Import a trusted module with a `SPEC`. Add its tool to `found`, or its trouble to `troubles`."""
    try:
        module = file_module(file.path)
        spec = spec_of(module, file.path.name)
        part_of(module, "Args")
    except ConfigError as error:
        troubles[file.path.name] = f"{error.message}. {error.cure}"
        return
    if spec.name in specs or spec.name in found:
        troubles[file.path.name] = f"there is a tool {spec.name!r} already. Rename it"
    elif not all(hasattr(module, name) for name in ("Args", "run")) and not hasattr(module, "create"):
        troubles[file.path.name] = "it is not complete. Give it SPEC, Args, and run or create"
    else:
        found[spec.name] = OwnTool(module=module.__name__, spec=spec, source=FOLDER_SOURCE)


def _sources(tables: Mapping[str, object], reader: TableReader) -> Iterator[tuple[KeyPath, str, Sequence[ModuleType]]]:
    """Yield key, name and modules of each package."""
    for n, name in enumerate(_package_names(tables, reader)):
        try:
            yield ("tools", PACKAGES, n), name, package_tools(name)
        except ConfigError as error:
            _say(("tools", PACKAGES, n), error, reader)


def _package_names(tables: Mapping[str, object], reader: TableReader) -> Sequence[str]:
    if PACKAGES not in tables:
        return ()
    try:
        read = reader.value(tuple[str, ...], tables[PACKAGES], ("tools", PACKAGES))
    except Flaw as flaw:
        reader.flaw(("tools", PACKAGES), flaw)
        return ()
    names = [one for one in cast("list[object]", read) if isinstance(one, str)] if isinstance(read, list) else []
    if not isinstance(read, list) or len(names) < len(cast("list[object]", read)):
        reader.wrong(("tools", PACKAGES), "it is not a list of names", 'Write, for instance, ["acme"]')
    return names


def _say(path: KeyPath, error: Flaw | ConfigError, reader: TableReader) -> None:
    if isinstance(error, Flaw):
        reader.flaw(path, error)
    else:
        reader.wrong(path, error.message, error.cure)


def _single(name: str, module: str, specs: Mapping[str, ToolSpec], reader: TableReader) -> OwnTool | None:
    path = ("tools", name, "module")
    try:
        spec = spec_of(own_module(module), module)
    except ConfigError as error:
        reader.wrong(path, error.message, error.cure)
        return None
    if name in specs or spec.name != name:
        cure = f"Call the table [tools.{spec.name}]" if name not in specs else "Give your tool another name"
        reader.wrong(path, f"{name} is not free for the tool {spec.name!r} of {module}", cure)
        return None
    return OwnTool(module=module, spec=spec, source="")


def read_tools(
    raw: object,
    specs: Mapping[str, ToolSpec],
    sources: Mapping[str, str],
    reader: TableReader,
    folder: OwnFolder | None = None,
) -> tuple[Mapping[str, ToolPolicy], list[str], OwnFolder | None]:
    """Return a policy for every tool, warnings, and the folder with the settings of all its tools.

    The reader collects unknown tools, actions, keys and values. `sources`: source of each tool that is not built in.
    `[tools."SOURCE:*"]` is for those without the same key.
    """
    stems = frozenset[str]() if folder is None else folder.stems()
    table = reader.table(raw, ("tools",))
    timeouts = _read_timeouts(table.get(TIMEOUTS, {}), specs, reader)
    read: dict[str, ToolSettings] = {}
    every: dict[str, ToolSettings] = {}
    for name, value in table.items():
        path = ("tools", name)
        if name in (TIMEOUTS, FOLDER, PACKAGES):
            continue
        if name.endswith(EVERY):
            there = {FOLDER_SOURCE} if folder is not None else set[str]()
            _read_source(name, value, {*sources.values(), *there, BUILT_IN} - {""}, every, reader)
            continue
        if name not in specs and reader.is_wrong(path):
            continue  # an own tool whose import failed
        if name not in specs:
            _read_unknown(name, value, specs, stems, reader)
            continue
        settings = reader.model(table_of(specs[name]), value, path)
        if settings is None:
            continue
        if settings.timeout is not None and timeouts.get(name, settings.timeout) != settings.timeout:
            reader.wrong((*path, "timeout"), "tools.timeouts says something else", "Remove one of the two")
        worker = folder is not None and name in folder.workers
        _check_fits(settings, specs[name], path, reader, worker=worker)
        if settings.trust and name not in stems:
            reader.wrong((*path, "trust"), f"{name} is no file of the tools folder", "Remove it")
        read[name] = settings
    policies = {
        name: _policy(spec, _joined(read.get(name), every.get(sources.get(name, BUILT_IN))), timeouts)
        for name, spec in specs.items()
    }
    warnings = [line for name in specs for line in _warnings(specs[name], policies[name])]
    if folder is not None:
        folder = replace(folder, settings=every.get(FOLDER_SOURCE), own_settings=read, timeouts=timeouts)
    return policies, warnings, folder


def policy_of(spec: ToolSpec, folder: OwnFolder) -> ToolPolicy:
    """Return the policy of a tool of the folder, which may have come or changed after the start."""
    policy = _policy(spec, _joined(folder.own_settings.get(spec.name), folder.settings), folder.timeouts)
    rules = tuple(rule for rule in folder.rules if rule.is_for(spec.name, FOLDER_SOURCE, spec.groups))
    return replace(policy, rules=rules, source=FOLDER_SOURCE)


def _read_unknown(
    name: str, value: object, specs: Mapping[str, ToolSpec], stems: Collection[str], reader: TableReader
) -> None:
    """Read a table that is no tool's: it may be that of a file whose tools have other names, or cannot be used."""
    if name in stems:
        reader.model(ToolSettings, value, ("tools", name))
    else:
        reader.wrong(("tools", name), f"there is no tool {name!r}", suggest(name, specs))


def _read_source(
    name: str, value: object, sources: Collection[str], every: dict[str, ToolSettings], reader: TableReader
) -> None:
    """Read the table of a whole source."""
    source, path = name.removesuffix(EVERY), ("tools", name)
    if source not in sources:
        reader.wrong(path, f"there is no source of tools {source!r}", suggest(source, sources))
        return
    settings = reader.model(ToolSettings, value, path)
    if settings is not None and settings.trust and source != FOLDER_SOURCE:
        reader.wrong((*path, "trust"), f"{source} is no folder of files", "Remove it")
    if settings is not None:
        every[source] = settings


def _joined(own: ToolSettings | None, source: ToolSettings | None) -> ToolSettings:
    """Return a tool's settings: its own keys, and its source's where it has none."""
    if own is None or source is None:
        return own or source or ToolSettings()
    return own.model_copy(update={key: getattr(source, key) for key in source.model_fields_set - own.model_fields_set})


def table_of(spec: ToolSpec) -> type[ToolSettings]:
    """Return the model of `[tools.<name>]`: the common keys and the tool's own."""
    if spec.settings is None:
        return ToolSettings
    return create_model(f"{spec.name}Settings", __base__=(ToolSettings, spec.settings))


def _own(spec: ToolSpec, settings: ToolSettings) -> Any:
    """Return the tool's own settings from its table, None when it has none."""
    if spec.settings is None:
        return None
    return spec.settings(
        **{key: getattr(settings, key) for key in settings.model_fields_set & spec.settings.model_fields.keys()}
    )


def _read_timeouts(raw: object, specs: Mapping[str, ToolSpec], reader: TableReader) -> Mapping[str, timedelta]:
    known = {*specs, *(f"{name}.{action}" for name, spec in specs.items() for action in spec.actions)}
    timeouts: dict[str, timedelta] = {}
    for key, value in reader.table(raw, ("tools", TIMEOUTS)).items():
        path = ("tools", TIMEOUTS, key)
        if isinstance(value, dict):
            reader.wrong(path, "it is a table", f'Write the action with its tool in quotes: "{key}.<action>" = "60s"')
        elif key not in known:
            reader.wrong(path, f"there is no tool or action {key!r}", suggest(key, known))
        else:
            try:
                timeouts[key] = reader.value(timedelta, value, path)
            except Flaw as flaw:
                reader.flaw(path, flaw)
                continue
            _check_timeout(timeouts[key], specs[key.partition(".")[0]], path, reader)
    return timeouts


def _check_fits(
    settings: ToolSettings, spec: ToolSpec, path: KeyPath, reader: TableReader, *, worker: bool = False
) -> None:
    """Check a table against its tool. `worker`: the tool runs in a contained worker, never outside of a sandbox."""
    if settings.timeout is not None:
        _check_timeout(settings.timeout, spec, (*path, "timeout"), reader)
    if settings.sandbox is not None and spec.sandbox is None:
        reader.wrong((*path, "sandbox"), f"{spec.name} starts no process, so nothing can be contained", "Remove it")
    if settings.sandbox in (SandboxPolicy.OFF, SandboxPolicy.AUTO) and worker:
        cure = 'Write "basic" or "full", or trust = true to run it in the daemon'
        reader.wrong((*path, "sandbox"), f"{spec.name} comes from a file that is not trusted", cure)
    _check_network(settings, spec, path, reader)


def _check_network(settings: ToolSettings, spec: ToolSpec, path: KeyPath, reader: TableReader) -> None:
    network, sandbox = settings.network, settings.sandbox or spec.sandbox
    if network is None:
        return
    if spec.sandbox is None or spec.network is None:
        reader.wrong((*path, "network"), f"{spec.name} starts no program whose network could be chosen", "Remove it")
    elif sandbox is SandboxPolicy.FULL and network is NetworkPolicy.HOST:
        cure = 'Write network = "public" or "none", or sandbox = "basic"'
        reader.wrong((*path, "network"), 'the sandbox "full" never shares the host\'s network', cure)
    elif sandbox is SandboxPolicy.OFF and network in (NetworkPolicy.NONE, NetworkPolicy.PUBLIC):
        cure = 'Write sandbox = "basic" or "full", or leave the network out'
        reader.wrong((*path, "network"), "without a sandbox its programs use the host's network", cure)


def _check_timeout(timeout: timedelta, spec: ToolSpec, path: KeyPath, reader: TableReader) -> None:
    longest = _LONGEST if spec.max_timeout_s is None else timedelta(seconds=spec.max_timeout_s)
    if timeout > longest:
        reader.wrong(path, f"{spec.name} may run for {spoken(longest)} at most", f'Write "{spoken(longest)}" or less')


def _policy(spec: ToolSpec, settings: ToolSettings, timeouts: Mapping[str, timedelta]) -> ToolPolicy:
    timeout = settings.timeout or timeouts.get(spec.name)
    actions = {action: timeouts.get(f"{spec.name}.{action}") for action in spec.actions}
    configured: dict[str, ApprovalMode] = {kind.value: choice for kind, choice in settings.approval.items()}
    return ToolPolicy(
        availability=settings.permission or spec.availability,
        approval={**spec.approval, **configured},
        timeout_s=spec.timeout_s if timeout is None else timeout.total_seconds(),
        actions={a: spec.actions[a] if set_ is None else set_.total_seconds() for a, set_ in actions.items()},
        sandbox=settings.sandbox or spec.sandbox,
        network=settings.network or spec.network,
        ceilings=frozenset({action for action, set_ in actions.items() if set_} | ({spec.name} if timeout else set())),
        settings=_own(spec, settings),
        deciding=ApproverRules(
            approvers=settings.approvers,
            quorum=settings.quorum,
            requester_may_approve=settings.requester_may_approve,
            escalate_to=settings.escalate_to,
        ),
    )


def _warnings(spec: ToolSpec, policy: ToolPolicy) -> list[str]:
    hidden = policy.availability is Availability.NON_MAIN and spec.availability is not Availability.NON_MAIN
    if hidden:
        return [
            f'tools.{spec.name}: permission = "non-main" hides it from the owners\' own sessions. '
            'Write "always" to have it everywhere.',
            *_unasked(spec, policy),
        ]
    return _unasked(spec, policy)


def _unasked(spec: ToolSpec, policy: ToolPolicy) -> list[str]:
    if spec.risk not in _WARNED or policy.availability not in {Availability.ALWAYS, Availability.NON_MAIN}:
        return []
    allowed = [
        kind.value
        for kind in (SessionKind.DM, SessionKind.NON_MAIN)
        if policy.approval.get(kind.value) is ApprovalMode.ALLOW
        and spec.approval.get(kind.value) is not ApprovalMode.ALLOW  # the tool's own default is no oversight
    ]
    return [
        f"tools.{spec.name}: runs without asking anyone in sessions of kind {kind} (risk {spec.risk.value}). "
        f'Set approval = {{ {kind} = "ask" }} to be asked.'
        for kind in allowed
    ]


def describe(name: str, policy: ToolPolicy) -> str:
    """Return a tool's policy as one line."""
    parts: list[Any] = [policy.availability.value]
    parts += [f"{kind}: {choice.value}" for kind, choice in sorted(policy.approval.items())]
    parts.append(spoken(timedelta(seconds=policy.timeout_s)))
    parts += [f"{one} {spoken(timedelta(seconds=policy.timeout_of(name, one)))}" for one in sorted(policy.actions)]
    parts += [f"sandbox {policy.sandbox.value}"] if policy.sandbox else []
    parts += [f"network {policy.network.value}"] if policy.sandbox and policy.network else []
    return ", ".join([*parts, *_decided(policy.deciding)])


def _decided(rules: ApproverRules) -> list[str]:
    """Return the deciders about the calls of a tool, where it is not one owner."""
    if rules.approvers is None and rules.quorum == 1 and rules.requester_may_approve:
        return []
    who = "the owners" if rules.approvers is None else " and ".join(rules.approvers)
    many = f"{rules.quorum} of " if rules.quorum > 1 else ""
    return [f"decided by {many}{who}", *([] if rules.requester_may_approve else ["never by the requester"])]
