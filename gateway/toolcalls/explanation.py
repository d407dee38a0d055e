"""Explanation of the decision about a call, by the very functions that decide it. For `dragoman explain` and `/why`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason, place_of
from gateway.domain.grants import Grant
from gateway.domain.sessions import Session
from gateway.policy.grants import covering
from gateway.policy.permission import Note, decide
from gateway.toolcalls.resolution import Workspace, resolve_call
from gateway.toolcalls.tool_set import Tool, ToolSet
from gateway.toolcalls.typed_arguments import arguments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Decision about one call, with its reason."""

    decision: str
    """`allow`, `ask` or `deny`."""
    because: str
    """Reason in one sentence."""
    rule: str
    """Place of the deciding rule or grant, as in `config.toml:41 (rules[2])`; empty when none decided."""
    order: tuple[str, ...]
    """Steps of the decision, in order, up to the one that decided."""

    def as_json(self) -> str:
        """Return the explanation as a JSON object."""
        whole = {"decision": self.decision, "because": self.because, "rule": self.rule, "order": list(self.order)}
        return json.dumps(whole, indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """Explainer of decisions about calls in one session. Runs nothing, and never asks."""

    tools: ToolSet
    session: Session
    workspace: Workspace
    """Supplier of the session's folder."""
    grants: Sequence[Grant] = ()
    """Grants that hold in this session. Those of one exact action are not considered: its sandbox is not known here."""
    askable: bool = True
    """True when somebody can be asked."""
    openly: bool = False
    """True to say why a tool does not exist, also outside main sessions: an owner asks."""

    def explain(self, name: str, text: str) -> Explanation:
        """Return how a call would be decided. `name`: of the tool, or its command.

        `text`: as a chat command takes it, or a JSON object.
        """
        order: list[str] = []
        spec = self.tools.commands.get(name)
        decision = self._decided(spec.name if spec else name, text, order.append)
        because = decision.hint if isinstance(decision, Deny) else decision.because
        return Explanation(decision=_word(decision), because=because, rule=place_of(decision), order=tuple(order))

    def _decided(self, name: str, text: str, note: Note) -> Decision:
        def typed(tool: Tool) -> str | Deny:
            return _as_json(tool, self.tools, self.session, text)

        found = resolve_call(self.tools, self.session, name, typed, self.workspace, note, openly=self.openly)
        if isinstance(found, Deny):
            return found
        spec, policy, call_scope = found.tool.spec, found.tool.policy, found.call_scope
        preset = self.tools.preset_of(self.session)
        grant = covering(self.grants, name, "", call_scope)
        return decide(
            spec, policy, self.session, call_scope, askable=self.askable, preset=preset, grant=grant, note=note
        )


def _as_json(tool: Tool, tools: ToolSet, session: Session, text: str) -> str | Deny:
    """Return the arguments as JSON text, or why the text of the command cannot be read."""
    if text.lstrip().startswith("{"):
        return text
    schema: Mapping[str, Any] = next(
        (offer.schema for offer in tools.offers(session) if offer.name == tool.spec.name), dict[str, Any]()
    )
    read = arguments_of(tool.spec, text, schema)
    return Deny(reason=DenyReason.INVALID_ARGUMENTS, hint=read) if isinstance(read, str) else json.dumps(read)


def _word(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"
