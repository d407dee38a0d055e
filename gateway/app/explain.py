"""Explanation of a decision from the configuration alone, for `dragoman explain`. Runs nothing, needs no daemon."""

from __future__ import annotations

from config.load import Loaded
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.domain.ids import SessionId
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Origin, SessionKind
from gateway.egress import Egress
from gateway.sandbox import Containment
from gateway.system.clock import SystemClock
from gateway.toolcalls.explanation import Explainer, Explanation
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.tool_set import ToolSet


def configured_tools(loaded: Loaded, containment: Containment) -> ToolSet:
    """Return the tools as a daemon with this configuration would have them at its start."""
    hosts = ToolHosts(state=loaded.state, clock=SystemClock(), containment=containment, egress=Egress())
    sources, _ = load_tools(loaded, hosts.of)
    return Registry(sources, sandboxed=containment.can_bwrap).snapshot()


def explain(loaded: Loaded, containment: Containment, kind: SessionKind, tool: str, text: str) -> Explanation:
    """Return how a call would be decided in a new session of this kind, where somebody can be asked.

    `tool` and `text`: as in `Explainer.explain`. Approvals that people gave in a session are not known here.
    """
    route = Route(session=SessionId(""), kind=kind, origin=Origin.DIRECT, owner=None, title="")
    session = empty_session(route, SystemClock().now())
    tools = configured_tools(loaded, containment)
    return Explainer(tools=tools, session=session, workspace=lambda: "").explain(tool, text)
