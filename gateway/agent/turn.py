"""Agent loop of one turn: ask the model, settle its calls, ask again. Used by `worker` for each claimed turn.

The loop ends with an answer without calls, or parks at a wait. All state is in rows, so any node can claim the turn
again and go on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gateway.agent.answer_stream import AnswerStream, last_words, said, unmarked, why_no_answer
from gateway.agent.attachments import Attachments, files_told
from gateway.agent.limits import active_limit, beyond, out_of_time
from gateway.agent.prompt import UNBOUND, Bounds, Prompt, PromptBuilder
from gateway.agent.status import Status
from gateway.agent.transcript import ungiven
from gateway.agent.window import HISTORY_TURNS, LongHistory
from gateway.domain.ids import OwnerName, WaitId, mint
from gateway.domain.live import ANSWERS, Activity, TurnActive, TurnReleased
from gateway.domain.prompts import AnswerRestarted, Complete, ModelRequest, TextPart
from gateway.domain.slots import NewSlot, shown_when_stored
from gateway.domain.steps import Answer, StepState
from gateway.domain.text import visible
from gateway.domain.turns import Lease, TurnKind, TurnLimits, TurnState
from gateway.domain.views import Claimed, TurnView
from gateway.domain.waits import NewWait, WaitKind
from gateway.errors import LeaseLost, ModelError
from gateway.ports import Clock, EventBus, Model, Models, Queries, TurnJournal, TurnQueue
from gateway.system.cancellation import Cancellation
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.system.redaction import Redactor
from gateway.toolcalls.registry import Registry
from gateway.toolcalls.scheduler import ToolCalls
from gateway.toolcalls.subsessions import SubsessionService
from gateway.toolcalls.tool_set import ToolSet

PAGE_CLOSED_AFTER = timedelta(seconds=30)
"""Delay after which an answer on a page that nobody has open is copied to the owner's chat."""
BEGUN_AT_MOST = 10
"""Starts of a turn without a decision in between. The limit stops a turn that crashes the process each time."""
SHORTER_AT_MOST = 2
"""Retries of one model request, each shorter, after the model refused it as too long."""
EMPTY = "The model gave an empty answer. Ask again, or in other words."


@dataclass(slots=True, kw_only=True)
class _Holding:
    """Working state of one claimed turn, from `run` until the turn is released."""

    lease: Lease
    began: float
    before: timedelta
    """Working time under earlier leases."""
    limit: timedelta
    status: Status
    history: Sequence[TurnView] | None
    """The session's history at the claim; None once the model was asked."""
    tools: ToolSet
    """Tools at the claim; later steps have the same ones."""
    active: TurnActive | None
    """The event that shows the turn as active; None where its conversation does not show that."""
    long: LongHistory | None = None
    bounds: Bounds = UNBOUND
    """Size that fitted after a model refused a request as too long; later steps start with it."""
    stream: AnswerStream | None = None
    """The answer being written."""


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """Runner of claimed turns. One per node; holds the state of each turn that runs here."""

    queue: TurnQueue
    journal: TurnJournal
    queries: Queries
    events: EventBus
    calls: ToolCalls
    registry: Registry
    subsessions: SubsessionService
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
    limits: TurnLimits = field(default_factory=TurnLimits)
    currency: str = "USD"
    """Currency of the prices, for the status line."""
    _held: dict[Lease, _Holding] = field(default_factory=dict[Lease, _Holding])
    _log: Any = field(default_factory=lambda: log("turn"))

    @property
    def history_turns(self) -> int:
        """Number of ended turns to read with a claim: 0 when the operator is the only model."""
        return HISTORY_TURNS if any(name != self.operator.name for name in self.models.names) else 0

    async def run(self, claimed: Claimed, cancellation: Cancellation) -> LongHistory | None:
        """Run until the turn ended or parked. The caller cancels it, with the reason in `cancellation`.

        Return the history to summarise when the turn ended and its session's history is long, else None. Raises
        `LeaseLost` when a write is refused, or the turn was stopped: nothing more may be started. The state of a
        cancelled turn stays here until `release`.
        """
        lease = claimed.lease
        view = claimed.view or await self.queries.turn(lease.turn)
        holding = self._held[lease] = self._hold(view, claimed)
        self.publish_active(lease)
        try:
            await holding.status.resume()
            if await self._run(view, holding, cancellation):
                holding.status.ended()
                return holding.long
            return None
        finally:
            if cancellation.why is None:
                self._forget(lease)

    def publish_active(self, lease: Lease) -> None:
        """Publish that the turn runs here, if its conversation shows that. Cheap; never fails."""
        holding = self._held.get(lease)
        if holding is not None and holding.active is not None:
            self.events.publish(ANSWERS, holding.active)

    def left_s(self, lease: Lease) -> float | None:
        """Return the working time that the turn has left, in seconds; None when it is not held here."""
        holding = self._held.get(lease)
        return None if holding is None else (holding.limit - self._worked(holding)).total_seconds()

    def out_of_time(self, view: TurnView) -> str:
        """Return the text of a turn that has used up its working time."""
        return out_of_time(view, self.limits)

    def last_slots(
        self, view: TurnView, lease: Lease, text: str, *, keep: bool = False
    ) -> tuple[list[NewSlot], list[NewWait]]:
        """Return the last slots and timers of a turn without an answer; `keep` a partial answer above the text."""
        holding = self._held.get(lease)
        stream = holding.stream if holding is not None and keep else None
        slot = last_words(view, self.redactor.text(text), stream.so_far if stream else "")
        closing = holding.status.closing(view) if holding is not None else []
        return [*([slot] if slot.text else []), *closing], self._timers(view, slot)

    def release(self, lease: Lease, *, ended: bool) -> None:
        """Drop the state of a cancelled turn; `ended`: it will not go on. Idempotent."""
        holding = self._forget(lease)
        if holding is not None and ended:
            holding.status.ended()

    def _forget(self, lease: Lease) -> _Holding | None:
        holding = self._held.pop(lease, None)
        if holding is not None and holding.active is not None:
            self.events.publish(ANSWERS, TurnReleased(turn=lease.turn))
        return holding

    def _hold(self, view: TurnView, claimed: Claimed) -> _Holding:
        where, lease = view.turn.conversation, claimed.lease
        shows = where.channel in self.streams
        return _Holding(
            lease=lease,
            began=self.clock.monotonic(),
            before=timedelta(milliseconds=view.turn.active_ms),
            limit=active_limit(view, self.limits),
            history=claimed.history,
            tools=self.registry.snapshot(),
            active=TurnActive(session=lease.session, turn=lease.turn, conversation=where) if shows else None,
            status=Status(
                view=view,
                lease=lease,
                journal=self.journal,
                events=self.events,
                clock=self.clock,
                redactor=self.redactor,
                streams=self.streams,
                currency=self.currency,
            ),
        )

    def _worked(self, holding: _Holding) -> timedelta:
        return holding.before + timedelta(seconds=self.clock.monotonic() - holding.began)

    async def _run(self, view: TurnView, holding: _Holding, cancellation: Cancellation) -> bool:
        """Run step after step. Return True when the turn ended, False when it parked."""
        lease = holding.lease
        if lease.fence - len(view.waits) > BEGUN_AT_MOST:
            text = f"Stopped: this was started {BEGUN_AT_MOST} times and never finished. Write again to retry."
            await self._fail(view, holding, text)
            return True
        if view.steps:
            await self.points.hit("WOKEN")
        now: TurnView | None = view
        while now is not None:
            if any(step.state is not StepState.FINISHED for step in now.steps):
                now = await self._settle(now, holding, cancellation)
                if now is None:
                    return False
            else:
                now = await self._ask_model(now, holding)
            if now is not None and now.turn.state is TurnState.STOPPING:
                raise LeaseLost("The turn was stopped.")  # another model request would be wasted
        await self.points.hit("J20")
        return True

    async def _settle(self, view: TurnView, holding: _Holding, cancellation: Cancellation) -> TurnView | None:
        """Settle the calls as far as possible. Return the turn's new view, None when it parked."""
        lease = holding.lease
        async with holding.status.watch():
            settled = await self.calls.settle(view, holding.tools, lease, cancellation, holding.status.set_activity)
        if settled is not None:
            return settled
        await holding.status.parking()
        if await self.queue.park(lease):
            await self.points.hit("PARKED")
            return None
        return await self.queries.turn(lease.turn)

    async def _ask_model(self, view: TurnView, holding: _Holding) -> TurnView | None:
        """Ask the model once and store its answer. Return the turn's new view, None when it ended."""
        lease = holding.lease
        untold = await self.subsessions.tokens_untold(view)
        passed = beyond(view, self._worked(holding), self.limits, untold)
        if passed:
            return await self._fail(view, holding, passed)
        command = view.turn.kind is TurnKind.COMMAND
        model = self.operator if command else self.models.of(view.session)
        if view.session.lineage is not None:
            holding.status.set_activity(Activity())
        view = await self.attachments.fetch(view, lease)
        try:
            answer = await self._answer(model, view, holding)
        except ModelError as error:
            self._log.warning("model failed", model=model.name, error=str(error))
            return await self._fail(view, holding, why_no_answer(view, error))
        holding.stream = None  # complete
        await self.points.hit("J6")
        given = ungiven(view)
        if answer.calls:
            slots = said(view, answer, self.redactor)
            planned = await self.journal.plan(lease, answer, given=given, slots=slots)
            await self.points.hit("J7")
            return planned
        if view.session.lineage is not None:  # the text leaves the session: its parent's model and page get it
            answer = replace(answer, text=self.redactor.text(answer.text))
        slots = said(view, answer, self.redactor) if visible(answer.text) else [last_words(view, EMPTY)]
        timers, closing = self._timers(view, slots[0]), holding.status.closing(view, answer)
        ended = await self.queue.finish_turn(
            lease, TurnState.DONE, answer=answer, given=given, slots=[*slots, *closing], timers=timers
        )
        await self.points.hit("J15")
        if not ended:  # a message came meanwhile: store this answer, and answer the message next
            return await self.journal.plan(lease, answer, given=given, slots=slots)
        self.metrics.turns.labels(TurnState.DONE.value).inc()
        return None

    async def _answer(self, model: Model, view: TurnView, holding: _Holding) -> Answer:
        """Ask the model, stream the text and return the whole answer. Retry a too long request with a shorter one."""
        prompt = await self._prompt(model, view, holding)
        turn = view.turn
        stream = holding.stream = AnswerStream(
            journal=self.journal,
            events=self.events,
            redactor=self.redactor,
            clock=self.clock,
            view=view,
            lease=holding.lease,
            streams=turn.kind is TurnKind.MODEL and turn.conversation.channel in self.streams,
            mark=prompt.request.mark,
        )
        await self.points.hit("J5")
        answer, used = await self._asked(model, view, holding.tools, prompt, stream)
        if used is not prompt:
            holding.bounds = used.bounds
            if not answer.note:  # a fallback may be smaller: keep what the session's own model can read
                holding.long = _long(view, hard=True)
        if model.name == self.operator.name:  # it reads no files, so tell the person here
            answer = replace(answer, text="\n\n".join(filter(None, [answer.text, files_told(view)])))
        return answer

    async def _asked(
        self, model: Model, view: TurnView, tools: ToolSet, prompt: Prompt, stream: AnswerStream
    ) -> tuple[Answer, Prompt]:
        """Return the answer and its prompt: a shorter one when the model refused the first as too long."""
        for _ in range(SHORTER_AT_MOST):
            try:
                return await self._stream(model, prompt.request, stream), prompt
            except ModelError as error:
                shorter = await self.prompts.make_shorter(view, tools, prompt) if error.too_long else None
                if shorter is None:
                    raise
                self._log.warning("prompt shortened", model=model.name, error=str(error))
            prompt = shorter
            stream.restart()
            stream.mark = prompt.request.mark
        return await self._stream(model, prompt.request, stream), prompt

    async def _prompt(self, model: Model, view: TurnView, holding: _Holding) -> Prompt:
        if model.name == self.operator.name:  # the operator reads nothing but the command
            return await self.prompts.make_alone(view, holding.tools)
        history, holding.history = holding.history, None
        prompt = await self.prompts.make(view, holding.tools, holding.bounds, history)
        if prompt.long and holding.long is None:
            holding.long = _long(view, hard=False)
        return prompt

    async def _stream(self, model: Model, request: ModelRequest, stream: AnswerStream) -> Answer:
        began = self.clock.monotonic()
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                match event:
                    case TextPart(text=text):
                        await stream.add(text)
                    case AnswerRestarted(because=because):
                        self._log.warning("another model restarts the answer", because=because)
                        stream.restart()
                    case Complete(answer=answer):
                        self.metrics.model_seconds.labels(model.name).observe(self.clock.monotonic() - began)
                        return replace(answer, text=unmarked(answer.text, request.mark))
        raise ModelError("The model's stream ended before its answer did.")

    def _timers(self, view: TurnView, slot: NewSlot) -> list[NewWait]:
        """Return the timer that copies an unseen page answer to the owner's chat; none for a child."""
        owner = view.session.owner
        if owner is None or view.session.lineage is not None:
            return []
        if not shown_when_stored(view.turn.conversation) or owner not in self.elsewhere:
            return []
        payload = {"copy_of": slot.id, "owner": owner}
        until = self.clock.now() + PAGE_CLOSED_AFTER
        timer = NewWait(
            id=WaitId(mint("w")), kind=WaitKind.TIMER, n=0, approval=None, payload=payload, expires_at=until
        )
        return [timer]

    async def _fail(self, view: TurnView, holding: _Holding, text: str) -> None:
        slots, timers = self.last_slots(view, holding.lease, text)
        failed = TurnState.FAILED
        if await self.queue.finish_turn(holding.lease, failed, answer=None, given=(), slots=slots, timers=timers):
            self.metrics.turns.labels(failed.value).inc()


def _long(view: TurnView, *, hard: bool) -> LongHistory:
    turn = view.turn
    return LongHistory(session=turn.session, epoch=turn.epoch, principal=turn.principal, hard=hard)
