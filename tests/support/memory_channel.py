"""A whole channel and its platform in one process, in the fewest lines.

The platform keeps every event until it is acknowledged, takes texts of 1,000 characters with buttons below, and files.
Text that is not sent as `plain` is read as markup: it would notify everybody named, and make links of addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from gateway.domain.ids import Handle, Principal, principal
from gateway.domain.messages import Attachment, Conversation, Inbound, Press, Refused, RefusedReason
from gateway.domain.slots import CardRow, RateLimit, RenderedSlot, SlotKind
from gateway.errors import FetchFailed, SendFailed, SendOutcome, StoreError
from gateway.ports import ChannelContext, Progress, Sink
from tests.support.keys import conversation_of

NAME = "memory"
TEXT_AT_MOST = 1000
PARTS_AT_MOST = 5
PIECE = 1000
"""Bytes of a file that are read at a time."""
AGAIN_S = 0.01


# --- the platform -------------------------------------------------------------------------------


class PlatformError(Exception):
    """The platform did not do it, and says by a code why."""


class PlatformGone(Exception):
    """Nobody knows whether the platform did it."""


@dataclass(slots=True, kw_only=True)
class Message:
    """One message as people see it."""

    id: str
    place: str
    text: str
    buttons: list[tuple[str, str]]
    """Label and data."""
    plain: bool
    file: str = ""
    edits: int = 0


@dataclass(slots=True)
class MemoryPlatform:
    """The platform. `fail` decides for each call: an exception, or nothing."""

    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    events: dict[str, Any] = field(default_factory=dict[str, Any])
    """Events not acknowledged yet, in order, by key."""
    said: dict[str, str] = field(default_factory=dict[str, str])
    """Answers to presses, by key."""
    typing: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that came with messages, by id."""
    fail: Callable[[], Exception | None] = lambda: None
    connected: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _made: int = 0

    def push(self, key: str, event: object) -> None:
        """Something happened; it is offered until it is acknowledged."""
        self.events[key] = event
        self.changed.set()

    def connect(self, connected: bool) -> None:
        """Be on the net, or not."""
        self.connected = connected
        self.changed.set()

    def acknowledge(self, key: str, said: str) -> None:
        """The channel has it for good."""
        self.events.pop(key, None)
        self.said[key] = said

    async def next_event(self) -> tuple[str, Any]:
        """The oldest one that was not acknowledged."""
        while not self.events or not self.connected:
            self.changed.clear()
            await self.changed.wait()
        return next(iter(self.events.items()))

    def post(self, place: str, text: str, *, buttons: list[tuple[str, str]], plain: bool, file: str = "") -> str:
        """Show a new message; returns its id."""
        self._call(text)
        self._made += 1
        id = f"m{self._made}"
        self.messages[id] = Message(id=id, place=place, text=text, buttons=buttons, plain=plain, file=file)
        return id

    def change(self, id: str, text: str, *, buttons: list[tuple[str, str]], plain: bool, file: str = "") -> None:
        """Give a message another text, other buttons and another file."""
        self._call(text)
        message = self.messages[id]
        message.text, message.buttons, message.plain, message.file = text, buttons, plain, file
        message.edits += 1

    def remove(self, id: str) -> None:
        """Take a message away; it may be gone already."""
        self._call("-")
        self.messages.pop(id, None)

    def read(self, id: str, at: int) -> bytes:
        """A piece of a file; empty behind its end."""
        self._call("-")
        if id not in self.files:
            raise PlatformError("gone")
        return self.files[id][at : at + PIECE]

    def type(self, place: str) -> None:
        """Show that somebody writes."""
        self._call("-")
        self.typing.append(place)

    def _call(self, text: str) -> None:
        if not self.connected:
            raise PlatformError("offline")
        if (why := self.fail()) is not None:
            raise why
        if not text or len(text) > TEXT_AT_MOST:
            raise PlatformError("refused")


# --- the channel --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """One message to be shown."""

    text: str
    buttons: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    file: str = ""


class MemoryChannel:
    """`ports.Channel`. A place is `account/chat` or `account/chat/thread`."""

    name = NAME

    def __init__(self, context: ChannelContext, platform: MemoryPlatform, *, every_s: float = 0) -> None:
        """Take the platform; `every_s` seconds between two messages of a chat, ten times as many an account."""
        self._context = context
        self._platform = platform
        self._every_s = every_s

    async def run(self, sink: Sink) -> None:
        """Take events one after the other: stored first, then acknowledged. What is not stored comes again."""
        while True:
            key, event = await self._platform.next_event()
            try:
                said = await _take(key, event, sink)
            except StoreError:
                await asyncio.sleep(AGAIN_S)
            else:
                self._platform.acknowledge(key, said)

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Change what is there, add what is missing, take away what is too much."""
        shown = list(showing.slot.message_ids)
        parts = _parts(showing)
        creating = False
        try:
            for n, part in enumerate(parts):
                creating = n >= len(shown)
                how: dict[str, Any] = {"buttons": part.buttons, "plain": True, "file": part.file}
                if creating:
                    shown.append(self._platform.post(_place(showing.slot.conversation), part.text, **how))
                    if n + 1 < len(parts):
                        await progress(tuple(shown))
                elif not showing.slot.stands or shown[n] in self._platform.messages:
                    self._platform.change(shown[n], part.text, **how)
            creating = False
            for surplus in shown[len(parts) :]:
                self._platform.remove(surplus)
        except PlatformError as error:
            raise self._failed(showing, str(error)) from error
        except PlatformGone as error:
            # An edit may be repeated whatever became of it; a new message might stand there twice.
            outcome = SendOutcome.UNCERTAIN if creating else SendOutcome.RETRY
            raise SendFailed("The platform did not answer.", outcome=outcome, creating=creating) from error
        return tuple(shown[: len(parts)])

    def _failed(self, showing: RenderedSlot, code: str) -> SendFailed:
        if code == "wait":
            rate_limits, now = self.rate_limits(showing.slot.conversation), self._context.clock.now()
            scope = rate_limits[-1].scope if rate_limits else ""
            return SendFailed("It wants us to wait.", outcome=SendOutcome.WAIT, until=now, scope=scope, creating=False)
        outcome = SendOutcome.RETRY if code in {"offline", "broken"} else SendOutcome.DEAD
        return SendFailed(f"The platform says: {code}.", outcome=outcome, creating=False)

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """Read it piece by piece."""
        at = 0
        try:
            while piece := self._platform.read(file.source, at):
                write(piece)
                at += len(piece)
        except PlatformError as error:
            again = str(error) in {"offline", "broken", "wait"}
            raise FetchFailed(f"The platform says: {error}.", retryable=again) from error
        except PlatformGone as error:
            raise FetchFailed("The platform did not answer.", retryable=True) from error

    async def typing(self, conversation: Conversation) -> None:
        """Try once; it does not matter."""
        try:
            self._platform.type(_place(conversation))
        except (PlatformError, PlatformGone):
            return

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """The account's, then the chat's."""
        account = f"{NAME}/{conversation.account}"
        chat = f"{account}/{conversation.chat}"
        wanted = ((account, self._every_s / 10, 30), (chat, self._every_s, 3))
        return [RateLimit(scope=scope, every_s=every_s, burst=burst) for scope, every_s, burst in wanted if every_s > 0]

    @property
    def streams(self) -> bool:
        """False: an answer is shown at its end."""
        return False

    def trouble(self) -> str:
        """Return the trouble of an absent platform."""
        return "" if self._platform.connected else "The platform cannot be reached. See whether it runs."


async def _take(key: str, event: object, sink: Sink) -> str:
    """Hand one event over; return what its author is told."""
    match read(key, event):
        case Inbound() as message:
            await sink.message(message)
            return ""
        case Press() as press:
            return str((await sink.press(press)).result)
        case Refused() as refused:
            await sink.refuse(refused)
            return "This cannot be used here."


# --- from an event to what it means, and from a slot to its messages: pure ------------------------


def read(key: str, event: object) -> Inbound | Press | Refused:
    """Never raises: what cannot be read is a refusal that says what is wrong."""
    fields = cast("Mapping[str, Any]", event if isinstance(event, dict) else {})
    try:
        if fields["kind"] not in {"message", "press"}:
            return _refused(key, RefusedReason.UNKNOWN, str(fields["kind"]))
        if fields["bot"] is not False:
            return _refused(key, RefusedReason.NOT_A_PERSON, "a bot speaks")
        who, where = principal(NAME, _text(fields, "user")), conversation(_text(fields, "place"))
        if fields["kind"] == "press":
            handle, reason = Handle(_text(fields, "data")), _text(fields, "reason")
            return Press(event_key=key, conversation=where, principal=who, handle=handle, reason=reason)
        return _message(key, fields, who, where)
    except (KeyError, TypeError, ValueError) as error:
        return _refused(key, RefusedReason.POISON, f"{type(error).__name__}: {error}")


def _message(key: str, fields: Mapping[str, Any], who: Principal, where: Conversation) -> Inbound:
    direct = where.chat == fields["user"]
    return Inbound(
        event_key=key,
        conversation=where,
        principal=who,
        name=_text(fields, "user"),
        direct=direct,
        addressed=direct or fields["names_bot"] is True,
        text=_text(fields, "text"),
        sent_at=datetime(2026, 1, 1, tzinfo=UTC),
        attachments=tuple(_attachment(one) for one in fields.get("files", ())),
    )


def _attachment(fields: Mapping[str, Any]) -> Attachment:
    return Attachment(source=_text(fields, "id"), name=_text(fields, "name"), media_type="", size=0)


def _text(fields: Mapping[str, Any], name: str) -> str:
    if not isinstance(fields[name], str):
        raise TypeError(f"{name}: text is wanted")
    return fields[name]


def _refused(key: str, reason: RefusedReason, detail: str) -> Refused:
    return Refused(channel=NAME, account="", event_key=key, reason=reason, detail=detail)


def conversation(place: str) -> Conversation:
    """Read a place."""
    return conversation_of(f"{NAME}/{place}")


def _place(conversation: Conversation) -> str:
    return conversation.key.removeprefix(f"{NAME}/")


def _parts(showing: RenderedSlot) -> list[_Part]:
    """The messages of a slot; none when there is nothing to see."""
    text = "\n\n".join([*filter(None, [showing.text]), *(_row(row) for row in showing.rows)])
    if showing.slot.uncertain and text:
        text = f"(re-sent) {text}"
    if showing.slot.kind is SlotKind.FILE:
        return [_file(showing, text)]
    buttons = [(button.label, str(button.handle)) for row in showing.rows for button in row.buttons]
    if len(text) > TEXT_AT_MOST * PARTS_AT_MOST:
        return [_Part("All of it is in this file.", file=text), _Part(f"{text[:150]} …", buttons)]
    parts = [_Part(text[at : at + TEXT_AT_MOST]) for at in range(0, len(text), TEXT_AT_MOST)]
    return [*parts[:-1], _Part(parts[-1].text, buttons)] if parts else []


def _file(showing: RenderedSlot, caption: str) -> _Part:
    """A file with its caption below; the caption alone when the file is gone."""
    name = showing.slot.file.name if showing.slot.file is not None else "file"
    if showing.path is None:
        return _Part(f"{caption} (the file {name} is not there any more)"[:TEXT_AT_MOST])
    # What stands here is small; a real platform is given it in pieces.
    return _Part((caption or name)[:TEXT_AT_MOST], file=showing.path.read_text("utf-8", "replace"))


def _row(row: CardRow) -> str:
    """All of one approval: what, exactly which action, the facts, what became of it."""
    action = row.wait.approval
    asked = [action.rendered, action.note] if action else []
    facts = [f"{label}: {value}" for label, value in row.facts]
    return "\n".join(filter(None, [row.title, *asked, *facts, row.outcome]))
