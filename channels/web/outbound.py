"""From rows to frames of the page (PROTOCOL.md). Pure but for `card`, which makes an approval's buttons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.model.live import OutputDelta, TextDelta
from gateway.model.messages import Received
from gateway.model.sessions import Turn
from gateway.model.slots import CardRow, Slot, SlotKind
from gateway.model.tools import Step, StepKind, ToolResult
from gateway.model.views import Row, Rows, SessionLine
from gateway.model.waits import Wait, WaitKind
from gateway.ports import Welcome

Json = dict[str, Any]
ARGUMENTS_AT_MOST = 65_536
TOOL_AT_MOST = 200
"""Characters that a row shows of what a model calls; a model may write megabytes, and a page loads 200 rows at once."""
SHOWN = frozenset({SlotKind.ANSWER, SlotKind.NOTE, SlotKind.REPLY})


def time(at: datetime | None) -> str | None:
    """ISO 8601 in UTC with `Z`."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def welcome(found: Welcome, sessions: Sequence[SessionLine]) -> Json:
    """The first frame."""
    return {
        "op": "welcome",
        "owner": found.owner,
        "main": found.main,
        "sessions": [line(one) for one in sessions],
        "commands": [{"name": c.name, "usage": c.usage, "about": c.about} for c in found.commands],
        "model": found.model,
        "version": found.version,
    }


def line(one: SessionLine) -> Json:
    """A session of the list."""
    session = one.session
    place = session.id.partition(":")[2]
    return {
        "id": session.id,
        "kind": session.kind.value,
        "origin": session.origin.value,
        "title": session.title,
        "channel": place.partition("/")[0] if "/" in place else "web",
        "waiting": one.waiting,
        "running": one.running,
        "queued": one.queued,
        "active_at": time(session.active_at),
        "rev": one.rev,
    }


def rows(found: Rows, card: Callable[[Wait], CardRow], *, older: bool) -> Json:
    """Rows of a session; what the page does not show is left out."""
    shown = [one for one in (row(r, card) for r in found.rows) if one is not None]
    return {
        "op": "rows",
        "session": found.session,
        "rows": shown,
        "rev": found.rev,
        "more": found.more,
        "older": older,
    }


def row(found: Row, card: Callable[[Wait], CardRow]) -> Json | None:
    """One row, or None when the page does not show it."""
    match found.item:
        case Received() as received:
            body = _message(received)
        case Turn() as turn:
            body = _turn(turn)
        case Step() as step:
            body = _step(step)
        case Wait() as wait:
            body = _approval(wait, card(wait)) if wait.kind is WaitKind.APPROVAL else None
        case Slot() as slot:
            body = _slot(slot) if slot.kind in SHOWN else None
    return None if body is None else {**body, "ord": found.ord, "rev": found.rev}


def delta(event: TextDelta | OutputDelta) -> Json:
    """A piece of streamed text."""
    op = "delta" if isinstance(event, TextDelta) else "output"
    return {
        "op": op,
        "session": event.session,
        "turn": event.turn,
        "n": event.n,
        "start": event.start,
        "text": event.text,
    }


def _message(received: Received) -> Json:
    message = received.message
    return {
        "type": "message",
        "id": received.id,
        "turn": received.turn,
        "from": message.name,
        "principal": message.principal,
        "channel": message.conversation.channel,
        "text": message.text,
        "at": time(received.received_at),
        "given": received.given is not None or received.turn is None,
    }


def _turn(turn: Turn) -> Json:
    return {
        "type": "turn",
        "id": turn.id,
        "kind": turn.kind.value,
        "state": turn.state.value,
        "channel": turn.conversation.channel,
        "created_at": time(turn.created_at),
        "started_at": time(turn.started_at),
        "ended_at": time(turn.ended_at),
        "active_ms": turn.active_ms,
    }


def _step(step: Step) -> Json:
    body: Json = {
        "type": "step",
        "id": f"{step.turn}/{step.n}",
        "turn": step.turn,
        "n": step.n,
        "kind": step.kind.value,
        "state": step.state.value,
        "started_at": time(step.started_at),
        "ended_at": time(step.ended_at),
    }
    if step.kind is StepKind.TOOL and step.call is not None:
        tool, arguments = _cut(step.call.tool, TOOL_AT_MOST), _cut(step.call.arguments, ARGUMENTS_AT_MOST)
        body |= {"call": step.call.id, "tool": tool, "arguments": arguments}
        body["result"] = _result(step, step.result) if step.result else None
    elif step.answer is not None:
        usage = step.answer.usage
        body["model"] = step.answer.model
        body["usage"] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        }
    return body


def _cut(text: str, at_most: int) -> str:
    return text if len(text) <= at_most else f"{text[:at_most]}…"


def _result(step: Step, result: ToolResult) -> Json:
    return {
        "status": result.status.value,
        "text": result.text,
        "code": result.code,
        "hint": result.hint,
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "dropped_bytes": result.dropped_bytes,
        "full": f"/api/output/{step.turn}/{step.n}" if result.full_output else None,
    }


def _approval(wait: Wait, card: CardRow) -> Json | None:
    request = wait.approval
    if request is None:
        return None
    return {
        "type": "approval",
        "id": wait.id,
        "turn": wait.turn,
        "n": wait.n,
        "state": wait.state.value,
        "tool": request.action.tool,
        "risk": request.risk.value,
        "title": card.title,
        "rendered": request.rendered,
        "escaped": request.escaped,
        "note": request.note,
        "facts": [list(fact) for fact in card.facts],
        "opened_at": time(wait.opened_at),
        "expires_at": time(wait.expires_at),
        "decided_by": wait.decided_by,
        "decided_at": time(wait.decided_at),
        "reason": wait.reason,
        "outcome": card.outcome,
        "buttons": [{"verb": b.verb.value, "label": b.label, "handle": b.handle} for b in card.buttons],
    }


def _slot(slot: Slot) -> Json:
    return {
        "type": "slot",
        "id": slot.id,
        "turn": slot.turn,
        "n": slot.n,
        "kind": slot.kind.value,
        "text": slot.text,
        "channel": slot.conversation.channel,
        "at": time(slot.created_at),
    }
