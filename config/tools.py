"""Reader of `[tools]`: policies from the owner's settings over each tool's own spec."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from pydantic import create_model

from config.plugins import own_tool_spec
from config.reading import Path, TableReader, suggest
from config.settings import ToolSettings
from config.values import Flaw, spoken
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import ApprovalMode, Availability, Risk, ToolPolicy, ToolSpec
from gateway.errors import ConfigError

TIMEOUTS = "timeouts"
"""The only key of `[tools]` that is not a tool."""
_LONGEST = timedelta(days=1)
_WARNED = frozenset({Risk.EXECUTE, Risk.NETWORK})
"""Risks of tools for which approval "allow" outside main gets a warning."""


def read_own_tools(
    raw: object, specs: Mapping[str, ToolSpec], reader: TableReader
) -> Mapping[str, tuple[str, ToolSpec]]:
    """Return import path and spec of the owner's own tools by name, from the tables with a `module`."""
    found: dict[str, tuple[str, ToolSpec]] = {}
    tables = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    for name, table in tables.items():
        module = cast("dict[str, object]", table).get("module") if isinstance(table, dict) else None
        if not isinstance(module, str):
            continue
        path = ("tools", name, "module")
        try:
            spec = own_tool_spec(module)
        except ConfigError as error:
            reader.wrong(path, error.message, error.cure)
            continue
        if name in specs or spec.name != name:
            cure = f"Call the table [tools.{spec.name}]" if name not in specs else "Give your tool another name"
            reader.wrong(path, f"{name} is not free for the tool {spec.name!r} of {module}", cure)
        else:
            found[name] = (module, spec)
    return found


def read_tools(
    raw: object, specs: Mapping[str, ToolSpec], reader: TableReader
) -> tuple[Mapping[str, ToolPolicy], list[str]]:
    """Return a policy for every tool, and warnings. The reader collects unknown tools, actions, keys and values."""
    table = reader.table(raw, ("tools",))
    timeouts = _read_timeouts(table.get(TIMEOUTS, {}), specs, reader)
    read: dict[str, ToolSettings] = {}
    for name, value in table.items():
        path = ("tools", name)
        if name == TIMEOUTS:
            continue
        if name not in specs and reader.is_wrong(path):
            continue  # an own tool whose import failed
        if name not in specs:
            reader.wrong(path, f"there is no tool {name!r}", suggest(name, specs))
            continue
        settings = reader.model(table_of(specs[name]), value, path)
        if settings is None:
            continue
        if settings.timeout is not None and timeouts.get(name, settings.timeout) != settings.timeout:
            reader.wrong((*path, "timeout"), "tools.timeouts says something else", "Remove one of the two")
        _check_fits(settings, specs[name], path, reader)
        read[name] = settings
    policies = {name: _policy(spec, read.get(name) or ToolSettings(), timeouts) for name, spec in specs.items()}
    return policies, [line for name in specs for line in _warnings(specs[name], policies[name])]


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


def _check_fits(settings: ToolSettings, spec: ToolSpec, path: Path, reader: TableReader) -> None:
    if settings.timeout is not None:
        _check_timeout(settings.timeout, spec, (*path, "timeout"), reader)
    if settings.sandbox is not None and spec.sandbox is None:
        reader.wrong((*path, "sandbox"), f"{spec.name} starts no process, so nothing can be contained", "Remove it")


def _check_timeout(timeout: timedelta, spec: ToolSpec, path: Path, reader: TableReader) -> None:
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
        ceilings=frozenset({action for action, set_ in actions.items() if set_} | ({spec.name} if timeout else set())),
        settings=_own(spec, settings),
    )


def _warnings(spec: ToolSpec, policy: ToolPolicy) -> list[str]:
    if spec.risk not in _WARNED or policy.availability not in {Availability.ALWAYS, Availability.NON_MAIN}:
        return []
    allowed = [
        kind.value
        for kind in (SessionKind.DM, SessionKind.NON_MAIN)
        if policy.approval.get(kind.value) is ApprovalMode.ALLOW
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
    return ", ".join(parts)
