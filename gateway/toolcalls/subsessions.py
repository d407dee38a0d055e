"""Sub-sessions of a session: spawn, list and stop, and the rights and budget of each. Used by `execution` and `agent`.

A child's rights are a part of its parent's, for every call. Only `rights_of_child` makes them; it is pure.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType

from gateway.domain.children import (
    CHILDREN_A_TURN,
    LIVE_BELOW_A_ROOT,
    MAX_DEPTH,
    MAX_HOPS,
    Agent,
    MessageFate,
    NewChild,
    NewMessage,
    SpawnMode,
    SpawnRefusal,
)
from gateway.domain.decisions import DenyReason
from gateway.domain.events import JOBS, JobsStopped
from gateway.domain.ids import Principal, SessionId, child_asks, child_session, step_session
from gateway.domain.presets import PLAN
from gateway.domain.sessions import Session, SessionKind, works_in
from gateway.domain.text import one_line
from gateway.domain.tools import Park, ResultStatus, ToolResult, ToolSpec
from gateway.domain.turns import ENDED, Lease, TurnLimits, TurnState
from gateway.domain.views import ChildLine, TurnView
from gateway.domain.waits import WaitKind, WaitState, used_by_children
from gateway.domain.workflows import NewStep, WorkflowStep
from gateway.errors import Forbidden, NotFound
from gateway.ports import Children, Clock, EventBus, HistoryLine, Models, Queries, SessionMessage, Task, TurnJournal
from gateway.system.redaction import Redactor
from gateway.toolcalls.delegates import lacking, unknown
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.session_history import lines_of

PART_OF_TOKENS = 6
"""Divisor of the parent's token limit for one child: five live children leave the parent a sixth."""
ENDS_WITHIN = timedelta(hours=24)
"""Timeout of a child, decisions included; then it is stopped."""
TITLE_CHARS = 60
"""Characters of a child's title."""
HISTORY_ROWS, HISTORY_PAGES = 200, 10
"""Rows of a history that are read at once, and the most such reads of a call: many rows say nothing."""
STOPPED = "Stopped by the session that spawned it."
_USE_NO_MORE = ENDED | {TurnState.STOPPING}
"""States in which a turn uses no more tokens: a stopping turn only writes results."""

_REFUSED: Mapping[SpawnRefusal, str] = MappingProxyType(
    {
        SpawnRefusal.TOO_DEEP: f"Sub-sessions go {MAX_DEPTH} deep, and this is the last. Do the task here.",
        SpawnRefusal.TOO_MANY_LIVE: f"{LIVE_BELOW_A_ROOT} sub-sessions are at work already. Wait until one has ended.",
        SpawnRefusal.TOO_MANY_IN_TURN: f"This turn spawned {CHILDREN_A_TURN} already. Do the rest here.",
        SpawnRefusal.STOPPING: "The turn was stopped; nothing was spawned.",
        SpawnRefusal.ENDING: "It is being stopped. Write to it again when it has ended.",
        SpawnRefusal.TOO_MANY_HOPS: (
            f"Sessions wrote to each other {MAX_HOPS} times in a row, and no person did. Say what is there, and ask."
        ),
        SpawnRefusal.AWAITED: "Your parent waits for your answer, and reads nothing before it. Say it in your answer.",
    }
)


_DELIVERED: Mapping[MessageFate, str] = MappingProxyType(
    {
        MessageFate.BEGUN: "has begun again. Its answer comes later, as a message.",
        MessageFate.JOINED: "is at work and has your message. Its answer comes when its task ends.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Tools and limits of a session."""

    tools: frozenset[str]
    active_s: float
    """Working time of one turn in seconds."""
    tokens: int
    """Tokens of one turn; 0 is no limit."""
    depth: int
    """Levels below the root; 0 for a root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Rest of a turn's budget, for itself or a child. Both may be below 0."""

    active_s: float
    tokens: int
    """Meaningless where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnDenied:
    """Refusal of a spawn, with its reason."""

    code: str
    hint: str
    status: ResultStatus = ResultStatus.DENIED


def rights_of(session: Session, visible: Collection[str], limits: TurnLimits) -> Rights:
    """Return a session's rights: the tools that exist in it, and its own limits or the configured ones."""
    line = session.lineage
    if line is None:
        return Rights(tools=frozenset(visible), active_s=limits.active.total_seconds(), tokens=limits.tokens, depth=0)
    return Rights(tools=frozenset(visible), active_s=line.active_s, tokens=line.tokens, depth=line.depth)


def tokens_used(view: TurnView) -> int:
    """Return the input and output tokens of the turn's answers, and of the children that it waited for."""
    own = (step.answer.usage for step in view.steps if step.answer is not None)
    used = sum(own, used_by_children(view.waits))
    return used.input_tokens + used.output_tokens


def told_of(view: TurnView) -> frozenset[int]:
    """Return the steps whose children answered: their waits hold the usage, with that of all descendants."""
    answered = (WaitKind.CHILD, WaitState.ANSWERED)
    return frozenset(wait.n for wait in view.waits if (wait.kind, wait.state) == answered)


def rights_of_child(
    parent: Rights, left: Left, task: Task, agent: Agent | None, at_most_s: float, of_children: Collection[str]
) -> Rights | SpawnDenied:
    """Return a child's rights, none of them above its parent's or the parent's remaining budget. Pure.

    `at_most_s`: highest working time of any child, in seconds. `of_children`: the tools that spawn and manage children.
    A tool that the parent lacks is refused, not left out.
    """
    depth = parent.depth + 1
    if depth > MAX_DEPTH:
        return _limit(SpawnRefusal.TOO_DEEP)
    if hint := lacking(task.tools or (), parent.tools):
        return SpawnDenied(code=DenyReason.NOT_GRANTED.value, hint=hint)
    wanted_s = at_most_s if task.timeout_s is None else task.timeout_s
    if math.isnan(wanted_s) or wanted_s <= 0:
        return SpawnDenied(
            code="timeout", hint="The timeout is a number of seconds above 0.", status=ResultStatus.ERROR
        )
    if left.active_s <= 0 or (parent.tokens and left.tokens <= 0):
        hint = "This turn has used, or given to its sub-sessions, all its time or tokens. Say what is done so far."
        return SpawnDenied(code="used_up", hint=hint)
    tools = parent.tools
    if task.tools is not None:
        tools &= set(task.tools)
    if agent is not None and agent.tools is not None:
        tools &= set(agent.tools)
    if depth == MAX_DEPTH:  # it can have no children
        tools -= frozenset(of_children)
    return Rights(
        tools=frozenset(tools),
        active_s=min(wanted_s, at_most_s, parent.active_s, left.active_s),
        # At least 1, since 0 means no limit.
        tokens=min(left.tokens, max(1, parent.tokens // PART_OF_TOKENS)) if parent.tokens else 0,
        depth=depth,
    )


def title_of(task: str) -> str:
    """Return the task's first line, shortened, without invisible characters."""
    first = next((line for line in task.splitlines() if line.strip()), "")
    return one_line(first, TITLE_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsessionService:
    """Service behind the sub-sessions of every call: store, registry, limits, and the budget of running children."""

    children: Children
    journal: TurnJournal
    queries: Queries
    registry: Registry
    agents: Mapping[str, Agent]
    """Configured agents, by name."""
    models: Models
    limits: TurnLimits
    clock: Clock
    redactor: Redactor
    events: EventBus
    spawning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock around a spawn: two calls of one answer must not both get the remaining budget."""

    def of(self, view: TurnView, n: int, lease: Lease) -> CallSubsessions:
        """Return the sub-sessions of this turn's session, for its step `n` under this lease."""
        return CallSubsessions(subsessions=self, view=view, n=n, lease=lease)

    async def tokens_untold(self, view: TurnView) -> int:
        """Return the tokens of children that the turn does not wait for, or no longer: see `tokens_of`.

        Such a child's budget is reserved until its task ends: it works beside the turn and may use all of it. When all
        children have answered, none is read: their tokens are in `tokens_used`.
        """
        told = told_of(view)
        if not any(
            step.call is not None and step.n not in told and self._spawns(step.call.tool) for step in view.steps
        ):
            return 0
        return await self.tokens_of(await self.children.children_of(view.turn.id), told)

    async def tokens_of(self, children: Sequence[ChildLine], told: Collection[int]) -> int:
        """Return the tokens of these children: used, with all descendants; or their budget, while that is more.

        `told`: the steps whose children answered; their usage is in their waits.
        """
        tokens = 0
        for line in children:
            lineage = line.session.lineage
            if lineage is None:
                continue
            if line.turn.state not in _USE_NO_MORE:
                tokens += max(await self.used_by(line), lineage.tokens)
            elif line.n not in told:
                tokens += await self.used_by(line)
        return tokens

    async def used_by(self, line: ChildLine) -> int:
        """Return the tokens that a child has used so far, with its own children's, which have no children."""
        with_its_own = [line, *await self.children.children_of(line.turn.id)]
        return sum(one.input_tokens + one.output_tokens for one in with_its_own)

    def _spawns(self, tool: str) -> bool:
        found = self.registry.snapshot().get(tool)
        return found is not None and found.spec.returns_child_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSubsessions:
    """`ports.Subsessions` of one call."""

    subsessions: SubsessionService
    view: TurnView
    """The turn at the call's decision."""
    n: int
    lease: Lease

    async def spawn(self, task: Task) -> ToolResult | Park:
        """Start a child, with at most the rights of this session."""
        async with self.subsessions.spawning:
            child = self._new_child(task, await self._left(), child_session(self.view.turn.id, self.n))
            if isinstance(child, SpawnDenied):
                return ToolResult(status=child.status, text="", code=child.code, hint=child.hint)
            spawned = await self.subsessions.children.spawn(self.lease, self.n, child)
        if isinstance(spawned, SpawnRefusal):
            refusal = _limit(spawned)
            return ToolResult(status=refusal.status, text="", code=refusal.code, hint=refusal.hint)
        if spawned is not None:
            return Park(wait=spawned)
        return ToolResult(
            status=ResultStatus.OK, text=f"{child.session} has begun. Its last answer comes later, as a message."
        )

    async def workflow(self, steps: Sequence[WorkflowStep]) -> ToolResult | Park:
        """Start a workflow, each step with at most the rights of this session."""
        async with self.subsessions.spawning:
            new = self._new_steps(steps, await self._left())
            if isinstance(new, SpawnDenied):
                return ToolResult(status=new.status, text="", code=new.code, hint=new.hint)
            begun = await self.subsessions.children.begin_workflow(self.lease, self.n, new)
        if isinstance(begun, SpawnRefusal):
            refusal = _limit(begun)
            return ToolResult(status=refusal.status, text="", code=refusal.code, hint=refusal.hint)
        return Park(wait=begun)

    async def send(self, message: SessionMessage) -> ToolResult | Park:
        """Send a message to a child; a further task has at most the rights of this session now."""
        if not message.text.strip():
            return ToolResult(status=ResultStatus.ERROR, text="", code="empty", hint="The message is empty.")
        service = self.subsessions
        async with service.spawning:
            rights = self._rights(Task(text=message.text), await self._left(), None)
            if isinstance(rights, SpawnDenied):
                return ToolResult(status=rights.status, text="", code=rights.code, hint=rights.hint)
            new = NewMessage(
                child=message.session,
                text=message.text,
                waits=timedelta(seconds=message.wait_s) if message.wait_s > 0 else None,
                tools=tuple(sorted(rights.tools)),
                active_s=rights.active_s,
                tokens=rights.tokens,
            )
            sent = await service.children.send(self.lease, self.n, new, self._only())
        if isinstance(sent, SpawnRefusal):
            refusal = _limit(sent)
            return ToolResult(status=refusal.status, text="", code=refusal.code, hint=refusal.hint)
        if isinstance(sent, MessageFate):
            return ToolResult(status=ResultStatus.OK, text=f"{message.session} {_DELIVERED[sent]}")
        return Park(wait=sent)

    async def tell(self, text: str) -> ToolResult:
        """Send a message to the parent."""
        sent = await self.subsessions.children.tell(self.lease, self.n, text)
        if isinstance(sent, SpawnRefusal):
            refusal = _limit(sent)
            return ToolResult(status=refusal.status, text="", code=refusal.code, hint=refusal.hint)
        return ToolResult(status=ResultStatus.OK, text="Your parent has your message. Go on with your task.")

    async def history(self, child: SessionId, before: int | None, limit: int, *, calls: bool) -> Sequence[HistoryLine]:
        """Return the messages of a descendant; in a shared session, only in one for the same person."""
        service, own = self.subsessions, self.view.session.id
        found = await service.queries.session(child)
        if found is None or found.lineage is None or own not in (found.lineage.parent, found.lineage.root):
            raise NotFound(f"There is no sub-session {child} below {own}.")
        only = self._only()
        turn = await service.queries.turn(found.lineage.turn)
        if only is not None and turn.turn.principal != only:
            raise Forbidden(f"The sub-session {child} is of somebody else's turn.", cure="Its requester can read it.")
        lines = list[HistoryLine]()
        for _ in range(HISTORY_PAGES):
            page = await service.queries.older(child, before, HISTORY_ROWS)
            lines[:0] = lines_of(page.rows, service.redactor.text, calls=calls)
            if len(lines) >= limit or not page.more or not page.rows:
                break
            before = page.rows[0].ord
        return lines[-limit:]

    async def members(self) -> Sequence[ChildLine]:
        """Return all descendants of this session."""
        return await self.subsessions.children.family(self.view.session.id)

    async def stop(self, child: SessionId) -> int:
        """Stop a descendant with all below it and their jobs; in a shared session, only one for the same person.

        That holds for owners too: they are not known here, and have `/stop`.
        """
        session = self.view.session
        stopped = await self.subsessions.children.stop_child(session.id, child, STOPPED, self._only())
        why = "It was ended by sessions_stop."
        event = JobsStopped(session=works_in(session), only=None, why=why, below=child)
        self.subsessions.events.publish(JOBS, event)
        return stopped

    def _only(self) -> Principal | None:
        """Return the person whose children this call may reach; None: everybody's."""
        # A child works for one person, whatever principal its later turns have; so do a main session and a dm.
        session = self.view.session
        shared = session.kind is SessionKind.NON_MAIN and session.lineage is None
        return self.view.turn.principal if shared else None

    async def enter_plan(self) -> None:
        """Give this session the preset that plans, as the effect of this call's step."""
        if PLAN not in {one.name for one in self.subsessions.registry.snapshot().presets.for_people()}:
            raise NotFound(f"There is no preset {PLAN} for people here.", cure="Show the plan in the answer, and ask.")
        await self.subsessions.journal.enter_plan(self.lease, self.n)

    async def leave_plan(self) -> None:
        """Give this session the preset before its present one, as the effect of this call's step."""
        await self.subsessions.journal.leave_plan(self.lease, self.n)

    async def _left(self) -> Left:
        """Return the turn's remaining budget. Children of this very call, left by a crash, do not count."""
        service, turn = self.subsessions, self.view.turn
        family = await service.children.children_of(turn.id)
        others = [line for line in family if line.n != self.n]
        now = await service.queries.turn(turn.id)  # read last: a child that ends in between counts twice, not never
        given = await service.tokens_of(others, told_of(now))
        most = rights_of(self.view.session, (), service.limits)
        return Left(
            active_s=most.active_s - now.turn.active_ms / 1000 - now.held.total_seconds(),
            tokens=most.tokens - tokens_used(now) - given,
        )

    def _new_steps(self, steps: Sequence[WorkflowStep], left: Left) -> list[NewStep] | SpawnDenied:
        """Return the children of a workflow: each has an equal part of what is left, so that all have it together."""
        tokens, new = left.tokens // len(steps), list[NewStep]()
        for place, step in enumerate(steps, 1):
            part = min(tokens, step.tokens) if step.tokens else tokens
            task = Task(
                text=step.task, agent=step.agent, preset=step.preset, tools=step.tools, timeout_s=step.timeout_s
            )
            id_ = step_session(self.view.turn.id, self.n, place)
            child = self._new_child(task, replace(left, tokens=part), id_)
            if isinstance(child, SpawnDenied):
                return replace(child, hint=f"The step {step.name!r}: {child.hint} Nothing was run.")
            if step.tokens and not child.tokens:  # the parent has no limit to cut from
                child = replace(child, tokens=step.tokens)
            new.append(NewStep(name=step.name, needs=step.needs, child=child))
        return new

    def _new_child(self, task: Task, left: Left, session: SessionId) -> NewChild | SpawnDenied:
        service = self.subsessions
        if not task.text.strip():
            return SpawnDenied(
                code="empty", hint="The task is empty; say what is to be done.", status=ResultStatus.ERROR
            )
        strange = _unknown("agent", task.agent, service.agents) or _unknown("model", task.model, service.models.names)
        if strange:
            return strange
        if task.mode is SpawnMode.SESSION and _nobody_asked(self.view):
            # Its end would start a turn like this one: without a person in between that could loop forever.
            hint = "No person asked for this turn: a sub-session started it. Use the mode run, or ask the person."
            return SpawnDenied(code="nobody_asked", hint=hint)
        agent = service.agents.get(task.agent)
        tools = service.registry.snapshot()
        preset = task.preset or (agent.preset if agent else "")
        strange = _unknown("preset", preset, {one.name for one in tools.presets.for_children()})
        if strange:
            return strange
        rights = self._rights(task, left, agent)
        if isinstance(rights, SpawnDenied):
            return rights
        above = self.view.session.lineage
        return NewChild(
            session=session,
            title=title_of(service.redactor.text(task.title or task.text)),
            task=task.text,
            tools=tuple(sorted(rights.tools - _kept_from(agent, rights.tools, tools.specs))),
            mode=task.mode,
            preset=preset,
            # Stored, not looked up later: a grandchild without settings of its own inherits its parent's.
            agent=task.agent or (above.agent if above else ""),
            model=task.model or (agent.model if agent else "") or (above.model if above else ""),
            active_s=rights.active_s,
            tokens=rights.tokens,
            expires_in=ENDS_WITHIN,
        )

    def _rights(self, task: Task, left: Left, agent: Agent | None) -> Rights | SpawnDenied:
        """Return the rights of a child for a task, from those that this session has now."""
        service = self.subsessions
        tools = service.registry.snapshot()
        seen = [tool.spec.name for tool in tools.seen_by(self.view.session)]
        parent = rights_of(self.view.session, seen, service.limits)
        at_most_s = service.limits.child_active.total_seconds()
        return rights_of_child(parent, left, task, agent, at_most_s, tools.of_children)


def _kept_from(agent: Agent | None, tools: Collection[str], specs: Mapping[str, ToolSpec]) -> frozenset[str]:
    """Return those of these tools that sub-sessions of an agent do not have."""
    if agent is None:
        return frozenset()
    newer = (name for name in tools if specs[name].generation > agent.generation)
    return frozenset((*newer, *agent.without))


def _nobody_asked(view: TurnView) -> bool:
    """Return True when the end of a sub-session started the turn and no person has written in it."""
    return child_asks(one.message.principal for one in view.inputs if not one.context)


def _limit(refusal: SpawnRefusal) -> SpawnDenied:
    stopped = refusal is SpawnRefusal.STOPPING
    status = ResultStatus.CANCELLED if stopped else ResultStatus.DENIED
    return SpawnDenied(code=refusal.value, hint=_REFUSED[refusal], status=status)


def _unknown(what: str, name: str, known: Collection[str]) -> SpawnDenied | None:
    hint = unknown(what, name, known)
    return SpawnDenied(code=f"unknown_{what}", hint=hint, status=ResultStatus.ERROR) if hint else None
