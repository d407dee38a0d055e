"""Makers of values for the store: each returns a plain, valid one and takes the fields that the test is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.domain.audit import StartRecord
from gateway.domain.grants import GRANT_LASTS, Grant, GrantKind, GrantPlace, NewGrant
from gateway.domain.ids import (
    CallId,
    GrantId,
    Handle,
    OwnerName,
    Principal,
    SessionId,
    SlotId,
    WaitId,
    main_session,
    mint,
)
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Inbound, Press
from gateway.domain.routes import Drop, DropReason, Route
from gateway.domain.sessions import Origin, SessionKind
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import Action, Artifact, ResultStatus, Risk, SandboxMode, ToolCall, ToolResult
from gateway.domain.waits import ApprovalRequest, NewWait, PressResult, PressVerdict, WaitKind, WaitState
from gateway.ports import Control, ControlEffect, Waiting

WAITING = Waiting(decision="Waits for a decision.", children="Waits for sub-sessions.")
"""Recognisable texts."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Start time of `FakeClock`."""
ANN = OwnerName("ann")
ANN_TELEGRAM = Principal("telegram:1001")
ANN_SLACK = Principal("slack:T0AA/U0BB")
BOB = Principal("telegram:2002")
CHAT = Conversation(channel="telegram", account="default", chat="1001")
OTHER_CHAT = Conversation(channel="slack", account="default", chat="D0CC")
PAGE = Conversation(channel="web", account="default", chat="ann")


def chat(number: int) -> Conversation:
    """One of many Telegram chats."""
    return Conversation(channel="telegram", account="default", chat=str(number))


def inbound(
    text: str = "hello",
    *,
    who: Principal = ANN_TELEGRAM,
    where: Conversation = CHAT,
    direct: bool = True,
    key: str | None = None,
) -> Inbound:
    """A message; every call is a new event unless `key` says which."""
    return Inbound(
        event_key=key or mint("e"),
        conversation=where,
        principal=who,
        name="Ann",
        direct=direct,
        addressed=True,
        text=text,
        sent_at=EPOCH,
    )


def route(session: SessionId | None = None, *, owner: OwnerName = ANN) -> Route:
    """The way to the owner's main session, or to a group's."""
    if session is None:
        return Route(
            session=main_session(owner), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=owner, title=str(owner)
        )
    return Route(session=session, kind=SessionKind.NON_MAIN, origin=Origin.GROUP, owner=None, title=str(session))


def attachment(name: str = "photo.png", *, source: str = "f1", media_type: str = "", size: int = 0) -> Attachment:
    """A file that came with a message."""
    return Attachment(source=source, name=name, media_type=media_type, size=size)


def fetched(path: str, *, size: int = 3, media_type: str = "image/png", trouble: str = "") -> FetchedFile:
    """Return a fetched file."""
    return FetchedFile(path=path, size=size, media_type=media_type, trouble=trouble)


def drop(*, told: bool = False) -> Drop:
    """A stranger's message."""
    return Drop(reason=DropReason.STRANGER, told=told)


def control(effect: ControlEffect = ControlEffect.STOP, *, only: Principal | None = None) -> Control:
    """A control command with recognisable texts."""
    return Control(effect=effect, only=only, reply="Done.", idle="Nothing to stop.", stopped_text="Stopped.")


def call(tool: str = "shell", arguments: str = '{"command": "date"}') -> ToolCall:
    """One tool call of an answer."""
    return ToolCall(id=CallId(mint("c")), tool=tool, arguments=arguments)


def answer(text: str = "Here it is.", *, calls: int = 0) -> Answer:
    """A model's answer with so many calls."""
    return Answer(text=text, calls=tuple(call() for _ in range(calls)), model="test")


def result(text: str = "done", *, status: ResultStatus = ResultStatus.OK) -> ToolResult:
    """Return the result of a call."""
    return ToolResult(status=status, text=text)


def sha(n: int) -> str:
    """The `action_sha` that `approval` gives to step `n`."""
    return f"sha-{n}"


def beginning(
    n: int = 0, *, action_sha: str | None = None, grant: GrantId | None = None, rule: str = ""
) -> StartRecord:
    """Return the start record of step `n`: for the action of `approval`, or another one."""
    return StartRecord(tool="shell", action_sha=action_sha or sha(n), sandbox=SandboxMode.BASIC, grant=grant, rule=rule)


def approval(n: int) -> ApprovalRequest:
    """Return the request for step `n`."""
    action = Action(tool="shell", arguments={"command": "date"}, cwd="/w", sandbox=SandboxMode.BASIC)
    return ApprovalRequest(
        action=action,
        risk=Risk.EXECUTE,
        action_key="key",
        action_sha=sha(n),
        requester=ANN_TELEGRAM,
        rendered="date",
        escaped=False,
    )


def new_wait(n: int, *, expires_in: timedelta, kind: WaitKind = WaitKind.APPROVAL, id: WaitId | None = None) -> NewWait:
    """A wait on step `n`."""
    asked = approval(n) if kind is WaitKind.APPROVAL else None
    return NewWait(id=id or WaitId(mint("w")), kind=kind, n=n, approval=asked, payload={}, expires_in=expires_in)


def copy_timer(slot: SlotId, *, expires_in: timedelta, owner: OwnerName = ANN) -> NewWait:
    """The timer that shows an answer again in the owner's chat."""
    payload = {"copy_of": slot, "owner": owner}
    return NewWait(
        id=WaitId(mint("w")), kind=WaitKind.TIMER, n=0, approval=None, payload=payload, expires_in=expires_in
    )


def card(*waits: WaitId, where: Conversation = CHAT, slot: SlotId | None = None) -> NewSlot:
    """A card with a row for each approval."""
    return NewSlot(conversation=where, kind=SlotKind.CARD, waits=waits, id=slot)


def said(text: str = "Here it is.", *, where: Conversation = CHAT, slot: SlotId | None = None) -> NewSlot:
    """An answer to be shown."""
    return NewSlot(conversation=where, kind=SlotKind.ANSWER, text=text, id=slot)


def file_slot(file: str, *, n: int, where: Conversation = CHAT) -> NewSlot:
    """A file of a call, to be shown."""
    kept = Artifact(file=file, name=file, media_type="application/octet-stream")
    return NewSlot(conversation=where, kind=SlotKind.FILE, text=f"shell: {file}", n=n, file=kept)


def press(*, who: Principal = ANN_TELEGRAM, key: str | None = None, reason: str = "") -> Press:
    """A button press; every call is a new event unless `key` says which."""
    return Press(event_key=key or mint("p"), conversation=CHAT, principal=who, handle=Handle("h"), reason=reason)


def approve() -> PressVerdict:
    """The press may approve."""
    return PressVerdict(refusal=None, state=WaitState.APPROVED)


def deny(*, withdraw_siblings: bool = False, written: bool = False) -> PressVerdict:
    """The press may deny."""
    return PressVerdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=withdraw_siblings, written=written)


def question(*, asks: bool = True) -> PressVerdict:
    """The press opens the second question, or withdraws it."""
    return PressVerdict(refusal=None, question=asks)


def confirm(place: GrantPlace, lasts: timedelta = GRANT_LASTS) -> PressVerdict:
    """The press confirms the second question."""
    return PressVerdict(refusal=None, state=WaitState.APPROVED, grant=NewGrant(place=place, lasts=lasts))


def scope_grant(scope: str, tool: str = "shell") -> Grant:
    """A grant of a scope for ann's main session."""
    return Grant(
        id=GrantId("g1"),
        tool=tool,
        kind=GrantKind.SCOPE,
        matches=(scope,),
        risk=Risk.NETWORK,
        place=GrantPlace.SESSION,
        session=main_session(ANN),
        epoch=0,
        root_kind=SessionKind.MAIN,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        shown=f"{tool} with {scope}",
        wait=WaitId("w1"),
        granted_by=ANN_TELEGRAM,
        granted_at=EPOCH,
        expires_at=EPOCH + GRANT_LASTS,
    )


def refuse(why: PressResult = PressResult.NOT_ALLOWED) -> PressVerdict:
    """The press may not decide."""
    return PressVerdict(refusal=why)


def seconds(n: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=n)
