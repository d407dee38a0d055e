"""Explanation of the decision about a call, by the very functions that decide it. For `dragoman explain` and `/why`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason, place_of
from gateway.domain.grants import Grant
from gateway.domain.sessions import Session
from gateway.errors import DragomanError
from gateway.policy.permission import Note
from gateway.sandbox import Containment
from gateway.toolcalls.confinement import action_of, floor_of
from gateway.toolcalls.resolution import Workspace, decide_action, resolve_call
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

    @staticmethod
    def of(table: Mapping[str, Any]) -> Explanation:
        """Return the value that `as_table` wrote."""
        return Explanation(
            decision=table["decision"], because=table["because"], rule=table["rule"], order=tuple(table["order"])
        )

    def as_table(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {"decision": self.decision, "because": self.because, "rule": self.rule, "order": list(self.order)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """Explainer of decisions about calls in one session. Runs nothing, and never asks."""

    tools: ToolSet
    session: Session
    containment: Containment
    workspace: Workspace
    """Supplier of the session's folder."""
    home: Callable[[], str] = lambda: ""
    """Supplier of the id of the place that holds the folders, which grants for one action name."""
    grants: Sequence[Grant] = ()
    """Grants that hold in this session."""
    askable: bool = True
    """True when somebody can be asked."""
    openly: bool = False
    """True to say why a tool does not exist, also outside main sessions: an owner asks."""

    def explain(self, name: str, text: str) -> Explanation:
        """Return the decision about a call. `name`: of the tool, or its command.

        `text`: as a chat command takes it, or a JSON object.
        """
        order: list[str] = []
        spec = self.tools.commands.get(name)
        decision = self._decided(spec.name if spec else name, text, order.append)
        because = decision.hint if isinstance(decision, Deny) else decision.because
        place = place_of(decision)
        if isinstance(decision, Allow) and decision.grant is not None:
            place = f"grant {decision.grant}"
        return Explanation(decision=_word(decision), because=because, rule=place, order=tuple(order))

    def _decided(self, name: str, text: str, note: Note) -> Decision:
        def typed(tool: Tool) -> str | Deny:
            return _as_json(tool, self.tools, self.session, text)

        found = resolve_call(self.tools, self.session, name, typed, self.workspace, note, openly=self.openly)
        if isinstance(found, Deny):
            return found
        tool, session, least = found.tool, self.session, floor_of(self.tools.preset_of(self.session))
        try:
            action = action_of(
                tool, found.arguments, self.workspace(), session, self.containment, least, home=self.home()
            )
        except DragomanError as error:
            note("sandbox: refused, sandbox_missing")
            return Deny(reason=DenyReason.SANDBOX_MISSING, hint=str(error))
        if action.sandbox is not None:
            note(f"sandbox: {action.sandbox.value}")
        return decide_action(
            self.tools, session, tool, found.call_scope, action, self.grants, askable=self.askable, note=note
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
