"""The way in: whatever a channel pushes is routed, stored, and only then acknowledged. Presses are decided here.

Control commands and presses are handled at once; everything else becomes a turn in the store.
"""

from __future__ import annotations

from gateway import commands
from gateway.approvals import Approvals, cards_at, wait_of
from gateway.failpoints import FailPoints
from gateway.model.messages import Inbound, Press
from gateway.model.sessions import Accepted, Drop, Route, Session, TurnKind
from gateway.model.waits import Pressed, PressResult, Verdict, Wait
from gateway.observe import Meters, log
from gateway.ports import Clock, Control, ControlEffect, Intake, Views
from gateway.registry import Registry
from gateway.routing import People, may_stop_all, route

REFUSAL = "I only talk to people that my owner has allowed. Your message was not read."
WAITING = "Noted. This conversation waits for a decision on the card above; your message is read after it."
STOPPED = "Stopped."


class Gate:
    """`ports.Sink`: the one ingress for every channel and every kind of event."""

    def __init__(
        self,
        *,
        store: Intake,
        views: Views,
        people: People,
        registry: Registry,
        approvals: Approvals,
        clock: Clock,
        meters: Meters,
        points: FailPoints,
        model_name: str,
        steer: bool,
    ) -> None:
        """Take what is needed to route, answer commands and judge presses."""
        self._store = store
        self._views = views
        self._people = people
        self._registry = registry
        self._approvals = approvals
        self._clock = clock
        self._meters = meters
        self._points = points
        self._model_name = model_name
        self._steer = steer
        self._log = log("intake")

    async def message(self, message: Inbound) -> Accepted | None:
        """Route and store a message; return after the commit."""
        await self._points.hit("J1")
        found = route(message, self._people)
        if isinstance(found, Drop):
            new = await self._store.drop(message, found, REFUSAL)
            self._count(found.reason.value if new else "duplicate", message)
            accepted = None
        else:
            accepted = await self._take(message, found)
        await self._points.hit("J2")
        return accepted

    async def _take(self, message: Inbound, found: Route) -> Accepted | None:
        asked = commands.parse(message.text, self._registry.specs)
        match asked:
            case commands.ControlCommand(name) | commands.UnknownCommand(name):
                control = await self._control(name, message, found)
                stopped = await self._store.control(found, message, control)
                self._count("duplicate" if stopped is None else "control", message)
                return None
            case commands.ToolCommand():
                kind = TurnKind.COMMAND
            case commands.PlainText():
                kind = TurnKind.MODEL
        accepted = await self._store.accept(found, message, kind, steer=self._steer, say_if_waiting=WAITING)
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
        session = await self._views.session(found.session) or self._not_yet(found)
        owner = self._people.owner_of(message.principal)
        match name:
            case "help":
                return commands.help_text(self._registry, session)
            case "tools":
                return commands.tools_text(self._registry, session)
            case "new":
                return "Only an owner begins a new history here."
            case "status":
                counts, lines = await self._views.counts(), await self._views.sessions()
                return commands.status_text(counts, lines, session, self._model_name, self._clock.now())
            case "sessions":
                return commands.sessions_text(await self._views.sessions(), owner, session)
            case "approvals":
                known = {line.session.id: line.session for line in await self._views.sessions()}
                return commands.approvals_text(await self._views.open_approvals(), known, owner, session)
            case _:
                return commands.unknown_text(name, [tool.spec.name for tool in self._registry.seen_by(session)])

    def _not_yet(self, found: Route) -> Session:
        now = self._clock.now()
        return Session(
            id=found.session,
            kind=found.kind,
            origin=found.origin,
            owner=found.owner,
            title=found.title,
            epoch=0,
            root_kind=found.kind,
            created_at=now,
            active_at=now,
        )

    async def press(self, press: Press) -> Pressed:
        """Judge who pressed, then decide by compare-and-set; the press is stored either way."""
        wait_id = wait_of(press.handle)
        wait = await self._views.wait(wait_id) if wait_id else None
        verdict = await self._verdict(press, wait)
        pressed = await self._store.press(press, wait.id if wait else None, verdict)
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
        return self._approvals.verdict(press.handle, wait, cards, press.principal, session)

    def _count(self, outcome: str, message: Inbound) -> None:
        self._meters.messages.labels(outcome).inc()
        self._log.info("message", outcome=outcome, conversation=message.conversation.key, key=message.event_key)
