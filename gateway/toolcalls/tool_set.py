"""Set of tools at one moment: specification, arguments and policy of each. Used by `decide` and `agent/prompt`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gateway.domain.children import Delegation
from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.presets import ONLY_BUILD, Preset, Presets
from gateway.domain.prompts import ToolOffer
from gateway.domain.sessions import Session, SessionKind, rights_of
from gateway.domain.steps import Answer
from gateway.domain.tools import CallScope, Park, Preview, ToolPolicy, ToolResult, ToolSpec
from gateway.errors import ConfigError
from gateway.policy.layers import in_force
from gateway.policy.permission import withheld
from gateway.ports import CheckContext, PrepareContext, ToolContext
from gateway.toolcalls.arguments import Arguments
from gateway.toolcalls.command_syntax import command_syntax
from gateway.toolcalls.delegates import UNKNOWN_DELEGATES, Delegates, cannot_begin
from gateway.toolcalls.tool_aliases import repaired
from gateway.toolcalls.tool_index import TOOLS, offer, promoted

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
RIGHTS_KEPT = 64
"""Kinds of sessions, by their rights, whose tools a set keeps: some 30 KB."""
Run = Callable[[ToolContext, Any], Awaitable[ToolResult | Park]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Tool with its configuration."""

    spec: ToolSpec
    policy: ToolPolicy
    arguments: Arguments
    run: Run
    call_scope: Callable[[Any], CallScope] | None = None
    """Return the scope of a call with these arguments. None: the risk in the spec, and nothing else."""
    prepare: Callable[[PrepareContext, Any], Awaitable[Preview | ToolResult]] | None = None
    """Read the workspace before anybody is asked. A `ToolResult` ends the call: it cannot work. None: it need not."""
    check: Callable[[CheckContext, Any], Awaitable[ToolResult | None]] | None = None
    """Find the outcome of an interrupted call: its result, or None to run it again. For `Effect.CHECKABLE`."""
    schema: Mapping[str, Any] | None = None
    """Schema offered to models, where the settings block a part of `arguments`. None: that of `arguments`."""
    keeps: bool = False
    """True when the tool keeps state between calls, as a browser does."""
    missing: str = ""
    """Why the tool cannot work on this machine, with the cure; then it is not offered. Empty: it can."""

    @property
    def syntax(self) -> str:
        """Syntax line of the tool's command."""
        return command_syntax(self.spec, self.offered_schema)

    @property
    def offered_schema(self) -> Mapping[str, Any]:
        """Schema that models are offered."""
        return self.arguments.schema if self.schema is None else self.schema

    @property
    def in_order(self) -> bool:
        """True when calls run in sequence: each depends on the state or the approvals that the last one left."""
        return self.keeps or self.spec.in_order

    def scope_of(self, arguments: Any) -> CallScope:
        """Return everything that a call with these arguments may touch. May raise anything: a tool's own code."""
        return CallScope(risk=self.spec.risk) if self.call_scope is None else self.call_scope(arguments)


class _SeenTools:
    """Tools that sessions of the same rights have, sorted by name, with what models are offered of them."""

    def __init__(self, tools: Sequence[Tool], of: ToolSet) -> None:
        """Take the tools and their set. Offers are made when a model is first asked."""
        self.tools = tuple(tools)
        self._set = of

    @cached_property
    def offers(self) -> tuple[ToolOffer, ...]:
        """Offers of all these tools."""
        return tuple(self._set.offer_of(tool) for tool in self.tools)

    @cached_property
    def indexed(self) -> Sequence[ToolOffer]:
        """Offers of those that are lines of `tools`."""
        return [self._set.offer_of(tool) for tool in self.tools if tool.spec.indexed]

    @cached_property
    def shown(self) -> tuple[ToolOffer, ...]:
        """Offers of the others, and `tools` with its lines if there are any."""
        whole = (self._set.offer_of(tool) for tool in self.tools if not tool.spec.indexed)
        return (*whole, self._set.index_of(self.indexed)) if self.indexed else tuple(whole)


class ToolSet:
    """Tools by name, which never change. A turn keeps the set that it began with."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        sandboxed: bool,
        presets: Presets = ONLY_BUILD,
        delegates: Delegates = UNKNOWN_DELEGATES,
    ) -> None:
        """Collect the tools. `sandboxed`: a sandbox works here. Raises `ConfigError` for a bad or repeated name."""
        self._sandboxed = sandboxed
        self._presets = presets
        self._delegates = delegates
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            name = tool.spec.name
            if not NAME.fullmatch(name):
                raise ConfigError(f"{name!r} is not a valid tool name.", cure="Use lower case letters, digits and `_`.")
            if name == TOOLS:
                raise ConfigError(f"No tool may be named {TOOLS}.", cure="Give it another name.")
            if name in self._tools:
                raise ConfigError(f"Two tools are named {name}.", cure="Remove one of them.")
            self._tools[name] = tool
        self._sorted = [tool for _, tool in sorted(self._tools.items())]
        self._commands = _commands(self.specs)
        self._of_children = frozenset(name for name, tool in self._tools.items() if tool.spec.of_children)
        self._indexes: dict[tuple[str, ...], ToolOffer] = {}
        """Offers of `tools`, by the names in it."""
        self._seen: dict[tuple[object, ...], _SeenTools] = {}
        """Tools of sessions, by their rights; the oldest are dropped."""

    @cached_property
    def _offers(self) -> Mapping[str, ToolOffer]:
        """Offers of all tools, made when a model is first asked: a start need not make their schemas."""
        return {name: _offer(tool) for name, tool in self._tools.items()}

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """Every tool's spec, by name."""
        return {tool.spec.name: tool.spec for tool in self._sorted}

    @property
    def commands(self) -> Mapping[str, ToolSpec]:
        """Every tool's spec, by each command that calls it: its name, and its short name if it has one."""
        return self._commands

    @property
    def of_children(self) -> frozenset[str]:
        """Names of the tools that spawn or manage sub-sessions."""
        return self._of_children

    def get(self, name: str) -> Tool | None:
        """Return the tool that this name means, or None: also by its name elsewhere, such as `bash`."""
        return self._tools.get(repaired(name, self._tools))

    def with_own_names(self, answer: Answer) -> Answer:
        """Return the answer with each call under its tool's own name, by which hooks, limits and the audit know it."""
        if all(call.tool in self._tools for call in answer.calls):
            return answer
        return replace(
            answer, calls=tuple(replace(call, tool=repaired(call.tool, self._tools)) for call in answer.calls)
        )

    @property
    def presets(self) -> Presets:
        """All presets."""
        return self._presets

    def preset_of(self, session: Session) -> Preset:
        """Return the preset in force in a session."""
        return in_force(self._presets, session)

    def cannot_begin(self, delegations: Sequence[Delegation], session: Session) -> Deny | None:
        """Return why the sub-sessions of a call in this session cannot begin, as far as names show; else None."""
        if not delegations:
            return None
        presets = {one.name for one in self._presets.for_children()}
        return cannot_begin(delegations, self._delegates, presets, {tool.spec.name for tool in self.seen_by(session)})

    def seen_by(self, session: Session) -> Sequence[Tool]:
        """Return the tools that exist in this session, sorted by name."""
        return self._seen_by(session).tools

    def _seen_by(self, session: Session) -> _SeenTools:
        rights = rights_of(session)
        seen = self._seen.get(rights)
        if seen is None:
            preset = self.preset_of(session)
            seen = _SeenTools([tool for tool in self._sorted if self._missing(tool, session, preset) is None], self)
            if len(self._seen) >= RIGHTS_KEPT:
                del self._seen[next(iter(self._seen))]
            self._seen[rights] = seen
        return seen

    def hidden_from(self, session: Session) -> list[tuple[Tool, Deny]]:
        """Return the tools that do not exist in this session, sorted by name, each with the reason."""
        preset = self.preset_of(session)
        refused = ((tool, self._missing(tool, session, preset)) for tool in self._sorted)
        return [(tool, deny) for tool, deny in refused if deny is not None]

    def offers(self, session: Session) -> tuple[ToolOffer, ...]:
        """Return the tools offered to a model in this session; the same object for a tool each time."""
        return self._seen_by(session).offers

    def shown(self, session: Session, called: Iterable[str] = ()) -> tuple[ToolOffer, ...]:
        """Return the offers to a model: most tools whole, the others as lines of `tools`.

        `called`: names of the tools that earlier turns of this history called; those of the index are whole, too.
        """
        seen = self._seen_by(session)
        more = promoted(called, seen.indexed)
        return (*seen.shown, *more) if more else seen.shown

    def offer_of(self, tool: Tool) -> ToolOffer:
        """Return the offer of one of these tools; the same object each time."""
        return self._offers[tool.spec.name]

    def index_of(self, indexed: Sequence[ToolOffer]) -> ToolOffer:
        """Return the offer of `tools` with lines for these; the same object for the same ones."""
        names = tuple(one.name for one in indexed)
        if names not in self._indexes:
            self._indexes[names] = offer(indexed)
        return self._indexes[names]

    def resolve(self, name: str, session: Session, *, openly: bool = False) -> Tool | Deny:
        """Return the tool when it exists in the session, else the refusal. Never raises.

        Outside main sessions a tool that is not there is refused like one that nobody has, unless `openly`.
        """
        tool = self.get(name)
        missing = None if tool is None else self._missing(tool, session, self.preset_of(session))
        if tool is not None and missing is None:
            return tool
        if missing is not None and (openly or session.root_kind is SessionKind.MAIN):
            return missing
        names = ", ".join(t.spec.name for t in self.seen_by(session)) or "none"
        return Deny(reason=DenyReason.UNKNOWN_TOOL, hint=f"There is no tool {name[:64]!r}. Available: {names}.")

    def is_hidden(self, name: str, session: Session) -> bool:
        """Return whether a tool is there, but not in this session."""
        tool = self.get(name)
        return tool is not None and self._missing(tool, session, self.preset_of(session)) is not None

    def _missing(self, tool: Tool, session: Session, preset: Preset) -> Deny | None:
        if tool.missing:
            return Deny(reason=DenyReason.NOT_INSTALLED, hint=tool.missing)
        # By the session's own kind: a main session's children never run on the host.
        if tool.spec.sandbox is not None and not self._sandboxed and session.kind is not SessionKind.MAIN:
            return Deny(
                reason=DenyReason.SANDBOX_MISSING,
                hint=f"{tool.spec.name} needs a sandbox here and there is none; an owner can run `dragoman check`.",
            )
        if tool.spec.sandbox is not None and not self._sandboxed and preset.sandbox is not None:
            hint = f"{tool.spec.name} needs a sandbox under the preset {preset.name}, and there is none here."
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=hint)
        return withheld(tool.spec, tool.policy, session, preset)


def _commands(specs: Mapping[str, ToolSpec]) -> Mapping[str, ToolSpec]:
    words = dict(specs)
    for spec in specs.values():
        if not spec.command:
            continue
        if not NAME.fullmatch(spec.command):
            raise ConfigError(f"{spec.command!r} is not a command.", cure="Use lower case letters, digits and `_`.")
        if spec.command in words:
            raise ConfigError(f"Two tools are called by /{spec.command}.", cure="Remove one of them.")
        words[spec.command] = spec
    return words


def _offer(tool: Tool) -> ToolOffer:
    return ToolOffer(name=tool.spec.name, description=tool.spec.description, schema=tool.offered_schema)
