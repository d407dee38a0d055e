"""Explanation of the decision about a call, from the configuration alone. Used by `dragoman explain`; runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.load import Loaded
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.domain.decisions import Allow, Ask, Deny
from gateway.domain.ids import SessionId
from gateway.domain.routes import Route, empty_session
from gateway.domain.rules import Rule
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.tools import CallScope
from gateway.egress import Egress
from gateway.llm.operator import arguments_of
from gateway.policy.permission import decide, default_approval, placed, refused
from gateway.policy.rules import evaluate
from gateway.sandbox import Containment
from gateway.system.clock import SystemClock
from gateway.toolcalls.arguments import check_arguments
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.tool_set import Tool, ToolSet, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Decision about one call, with its reason."""

    decision: str
    """`allow`, `ask` or `deny`."""
    because: str
    """Reason in one sentence."""
    rule: str
    """Place of the deciding rule, as in `rules[2]`; empty when none decided."""
    order: tuple[str, ...]
    """Steps of the decision, in order, up to the one that decided."""

    def as_json(self) -> str:
        """Return the explanation as a JSON object."""
        whole = {"decision": self.decision, "because": self.because, "rule": self.rule, "order": list(self.order)}
        return json.dumps(whole, indent=2, ensure_ascii=False)


def explain(loaded: Loaded, containment: Containment, kind: SessionKind, tool: str, text: str) -> Explanation:
    """Return how a call would be decided in a new session of this kind, where somebody can be asked.

    `tool`: its name or its command. `text`: as a chat command takes it, or a JSON object. Approvals that people gave in
    a session are not known here.
    """
    clock = SystemClock()
    hosts = ToolHosts(state=loaded.state, clock=clock, containment=containment, egress=Egress())
    sources, _ = load_tools(loaded, hosts.of)
    tools = Registry(sources, sandboxed=containment.can_bwrap).snapshot()
    route = Route(session=SessionId(""), kind=kind, origin=Origin.DIRECT, owner=None, title="")
    return _decided(tools, empty_session(route, clock.now()), tool, text)


def _decided(tools: ToolSet, session: Session, name: str, text: str) -> Explanation:
    order: list[str] = []
    spec = tools.commands.get(name)
    found = tools.resolve(spec.name if spec else name, session)
    if isinstance(found, Deny):
        return _refused(found, order, "available")
    order.append(f"available: {found.policy.availability.value}")
    arguments = _arguments(found, tools, session, text)
    if isinstance(arguments, str | Deny):
        hint = arguments if isinstance(arguments, str) else arguments.hint
        return Explanation(decision="deny", because=hint, rule="", order=(*order, "arguments: not valid"))
    order.append("arguments: valid")
    call_scope = placed(found.scope_of(arguments), "")
    order.append(f"scope: {_scope(call_scope)}")
    if (never := refused(call_scope)) is not None:
        return _refused(never, order, "settings")
    rule = evaluate(found.policy.rules, call_scope.subjects, session.root_kind.value)
    order.append(f"rules: {_rule(rule, len(found.policy.rules))}")
    if rule is None:
        mode = default_approval(found.spec, found.policy, session, call_scope.risk)
        order.append(f"default for {call_scope.risk.value} in {session.kind.value}: {mode.value}")
    place = rule.where if rule is not None else ""
    match decide(found.spec, found.policy, session, call_scope, askable=True):
        case Allow(because=because):
            return Explanation(decision="allow", because=because, rule=place, order=tuple(order))
        case Ask(because=because):
            return Explanation(decision="ask", because=because, rule=place, order=tuple(order))
        case Deny(hint=hint):
            return Explanation(decision="deny", because=hint, rule=place, order=tuple(order))


def _arguments(tool: Tool, tools: ToolSet, session: Session, text: str) -> Any:
    """Return the validated arguments, or why they are not valid."""
    if text.lstrip().startswith("{"):
        return check_arguments(tool.arguments, text, usage(tool.spec))
    schema: Mapping[str, Any] = next(
        (offer.schema for offer in tools.offers(session) if offer.name == tool.spec.name), dict[str, Any]()
    )
    read = arguments_of(tool.spec, text, schema)
    if isinstance(read, str):
        return read
    return check_arguments(tool.arguments, json.dumps(read), usage(tool.spec))


def _refused(deny: Deny, order: list[str], step: str) -> Explanation:
    rule = next((word.strip(":,") for word in deny.hint.split() if word.startswith("rules[")), "")
    return Explanation(
        decision="deny", because=deny.hint, rule=rule, order=(*order, f"{step}: refused, {deny.reason.value}")
    )


def _scope(scope: CallScope) -> str:
    return ", ".join([scope.risk.value, *scope.subjects])


def _rule(rule: Rule | None, count: int) -> str:
    if rule is None:
        return f"none of {count} matches every subject"
    return f"{rule.where}: {rule.decision.value} {rule.tool} {rule.pattern!r}{' (locked)' if rule.locked else ''}"
