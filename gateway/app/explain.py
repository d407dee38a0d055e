"""Explanation of a decision from the configuration and the resting store, for `dragoman explain`.

Runs nothing, writes nothing, and needs no daemon.
"""

from __future__ import annotations

from dataclasses import replace

from config.load import Loaded
from gateway.app.own_tools import load_folder, make_workers
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.domain.children import with_own_agents
from gateway.domain.ids import SessionId
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Origin, SessionKind, works_in
from gateway.egress import Egress
from gateway.errors import BadRequest
from gateway.policy.grants import of_history
from gateway.sandbox import Containment
from gateway.store import resting_session
from gateway.system.clock import SystemClock
from gateway.toolcalls.delegates import Delegates
from gateway.toolcalls.explanation import Explainer, Explanation
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.workspaces import Workspaces


class ConfiguredExplainer:
    """Explainer of decisions in new and stored sessions, with the tools that a daemon would have at its start."""

    def __init__(self, loaded: Loaded, containment: Containment) -> None:
        """Import the configured tools. Raises `ConfigError` for an incomplete one."""
        self._clock, self._containment, self._loaded = SystemClock(), containment, loaded
        hosts = ToolHosts(state=loaded.state, clock=self._clock, containment=containment, egress=Egress())
        sources, _ = load_tools(loaded, hosts.of)
        folder = load_folder(loaded, sources, make_workers(loaded, containment), containment)
        every = [*sources, *([] if folder is None else [folder])]
        known = Delegates(agents=frozenset(with_own_agents(loaded.agents)), models=loaded.settings.model.names)
        registry = Registry(every, sandboxed=containment.can_bwrap, presets=loaded.presets, delegates=known)
        self._tools = registry.snapshot()

    def explain(self, kind: SessionKind, tool: str, text: str, preset: str = "") -> Explanation:
        """Return the decision about a call in a new session of this kind, where somebody can be asked.

        `tool` and `text`: as in `Explainer.explain`. `preset`: its name; empty: the default of the kind.
        """
        route = Route(session=SessionId(""), kind=kind, origin=Origin.DIRECT, owner=None, title="")
        session = replace(empty_session(route, self._clock.now()), preset=preset)
        by = Explainer(
            tools=self._tools, session=session, containment=self._containment, workspace=lambda: "", openly=True
        )
        return by.explain(tool, text)

    def explain_stored(self, named: str, tool: str, text: str) -> Explanation:
        """Return the decision about a call in a stored session, with its grants. Reads the store; writes nothing.

        Raises `BadRequest` for an unknown session, `StoreInUse` while a daemon holds the store, and `StoreError`.
        """
        found = resting_session(self._loaded.settings.store.url, SessionId(named), self._clock)
        if found is None:
            raise BadRequest(f"There is no session {named[:80]!r}.", cure="List them with: dragoman sessions.")
        session, grants = found
        folders = Workspaces(self._loaded.state, self._loaded.shared)
        by = Explainer(
            tools=self._tools,
            session=session,
            containment=self._containment,
            workspace=lambda: str(folders.known_workspace(works_in(session))),
            home=folders.known_home,
            grants=of_history(grants, session),
            openly=True,
        )
        return by.explain(tool, text)
