"""One turn: ask the model, bring its calls to their results, ask again, until an answer without calls or a wait.

Everything is read from and written to rows, so a turn goes on wherever and whenever it is claimed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gateway.errors import LeaseLost, ModelError
from gateway.execution import Cut
from gateway.failpoints import FailPoints
from gateway.model.ids import OwnerName, Principal, SlotId, WaitId, mint
from gateway.model.live import TextDelta, session_topic
from gateway.model.prompts import Complete, ModelRequest, TextPart
from gateway.model.sessions import Lease, Turn, TurnKind, TurnState
from gateway.model.slots import NewSlot, SlotKind, shown_when_stored
from gateway.model.tools import Answer, StepKind, StepState
from gateway.model.views import TurnView
from gateway.model.waits import NewWait, WaitKind
from gateway.observe import Meters, Redactor, log
from gateway.ports import Clock, Lanes, Live, Model, Steps, Views
from gateway.registry import Registry
from gateway.toolcalls import ToolCalls
from gateway.transcript import HISTORY_TURNS, messages, ungiven

ACTIVE_AT_MOST = timedelta(minutes=15)
ANSWERS_AT_MOST = 50
PAGE_CLOSED_AFTER = timedelta(seconds=30)
BEGUN_AT_MOST = 10
"""Times that a turn is begun without a decision to go on with: one that ends the process each time ends itself."""
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
    _log: Any = field(default_factory=lambda: log("turn"))

    async def run(self, lease: Lease, cut: Cut) -> None:
        """Run until the turn ended or parked. Cancelled by the holder when it is cut (`cut` says why).

        Raises `LeaseLost` when a write is refused, or the turn was stopped: nothing more may be begun.
        """
        began = self.clock.monotonic()
        view = await self.views.turn(lease.turn)
        if lease.fence - len(view.waits) > BEGUN_AT_MOST:
            text = f"Stopped: this was begun {BEGUN_AT_MOST} times and never came to its end. Write again to try anew."
            await self._fail(view, lease, text)
            return
        if view.steps:
            await self.points.hit("WOKEN")
        while True:
            if any(step.state is not StepState.FINISHED for step in view.steps):
                if not await self.calls.settle(lease, cut) and await self.lanes.park(lease):
                    await self.points.hit("PARKED")
                    return
            elif await self._ask(view, lease, self.clock.monotonic() - began):
                await self.points.hit("J20")
                return
            view = await self.views.turn(lease.turn)
            if view.turn.state is TurnState.STOPPING:
                raise LeaseLost("The turn was stopped.")  # asking the model again would be for nothing

    async def _ask(self, view: TurnView, lease: Lease, held_s: float) -> bool:
        """Ask the model once and store what it said. Return True when the turn ended."""
        beyond = self._beyond(view, held_s)
        if beyond:
            return await self._fail(view, lease, beyond)
        model = self.operator if view.turn.kind is TurnKind.COMMAND else self.model
        try:
            answer = await self._stream(model, view)
        except ModelError as error:
            self._log.warning("model failed", model=model.name, error=str(error))
            return await self._fail(view, lease, f"The model could not answer: {error}")
        await self.points.hit("J6")
        given = ungiven(view)
        if answer.calls:
            await self.steps.plan(lease, answer, given=given, slots=self._said(view.turn, answer, len(view.steps)))
            await self.points.hit("J7")
            return False
        slots = self._said(view.turn, answer, len(view.steps)) or [_text(view.turn, EMPTY)]
        timers = self._timers(view, slots[0])
        ended = await self.lanes.finish_turn(
            lease, TurnState.DONE, answer=answer, given=given, slots=slots, timers=timers
        )
        await self.points.hit("J15")
        if ended:
            self.meters.turns.labels(TurnState.DONE.value).inc()
        return ended

    async def _stream(self, model: Model, view: TurnView) -> Answer:
        """Ask, show the text as it comes, return the whole answer."""
        session, n, start = view.session, len(view.steps), 0
        # Who answers commands reads nothing but them.
        alone = model.name == self.operator.name
        history = () if alone else await self.views.history(session.id, view.turn.epoch, HISTORY_TURNS)
        request = ModelRequest(
            system=self.system, messages=messages(history, view), tools=self.registry.offers(session)
        )
        began = self.clock.monotonic()
        await self.points.hit("J5")
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                match event:
                    case TextPart(text=text):
                        text = self.redactor.text(text)
                        delta = TextDelta(session=session.id, turn=view.turn.id, n=n, start=start, text=text)
                        start += len(text)
                        self.live.publish(session_topic(session.id), delta)
                    case Complete(answer=answer):
                        self.meters.model_seconds.labels(model.name).observe(self.clock.monotonic() - began)
                        return answer
        raise ModelError("The model's stream ended before its answer did.")

    def _said(self, turn: Turn, answer: Answer, n: int) -> list[NewSlot]:
        text = self.redactor.text(answer.text).strip()
        return [_text(turn, text, n)] if text else []

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

    async def _fail(self, view: TurnView, lease: Lease, text: str) -> bool:
        slot = _text(view.turn, self.redactor.text(text))
        timers = self._timers(view, slot)
        return await self.lanes.finish_turn(lease, TurnState.FAILED, answer=None, given=(), slots=[slot], timers=timers)


def _text(turn: Turn, text: str, n: int | None = None) -> NewSlot:
    return NewSlot(conversation=turn.conversation, kind=SlotKind.ANSWER, text=text, n=n, id=SlotId(mint("o")))
