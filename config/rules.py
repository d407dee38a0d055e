"""Reader of `[[rules]]`: the owner's rules about calls, in their order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from config.reading import Path, TableReader, suggest
from gateway.domain.rules import GROUP, Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tool_groups import GROUPS
from gateway.domain.tools import ToolSpec

RULES_AT_MOST = 500
Kind = Literal["main", "dm", "non-main"]
_EVERYWHERE = frozenset(kind.value for kind in SessionKind)


class RuleSettings(BaseModel):
    """One `[[rules]]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description='A tool, "group:NAME", "SOURCE:*" for all tools of a source, or "*" for every tool.'
    )
    pattern: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description='Subject of a call (a command, a path, a host): "*" is any text, "?" one character.'
    )
    decision: Verdict = Field(description='"allow", "ask" or "deny". The last rule that matches decides.')
    kinds: tuple[Kind, ...] | None = Field(
        default=None,
        description='Kinds of session in which it holds: ["main", "dm", "non-main"]. Default for "allow": main.',
    )
    locked: StrictBool = Field(default=False, description='With "deny": no later rule lifts it.')


def read_rules(raw: object, tools: Collection[str], sources: Collection[str], reader: TableReader) -> Sequence[Rule]:
    """Return the rules in order. The reader collects wrong tools, keys and values.

    `sources`: names of all sources of tools.
    """
    if not isinstance(raw, list):
        reader.wrong(("rules",), "it is not a list of tables", "Write [[rules]], in double brackets, above each rule")
        return ()
    tables = cast("list[object]", raw)
    if len(tables) > RULES_AT_MOST:
        reader.wrong(("rules",), f"there are {len(tables)} rules", f"Write at most {RULES_AT_MOST}; patterns have `*`")
        return ()
    rules: list[Rule] = []
    for n, table in enumerate(tables):
        path: Path = ("rules", n)
        read = reader.model(RuleSettings, table, path)
        if read is not None and _is_right(read, tools, sources, path, reader):
            kinds = frozenset(read.kinds) if read.kinds is not None else _kinds_of(read.decision)
            rules.append(
                Rule(
                    tool=read.tool, pattern=read.pattern, decision=read.decision, kinds=kinds, locked=read.locked,
                    where=reader.place("rules", n),
                )
            )  # fmt: skip
    return rules


def _kinds_of(decision: Verdict) -> frozenset[str]:
    """Return the default place of a rule: an allow in main only, the others everywhere."""
    return frozenset({SessionKind.MAIN.value}) if decision is Verdict.ALLOW else _EVERYWHERE


def _is_right(
    read: RuleSettings, tools: Collection[str], sources: Collection[str], path: Path, reader: TableReader
) -> bool:
    before = len(reader.problems)
    known = {"*", *tools, *(f"{source}:*" for source in sources), *(f"{GROUP}{group}" for group in GROUPS)}
    if read.tool not in known:
        reader.wrong((*path, "tool"), f"there is no tool {read.tool!r}", suggest(read.tool, known))
    if not read.pattern.strip():
        reader.wrong((*path, "pattern"), "it is blank", 'Write "*" for any call')
    if read.kinds == ():
        reader.wrong((*path, "kinds"), "it is empty, so the rule never holds", "Remove the key, or name a kind")
    if read.locked and read.decision is not Verdict.DENY:
        reader.wrong((*path, "locked"), "only a deny can be locked", 'Remove it, or write decision = "deny"')
    return len(reader.problems) == before


def rules_of(
    rules: Sequence[Rule], specs: Mapping[str, ToolSpec], sources: Mapping[str, str]
) -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules of each tool, in order. `sources`: source of each tool."""
    return {
        name: tuple(rule for rule in rules if rule.is_for(name, sources[name], spec.groups))
        for name, spec in specs.items()
    }
