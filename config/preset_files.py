"""Reader of presets: a TOML file each, those of Dragoman in `config/presets` and the owner's own in a folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictInt

from config.agents import NAME, one_line
from config.basics import SettingsTable
from config.reading import TableReader, suggest
from config.rule_checks import rule_warnings
from config.rules import read_rules, rules_of
from config.table_lines import table_lines
from config.toml_file import parse_file
from config.values import Flaw
from gateway.domain.presets import Ceiling, Preset, PresetMode, Presets
from gateway.domain.rules import Layer
from gateway.domain.tool_groups import NEWEST
from gateway.domain.tools import Risk, SandboxPolicy, ToolSpec
from gateway.errors import ConfigError

SHIPPED = Path(__file__).with_name("presets")
FILES_AT_MOST = 50
_GUIDE = "Write what config/presets/plan.toml shows."


def _pattern(text: str) -> str:
    if not text.strip() or text.startswith("/") or ".." in text.split("/"):
        raise Flaw(f"{text!r} is not a pattern of paths in the workspace", 'Write, for instance, "plans/*.md"')
    return text


class PresetSettings(SettingsTable):
    """One file of a preset, without its `[[rules]]`."""

    about: Annotated[str, AfterValidator(one_line)] = Field(description="One line that says what it is for.")
    mode: PresetMode = Field(
        default=PresetMode.ALL, description='"primary" (sessions of people), "subagent" (sub-sessions) or "all".'
    )
    risks: tuple[Risk, ...] | None = Field(
        default=None, description="Permitted risks; nothing lifts this limit. Default: all."
    )
    writes: tuple[Annotated[str, AfterValidator(_pattern)], ...] = Field(
        default=(), description='Paths that may be written although "write" is not among the risks.'
    )
    sandbox: Literal["basic", "full"] | None = Field(
        default=None, description="Least containment of programs. Default: that of the configuration."
    )
    generation: StrictInt = Field(default=NEWEST, ge=1, le=NEWEST, description="Highest generation of tools.")
    prompt: Annotated[str, Field(max_length=4_000)] = Field(default="", description="Part of the system prompt.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNames:
    """Names that rules of a preset may use."""

    tools: Collection[str]
    sources: Collection[str]


def read_presets(folder: Path | None, known: RuleNames, reader: TableReader) -> Mapping[str, Preset]:
    """Return Dragoman's presets and those of the owner's folder, by name. The reader collects problems of its files."""
    found: dict[str, Preset] = {}
    for file in (*sorted(SHIPPED.glob("*.toml")), *_files(folder, reader)):
        name = file.stem
        if not re.fullmatch(NAME, name):
            cure = "Name the file with 1 to 32 lower-case letters, digits, - and _"
            reader.wrong(("sessions", "preset_folder"), f"{file.name} cannot be a preset's name", cure)
        elif name in found:
            reader.wrong(("sessions", "preset_folder"), f"there is a preset {name!r} already", f"Rename {file}")
        elif (preset := _read(file, known, reader)) is not None:
            found[name] = preset
    return found


def _files(folder: Path | None, reader: TableReader) -> Iterator[Path]:
    if folder is None:
        return
    if not folder.is_dir():
        reader.wrong(("sessions", "preset_folder"), f"there is no folder {folder}", "Create it, or correct the path")
        return
    files = sorted(folder.glob("*.toml"))
    if len(files) > FILES_AT_MOST:
        cure = f"Keep at most {FILES_AT_MOST}"
        reader.wrong(("sessions", "preset_folder"), f"{folder} has {len(files)} presets", cure)
    yield from files[:FILES_AT_MOST]


def _read(file: Path, known: RuleNames, reader: TableReader) -> Preset | None:
    try:
        raw, text = parse_file(file, _GUIDE)
    except ConfigError as error:
        reader.wrong(("sessions", "preset_folder"), error.message.rstrip("."), error.cure.rstrip("."))
        return None
    of_file = TableReader(
        file=str(file), variables={}, environ={}, lines={"rules": table_lines(text, "rules") if "rules" in raw else ()}
    )
    preset = _preset(file.stem, raw, known, of_file)
    reader.problems.extend(of_file.problems)
    return None if of_file.problems else preset


def _preset(name: str, raw: Mapping[str, Any], known: RuleNames, reader: TableReader) -> Preset | None:
    rules = read_rules(raw.get("rules", []), known.tools, known.sources, reader)
    read = reader.model(PresetSettings, {key: value for key, value in raw.items() if key != "rules"}, ())
    if read is None:
        return None
    if read.writes and (read.risks is None or Risk.WRITE in read.risks):
        reader.wrong(("writes",), "it has no effect where every write is permitted", 'Give `risks` without "write"')
    ceilings = () if read.risks is None else (Ceiling(preset=name, risks=frozenset(read.risks), writes=read.writes),)
    return Preset(
        name=name,
        about=read.about,
        mode=read.mode,
        rules=tuple(replace(rule, layer=Layer.PRESET, where=f"preset {name}, {rule.where}") for rule in rules),
        ceilings=ceilings,
        sandbox=None if read.sandbox is None else SandboxPolicy(read.sandbox),
        generation=read.generation,
        prompt=read.prompt.strip(),
    )


def check_defaults(presets: Presets, reader: TableReader) -> None:
    """Check that each default preset of `[sessions]` is there, and may be one of people's sessions."""
    allowed = [one.name for one in presets.for_people()]
    for kind, name in presets.defaults.items():
        if name not in allowed:
            why = "is for sub-sessions only" if name in presets.by_name else "is not there"
            reader.wrong(("sessions", "preset", kind), f"the preset {name!r} {why}", suggest(name, allowed))


def preset_warnings(presets: Presets, specs: Mapping[str, ToolSpec], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each rule of a preset that is likely a mistake. `sources`: source of each tool."""
    for preset in presets.by_name.values():
        yield from rule_warnings(preset.rules, specs, rules_of(preset.rules, specs, sources))
