"""From rows to frames of the page (PROTOCOL.md). Pure but for `card`, which makes an approval's buttons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.domain.children import Lineage, child_place
from gateway.domain.ids import PAGE, SYSTEM_CHILD, SessionId
from gateway.domain.live import OutputDelta, TextDelta
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Inbound, Received
from gateway.domain.slots import ANSWER_BY, DETAILS, CardRow, Slot, SlotKind
from gateway.domain.steps import Step, StepKind, Usage
from gateway.domain.text import cut, plain
from gateway.domain.tools import ToolResult
from gateway.domain.turns import Turn
from gateway.domain.views import Row, Rows, SessionLine
from gateway.domain.waits import ChildEnd, Wait, WaitKind
from gateway.ports import Welcome

Json = dict[str, Any]
ARGUMENTS_AT_MOST = 65_536
TOOL_AT_MOST = 200
"""Characters that a row shows of what a model calls; a model may write megabytes, and a page loads 200 rows at once."""
FRAME_BYTES = 1_000_000
"""Of rows in one frame, or one row more: 200 rows in one were 76 MB, and stopped everything for two seconds."""
FRAMES_AT_MOST = 4
"""Of rows that are loaded at once; the page asks for those before them when it comes there."""
QUOTED_AT_MOST = 65_536
"""Characters of a sub-session's last words that its parent's row shows; all of them are in its own session."""
SHOWN = frozenset({SlotKind.ANSWER, SlotKind.NOTE, SlotKind.REPLY})
"""Of slots. Cards, status lines and files are for chats: the page shows the approvals and the steps themselves."""
NAME_AT_MOST = 120
"""Characters of what a file is called."""


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
        "currency": found.currency,
    }


def lines(now: Mapping[SessionId, SessionLine], before: Mapping[SessionId, SessionLine]) -> Json:
    """What is not as it was in a list: with hundreds of sessions most lines stay while one works."""
    return {
        "op": "lines",
        "sessions": [line(one) for id, one in now.items() if before.get(id) != one],
        "gone": [id for id in before if id not in now],
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
        "channel": place.partition("/")[0] if "/" in place else PAGE,
        "waiting": one.waiting,
        "running": one.running,
        "queued": one.queued,
        "created_at": time(session.created_at),
        "active_at": time(session.active_at),
        "rev": one.rev,
        "lineage": _lineage(session.lineage) if session.lineage else None,
    }


def _lineage(found: Lineage) -> Json:
    return {
        "parent": found.parent,
        "turn": found.turn,
        "n": found.n,
        "root": found.root,
        "depth": found.depth,
        "mode": found.mode.value,
        "agent": found.agent,
        "model": found.model,
    }


def changed(found: Rows, card: Callable[[Wait], CardRow]) -> Iterator[Json]:
    """Frames with all rows, in their order. Each says up to where every change is with the page when it has it."""
    for shown, done in _portions(found.rows, card):
        if done < len(found.rows):
            yield _rows(found, shown, rev=found.rows[done - 1].rev, more=False, older=False)
        else:
            yield _rows(found, shown, rev=found.rev, more=found.more, older=False)


def newest(found: Rows, card: Callable[[Wait], CardRow], *, older: bool) -> Iterator[Json]:
    """Frames with the last rows, the newest first, as far as they fit. All but the first are older ones.

    So what a page has is right after each of them: it goes forward with the first, and back with the others.
    """
    for n, (shown, done) in enumerate(_portions(found.rows[::-1], card)):
        more = found.more or done < len(found.rows)
        yield _rows(found, shown[::-1], rev=found.rev, more=more, older=older or n > 0)
        if n + 1 == FRAMES_AT_MOST:
            return


def _portions(found: Sequence[Row], card: Callable[[Wait], CardRow]) -> Iterator[tuple[list[Json], int]]:
    """What is shown of the rows, as much as a frame may hold, and how many rows are through then; at least once."""
    shown: list[Json] = []
    size = 0
    for done, one in enumerate(found, 1):
        if (body := row(one, card)) is None:
            continue
        shown.append(body)
        size += len(json.dumps(body))
        if size > FRAME_BYTES and done < len(found):
            yield shown, done
            shown, size = [], 0
    yield shown, len(found)


def _rows(found: Rows, shown: list[Json], *, rev: int, more: bool, older: bool) -> Json:
    return {"op": "rows", "session": found.session, "rows": shown, "rev": rev, "more": more, "older": older}


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
            body = _wait(wait, card)
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
        "channel": _channel(message.conversation),
        "text": message.text,
        "at": time(received.received_at),
        "given": received.given is not None or received.turn is None,
        "files": [_attached(*found) for found in _attachments(received)],
        **_role(message),
    }


def _attachments(received: Received) -> list[tuple[Attachment, FetchedFile | None]]:
    found = received.files or ()
    return [(one, found[at] if at < len(found) else None) for at, one in enumerate(received.message.attachments)]


def _attached(file: Attachment, found: FetchedFile | None) -> Json:
    """A file that came with a message: what it is called, and why it is not there."""
    return {"name": shown_name(file.name), "trouble": found.trouble if found is not None else ""}


def _role(message: Inbound) -> Json:
    """Who speaks: a person, whoever spawned this session, or a sub-session that has ended."""
    if message.principal == SYSTEM_CHILD:
        child = message.event_key.removeprefix("child/").removesuffix("/end")
        return {"role": "child", "child": child, "quoted": cut(message.quoted, QUOTED_AT_MOST)}
    return {"role": "task" if _is_child(message.conversation) else "person"}


def _channel(place: Conversation) -> str:
    """The name of the platform; `child` for a sub-session, whose turns take place nowhere but in it."""
    return "child" if _is_child(place) else place.channel


def _is_child(place: Conversation) -> bool:
    return place == child_place(SessionId(place.chat))


def _turn(turn: Turn) -> Json:
    return {
        "type": "turn",
        "id": turn.id,
        "kind": turn.kind.value,
        "state": turn.state.value,
        "channel": _channel(turn.conversation),
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
        tool, arguments = cut(step.call.tool, TOOL_AT_MOST), cut(step.call.arguments, ARGUMENTS_AT_MOST)
        body |= {"call": step.call.id, "tool": tool, "arguments": arguments}
        body["result"] = _result(step, step.result) if step.result else None
    elif step.answer is not None:
        body["model"] = step.answer.model
        body["usage"] = _usage(step.answer.usage)
    return body


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_micros": usage.cost_micros,
    }


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
        "pictures": [f"/api/output/{step.turn}/{step.n}/{at}" for at in range(len(result.pictures))],
        "files": [
            {"name": shown_name(one.name), "url": f"/api/output/{step.turn}/{step.n}/file/{at}"}
            for at, one in enumerate(result.files)
        ],
    }


def shown_name(name: str) -> str:
    """What a file is called, in a form that it can be saved under: no path, nothing hidden, nothing that turns text."""
    last = name.replace("\\", "/").rpartition("/")[2]
    seen = "".join(char for char in plain(last) if char not in '<>:"|?*').strip(". ")
    stem, dot, ending = seen.rpartition(".")
    if len(seen) > NAME_AT_MOST:
        seen = f"{stem[: NAME_AT_MOST - 12]}{dot}{ending[:11]}" if stem else seen[:NAME_AT_MOST]
    return seen or "file"


def header_name(name: str) -> str:
    """The same for a header: ASCII alone."""
    return "".join(char if char.isascii() else "_" for char in shown_name(name))


def _wait(wait: Wait, card: Callable[[Wait], CardRow]) -> Json | None:
    match wait.kind:
        case WaitKind.APPROVAL:
            return _approval(wait, card(wait))
        case WaitKind.CHILD:
            return _child(wait)
        case _:
            return None


def _child(wait: Wait) -> Json:
    """A sub-session that the turn waits for. What it said is the result of the call."""
    end = ChildEnd.of(wait)
    return {
        "type": "child",
        "id": wait.id,
        "turn": wait.turn,
        "n": wait.n,
        "state": wait.state.value,
        "session": str(wait.payload.get("child", "")),
        "outcome": end.state.value if end else None,
        "active_ms": end.active_ms if end else 0,
        "usage": _usage(end.usage if end else Usage()),
        "opened_at": time(wait.opened_at),
        "expires_at": time(wait.expires_at),
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
        "facts": [[label, value] for label, value in card.facts if label not in {ANSWER_BY, *DETAILS}],
        "details": [[label, value] for label, value in card.facts if label in DETAILS],
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
        "channel": _channel(slot.conversation),
        "at": time(slot.created_at),
    }
