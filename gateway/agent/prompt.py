"""Prompt builder: history cut to the window, system text, tools and pictures in one request. Used by `turn`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.agent.pictures import any_in, of_calls, with_pictures
from gateway.agent.transcript import Marks, MessageCache, message_cache, request
from gateway.agent.turn_cache import PerTurnCache
from gateway.agent.window import (
    CONTEXT_TOKENS,
    HISTORY_TURNS,
    LONG_FROM,
    chars_of,
    chars_of_tools,
    chars_per_token,
    fitted,
    window,
)
from gateway.domain.children import Agent
from gateway.domain.ids import SessionId
from gateway.domain.prompts import ModelRequest, ToolOffer
from gateway.domain.sessions import Session, works_in
from gateway.domain.views import TurnView
from gateway.errors import DragomanError, FileAway
from gateway.ports import FindOutput, Queries
from gateway.toolcalls.tool_set import ToolSet

AWAY = "it is on a machine that cannot be reached now"
"""Reason why a model is not given a picture of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a turn and its history in a request, besides the configured ones."""

    chars: int | None = None
    """Characters of both together; None: the configured limit."""
    turns: int = HISTORY_TURNS
    """Ended turns."""


UNBOUND = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One model request, and the history in it."""

    request: ModelRequest
    history: tuple[TurnView, ...]
    """Ended turns in the request."""
    own_chars: int
    """Approximate characters of the turn in the request."""
    bounds: Bounds
    long: bool
    """True when the history is long enough for its older turns to be summarised."""

    @property
    def chars(self) -> int:
        """Approximate characters of the turn and this history."""
        return self.own_chars + sum(chars_of(one) for one in self.history)


@dataclass(slots=True, kw_only=True)
class PromptBuilder:
    """Builder of prompts, with caches for what recurs in each."""

    queries: Queries
    outputs: Callable[[SessionId], Path]
    """Return the folder of a session's pictures."""
    workspaces: Callable[[SessionId], Path]
    """Return a session's workspace, with the pictures that people sent."""
    find: FindOutput | None = None
    """Fetch a picture of a call that is on another node; None: all are here."""
    system: str
    child_system: str = ""
    """System text added for sub-sessions."""
    instructions: str = ""
    """The owner's own system text, for every session."""
    agents: Mapping[str, Agent] = field(default_factory=dict[str, Agent])
    context_tokens: int = CONTEXT_TOKENS
    marks: Marks = field(default_factory=Marks)
    _ended: PerTurnCache[tuple[int, tuple[str, ...]]] = field(default_factory=lambda: PerTurnCache(_known_of))
    """Characters and called tools of each ended turn."""
    _messages: MessageCache = field(default_factory=message_cache)
    _measured: tuple[Sequence[ToolOffer], int] = ((), 0)
    """The tools offered last, and their approximate characters."""

    async def make(
        self,
        view: TurnView,
        offered: ToolSet,
        bounds: Bounds = UNBOUND,
        history: Sequence[TurnView] | None = None,
    ) -> Prompt:
        """Build the prompt for the session's model. The turn has priority; its history gets the room left.

        `offered`: the turn's tools. `history`: the last `HISTORY_TURNS` ended turns, if the caller has just read them.
        """
        if history is None:
            history = await self.queries.history(view.session.id, view.turn.epoch, HISTORY_TURNS)
        # The views of this read hold the matching summary; the turn's own session may be older.
        session = history[-1].session if history else view.session
        tools = offered.shown(view.session, self._called_before(view, history))
        system = self._system(view.session, offered, tools)
        fixed, whole = len(system) + self._chars_of_tools(tools) + len(session.summary), chars_of(view)
        sizes = [self._ended.of(one)[0] for one in history]
        budget = self.context_tokens * chars_per_token(history, fixed, self.context_tokens, sizes)
        long = fixed + whole + sum(sizes) > LONG_FROM * budget or len(history) >= HISTORY_TURNS
        room = round(budget - fixed)
        if bounds.chars is not None:
            room = min(room, bounds.chars)
        now = fitted(view, room)
        own = chars_of(now)
        given = window(history, room - own, sizes) if bounds.turns else ()
        asked = request(system, given, now, tools, self.marks, session.summary, self._messages)
        return Prompt(request=await self._pictured(view, asked), history=given, own_chars=own, bounds=bounds, long=long)

    async def make_alone(self, view: TurnView, offered: ToolSet) -> Prompt:
        """Build a prompt without history, for the operator."""
        asked = request(self.system, (), view, offered.offers(view.session), self.marks)
        return Prompt(request=asked, history=(), own_chars=0, bounds=Bounds(turns=0), long=False)

    async def make_shorter(self, view: TurnView, offered: ToolSet, prompt: Prompt) -> Prompt | None:
        """Build the prompt again in half of its characters, after a refusal as too long; at the second without history.

        Return None when nothing more can be left out.
        """
        for turns in (HISTORY_TURNS, 0) if prompt.bounds.chars is None else (0,):
            made = await self.make(view, offered, Bounds(chars=prompt.chars // 2, turns=turns))
            if made.chars < prompt.chars:
                return made
        return None

    def _called_before(self, view: TurnView, history: Sequence[TurnView]) -> list[str]:
        """Return the tools that turns called which ended before this one began.

        A list of offered tools that changes within a turn would miss the provider's cache.
        """
        began = view.turn.started_at
        if began is None:
            return []
        before = (one for one in history if one.turn.ended_at is not None and one.turn.ended_at <= began)
        return [name for one in before for name in self._ended.of(one)[1]]

    def _chars_of_tools(self, tools: Sequence[ToolOffer]) -> int:
        if tools != self._measured[0]:  # cheap: a set's offers stay the same objects
            self._measured = tools, chars_of_tools(tools)
        return self._measured[1]

    def _system(self, session: Session, offered: ToolSet, tools: Sequence[ToolOffer]) -> str:
        parts = [self.system, self.instructions, offered.preset_of(session).prompt, self._agents(offered, tools)]
        if session.lineage is not None:
            agent = self.agents.get(session.lineage.agent)
            parts += [self.child_system, agent.instructions if agent else ""]
        return "\n\n".join(filter(None, [part.strip() for part in parts]))

    def _agents(self, offered: ToolSet, tools: Sequence[ToolOffer]) -> str:
        """Return the list of agents that a session may spawn; empty where it may spawn none."""
        if not self.agents:
            return ""
        spawns = [tool.name for tool in tools if (found := offered.get(tool.name)) and found.spec.returns_child_text]
        if not spawns:
            return ""
        known = (f"- {name}: {one.description}" for name, one in self.agents.items())
        return "\n".join([f"Agents that {' and '.join(spawns)} can be given:", *known])

    async def _pictured(self, view: TurnView, asked: ModelRequest) -> ModelRequest:
        if not any_in(asked.messages):
            return asked
        session = view.session.id
        folder, workspace = self.outputs(session), self._workspace(view.session)
        away = await self._away(session, of_calls(asked.messages))
        messages = await asyncio.to_thread(with_pictures, asked.messages, folder, workspace, asked.mark, away)
        return replace(asked, messages=messages)

    async def _away(self, session: SessionId, names: Sequence[str]) -> dict[str, str]:
        """Have the pictures of calls here; return why not for those on a node that cannot be asked."""
        away: dict[str, str] = {}
        if self.find is None:
            return away
        for name in names:
            try:
                await self.find(session, name)
            except FileAway:  # only owners read the names of nodes
                away[name] = AWAY
        return away

    def _workspace(self, session: Session) -> Path | None:
        """Return the workspace, or None when it cannot be used."""
        try:
            return self.workspaces(works_in(session))
        except DragomanError:
            return None


def _known_of(view: TurnView) -> tuple[int, tuple[str, ...]]:
    """Return the characters of a turn, and the names of the tools that it called, in order."""
    return chars_of(view), tuple(dict.fromkeys(step.call.tool for step in view.steps if step.call is not None))
