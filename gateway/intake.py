"""The way in: whatever a channel pushes is routed, stored, and only then acknowledged. Presses are decided here.

Control commands and presses are handled at once; everything else becomes a turn in the store.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway import commands
from gateway.approvals import Approvals, asks_reason, cards_at, is_shown_by, wait_of
from gateway.failpoints import FailPoints
from gateway.model.ids import Handle, OwnerName, Principal, WaitId
from gateway.model.messages import Conversation, Inbound, Press, Refused
from gateway.model.sessions import (
    Accepted,
    Drop,
    DropReason,
    Route,
    Session,
    SessionKind,
    TurnKind,
    WhileRunning,
    empty_session,
)
from gateway.model.waits import Pressed, PressResult, Verdict, Wait, WaitState
from gateway.observe import Meters, log
from gateway.ports import Books, Children, Clock, Control, ControlEffect, Intake, Notes, Views, Waiting
from gateway.registry import Registry
from gateway.routing import People, may_stop_all, route

REFUSAL = "I only talk to people that my owner has allowed. Your message was not read."
WAITING = Waiting(
    decision="Noted. This conversation waits for a decision on the card above; your message is read after it.",
    children="Noted. This conversation waits for its sub-sessions; your message is read when they have ended.",
)
STOPPED = "Stopped."
UNREADABLE = "I cannot read {unread} yet. Write it as text, please."
REST_WITHIN = timedelta(seconds=1.5)
"""How soon the rest of a reason follows that the platform cut off."""
REASON_WITHIN = timedelta(hours=1)
"""How long a person who pressed "Deny with reason" may take to reply to the card."""


class Ingress:
    """`ports.Sink`: the one ingress for every channel and every kind of event."""

    def __init__(
        self,
        *,
        intake: Intake,
        children: Children,
        books: Books,
        views: Views,
        people: People,
        registry: Registry,
        approvals: Approvals,
        notes: Notes,
        clock: Clock,
        meters: Meters,
        points: FailPoints,
        model_name: str,
        running: WhileRunning,
        currency: str = "",
    ) -> None:
        """Take what is needed to route, answer commands and judge presses.

        `running`: what a message does while a turn runs; `currency`: of the prices that are configured.
        """
        self._intake = intake
        self._children = children
        self._books = books
        self._views = views
        self._people = people
        self._registry = registry
        self._approvals = approvals
        self._notes = notes
        self._clock = clock
        self._meters = meters
        self._points = points
        self._model_name = model_name
        self._running = running
        self._currency = currency
        self._cut_reasons: dict[tuple[Conversation, Principal], tuple[str, datetime]] = {}
        self._log = log("intake")

    async def message(self, message: Inbound) -> Accepted | None:
        """Route and store a message; return after the commit."""
        await self._points.hit("J1")
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
        """Store an event that is no message; return after the commit."""
        new = await self._intake.refuse(refused)
        outcome = refused.reason.value if new else "duplicate"
        self._meters.messages.labels(outcome).inc()
        self._log.info(
            "refused",
            outcome=outcome,
            channel=refused.channel,
            account=refused.account,
            key=refused.event_key,
            detail=refused.detail,
        )

    async def _drop(self, message: Inbound, drop: Drop) -> None:
        text = REFUSAL
        if drop.reason is DropReason.UNREADABLE:
            # A place that is shared live comes as an edit every few seconds, and was answered when it began.
            text = "" if message.edits else UNREADABLE.format(unread=message.unread)
        new = await self._intake.drop(message, drop, text)
        self._count(drop.reason.value if new else "duplicate", message)

    async def _amend(self, message: Inbound) -> None:
        """Take a new text while the old one is unread. Nobody is answered: the message stands there corrected."""
        amended = await self._intake.amend(message)
        self._count("amended" if amended else DropReason.EDITED_LATE.value, message)

    async def _take(self, message: Inbound, found: Route) -> Accepted | None:
        asked = commands.parse(message.text, self._registry.commands)
        match asked:
            case commands.ControlCommand(name) | commands.UnknownCommand(name):
                control = await self._control(name, message, found)
                stopped = await self._intake.control(found, message, control)
                self._count("duplicate" if stopped is None else "control", message)
                return None
            case commands.ToolCommand():
                kind = TurnKind.COMMAND
            case commands.PlainText():
                if self._is_rest_of_reason(message):
                    await self._drop(message, Drop(reason=DropReason.EMPTY, refuse=False))
                    return None
                if message.reply_to and (wait := await self._asked_why(message)):
                    await self._deny(message, wait)
                    return None
                kind = TurnKind.MODEL
        accepted = await self._intake.accept(found, message, kind, running=self._running, say_if_waiting=WAITING)
        self._count("duplicate" if accepted.duplicate else "steered" if accepted.steered else "queued", message)
        return accepted

    async def _control(self, name: str, message: Inbound, found: Route) -> Control:
        only = None if may_stop_all(message, self._people) else message.principal
        match name:
            case "stop":
                return Control(
                    effect=ControlEffect.STOP,
                    only=only,
                    reply="Stopped.",
                    idle="Nothing is running or waiting here.",
                    stopped_text=STOPPED,
                )
            case "new" if only is None or message.direct:
                return Control(
                    effect=ControlEffect.RESET,
                    only=None,
                    reply="A new history begins here.",
                    idle="",
                    stopped_text=STOPPED,
                )
            case _:
                reply = await self._reply(name, message, found)
                return Control(effect=ControlEffect.NONE, only=None, reply=reply, idle="", stopped_text="")

    async def _reply(self, name: str, message: Inbound, found: Route) -> str:
        session = await self._views.session(found.session) or empty_session(found, self._clock.now())
        owner = self._people.owner_of(message.principal)
        match name:
            case "help":
                return commands.help_text(self._registry, session)
            case commands.START:
                return commands.start_text(self._registry, session)
            case "tools":
                return commands.tools_text(self._registry, session)
            case "new":
                return "Only an owner begins a new history here."
            case "status" | "sessions" | "approvals" | "tree":
                return await self._list(name, session, owner)
            case "usage":
                return await self._usage(message.principal, session, owner)
            case _:
                return commands.unknown_text(name, [tool.spec.by_hand for tool in self._registry.seen_by(session)])

    async def _list(self, name: str, session: Session, owner: OwnerName | None) -> str:
        """What the store knows, as far as this session may be told."""
        match name:
            case "status":
                counts, lines = await self._views.counts(), await self._views.sessions(ended=0)
                return commands.status_text(counts, lines, session, self._model_name, self._clock.now())
            case "sessions":
                return commands.sessions_text(await self._views.sessions(ended=0), owner, session)
            case "approvals":
                waits = await self._views.open_approvals()
                found = [await self._views.session(asking) for asking in dict.fromkeys(wait.session for wait in waits)]
                known = {one.id: one for one in found if one is not None}
                return commands.approvals_text(waits, known, owner, session)
            case _:
                return commands.tree_text(await self._children.family(session.id))

    async def _usage(self, who: Principal, session: Session, owner: OwnerName | None) -> str:
        """An owner in main is told of all that owner's persons, and of everybody; anywhere else of the own tokens."""
        main = owner is not None and session.kind is SessionKind.MAIN
        own = self._people.owners[owner] if owner is not None and main else frozenset([who])
        today = self._clock.now().astimezone(UTC).date()
        spent = await self._books.spent(today - timedelta(days=commands.USAGE_DAYS - 1))
        return commands.usage_text(spent, commands.Whose(persons=own, all=main), today, self._currency)

    # --- presses ------------------------------------------------------------------------------

    async def press(self, press: Press) -> Pressed:
        """Judge who pressed, then decide by compare-and-set; the press is stored either way."""
        wait_id = wait_of(press.handle)
        wait = await self._views.wait(wait_id) if wait_id else None
        verdict = await self._verdict(press, wait)
        if wait is not None and verdict.refusal is PressResult.ASK_REASON:
            # Before the press is stored: a press that is told again after a crash is only a duplicate.
            await self._notes.note(_reasons(press.conversation), press.principal, wait.id, REASON_WITHIN)
        return await self._decide(press, wait, verdict)

    async def _decide(self, press: Press, wait: Wait | None, verdict: Verdict) -> Pressed:
        pressed = await self._intake.press(press, wait.id if wait else None, verdict)
        await self._points.hit("J10")
        self._meters.presses.labels(pressed.result.value).inc()
        self._log.info(
            "pressed",
            result=pressed.result.value,
            principal=press.principal,
            wait=wait.id if wait else None,
            conversation=press.conversation.key,
        )
        return pressed

    async def _verdict(self, press: Press, wait: Wait | None) -> Verdict:
        session = await self._views.session(wait.session) if wait else None
        if wait is None or session is None:
            return Verdict(refusal=PressResult.NOT_VALID)
        shown = [(slot.id, slot.conversation) for slot in await self._views.card_slots(wait.id)]
        cards = cards_at(press.conversation, shown)
        verdict = self._approvals.verdict(press.handle, wait, cards, press.principal, session)
        if asks_reason(verdict, press, wait, self._clock.now()):
            return Verdict(refusal=PressResult.ASK_REASON)
        return verdict

    # --- reasons that are given later ---------------------------------------------------------

    async def _asked_why(self, message: Inbound) -> Wait | None:
        """The open wait that this reply denies, if any: who wrote it pressed "Deny with reason" on the very card."""
        asked = await self._notes.notes(_reasons(message.conversation))
        wait = WaitId(asked.get(message.principal, ""))
        if not wait:
            return None
        cards = await self._views.card_slots(wait)
        here = any(is_shown_by(card, message.conversation, message.reply_to) for card in cards)
        found = await self._views.wait(wait) if here else None
        if found is None or (found.state is WaitState.OPEN and found.expires_at > self._clock.now()):
            return found
        await self._ask_no_more(message)  # decided meanwhile, on the page for instance
        return None

    async def _deny(self, message: Inbound, wait: Wait) -> None:
        """Deny with this text as the reason. It can do nothing else, whatever it says: text is never consent."""
        session = await self._views.session(wait.session)
        nobody = Verdict(refusal=PressResult.NOT_VALID)
        verdict = self._approvals.denial(wait, message.principal, session) if session else nobody
        press = Press(
            event_key=message.event_key,
            conversation=message.conversation,
            principal=message.principal,
            handle=Handle(""),
            reason=message.text.strip(),
        )
        pressed = await self._decide(press, wait, verdict)
        if pressed.wait is None or pressed.wait.state is not WaitState.OPEN:
            await self._ask_no_more(message)
        if message.cut:
            self._expect_rest(message)

    async def _ask_no_more(self, message: Inbound) -> None:
        """What the person replies from now on is a message again."""
        await self._notes.note(_reasons(message.conversation), message.principal, "", REASON_WITHIN)

    def _expect_rest(self, message: Inbound) -> None:
        """More of a reason will come. Nothing of it is kept; a restart in between may make it a message."""
        until = self._clock.now() + REST_WITHIN
        self._cut_reasons[message.conversation, message.principal] = (message.event_key, until)

    def _is_rest_of_reason(self, message: Inbound) -> bool:
        """Whether it is more of a reason that the platform cut off: the agent must not take that for a request."""
        last, until = self._cut_reasons.pop((message.conversation, message.principal), ("", None))
        if until is None or until <= self._clock.now() or message.reply_to or message.follows not in ("", last):
            return False
        if message.cut:
            self._expect_rest(message)
        return True

    def _count(self, outcome: str, message: Inbound) -> None:
        self._meters.messages.labels(outcome).inc()
        known_as = {"also_called": message.also_called} if message.also_called else {}
        place = message.conversation.key
        self._log.info("message", outcome=outcome, conversation=place, key=message.event_key, **known_as)


def _reasons(conversation: Conversation) -> str:
    """The room of those who were asked for a reason here."""
    return f"reasons/{conversation.key}"
