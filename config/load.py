"""Loader of the configuration: file, then environment, then defaults. One error lists every problem with its cure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import SecretStr

from config.agents import check_presets, read_agents
from config.approvers import Named, check_approvers
from config.budgets import check_budgets, read_budgets
from config.channels import ConfiguredChannel, named_channels, read_channels
from config.cluster import ClusterSettings
from config.hooks import hook_warnings, read_hooks
from config.key_index import variables_for
from config.model import ModelSettings
from config.own_folder import FOLDER_SOURCE, OwnFolder
from config.paths import CONFIG_VARIABLE, REDIS_URLS, STATE_VARIABLE, find_config, find_state, misplaced, users_config
from config.people import check_chats, check_people, read_owners
from config.preset_files import RuleNames, check_defaults, preset_warnings, read_presets
from config.reading import TableReader, as_error, secrets_in, unknown
from config.retention import AuditSettings
from config.rule_checks import rule_warnings
from config.rules import read_rules, rules_of
from config.settings import (
    ChatsSettings,
    HttpSettings,
    LimitsSettings,
    LogSettings,
    PeopleSettings,
    SandboxSettings,
    SessionsSettings,
    Settings,
    StoreSettings,
    WebSettings,
)
from config.table_lines import table_lines
from config.text_files import Texts
from config.toml_file import parse_file
from config.tools import BUILT_IN, FOLDER, OwnTool, read_folder, read_own_tools, read_tools
from config.values import LEVELS_AT_MOST, EnvText
from config.voice import VoiceSettings
from gateway.domain.budgets import BudgetLimits
from gateway.domain.children import Agent
from gateway.domain.hooks import HookConfig
from gateway.domain.ids import PAGE, Principal, channel_of
from gateway.domain.presets import Presets
from gateway.domain.tools import ToolPolicy, ToolSpec
from gateway.domain.turns import TurnLimits
from gateway.errors import ConfigError

PREFIX = "DRAGOMAN_"
SECTIONS: Final = (
    "owners", "store", "cluster", "http", "model", "limits", "budgets", "sandbox", "agents", "channels", "people",
    "chats", "sessions", "audit", "tools", "rules", "hooks", "log", "voice",
)  # fmt: skip
NUMBERED: Final = ("rules", "hooks")
"""Arrays of tables whose problems name the line of their table."""
_OTHERS_MAY_WRITE, _OTHERS_MAY_READ, _OTHERS_MAY_ENTER = 0o002, 0o004, 0o001
_CONTAINER_SECRETS = "/run/secrets/"
"""Folder of container secrets. Engines make them world-readable inside the container, which has no other users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A valid configuration."""

    settings: Settings
    instructions: str
    """Text appended to the system prompt, from the files of `model.instructions`; usually empty."""
    limits: TurnLimits
    budgets: BudgetLimits
    messages_per_minute: int
    """Messages that are read of one person who is no owner; 0 is no limit."""
    sandbox: SandboxSettings
    channels: Mapping[str, ConfiguredChannel]
    """Configured channels by name, without the web page."""
    agents: Mapping[str, Agent]
    """Configured agents by name."""
    hooks: tuple[HookConfig, ...]
    """Configured hooks, in their order."""
    presets: Presets
    tools: Mapping[str, ToolPolicy]
    """Policies by tool name, for every tool of `specs` and every own tool."""
    own_tools: Mapping[str, OwnTool]
    """Tools that are not part of Dragoman, by name; all others are modules of `agent_tools`."""
    folder: OwnFolder | None
    """The owner's folder of tools."""
    state: Path
    """The state folder, absolute. It need not exist yet."""
    shared: Path | None
    """Folder with the workspaces of all nodes; None: each node has its own in its state folder."""
    file: Path | None
    """The configuration file; None when there is none."""
    looked_at: Path | None
    """The default path where no file was found; None when there is a file."""
    variables: tuple[str, ...]
    """Environment variables that set a key, sorted."""
    secrets: tuple[SecretStr, ...]
    """All secrets of the settings, for the redactor."""
    warnings: tuple[str, ...]
    """Warnings about settings that are dangerous or have no effect, a sentence each."""


def load(
    path: Path | str | None, state: Path | str | None, environ: Mapping[str, str], specs: Mapping[str, ToolSpec]
) -> Loaded:
    """Find, read and validate the configuration for the tools in `specs`. Reads files; writes nothing.

    Raises one `ConfigError` that lists every problem: file or variable, key, reason, and cure. Checks across the
    values of a table are skipped when a single value is invalid.
    """
    folder = find_state(state, environ)
    file, raw, overrides, reader = read_tables(path, environ)
    base = file.absolute().parent if file else None
    folder_of_tools = read_folder(raw.get("tools", {}), base, folder, reader)
    own, folder_of_tools = read_own_tools(raw.get("tools", {}), specs, folder_of_tools, reader)
    every = {**specs, **{name: tool.spec for name, tool in own.items()}}
    sources = {name: tool.source for name, tool in own.items()}
    model = reader.model(ModelSettings, raw.get("model", {}), ("model",))
    limits = reader.model(LimitsSettings, raw.get("limits", {}), ("limits",))
    budgets = read_budgets(raw.get("budgets", {}), model, reader)
    sandbox = reader.model(SandboxSettings, raw.get("sandbox", {}), ("sandbox",))
    texts = Texts(base)
    instructions = texts.read(model.instructions if model else (), ("model", "instructions"), reader)
    agents = read_agents(raw.get("agents", {}), model.names if model else None, every, texts, reader)
    hooks = read_hooks(raw.get("hooks", []), every, folder, reader)
    looked_at = users_config(environ) if file is None else None
    settings, channels, tools, warnings, folder_of_tools = _read(
        raw, folder, model, every, sources, folder_of_tools, reader
    )
    if settings is not None:
        _check_shared(settings, hooks, folder_of_tools, reader)
    presets = _presets(settings.sessions, base, every, sources, reader) if settings else None
    if presets is not None:
        check_presets(agents, presets, reader)
    if settings is None or presets is None or channels is None or limits is None or sandbox is None or reader.problems:
        raise as_error(reader.problems)
    return Loaded(
        settings=settings,
        instructions=instructions,
        limits=limits.of_a_turn(),
        budgets=budgets,
        messages_per_minute=limits.messages_per_minute,
        sandbox=sandbox,
        channels=channels,
        agents=agents,
        hooks=hooks,
        presets=presets,
        tools=tools,
        own_tools=own,
        folder=folder_of_tools,
        state=folder,
        shared=_shared(settings),
        file=file,
        looked_at=looked_at,
        variables=tuple(sorted(overrides.values())),
        secrets=(*reader.secrets, *secrets_in(settings.store.url)),
        warnings=(
            *filter(None, [settings.store.terms.warning]),
            *_unread_files(looked_at),
            *_unsafe_files(file, reader.secret_files),
            *_lookalikes(environ, reader.named),
            *preset_warnings(presets, every, {name: sources.get(name, BUILT_IN) for name in every}),
            *hook_warnings(hooks),
            *warnings,
        ),
    )


def read_tables(
    path: Path | str | None, environ: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any], Mapping[tuple[str, ...], str], TableReader]:
    """Return the file, its tables with the environment's overrides, the overridden keys, and the reader.

    The tables are not validated yet. Raises `ConfigError` when the file cannot be read at all.
    """
    file = find_config(path, environ)
    raw, text = ({}, "") if file is None else parse_file(file)
    overrides = _overrides(raw, environ)
    reader = TableReader(
        file=str(file or "no configuration file"),
        variables=overrides,
        environ=environ,
        lines={name: table_lines(text, name) for name in NUMBERED},
    )
    _lay_over(raw, overrides, environ, reader)
    return file, raw, overrides, reader


def _overrides(raw: Mapping[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return the key path of each `DRAGOMAN_<SECTION>__<KEY>`. Keys match regardless of case. Raises `ConfigError`."""
    found: dict[tuple[str, ...], str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or "__" not in name:
            continue
        here: Any = raw
        path: list[str] = []
        for part in name.removeprefix(PREFIX).lower().split("__"):
            keys = list(cast("dict[str, Any]", here)) if isinstance(here, dict) else []
            key = next((one for one in keys if one.lower() == part), part)
            here = cast("dict[str, Any]", here)[key] if key in keys else None
            path.append(key)
        other = found.setdefault(tuple(path), name)
        if other != name:
            raise ConfigError(f"${other} and ${name} set the same key.", cure="Unset one of them.")
    return found


def _lay_over(
    raw: dict[str, Any], overrides: Mapping[tuple[str, ...], str], environ: Mapping[str, str], reader: TableReader
) -> None:
    for path, name in overrides.items():
        if len(path) > LEVELS_AT_MOST:
            reader.wrong(path[:2], f"{name[:60]}… names more than {LEVELS_AT_MOST} tables in one another", "Unset it")
            continue
        if path[0] not in SECTIONS:
            reader.wrong(path, f"unknown table {path[0]!r}", _variable_cure(path))
            continue
        here = raw
        for part in path[:-1]:
            below = here.setdefault(part, {})
            if not isinstance(below, dict):
                reader.wrong(path, f"{part} is a single value", f"Unset {name}, or make {part} a table")
                break
            here = cast("dict[str, Any]", below)
        else:
            here[path[-1]] = EnvText(environ[name])


def _variable_cure(path: Sequence[str]) -> str:
    meant = variables_for("_".join(path))
    return f"Set ${PREFIX}{meant[0]} in its place" if meant else unknown(path[0], {}, SECTIONS)


def _presets(
    sessions: SessionsSettings,
    base: Path | None,
    specs: Mapping[str, ToolSpec],
    sources: Mapping[str, str],
    reader: TableReader,
) -> Presets:
    folder = None if sessions.preset_folder is None else (base or Path()) / Path(sessions.preset_folder).expanduser()
    known = RuleNames(tools=specs, sources={BUILT_IN, *sources.values()} - {""})
    presets = Presets(
        by_name=read_presets(folder, known, reader),
        defaults={kind.value: name for kind, name in sessions.preset.items()},
        generations={kind.value: generation for kind, generation in sessions.generation.items()},
    )
    check_defaults(presets, reader)
    return presets


def _read(
    raw: Mapping[str, Any],
    state: Path,
    model: ModelSettings | None,
    specs: Mapping[str, ToolSpec],
    sources: Mapping[str, str],
    own: OwnFolder | None,
    reader: TableReader,
) -> tuple[
    Settings | None, Mapping[str, ConfiguredChannel] | None, Mapping[str, ToolPolicy], list[str], OwnFolder | None
]:
    for key in raw:
        if key not in SECTIONS:
            what = "unknown table" if _is_table(raw[key]) else "unknown key, in no table"
            reader.wrong((key,), what, unknown(key, raw[key], SECTIONS))
    http = reader.model(HttpSettings, raw.get("http", {}), ("http",))
    tables = reader.table(raw.get("channels", {}), ("channels",))
    web = reader.model(WebSettings, tables.get(PAGE, {}), ("channels", PAGE))
    channels = read_channels(tables, http, reader)
    known = named_channels(tables)
    owners = read_owners(raw.get("owners", {}), known, reader)
    store = reader.model(StoreSettings, raw.get("store", {}), ("store",))
    cluster = reader.model(ClusterSettings, raw.get("cluster", {}), ("cluster",))
    people = reader.model(PeopleSettings, raw.get("people", {}), ("people",))
    chats = reader.model(ChatsSettings, raw.get("chats", {}), ("chats",))
    sessions = reader.model(SessionsSettings, raw.get("sessions", {}), ("sessions",))
    audit = reader.model(AuditSettings, raw.get("audit", {}), ("audit",))
    log = reader.model(LogSettings, raw.get("log", {}), ("log",))
    voice = reader.model(VoiceSettings, raw.get("voice", {}), ("voice",))
    tools, warnings, own = read_tools(raw.get("tools", {}), specs, sources, reader, own)
    there = {BUILT_IN, *sources.values(), *([] if own is None else [FOLDER_SOURCE])} - {""}
    rules = read_rules(raw.get("rules", []), specs, there, reader)
    own = None if own is None else replace(own, rules=tuple(rules))
    source_of = {name: sources.get(name, BUILT_IN) for name in specs}
    of_tool = rules_of(rules, specs, source_of)
    tools = {name: replace(policy, rules=of_tool[name], source=source_of[name]) for name, policy in tools.items()}
    warnings += rule_warnings(rules, specs, of_tool)
    warnings += check_people(people.allow, known, reader) if people else []
    check_chats(chats.allow, chats.approvers, known, reader) if chats else None
    if people and chats:
        named = Named(owners=owners, allowed=people.allow, channels=known)
        check_budgets(raw.get("budgets", {}), named, reader)
        warnings += check_approvers(raw.get("tools", {}), chats.approvers, tools, named, reader)
    if not (web and store and cluster and http and model and people and chats and sessions and audit and log and voice):
        return None, channels, tools, warnings, own
    if not store.url:
        store = StoreSettings(url=f"sqlite://{state / 'dragoman.db'}")
    settings = Settings(
        owners=owners, store=store, cluster=cluster, http=http, model=model, web=web, people=people, chats=chats,
        sessions=sessions, audit=audit, log=log, voice=voice,
    )  # fmt: skip
    of_channels = [line for one in (channels or {}).values() for line in one.warnings(_named(settings))]
    warnings = [*_without_effect(settings, channels or {}), *settings.voice.warnings(), *of_channels, *warnings]
    return settings, channels, tools, warnings, own


def _shared(settings: Settings) -> Path | None:
    is_shared = urlsplit(settings.store.url).scheme in REDIS_URLS
    return Path(settings.cluster.workspaces) if is_shared and settings.cluster.workspaces else None


def _check_shared(
    settings: Settings, hooks: Sequence[HookConfig], folder: OwnFolder | None, reader: TableReader
) -> None:
    """Search for programs in the place of workspaces that all nodes share: agents write there."""
    place, moved = _shared(settings), "Move it elsewhere"
    if place is None:
        return
    shared = place.resolve()
    if folder is not None and folder.path.resolve().is_relative_to(shared):
        reader.wrong(("tools", FOLDER), "it is beside the workspaces, where agents write", moved)
    for n, hook in enumerate(hooks):
        if hook.command and Path(hook.command[0]).resolve().is_relative_to(shared):
            reader.wrong(("hooks", n, "command"), "the program is beside the workspaces, where agents write", moved)


def _is_table(value: object) -> bool:
    first = next(iter(cast("list[object]", value)), None) if isinstance(value, list) else value
    return isinstance(first, dict)


def _without_effect(settings: Settings, there: Collection[str]) -> list[str]:
    lines: list[str] = []
    model = settings.model
    if model.name == "operator" and (model.base_url or model.api_key):
        lines.append("model: base_url and api_key have no effect with the operator; set model.name.")
    lines += [f"model.prices: no model is called {name}, so its prices have no effect."
              for name in model.prices if name not in model.names]  # fmt: skip
    if settings.cluster.workspaces and _shared(settings) is None:
        lines.append("cluster.workspaces has no effect: only nodes on one Redis share workspaces.")
    named = _named(settings)
    missing = sorted({channel_of(Principal(who)) for who in named} - set(there))
    lines += [f"{channel}: the channel is not configured, so nobody can write there yet." for channel in missing]
    if not settings.web.enabled and not there:
        lines.append("channels: the web page is off and no other channel is configured, so nobody can write.")
    for provider in (model, *model.fallback):
        if provider.sends_key_in_clear():
            lines.append(f"model: the api_key goes to {provider.base_url} without TLS.")
        if provider.base_url and provider.name.startswith("openai:") and not urlsplit(provider.base_url).path:
            url = provider.base_url
            lines.append(f"model: base_url {url} has no path; most servers answer at {url}/v1.")
    return lines


def _unread_files(place: Path | None) -> list[str]:
    """Return warnings about files that look like a configuration but are not read, since none is at `place`."""
    return [
        f"{found} is not read; name it with --config {found}, or move it to {place}"
        for found in (misplaced(place) if place else ())
    ]


def _named(settings: Settings) -> list[str]:
    """Return all people and chats with access."""
    owners = [who for listed in settings.owners.values() for who in listed]
    return [*owners, *settings.people.allow, *settings.chats.allow]


def _unsafe_files(file: Path | None, secrets: Sequence[str]) -> list[str]:
    """Return warnings about a configuration that other users can write, and secret files that they can read."""
    lines: list[str] = []
    if file is not None and file.stat().st_mode & _OTHERS_MAY_WRITE:
        lines.append(f"{file} can be changed by every user of this machine; run: chmod o-w {file}")
    lines += [
        f"{name} holds a secret that every user of this machine can read; run: chmod o-r {name}"
        for name in dict.fromkeys(secrets)
        if not name.startswith(_CONTAINER_SECRETS) and _others_may_read(Path(name).resolve())
    ]
    return lines


def _others_may_read(place: Path) -> bool:
    with suppress(OSError):  # removed after it was read
        may_enter = all(folder.stat().st_mode & _OTHERS_MAY_ENTER for folder in place.parents)
        return may_enter and bool(place.stat().st_mode & _OTHERS_MAY_READ)
    return False


def _lookalikes(environ: Mapping[str, str], named: Collection[str]) -> list[str]:
    """Return warnings about variables that set nothing but look like overrides. Skips names of secrets."""
    lines: list[str] = []
    for name in sorted(environ):
        rest = name.removeprefix(PREFIX)
        if rest == name or "__" in name or name in named or name in {CONFIG_VARIABLE, STATE_VARIABLE}:
            continue
        section, _, key = rest.partition("_")
        meant = variables_for(rest)
        if not meant and section.lower() in SECTIONS:
            meant = [f"{section}__{key or ('NAME' if section.lower() == 'owners' else 'KEY')}"]
        if meant:
            lines.append(f"${name} sets nothing; {' or '.join(f'${PREFIX}{one}' for one in meant)} would.")
    return lines
