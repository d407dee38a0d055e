"""Makers of turns as read from a store: each returns a plain, valid one and takes the fields that the test is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from gateway.domain.children import Lineage, SpawnMode, child_place
from gateway.domain.ids import CallId, InboundId, Principal, SessionId, TurnId, main_session, mint
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Received
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.steps import Answer, Step, StepKind, StepState, Usage
from gateway.domain.tools import ToolCall, ToolResult
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from gateway.domain.waits import Wait
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH, inbound, result


def lineage(*, active_s: float = 600, tokens: int = 0, agent: str = "", model: str = "") -> Lineage:
    """A child of Ann's main session."""
    return Lineage(
        parent=main_session(ANN),
        turn=TurnId("parent"),
        n=1,
        root=main_session(ANN),
        root_turn=TurnId("parent"),
        conversation=CHAT,
        depth=1,
        mode=SpawnMode.RUN,
        agent=agent,
        model=model,
        active_s=active_s,
        tokens=tokens,
    )


def session(
    *, kind: SessionKind = SessionKind.MAIN, of: Lineage | None = None, id: str = "", summary: str = ""
) -> Session:
    """Ann's main session, a group, or a child."""
    kind = SessionKind.NON_MAIN if of else kind
    named = main_session(ANN) if kind is SessionKind.MAIN else SessionId("child:x" if of else "chat:x")
    return Session(
        id=SessionId(id) if id else named,
        kind=kind,
        origin=Origin.CHILD if of else Origin.DIRECT,
        owner=ANN,
        title="",
        epoch=0,
        root_kind=SessionKind.MAIN if of else kind,
        created_at=EPOCH,
        active_at=EPOCH,
        lineage=of,
        summary=summary,
    )


def turn_view(
    *,
    inputs: Sequence[Received] = (),
    steps: Sequence[Step] = (),
    waits: Sequence[Wait] = (),
    of: Session | None = None,
    id: str = "t",
    kind: TurnKind = TurnKind.MODEL,
    who: Principal = ANN_TELEGRAM,
    where: Conversation | None = None,
    active_ms: int = 0,
) -> TurnView:
    """A turn that runs."""
    of = of or session()
    turn = Turn(
        id=TurnId(id),
        session=of.id,
        epoch=0,
        kind=kind,
        state=TurnState.RUNNING,
        conversation=where or (child_place(of.id) if of.lineage else CHAT),
        principal=who,
        created_at=EPOCH,
        started_at=EPOCH + timedelta(seconds=1),
        ended_at=None,
        active_ms=active_ms,
    )
    return TurnView(turn=turn, session=of, inputs=tuple(inputs), steps=tuple(steps), waits=tuple(waits))


def asked(text: str, *, given: int | None = 0) -> Received:
    """A message of Ann's."""
    return Received(id=InboundId(mint("i")), turn=TurnId("t"), message=inbound(text), given=given, received_at=EPOCH)


def with_files(
    *files: Attachment | FetchedFile, text: str = "look", given: int | None = None, context: bool = False
) -> Received:
    """A message of Ann's with files, and after them what became of each, if anybody looked."""
    one = asked(text, given=given)
    came = tuple(file for file in files if isinstance(file, Attachment))
    found = tuple(file for file in files if isinstance(file, FetchedFile)) or None
    return replace(one, message=replace(one.message, attachments=came), files=found, context=context)


def answered(n: int, text: str = "", *, tokens: int = 0, calls: Sequence[ToolCall] = (), note: str = "") -> Step:
    """A model's answer, with what it read."""
    usage = Usage(input_tokens=tokens, output_tokens=0)
    answer = Answer(text=text, calls=tuple(calls), model="test", usage=usage, note=note)
    return Step(turn=TurnId("t"), n=n, kind=StepKind.MODEL, state=StepState.FINISHED, answer=answer)


def called(n: int, tool: str = "read", arguments: str = "{}", *, text: str = "done") -> Step:
    """A call with its result."""
    call = ToolCall(id=CallId(f"c{n}"), tool=tool, arguments=arguments)
    return finished(n, call, result(text))


def finished(n: int, call: ToolCall, found: ToolResult, *, answer_n: int = 0) -> Step:
    """A call of an answer, with its result."""
    return Step(
        turn=TurnId("t"),
        n=n,
        kind=StepKind.TOOL,
        state=StepState.FINISHED,
        call=call,
        answer_n=answer_n,
        result=found,
    )
