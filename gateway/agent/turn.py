"""Agent loop of one turn: ask the model, settle its calls, ask again. Used by `worker` for each claimed turn.

The loop ends with an answer without calls, or parks at a wait. All state is in rows, so any node can claim the turn
again and go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gateway.agent.answer_stream import AnswerStream, unmarked
from gateway.agent.attachments import Attachments, files_told
from gateway.agent.budgets import BudgetKeeper
from gateway.agent.limits import active_limit, beyond
from gateway.agent.prompt import UNBOUND, Bounds, Prompt, PromptBuilder
from gateway.agent.spoken_answers import SpokenAnswers
from gateway.agent.transcript import ungiven
from gateway.agent.turn_texts import EMPTY, last_words, said, why_no_answer
from gateway.agent.window import HISTORY_TURNS, LongHistory
from gateway.domain.events import Activity, TurnActive, TurnReleased
from gateway.domain.ids import OwnerName, WaitId, mint
from gateway.domain.prompts import AnswerRestarted, Complete, ModelRequest, TextPart
from gateway.domain.slots import NewSlot, shown_when_stored
from gateway.domain.steps import Answer, StepState
from gateway.domain.text import visible
from gateway.domain.turns import BEGUN_AT_MOST, Lease, TurnKind, TurnLimits, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait, WaitKind
from gateway.errors import LeaseLost, ModelError, OverBudget
from gateway.outbound.status_line import TurnStatus
from gateway.ports import Clock, EventBus, Model, Models, Queries, TurnJournal, TurnQueue
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.scheduler import ToolCalls
from gateway.toolcalls.subsessions import SubsessionService
from gateway.toolcalls.tool_index import unfold
from gateway.toolcalls.tool_set import ToolSet

PAGE_CLOSED_AFTER = timedelta(seconds=30)
"""Delay after which an answer on a page that nobody has open is copied to the owner's chat."""
SHORTER_AT_MOST = 2
"""Retries of one model request, each shorter, after the model refused it as too long."""


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """Everything that the turns of a node need. One per node; `begin` makes the object that holds one turn."""

    queue: TurnQueue
    journal: TurnJournal
    queries: Queries
    events: EventBus
    calls: ToolCalls
    registry: Registry
    subsessions: SubsessionService
    budgets: BudgetKeeper
    prompts: PromptBuilder
    attachments: Attachments
    models: Models
    operator: Model
    """Model for command turns, independent of the configured one."""
    clock: Clock
    metrics: Metrics
    points: FailPoints
    redactor: Redactor
    elsewhere: Collection[OwnerName]
    """Owners with a direct chat, to which answers go that nobody saw on the page."""
    streams: Collection[str] = frozenset()
    """Channels that show an answer while it is written."""
    speech: SpokenAnswers | None = None
    """None: answers are not spoken."""
    limits: TurnLimits = field(default_factory=TurnLimits)
    currency: str = "USD"
    """Currency of the prices, for the status line."""
    log: Any = field(default_factory=lambda: log("turn"))

    @property
    def history_turns(self) -> int:
        """Number of ended turns to read with a claim: 0 when the operator is the only model."""
        return HISTORY_TURNS if any(name != self.operator.name for name in self.models.names) else 0

    def begin(self, claimed: Claimed) -> TurnRun:
        """Return the object that holds a claimed turn until it is released. Nothing runs yet."""
        return TurnRun(by=self, claimed=claimed)


@dataclass(eq=False, slots=True, kw_only=True)
class TurnRun:
    """One claimed turn, from its claim until it is released.

    A turn may be claimed again while its previous run still ends. Each run is an object of its own.
    """

    by: TurnRunner
    claimed: Claimed
    cancellation: Cancellation = field(default_factory=Cancellation)
    work: asyncio.Task[LongHistory | None] | None = None
    """Task of `run`."""
    _is_open: bool = False
    """True while the turn is held here and has been read."""
    _began: float = 0.0
    _before: timedelta = timedelta()
    """Working time under earlier leases."""
    _limit: timedelta = timedelta()
    _history: Sequence[TurnView] | None = None
    """The session's history at the claim; None once the model was asked."""
    _tools: ToolSet = field(init=False)
    """Tools at the claim; later steps have the same ones."""
    _status: TurnStatus = field(init=False)
    _active: TurnActive | None = None
    """The event that shows the turn as active; None where its conversation does not show that."""
    _long: LongHistory | None = None
    _bounds: Bounds = UNBOUND
    """Size that fitted after a model refused a request as too long; later steps start with it."""
    _writing: AnswerStream | None = None
    """The answer being written."""

    @property
    def lease(self) -> Lease:
        """Lease of the claim."""
        return self.claimed.lease

    # --- for the worker -----------------------------------------------------------------------

    async def run(self) -> LongHistory | None:
        """Run until the turn ended or parked. `cancel` cuts it; then the state stays until `release`.

        Return the history to summarise when the turn ended and its session's history is long, else None. Raises
        `LeaseLost` when a write is refused, or the turn was stopped: nothing more may be started.
        """
        view = self.claimed.view or await self.by.queries.turn(self.lease.turn)
        await self.by.registry.settle()
        self._open(view)
        self.publish_active()
        try:
            await self._status.resume()
            if await self._loop(view):
                self._status.ended()
                return self._long
            return None
        finally:
            if self.cancellation.why is None:
                self._close()

    def cancel(self, why: CancelReason) -> None:
        """Cancel the work, with the reason; the first reason stays."""
        if self.cancellation.why is None and self.work is not None and not self.work.done():
            self.cancellation.why = why
            self.work.cancel()

    def publish_active(self) -> None:
        """Publish that the turn runs here, if its conversation shows that. Cheap; never fails."""
        if self._is_open and self._active is not None:
            self.by.events.publish_to_sender(self._active.conversation, self._active)

    def left_s(self) -> float | None:
        """Return the working time that the turn has left, in seconds; None when it is not held."""
        return (self._limit - self._worked()).total_seconds() if self._is_open else None

    def last_slots(self, view: TurnView, text: str, *, keep: bool = False) -> tuple[list[NewSlot], list[NewWait]]:
        """Return the last slots and timers of a turn without an answer; `keep` a partial answer above the text."""
        stream = self._writing if self._is_open and keep else None
        slot = last_words(view, self.by.redactor.text(text), stream.so_far if stream else "")
        closing = self._status.closing(view) if self._is_open else []
        return [*([slot] if slot.text else []), *closing], self._timers(view, slot)

    def release(self, *, ended: bool) -> None:
        """Drop the state of a cancelled turn; `ended`: it will not go on. Idempotent."""
        if self._close() and ended:
            self._status.ended()

    def _open(self, view: TurnView) -> None:
        by, where = self.by, view.turn.conversation
        shows = where.channel in by.streams
        self._began = by.clock.monotonic()
        self._before = timedelta(milliseconds=view.turn.active_ms)
        self._limit = active_limit(view, by.limits)
        self._history = self.claimed.history
        self._tools = by.registry.snapshot()
        lease = self.lease
        self._active = TurnActive(session=lease.session, turn=lease.turn, conversation=where) if shows else None
        self._status = TurnStatus(
            view=view,
            lease=lease,
            journal=by.journal,
            events=by.events,
            clock=by.clock,
            redactor=by.redactor,
            streams=by.streams,
            currency=by.currency,
        )
        self._is_open = True

    def _close(self) -> bool:
        """Hold the turn no longer. Return True when it was held."""
        was_open, self._is_open = self._is_open, False
        if was_open and self._active is not None:
            self.by.events.publish_to_sender(self._active.conversation, TurnReleased(turn=self.lease.turn))
        return was_open

    def _worked(self) -> timedelta:
        return self._before + timedelta(seconds=self.by.clock.monotonic() - self._began)

    # --- the loop -----------------------------------------------------------------------------

    async def _loop(self, view: TurnView) -> bool:
        """Run step after step. Return True when the turn ended, False when it parked."""
        lease = self.lease
        if lease.claims - len(view.waits) > BEGUN_AT_MOST:
            text = f"Stopped: this was started {BEGUN_AT_MOST} times and never finished. Write again to retry."
            await self._fail(view, text)
            return True
        if view.steps:
            await self.by.points.hit("WOKEN")
        now: TurnView | None = view
        while now is not None:
            if any(step.state is not StepState.FINISHED for step in now.steps):
                now = await self._settle(now)
                if now is None:
                    return False
            else:
                now = await self._ask_model(now)
                self.by.budgets.settled()
            if now is not None and now.turn.state is TurnState.STOPPING:
                raise LeaseLost("The turn was stopped.")  # another model request would be wasted
        await self.by.points.hit("J20")
        return True

    async def _settle(self, view: TurnView) -> TurnView | None:
        """Settle the calls as far as possible. Return the turn's new view, None when it parked."""
        lease = self.lease
        async with self._status.watch():
            settled = await self.by.calls.settle(view, self._tools, lease, self.cancellation, self._status.set_activity)
        if settled is not None:
            return settled
        await self._status.parking()
        if await self.by.queue.park(lease):
            await self.by.points.hit("PARKED")
            return None
        return await self.by.queries.turn(lease.turn)

    async def _ask_model(self, view: TurnView) -> TurnView | None:
        """Ask the model once and store its answer. Return the turn's new view, None when it ended."""
        lease = self.lease
        untold = await self.by.subsessions.tokens_untold(view)
        passed = beyond(view, self._worked(), self.by.limits, untold)
        if passed:
            return await self._fail(view, passed)
        command = view.turn.kind is TurnKind.COMMAND
        model = self.by.operator if command else self.by.models.of(view.session)
        if view.session.lineage is not None:
            self._status.set_activity(Activity())
        view = await self.by.attachments.fetch(view, lease)
        try:
            answer = await self._answer(model, view)
        except OverBudget as error:
            text = f"Stopped: no budget is left. {error}" if view.steps else str(error)
            self.by.metrics.over_budget.inc()
            return await self._fail(view, text)
        except ModelError as error:
            self.by.log.warning("model failed", model=model.name, error=str(error))
            return await self._fail(view, why_no_answer(view, error))
        self._writing = None  # complete
        answer = self._tools.with_own_names(unfold(answer))
        await self.by.points.hit("J6")
        given = ungiven(view)
        if answer.calls:
            slots = said(view, answer, self.by.redactor)
            planned = await self.by.journal.plan(lease, answer, given=given, slots=slots)
            await self.by.points.hit("J7")
            return planned
        if view.session.lineage is not None:  # the text leaves the session: its parent's model and page get it
            answer = _with_text(answer, self.by.redactor.text(answer.text))
        slots = said(view, answer, self.by.redactor) if visible(answer.text) else [last_words(view, EMPTY)]
        if self.by.speech is not None:
            slots += await self.by.speech.slots(view, answer.text)
        timers, closing = self._timers(view, slots[0]), self._status.closing(view, answer)
        ended = await self.by.queue.finish_turn(
            lease, TurnState.DONE, answer=answer, given=given, slots=[*slots, *closing], timers=timers
        )
        await self.by.points.hit("J15")
        if not ended:  # a message came meanwhile: store this answer, and answer the message next
            return await self.by.journal.plan(lease, answer, given=given, slots=slots)
        self.by.metrics.turns.labels(TurnState.DONE.value).inc()
        return None

    async def _answer(self, model: Model, view: TurnView) -> Answer:
        """Ask the model, stream the text and return the whole answer. Retry a too long request with a shorter one."""
        prompt = await self._prompt(model, view)
        if model.name != self.by.operator.name:  # it costs nothing
            await self.by.budgets.reserve(view, self.lease, prompt.request, prompt.chars)
        turn = view.turn
        stream = self._writing = AnswerStream(
            journal=self.by.journal,
            events=self.by.events,
            redactor=self.by.redactor,
            clock=self.by.clock,
            view=view,
            lease=self.lease,
            streams=turn.kind is TurnKind.MODEL and turn.conversation.channel in self.by.streams,
            mark=prompt.request.mark,
        )
        await self.by.points.hit("J5")
        answer, used = await self._asked(model, view, prompt, stream)
        if used is not prompt:
            self._bounds = used.bounds
            if not answer.note:  # a fallback may be smaller: keep what the session's own model can read
                self._long = _long(view, hard=True)
        if model.name == self.by.operator.name:  # it reads no files, so tell the person here
            return _with_text(answer, "\n\n".join(filter(None, [answer.text, files_told(view)])))
        return answer

    async def _asked(self, model: Model, view: TurnView, prompt: Prompt, stream: AnswerStream) -> tuple[Answer, Prompt]:
        """Return the answer and its prompt: a shorter one when the model refused the first as too long."""
        for _ in range(SHORTER_AT_MOST):
            try:
                return await self._stream(model, prompt.request, stream), prompt
            except ModelError as error:
                shorter = await self.by.prompts.make_shorter(view, self._tools, prompt) if error.too_long else None
                if shorter is None:
                    raise
                self.by.log.warning("prompt shortened", model=model.name, error=str(error))
            prompt = shorter
            stream.restart()
            stream.mark = prompt.request.mark
        return await self._stream(model, prompt.request, stream), prompt

    async def _prompt(self, model: Model, view: TurnView) -> Prompt:
        if model.name == self.by.operator.name:  # the operator reads nothing but the command
            return await self.by.prompts.make_alone(view, self._tools)
        history, self._history = self._history, None
        prompt = await self.by.prompts.make(view, self._tools, self._bounds, history)
        if prompt.long and self._long is None:
            self._long = _long(view, hard=False)
        return prompt

    async def _stream(self, model: Model, request: ModelRequest, stream: AnswerStream) -> Answer:
        began = self.by.clock.monotonic()
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                match event:
                    case TextPart(text=text):
                        await stream.add(text)
                    case AnswerRestarted(because=because):
                        self.by.log.warning("another model restarts the answer", because=because)
                        stream.restart()
                    case Complete(answer=answer):
                        self.by.metrics.model_seconds.labels(model.name).observe(self.by.clock.monotonic() - began)
                        return _with_text(answer, unmarked(answer.text, request.mark))
        raise ModelError("The model's stream ended before its answer did.")

    def _timers(self, view: TurnView, slot: NewSlot) -> list[NewWait]:
        """Return the timer that copies an unseen page answer to the owner's chat; none for a child."""
        owner = view.session.owner
        if owner is None or view.session.lineage is not None:
            return []
        if not shown_when_stored(view.turn.conversation) or owner not in self.by.elsewhere:
            return []
        payload = {"copy_of": slot.id, "owner": owner}
        id_, after = WaitId(mint("w")), PAGE_CLOSED_AFTER
        return [NewWait(id=id_, kind=WaitKind.TIMER, n=0, approval=None, payload=payload, expires_in=after)]

    async def _fail(self, view: TurnView, text: str) -> None:
        slots, timers = self.last_slots(view, text)
        failed = TurnState.FAILED
        if await self.by.queue.finish_turn(self.lease, failed, answer=None, given=(), slots=slots, timers=timers):
            self.by.metrics.turns.labels(failed.value).inc()


def _with_text(answer: Answer, text: str) -> Answer:
    return answer if text == answer.text else replace(answer, text=text)


def _long(view: TurnView, *, hard: bool) -> LongHistory:
    turn = view.turn
    return LongHistory(session=turn.session, epoch=turn.epoch, principal=turn.principal, hard=hard)
