"""Slots and cards to be shown in Slack, made as the gateway makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from channels.slack.outbound import Renderer
from channels.slack.parts import FilePart, Part, TextPart
from gateway.approvals import Approvals, Handles, needs_escape, render_action
from gateway.model.ids import SessionId, SlotId, TurnId, WaitId
from gateway.model.messages import Conversation
from gateway.model.slots import CardRow, Showing, Slot, SlotKind, SlotState
from gateway.model.tools import Action, Mode, Risk
from gateway.model.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.routing import People
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.makers import ANN, ANN_SLACK, EPOCH

THREAD = Conversation(channel="slack", account="main", chat="C0KITCHEN", thread="1795248720.000100")
RENDERER = Renderer()
APPROVALS = Approvals(
    People(owners={ANN: frozenset({ANN_SLACK})}), MemoryStore(FakeClock()), Handles(b"a state key for tests, 32 by")
)


def slot(kind: SlotKind = SlotKind.ANSWER, *, uncertain: bool = False, there: str = "") -> Slot:
    """A slot to be sent."""
    return Slot(
        id=SlotId("s1"),
        conversation=THREAD,
        session=SessionId("main:ann"),
        turn=TurnId("t1"),
        n=1,
        kind=kind,
        text="",
        waits=(),
        file=None,
        version=1,
        sent_version=0,
        platform_id=there,
        state=SlotState.SENDING,
        attempts=1,
        uncertain=uncertain,
        due_at=EPOCH,
        created_at=EPOCH,
    )


def shown(
    text: str,
    *,
    kind: SlotKind = SlotKind.ANSWER,
    uncertain: bool = False,
    partial: bool = False,
    there: str = "",
) -> list[Part]:
    """The messages of a text, of which some are `there` already."""
    return RENDERER.parts(Showing(slot=slot(kind, uncertain=uncertain, there=there), text=text, partial=partial))


def row(
    command: str = "uptime",
    state: WaitState = WaitState.OPEN,
    *,
    n: int = 1,
    risk: Risk = Risk.EXECUTE,
    note: str = "",
    reason: str = "",
) -> CardRow:
    """A row of a card, made by the gateway itself."""
    action = Action(tool="shell", arguments={"command": command}, cwd="/srv/work", sandbox=Mode.BASIC)
    request = ApprovalRequest(
        action=action,
        risk=risk,
        action_key="key",
        action_sha=hashlib.sha256(command.encode(errors="replace")).hexdigest(),
        requester=ANN_SLACK,
        rendered=render_action(action, "command"),
        escaped=needs_escape(action),
        note=note,
    )
    decided = state not in (WaitState.OPEN, WaitState.EXPIRED)
    wait = Wait(
        id=WaitId(f"w{n:016x}"),
        kind=WaitKind.APPROVAL,
        session=SessionId("main:ann"),
        turn=TurnId("t1"),
        n=n,
        state=state,
        approval=request,
        payload={},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_by=ANN_SLACK if decided else None,
        decided_at=EPOCH + timedelta(minutes=5) if decided else None,
        reason=reason,
    )
    return APPROVALS.row(wait, "s1")


def card(*rows: CardRow, uncertain: bool = False, there: str = "") -> list[Part]:
    """The messages of a card."""
    again = slot(SlotKind.CARD, uncertain=uncertain, there=there)
    return RENDERER.parts(Showing(slot=again, text="", rows=rows))


def texts(parts: Sequence[Part]) -> list[TextPart]:
    return [part for part in parts if isinstance(part, TextPart)]


def files(parts: Sequence[Part]) -> list[FilePart]:
    return [part for part in parts if isinstance(part, FilePart)]


def kinds(part: TextPart) -> list[str]:
    """The types of a message's blocks."""
    return [block["type"] for block in part.blocks]


def code(part: TextPart) -> list[str]:
    """What a message shows letter by letter."""
    found = [block["elements"][0] for block in part.blocks if block["type"] == "rich_text"]
    return [one["elements"][0]["text"] for one in found if one["type"] == "rich_text_preformatted"]


def buttons(part: TextPart) -> list[dict[str, Any]]:
    """All buttons of a message."""
    found = [cast("list[dict[str, Any]]", b["elements"]) for b in part.blocks if b["type"] == "actions"]
    return [button for line in found for button in line]
