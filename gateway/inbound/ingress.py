"""Ingress: routes and stores every event of a channel before it is acknowledged, and decides presses.

First step of a message's path, called by channels. Control commands and presses are handled at once; every other
message becomes a turn in the store, which `gateway/agent/worker.py` claims. `POINTS` in `gateway/system/failpoints.py`
lists the whole path, J1 to J20.
"""

from __future__ import annotations

from datetime import datetime

from gateway.approvals import Approvals, asks_reason, cards_at, wait_of
from gateway.domain.budgets import BudgetLimits
from gateway.domain.events import JOBS, JobsStopped
from gateway.domain.messages import Inbound, Press, Refused, is_spoken
from gateway.domain.questions import Pick
from gateway.domain.routes import Accepted, Drop, DropReason, Route, WhileRunning
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.turns import TurnKind
from gateway.domain.waits import TOO_LATE, Pressed, PressResult, PressVerdict, Wait, inquiry_of
from gateway.errors import NotKnownYet
from gateway.inbound import commands
from gateway.inbound.control_replies import ControlReplies
from gateway.inbound.message_rate import MessageRate
from gateway.inbound.reply_texts import WAITING, drop_text
from gateway.inbound.typed_reasons import TypedReasons
from gateway.inbound.why import WhyReplies
from gateway.policy.routing import AllowedPeople, may_be_let_in_later, route
from gateway.ports import (
    Budgets,
    Children,
    Clock,
    ControlEffect,
    EventBus,
    Grants,
    Intake,
    KeyValue,
    Queries,
    UsageStore,
)
from gateway.system.failpoints import FailPoints
from gateway.system.logging_setup import log
from gateway.system.metrics import Metrics
from gateway.toolcalls.jobs import Jobs
from gateway.toolcalls.registry import Registry

_ENDS_JOBS = frozenset({ControlEffect.STOP, ControlEffect.RESET})


class Ingress:
    """Ingress of every channel and every kind of event; a `ports.Sink`."""

    def __init__(
        self,
        *,
        intake: Intake,
        children: Children,
        usage: UsageStore,
        queries: Queries,
        people: AllowedPeople,
        registry: Registry,
        approvals: Approvals,
        key_value: KeyValue,
        events: EventBus,
        jobs: Jobs,
        clock: Clock,
        metrics: Metrics,
        points: FailPoints,
        model_name: str,
        running: WhileRunning,
        budgets: Budgets,
        grants: Grants,
        why: WhyReplies,
        currency: str = "",
        limits: BudgetLimits | None = None,
        messages_per_minute: int = 0,
    ) -> None:
        """Take the parts that route, answer commands and authorize presses.

        `running`: handling of a message that arrives while a turn runs. `currency`: that of the configured prices.
        `limits`: the budgets. `messages_per_minute`: of each person who is no owner; 0 is no limit.
        """
        self._intake = intake
        self._events = events
        self._queries = queries
        self._people = people
        self._registry = registry
        self._approvals = approvals
        self._clock = clock
        self._metrics = metrics
        self._points = points
        self._running = running
        self._reasons = TypedReasons(queries=queries, key_value=key_value, approvals=approvals, clock=clock)
        self._replies = ControlReplies(
            children=children,
            usage=usage,
            queries=queries,
            people=people,
            registry=registry,
            jobs=jobs,
            clock=clock,
            model_name=model_name,
            currency=currency,
            budgets=budgets,
            limits=limits or BudgetLimits(),
            grants=grants,
            why=why,
        )
        self._rate = MessageRate(messages_per_minute, people, clock)
        self._log = log("ingress")

    async def message(self, message: Inbound) -> Accepted | None:
        """Route and store a message; return after the commit."""
        await self._points.hit("J1")
        if self._rate.exceeds(message):
            told = isinstance(route(message, self._people), Route)  # strangers are told once a day, and no more
            await self._drop(message, Drop(reason=DropReason.TOO_FAST, told=told))
            await self._points.hit("J2")
            return None
        if may_be_let_in_later(message, self._people):
            raise NotKnownYet
        found = route(message, self._people)
        accepted: Accepted | None = None
        match found:
            case Route() if not message.edits:
                accepted = await self._take(message, found)
            case Drop(reason=reason) if not (message.edits and reason is DropReason.CONTEXT):
                await self._drop(message, found)
            case _:
                await self._amend(message)
        await self._points.hit("J2")
        return accepted

    async def refuse(self, refused: Refused) -> None:
        """Store an event that is not a message; return after the commit."""
        new = await self._intake.refuse(refused)
        outcome = refused.reason.value if new else "duplicate"
        self._metrics.messages.labels(outcome).inc()
        self._log.info(
            "refused",
            outcome=outcome,
            channel=refused.channel,
            account=refused.account,
            key=refused.event_key,
            detail=refused.detail,
        )

    async def _drop(self, message: Inbound, drop: Drop) -> None:
        new = await self._intake.drop(message, drop, drop_text(drop.reason, message))
        self._count(drop.reason.value if new else "duplicate", message)

    async def _amend(self, message: Inbound) -> None:
        """Replace the text of an unread message. Sends no reply: the chat shows the corrected message."""
        amended = await self._intake.amend(message)
        self._count("amended" if amended else DropReason.EDITED_LATE.value, message)

    async def _take(self, message: Inbound, found: Route) -> Accepted | None:
        asked = commands.parse(message.text, self._registry.snapshot().commands)
        if isinstance(asked, commands.ToolCommand) and await self._replies.hides(asked.tool, found):
            asked = commands.UnknownCommand(asked.tool)
        match asked:
            case commands.ControlCommand(name) | commands.UnknownCommand(name):
                control = await self._replies.of(name, message, found)
                stopped = await self._intake.control(found, message, control)
                if stopped is not None and control.effect in _ENDS_JOBS:
                    why = f"It was ended by /{name}."
                    self._events.publish(JOBS, JobsStopped(session=found.session, only=control.only, why=why))
                self._count("duplicate" if stopped is None else "control", message)
                return None
            case commands.ToolCommand():
                kind = TurnKind.COMMAND
            case commands.PlainText():
                if self._reasons.is_rest(message):
                    await self._drop(message, Drop(reason=DropReason.EMPTY, told=False))
                    return None
                if message.reply_to and not is_spoken(message) and await self._denied_by(message):
                    return None
                kind = TurnKind.MODEL
        accepted = await self._intake.accept(found, message, kind, running=self._running, say_if_waiting=WAITING)
        self._count(
            "duplicate"
            if accepted.duplicate
            else "answer"
            if accepted.answers
            else "steered"
            if accepted.steered
            else "queued",
            message,
        )
        return accepted

    # --- presses ------------------------------------------------------------------------------

    async def press(self, press: Press) -> Pressed:
        """Authorize a press, then decide by compare-and-set. The press is stored either way."""
        wait_id = wait_of(press.handle)
        wait = await self._queries.wait(wait_id) if wait_id else None
        verdict = await self._verdict(press, wait)
        if wait is not None and verdict.refusal is PressResult.ASK_REASON:
            # Before the press is stored: a press repeated after a crash is only a duplicate.
            await self._reasons.expect(press, wait.id)
        pressed = await self._decide(press, wait, verdict)
        if pressed.result is PressResult.LATE and wait is not None and verdict.pick is not None:
            await self._pass_on(press, wait, verdict.pick)
        return pressed

    async def _pass_on(self, press: Press, wait: Wait, pick: Pick) -> None:
        """Take a late answer as a message that quotes its question. Repeating is safe: its event is the press's."""
        inquiry, session = inquiry_of(wait), await self._queries.session(wait.session)
        if inquiry is None or session is None:
            return
        question, words = inquiry.said_by(pick)
        if words:
            await self.message(_late_answer(press, session, question, words, self._clock.now()))

    async def _decide(self, press: Press, wait: Wait | None, verdict: PressVerdict) -> Pressed:
        pressed = await self._intake.press(press, wait.id if wait else None, verdict)
        await self._points.hit("J10")
        self._metrics.presses.labels(pressed.result.value).inc()
        self._log.info(
            "pressed",
            result=pressed.result.value,
            principal=press.principal,
            wait=wait.id if wait else None,
            conversation=press.conversation.key,
        )
        return pressed

    async def _verdict(self, press: Press, wait: Wait | None) -> PressVerdict:
        session = await self._queries.session(wait.session) if wait else None
        if wait is None or session is None:
            return PressVerdict(refusal=PressResult.NOT_VALID)
        shown = [(slot.id, slot.conversation) for slot in await self._queries.card_slots(wait.id)]
        cards = cards_at(press.conversation, shown)
        verdict = self._approvals.verdict(press.handle, wait, cards, press.principal, session, press.reason)
        if asks_reason(verdict, press, wait, self._clock.now()):
            return PressVerdict(refusal=PressResult.ASK_REASON)
        return verdict

    async def _denied_by(self, message: Inbound) -> bool:
        """Deny with this text as the reason, if one was asked for. The text can do nothing else.

        Return False if it is an ordinary message, also when somebody else decides at this very moment.
        """
        wait = await self._reasons.wait_denied_by(message)
        if wait is None:
            return False
        press, verdict = await self._reasons.denial(message, wait)
        pressed = await self._decide(press, wait, verdict)
        await self._reasons.record(message, wait.id, pressed)
        return pressed.result not in TOO_LATE

    def _count(self, outcome: str, message: Inbound) -> None:
        self._metrics.messages.labels(outcome).inc()
        known_as = {"also_called": message.also_called} if message.also_called else {}
        conversation = message.conversation.key
        self._log.info("message", outcome=outcome, conversation=conversation, key=message.event_key, **known_as)


def _late_answer(press: Press, session: Session, question: str, words: str, now: datetime) -> Inbound:
    """Return the message of a late press. Its key is the press's, so that repeating it stores nothing.

    `session`: the one that asked; the message is for the conversation of the press.
    """
    return Inbound(
        event_key=f"{press.event_key}/late",
        conversation=press.conversation,
        principal=press.principal,
        name=press.principal,
        direct=press.conversation.on_page or session.root_kind is not SessionKind.NON_MAIN,
        addressed=True,
        text=words,
        sent_at=now,
        quoted=question,
    )
