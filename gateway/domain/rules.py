"""Rules of the owner about calls. Read from `[[rules]]`, applied by `gateway.policy.rules`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Decision of a rule. Its configuration key is `decision`."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. The last one that matches a subject of a call decides about it."""

    tool: str
    """Name of a tool, `SOURCE:*`, or `*` for every tool."""
    pattern: str
    """Text of a subject: `*` is any characters, `?` is one. `*` alone also matches a call without subjects."""
    decision: Verdict
    kinds: frozenset[str]
    """Kinds of root session in which it holds."""
    locked: bool = False
    """True for a deny that no later rule and no approval can lift."""
    where: str = ""
    """Place in the configuration, for people: `rules[2]`."""

    def is_for(self, tool: str, source: str) -> bool:
        """Return whether the rule is about this tool of this source."""
        return self.tool in ("*", tool, f"{source}:*")
