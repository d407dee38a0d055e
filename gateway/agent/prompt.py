"""Within a turn: what its model is asked. Reads the history, cuts it to the window, adds what a session is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.agent.pictures import any_in, with_pictures
from gateway.agent.transcript import Marks, Told, request, told_before
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
from gateway.errors import DragomanError
from gateway.ports import Queries
from gateway.toolcalls.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a turn and its history may take of a request, besides what is configured."""

    chars: int | None = None
    """Characters of both together; None: as many as are configured."""
    turns: int = HISTORY_TURNS
    """Ended turns."""


UNBOUND = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request, and the history in it."""

    request: ModelRequest
    history: tuple[TurnView, ...]
    """The ended turns that are in it."""
    own_chars: int
    """About how many characters the turn has in it."""
    bounds: Bounds
    long: bool
    """True when the history is so long that older turns should be put into a summary."""

    @property
    def chars(self) -> int:
        """About how many the turn and this history have in it."""
        return self.own_chars + sum(chars_of(one) for one in self.history)


@dataclass(slots=True, kw_only=True)
class PromptBuilder:
    """Makes what models are asked."""

    queries: Queries
    registry: Registry
    outputs: Callable[[SessionId], Path]
    """Where a session's pictures are."""
    workspaces: Callable[[SessionId], Path]
    """Where a session's workspace is, with the pictures that people sent."""
    system: str
    child_system: str = ""
    """What sub-sessions are told besides."""
    instructions: str = ""
    """The owner's own text, for every session."""
    agents: Mapping[str, Agent] = field(default_factory=dict[str, Agent])
    context_tokens: int = CONTEXT_TOKENS
    marks: Marks = field(default_factory=Marks)
    _sizes: PerTurnCache[int] = field(default_factory=lambda: PerTurnCache(chars_of))
    _told: Told = field(default_factory=told_before)
    _measured: tuple[Sequence[ToolOffer], int] = ((), 0)
    """The tools that were offered last, and about how many characters they take."""

    async def make(self, view: TurnView, bounds: Bounds = UNBOUND, history: Sequence[TurnView] | None = None) -> Prompt:
        """Return what the session's model is asked now. The turn comes first; its history is given the room left.

        `history`: the last `HISTORY_TURNS` ended turns, where they were read just now.
        """
        if history is None:
            history = await self.queries.history(view.session.id, view.turn.epoch, HISTORY_TURNS)
        # The views of this read know the summary that goes with it; the turn's own may be older than that.
        session = history[-1].session if history else view.session
        tools = self.registry.offers(view.session)
        system = self._system(view.session, tools)
        fixed, whole = len(system) + self._chars_of_tools(tools) + len(session.summary), chars_of(view)
        sizes = [self._sizes.of(one) for one in history]
        budget = self.context_tokens * chars_per_token(history, fixed, self.context_tokens, sizes)
        long = fixed + whole + sum(sizes) > LONG_FROM * budget or len(history) >= HISTORY_TURNS
        room = round(budget - fixed)
        if bounds.chars is not None:
            room = min(room, bounds.chars)
        now = fitted(view, room)
        own = chars_of(now)
        given = window(history, room - own, sizes) if bounds.turns else ()
        asked = await self._pictured(view, request(system, given, now, tools, self.marks, session.summary, self._told))
        return Prompt(request=asked, history=given, own_chars=own, bounds=bounds, long=long)

    async def make_alone(self, view: TurnView) -> Prompt:
        """Return the same for who reads nothing but the turn: the one who answers commands."""
        asked = request(self.system, (), view, self.registry.offers(view.session), self.marks)
        return Prompt(request=asked, history=(), own_chars=0, bounds=Bounds(turns=0), long=False)

    async def make_shorter(self, view: TurnView, question: Prompt) -> Prompt | None:
        """Return it in half of its characters: its model said that it is too long. The second time without a history.

        None when there is nothing that can be left out.
        """
        for turns in (HISTORY_TURNS, 0) if question.bounds.chars is None else (0,):
            made = await self.make(view, Bounds(chars=question.chars // 2, turns=turns))
            if made.chars < question.chars:
                return made
        return None

    def _chars_of_tools(self, tools: Sequence[ToolOffer]) -> int:
        if tools != self._measured[0]:  # quick: a registry's offers stay the same objects
            self._measured = tools, chars_of_tools(tools)
        return self._measured[1]

    def _system(self, session: Session, tools: Sequence[ToolOffer]) -> str:
        parts = [self.system, self.instructions, self._agents(tools)]
        if session.lineage is not None:
            agent = self.agents.get(session.lineage.agent)
            parts += [self.child_system, agent.instructions if agent else ""]
        return "\n\n".join(filter(None, [part.strip() for part in parts]))

    def _agents(self, tools: Sequence[ToolOffer]) -> str:
        """Say whom a session may spawn, where it may."""
        spawns = [tool.name for tool in tools if (found := self.registry.get(tool.name)) and found.spec.speaks]
        if not self.agents or not spawns:
            return ""
        known = (f"- {name}: {one.description}" for name, one in self.agents.items())
        return "\n".join([f"Agents that {' and '.join(spawns)} can be given:", *known])

    async def _pictured(self, view: TurnView, asked: ModelRequest) -> ModelRequest:
        if not any_in(asked.messages):
            return asked
        folder, workspace = self.outputs(view.session.id), self._workspace(view.session)
        messages = await asyncio.to_thread(with_pictures, asked.messages, folder, workspace, asked.mark)
        return replace(asked, messages=messages)

    def _workspace(self, session: Session) -> Path | None:
        """The workspace, if there is one that can be used."""
        try:
            return self.workspaces(works_in(session))
        except DragomanError:
            return None
