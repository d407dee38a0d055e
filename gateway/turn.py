"""One turn: ask the model, bring its calls to their results, ask again, until an answer without calls or a wait.

Everything is read from and written to rows, so a turn goes on wherever and whenever it is claimed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gateway.errors import LeaseLost, ModelError
from gateway.execution import Cut
from gateway.failpoints import FailPoints
from gateway.model.ids import OwnerName, Principal, WaitId, answer_slot, mint
from gateway.model.live import ANSWERS, TextDelta, Working, session_topic
from gateway.model.prompts import Complete, TextPart
from gateway.model.sessions import Lease, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind, shown_when_stored
from gateway.model.tools import Answer, StepKind, StepState
from gateway.model.views import Claimed, TurnView
from gateway.model.waits import NewWait, WaitKind
from gateway.observe import HIDDEN, Meters, Redactor, log
from gateway.ports import Clock, Lanes, Live, Model, Steps, Views
from gateway.registry import Registry
from gateway.toolcalls import ToolCalls
from gateway.transcript import HISTORY_TURNS, Marks, request, ungiven

ACTIVE_AT_MOST = timedelta(minutes=15)
ANSWERS_AT_MOST = 50
PAGE_CLOSED_AFTER = timedelta(seconds=30)
BEGUN_AT_MOST = 10
"""Times that a turn is begun without a decision to go on with: one that ends the process each time ends itself."""
SHOWN_AFTER_S = 1.0
"""Seconds after which the beginning of an answer is worth a message of its own; a quicker one is sent whole."""
EMPTY = "The model gave an empty answer. Ask again, or in other words."


@dataclass(slots=True, kw_only=True)
class Turns:
    """Runs claimed turns."""

    lanes: Lanes
    steps: Steps
    views: Views
    live: Live
    calls: ToolCalls
    registry: Registry
    model: Model
    operator: Model
    """Answers command turns, whatever the configured model is."""
    system: str
    clock: Clock
    meters: Meters
    points: FailPoints
    redactor: Redactor
    elsewhere: Mapping[OwnerName, tuple[Principal, ...]]
    """Each owner's principals besides the page, for answers that nobody saw there."""
    streams: Collection[str] = frozenset()
    """The channels that show an answer while it is written."""
    marks: Marks = field(default_factory=Marks)
    _working: dict[Lease, Working] = field(default_factory=dict[Lease, Working])
    """What is said of the turns that are held here now and whose conversation shows it."""
    _log: Any = field(default_factory=lambda: log("turn"))

    async def run(self, claimed: Claimed, cut: Cut) -> None:
        """Run until the turn ended or parked. Cancelled by the holder when it is cut (`cut` says why).

        Raises `LeaseLost` when a write is refused, or the turn was stopped: nothing more may be begun.
        """
        began = self.clock.monotonic()
        lease = claimed.lease
        view = claimed.view or await self.views.turn(lease.turn)
        where = view.turn.conversation
        if where.channel in self.streams:
            self._working[lease] = Working(session=lease.session, turn=lease.turn, conversation=where)
            self.say_working(lease)
        try:
            await self._run(view, lease, cut, began)
        finally:
            self._working.pop(lease, None)

    def say_working(self, lease: Lease) -> None:
        """Say that the turn is worked on here, if its conversation shows that. Cheap; never fails."""
        working = self._working.get(lease)
        if working is not None:
            self.live.publish(ANSWERS, working)

    async def _run(self, view: TurnView, lease: Lease, cut: Cut, began: float) -> None:
        if lease.fence - len(view.waits) > BEGUN_AT_MOST:
            text = f"Stopped: this was begun {BEGUN_AT_MOST} times and never came to its end. Write again to try anew."
            await self._fail(view, lease, text)
            return
        if view.steps:
            await self.points.hit("WOKEN")
        now: TurnView | None = view
        while now is not None:
            if any(step.state is not StepState.FINISHED for step in now.steps):
                now = await self.calls.settle(now, lease, cut)
                if now is None and await self.lanes.park(lease):
                    await self.points.hit("PARKED")
                    return
                now = now or await self.views.turn(lease.turn)
            else:
                now = await self._ask(now, lease, self.clock.monotonic() - began)
            if now is not None and now.turn.state is TurnState.STOPPING:
                raise LeaseLost("The turn was stopped.")  # asking the model again would be for nothing
        await self.points.hit("J20")

    async def _ask(self, view: TurnView, lease: Lease, held_s: float) -> TurnView | None:
        """Ask the model once and store what it said. Return how the turn stands then, None when it ended."""
        beyond = self._beyond(view, held_s)
        if beyond:
            return await self._fail(view, lease, beyond)
        model = self.operator if view.turn.kind is TurnKind.COMMAND else self.model
        try:
            answer = await self._stream(model, view, lease)
        except ModelError as error:
            self._log.warning("model failed", model=model.name, error=str(error))
            return await self._fail(view, lease, f"The model could not answer: {error}")
        await self.points.hit("J6")
        given = ungiven(view)
        if answer.calls:
            planned = await self.steps.plan(lease, answer, given=given, slots=self._said(view, answer))
            await self.points.hit("J7")
            return planned
        slots = self._said(view, answer) or [last_words(view, EMPTY)]
        timers = self._timers(view, slots[0])
        ended = await self.lanes.finish_turn(
            lease, TurnState.DONE, answer=answer, given=given, slots=slots, timers=timers
        )
        await self.points.hit("J15")
        if not ended:
            return await self.views.turn(lease.turn)
        self.meters.turns.labels(TurnState.DONE.value).inc()
        return None

    async def _stream(self, model: Model, view: TurnView, lease: Lease) -> Answer:
        """Ask, show the text as it comes, return the whole answer."""
        session = view.session
        # Who answers commands reads nothing but them.
        alone = model.name == self.operator.name
        history = () if alone else await self.views.history(session.id, view.turn.epoch, HISTORY_TURNS)
        asked = request(self.system, history, view, self.registry.offers(session), self.marks)
        writing = _Writing(turns=self, view=view, lease=lease, began=self.clock.monotonic(), mark=asked.mark)
        await self.points.hit("J5")
        async with aclosing(model.stream(asked)) as events:
            async for event in events:
                match event:
                    case TextPart(text=text):
                        await writing.add(text)
                    case Complete(answer=answer):
                        self.meters.model_seconds.labels(model.name).observe(self.clock.monotonic() - writing.began)
                        return replace(answer, text=_unmarked(answer.text, asked.mark))
        raise ModelError("The model's stream ended before its answer did.")

    def _said(self, view: TurnView, answer: Answer) -> list[NewSlot]:
        text = self.redactor.text(answer.text).strip()
        return [_answer(view, text, len(view.steps))] if text else []

    def _timers(self, view: TurnView, slot: NewSlot) -> list[NewWait]:
        """An answer on a page that nobody has open is shown again in the owner's chat."""
        owner = view.session.owner
        if owner is None or not shown_when_stored(view.turn.conversation) or not self.elsewhere.get(owner):
            return []
        payload = {"copy_of": slot.id, "owner": owner, "principals": list(self.elsewhere[owner])}
        until = self.clock.now() + PAGE_CLOSED_AFTER
        timer = NewWait(
            id=WaitId(mint("w")), kind=WaitKind.TIMER, n=0, approval=None, payload=payload, expires_at=until
        )
        return [timer]

    def _beyond(self, view: TurnView, held_s: float) -> str:
        """Say which limit the turn has passed, if any. `held_s`: seconds of this holding, which the row has not yet."""
        if sum(1 for step in view.steps if step.kind is StepKind.MODEL) >= ANSWERS_AT_MOST:
            return f"Stopped: the model was asked {ANSWERS_AT_MOST} times in this turn. Write again to go on."
        if timedelta(milliseconds=view.turn.active_ms, seconds=held_s) > ACTIVE_AT_MOST:
            return "Stopped: this turn worked for 15 minutes. Write again to go on."
        return ""

    async def _fail(self, view: TurnView, lease: Lease, text: str) -> None:
        slot = last_words(view, self.redactor.text(text))
        timers = self._timers(view, slot)
        await self.lanes.finish_turn(lease, TurnState.FAILED, answer=None, given=(), slots=[slot], timers=timers)


@dataclass(slots=True, kw_only=True)
class _Writing:
    """One answer while it comes: told to the page as it is, and to chats that stream with care."""

    turns: Turns
    view: TurnView
    lease: Lease
    began: float
    mark: str
    """The request's; the model must not tell it to those who could then forge it."""
    _told: int = 0
    """Characters that the page was told."""
    _streams: bool = False
    _held_back: str = ""
    _shown: int = 0
    """Characters that chats were told."""
    _so_far: list[str] = field(default_factory=list[str])
    """What they were told, until its slot is made."""
    _slot_made: bool = False

    def __post_init__(self) -> None:
        """Find out who is told."""
        turn = self.view.turn
        self._streams = turn.kind is TurnKind.MODEL and turn.conversation.channel in self.turns.streams

    async def add(self, text: str) -> None:
        """Take more of the text."""
        session = self.view.session.id
        told = _unmarked(self.turns.redactor.text(text), self.mark)
        self.turns.live.publish(session_topic(session), self._delta(self._told, told))
        self._told += len(told)
        if self._streams:
            await self._show(text)

    async def _show(self, text: str) -> None:
        """Tell chats what is safe to be told; make the answer's slot once that took long enough."""
        self._held_back += text
        cut = len(self._held_back) - self.turns.redactor.pending(self._held_back)
        safe = _unmarked(self.turns.redactor.text(self._held_back[:cut]), self.mark)
        self._held_back = self._held_back[cut:]
        if safe:
            self.turns.live.publish(ANSWERS, self._delta(self._shown, safe))
            self._shown += len(safe)
        if not self._slot_made:
            self._so_far.append(safe)
            await self._make_slot()

    async def _make_slot(self) -> None:
        so_far = "".join(self._so_far).strip()
        if so_far and self.turns.clock.monotonic() - self.began >= SHOWN_AFTER_S:
            self._slot_made = True
            await self.turns.steps.open_slot(self.lease, _answer(self.view, so_far, self._n))

    @property
    def _n(self) -> int:
        return len(self.view.steps)

    def _delta(self, start: int, text: str) -> TextDelta:
        return TextDelta(session=self.view.session.id, turn=self.view.turn.id, n=self._n, start=start, text=text)


def _unmarked(text: str, mark: str) -> str:
    return text.replace(mark, HIDDEN) if mark else text


def last_words(view: TurnView, text: str) -> NewSlot:
    """What a turn says instead of an answer: in the place of the one that was being written, if that was shown."""
    return _answer(view, text, None)


def _answer(view: TurnView, text: str, n: int | None) -> NewSlot:
    slot = answer_slot(view.turn.id, len(view.steps))
    return NewSlot(conversation=view.turn.conversation, kind=SlotKind.ANSWER, text=text, n=n, id=slot)
