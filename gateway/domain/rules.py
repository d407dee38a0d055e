"""Rules about calls. Read from `[[rules]]`, presets and grants, applied by `gateway.policy.rules`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Decision of a rule. Its configuration key is `decision`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Layer(StrEnum):
    """Origin of a rule. A later layer decides before an earlier one, except that a grant never lifts a deny."""

    DEFAULT = "default"
    PRESET = "preset"
    CONFIGURATION = "configuration"
    SESSION = "session"
    GRANT = "grant"


GROUP = "group:"
"""Begin of a rule's tool that names a group of tools: `group:files`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. The last one that matches a subject of a call decides about it."""

    tool: str
    """Name of a tool, `group:NAME`, `SOURCE:*`, or `*` for every tool."""
    pattern: str
    """Text of a subject: `*` is any characters, `?` is one. `*` alone also matches a call without subjects."""
    decision: Verdict
    kinds: frozenset[str]
    """Kinds of root session in which it holds."""
    locked: bool = False
    """True for a deny that no later rule and no approval can lift."""
    where: str = ""
    """Place for people: `config.toml:41 (rules[2])`, `preset plan`, `this session`."""
    layer: Layer = Layer.CONFIGURATION

    def is_for(self, tool: str, source: str, groups: Collection[str] = ()) -> bool:
        """Return whether the rule is about this tool of this source, which is in these groups."""
        if self.tool.startswith(GROUP):
            return self.tool.removeprefix(GROUP) in groups
        return self.tool in ("*", tool, f"{source}:*")
