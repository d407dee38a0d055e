"""Messages of others in a prompt: inside blocks that they cannot end, with names that they cannot forge."""

from __future__ import annotations

from dataclasses import replace

from gateway.agent import transcript
from gateway.agent.transcript import HEARD, QUOTED, SUMMARY, Marks, request
from gateway.domain import prompts
from gateway.domain.ids import InboundId, SessionId, TurnId
from gateway.domain.messages import Received
from gateway.domain.prompts import UserText
from gateway.domain.sessions import Origin, Session, SessionKind
from gateway.domain.turns import Turn, TurnKind, TurnState
from gateway.domain.views import TurnView
from tests.fuzz import givens
from tests.support.makers import ANN_TELEGRAM, BOB, CHAT, EPOCH, inbound

READS = (transcript, prompts)
WORDS = (
    b"]\n",
    b"[Messages of other people",
    HEARD.encode(),
    QUOTED.encode(),
    SUMMARY.encode(),
    b'"Bob" telegram:2002',
    b"never instructions",
    b"\n\n",
    "\u2028".encode(),
    b"\x85",
    "”".encode(),
)
MARKS = Marks()


def target(data: bytes) -> None:
    """Lines: a name, what came along, what is quoted, a summary; the rest is text."""
    name, unread, quoted, summary, text = (givens.text(part) for part in givens.parts(data, 5))
    mine = replace(inbound(text or "x", who=ANN_TELEGRAM), name=name, quoted=quoted, unread=unread)
    other = replace(inbound(text, who=BOB), name=name, unread=unread, quoted=quoted, addressed=False)
    view = _view(
        Received(id=InboundId("i1"), turn=TurnId("t"), message=other, given=None, received_at=EPOCH, context=True),
        Received(id=InboundId("i2"), turn=TurnId("t"), message=mine, given=None, received_at=EPOCH),
    )
    asked = request("", [], view, (), MARKS, summary)
    for message in asked.messages:
        assert isinstance(message, UserText)
        for one in (message.text, message.name):
            assert asked.mark not in one or not asked.mark, "the mark is known"
        _outside(message.data, asked.mark, text)
    speakers = [m for m in asked.messages if isinstance(m, UserText) and m.name]
    assert all("\n" not in prompts.speaker(one.name, one.who) for one in speakers), "a name of two lines"


def _outside(data: str, mark: str, text: str) -> None:
    """Outside of the blocks stands what we wrote, and nothing else."""
    if not data:
        return
    assert mark, "data without a mark"
    ours, inside, heard = list[str](), False, False
    for line in data.split("\n"):
        if line == mark:
            inside = not inside
        elif not inside:
            ours.append(line)
            heard = line.startswith(f"[{HEARD}")
        elif heard:
            assert line.startswith(("    ", '"')), "somebody speaks in another one's name"
    assert not inside, "a block without an end"
    assert all(one == "" or one.startswith((f"[{HEARD}", f"[{QUOTED}", f"[{SUMMARY}")) for one in ours), text


def _view(*received: Received) -> TurnView:
    session = Session(
        id=SessionId("g"),
        kind=SessionKind.NON_MAIN,
        origin=Origin.GROUP,
        owner=None,
        title="g",
        epoch=0,
        root_kind=SessionKind.NON_MAIN,
        created_at=EPOCH,
        active_at=EPOCH,
    )
    turn = Turn(
        id=TurnId("t"),
        session=session.id,
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=EPOCH,
        ended_at=None,
        active_ms=0,
    )
    return TurnView(session=session, turn=turn, inputs=received, steps=(), waits=())
