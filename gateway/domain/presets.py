"""Presets: named sets of rules and limits for a session. Read from files, applied by `gateway.policy.layers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from gateway.domain.rules import Rule
from gateway.domain.tool_groups import NEWEST
from gateway.domain.tools import Risk, SandboxPolicy

PLAN = "plan"
"""Preset of a session that plans: it looks, and changes nothing but its plan."""
BUILD = "build"
"""Preset that adds nothing to the configuration. Sessions have it unless the configuration names another one."""


class PresetMode(StrEnum):
    """Sessions that may have a preset."""

    PRIMARY = "primary"
    """Sessions of people."""
    SUBAGENT = "subagent"
    """Sub-sessions."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Worst calls that a preset permits. No rule, grant or approval lifts it."""

    preset: str
    """Name of the preset, for people."""
    risks: frozenset[Risk]
    """Permitted risks of a call. A call on a secret file is never permitted."""
    writes: tuple[str, ...] = ()
    """Patterns of paths that may be written although the risk `write` is not permitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One preset, or several of them in force together."""

    name: str
    about: str = ""
    """Purpose, in one line."""
    mode: PresetMode = PresetMode.ALL
    rules: tuple[Rule, ...] = ()
    """Rules in the order of its file."""
    above: tuple[tuple[Rule, ...], ...] = ()
    """Rules of each preset above a sub-session: what one of them denies or asks about is denied or asked about here."""
    ceilings: tuple[Ceiling, ...] = ()
    """A call must be within each."""
    sandbox: SandboxPolicy | None = None
    """Least containment of programs; None: that of the configuration."""
    generation: int = NEWEST
    """Highest generation of tools."""
    prompt: str = ""
    """Part of the system prompt. It explains the limits to the model, and never replaces them."""

    @property
    def read_only(self) -> bool:
        """True when no call may change anything but the paths that the preset excepts."""
        return any(one.risks <= {Risk.NONE, Risk.READ} for one in self.ceilings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presets:
    """All presets, and what sessions have by default."""

    by_name: Mapping[str, Preset]
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of the preset by kind of session; a missing kind has `build`."""
    generations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Highest generation of tools by kind of session; a missing kind has every tool."""

    def for_people(self) -> list[Preset]:
        """Return the presets that a person may choose, by name."""
        return [one for _, one in sorted(self.by_name.items()) if one.mode is not PresetMode.SUBAGENT]

    def for_children(self) -> list[Preset]:
        """Return the presets that a sub-session may have, by name."""
        return [one for _, one in sorted(self.by_name.items()) if one.mode is not PresetMode.PRIMARY]


ONLY_BUILD = Presets(by_name=MappingProxyType({BUILD: Preset(name=BUILD)}))
"""Presets where none is configured."""
