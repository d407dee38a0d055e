"""Conversion of rows to the page's frames (PROTOCOL.md). Used by `adapter`; pure but for `card`, which adds buttons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gateway.domain.children import Lineage, child_place
from gateway.domain.events import OutputDelta, TextDelta
from gateway.domain.ids import PAGE, SYSTEM_CHILD, SYSTEM_HOME, SessionId
from gateway.domain.messages import Attachment, Conversation, FetchedFile, Inbound, Received
from gateway.domain.slots import CardRow, QuestionCard, Slot, SlotKind, spoken_file
from gateway.domain.steps import Step, StepKind, Usage
from gateway.domain.text import cut, plain
from gateway.domain.tools import PICTURES, ToolResult
from gateway.domain.turns import Turn
from gateway.domain.views import Row, RowPage, SessionLine
from gateway.domain.waits import ChildEnd, Wait, WaitKind
from gateway.domain.workflows import steps_of
from gateway.ports import Welcome
from gateway.server.page.upload_requests import LIMITS

Json = dict[str, Any]
CardOf: TypeAlias = Callable[[Wait], CardRow | QuestionCard]
"""Maker of what the page shows of an approval or a question."""
ARGUMENTS_AT_MOST = 65_536
"""Characters of a call's arguments in a row: a model may write megabytes, and a page loads 200 rows at once."""
TOOL_AT_MOST = 200
"""Characters of a tool's name in a row, for the same reason."""
FRAME_BYTES = 1_000_000
"""Bytes of rows in one frame, exceeded by at most one row: 200 rows in one frame were 76 MB and blocked for 2 s."""
FRAMES_AT_MOST = 4
"""Frames of rows loaded at once; the page requests older rows when it scrolls there."""
QUOTED_AT_MOST = 65_536
"""Characters of a sub-session's last answer in its parent's row; its own session has all."""
SHOWN = frozenset({SlotKind.ANSWER, SlotKind.NOTE, SlotKind.REPLY, SlotKind.CHECKLIST})
"""Kinds of slots on the page. Cards, status lines and files of calls are for chats: the page shows approvals and
steps. A spoken answer is shown too."""
NAME_AT_MOST = 120
"""Characters of a file's name, at most."""


def time(at: datetime | None) -> str | None:
    """Return a time as ISO 8601 in UTC with `Z`."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def welcome(found: Welcome, sessions: Sequence[SessionLine]) -> Json:
    """Return the first frame."""
    return {
        "op": "welcome",
        "owner": found.owner,
        "main": found.main,
        "sessions": [line(one) for one in sessions],
        "commands": [{"name": c.name, "usage": c.usage, "about": c.about} for c in found.commands],
        "model": found.model,
        "version": found.version,
        "currency": found.currency,
        "warning": found.warning,
        "uploads": LIMITS,
    }


def lines(now: Mapping[SessionId, SessionLine], before: Mapping[SessionId, SessionLine]) -> Json:
    """Return the changed lines of the list: with hundreds of sessions most lines stay while one works."""
    return {
        "op": "lines",
        "sessions": [line(one) for id, one in now.items() if before.get(id) != one],
        "gone": [id for id in before if id not in now],
    }


def line(one: SessionLine) -> Json:
    """Return a session's line in the list."""
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


def changed(found: RowPage, card: CardOf) -> Iterator[Json]:
    """Yield frames with all rows, in order. Each has the revision up to which the page then has every change."""
    for shown, done in _portions(found.rows, card):
        if done < len(found.rows):
            yield _rows(found, shown, rev=found.rows[done - 1].rev, more=False, older=False)
        else:
            yield _rows(found, shown, rev=found.rev, more=found.more, older=False)


def newest(found: RowPage, card: CardOf, *, older: bool) -> Iterator[Json]:
    """Yield frames with the last rows that fit, the newest frame first; all others are marked older.

    So the page is consistent after each frame: the first moves it forward, the others back.
    """
    for n, (shown, done) in enumerate(_portions(found.rows[::-1], card)):
        more = found.more or done < len(found.rows)
        yield _rows(found, shown[::-1], rev=found.rev, more=more, older=older or n > 0)
        if n + 1 == FRAMES_AT_MOST:
            return


def _portions(found: Sequence[Row], card: CardOf) -> Iterator[tuple[list[Json], int]]:
    """Yield the shown rows in portions of one frame, with the number of rows processed so far; at least one portion."""
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


def _rows(found: RowPage, shown: list[Json], *, rev: int, more: bool, older: bool) -> Json:
    frame: Json = {"op": "rows", "session": found.session, "rows": shown, "rev": rev, "more": more, "older": older}
    return {**frame, "removed": True} if found.removed and not more else frame


def row(found: Row, card: CardOf) -> Json | None:
    """Return a row for the page; None if the page does not show it."""
    match found.item:
        case Received() as received:
            if received.message.principal == SYSTEM_HOME:
                return None  # a slot says the same to people
            body = _message(received)
        case Turn() as turn:
            body = _turn(turn)
        case Step() as step:
            body = _step(step)
        case Wait() as wait:
            body = _wait(wait, card)
        case Slot() as slot:
            body = _slot(slot) if slot.kind in SHOWN or _is_spoken(slot) else None
    return None if body is None else {**body, "ord": found.ord, "rev": found.rev}


def delta(event: TextDelta | OutputDelta) -> Json:
    """Return the frame of a piece of streamed text."""
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
        "files": [
            {**_attached(*found), "audio": _audio(received, k, *found)}
            for k, found in enumerate(_attachments(received))
        ],
        **_role(message),
    }


def _attachments(received: Received) -> list[tuple[Attachment, FetchedFile | None]]:
    found = received.files or ()
    return [(one, found[at] if at < len(found) else None) for at, one in enumerate(received.message.attachments)]


def _attached(file: Attachment, found: FetchedFile | None) -> Json:
    """Return an attachment's name, its size if known, its path in the workspace, and why it could not be fetched."""
    size = found.size if found is not None and found.path else file.size
    path, trouble = (found.path, found.trouble) if found is not None else ("", "")
    return {"name": shown_name(file.name), "size": size, "path": path, "trouble": trouble}


def _audio(received: Received, k: int, file: Attachment, found: FetchedFile | None) -> str | None:
    """Return the URL of a fetched recording; None for another file."""
    if received.turn is None or found is None or not found.path:
        return None
    sounds = file.spoken or any(one.media_type.lower().startswith("audio/") for one in (file, found))
    return f"/api/recording/{received.turn}/{received.id}/{k}" if sounds else None


def _role(message: Inbound) -> Json:
    """Return the speaker's role: a person, the task from the parent session, or an ended sub-session."""
    if message.principal == SYSTEM_CHILD:
        child = message.event_key.removeprefix("child/").partition("/")[0]
        return {"role": "child", "child": child, "quoted": cut(message.quoted, QUOTED_AT_MOST)}
    return {"role": "task" if _is_child(message.conversation) else "person"}


def _channel(place: Conversation) -> str:
    """Return the platform's name; `child` for a sub-session, whose turns appear only in it."""
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
            {
                "name": shown_name(one.name),
                "url": f"/api/output/{step.turn}/{step.n}/file/{at}",
                "picture": one.media_type in PICTURES,
            }
            for at, one in enumerate(result.files)
        ],
    }


def shown_name(name: str) -> str:
    """Return a file's name in a form safe to save: no path, not hidden, no bidirectional overrides."""
    last = name.replace("\\", "/").rpartition("/")[2]
    seen = "".join(char for char in plain(last) if char not in '<>:"|?*').strip(". ")
    stem, dot, ending = seen.rpartition(".")
    if len(seen) > NAME_AT_MOST:
        seen = f"{stem[: NAME_AT_MOST - 12]}{dot}{ending[:11]}" if stem else seen[:NAME_AT_MOST]
    return seen or "file"


def header_name(name: str) -> str:
    """Return a file's safe name in ASCII, for a header."""
    return "".join(char if char.isascii() else "_" for char in shown_name(name))


def _wait(wait: Wait, card: CardOf) -> Json | None:
    match wait.kind:
        case WaitKind.APPROVAL | WaitKind.QUESTION:
            shown = card(wait)
            return _question(wait, shown) if isinstance(shown, QuestionCard) else _approval(wait, shown)
        case WaitKind.CHILD:
            return _child(wait)
        case _:
            return None


def _child(wait: Wait) -> Json:
    """Return a sub-session that the turn waits for. Its answer is the result of the call."""
    end = ChildEnd.of(wait)
    return {
        "type": "child",
        "id": wait.id,
        "turn": wait.turn,
        "n": wait.n,
        "state": wait.state.value,
        "session": str(wait.payload.get("child", "")),
        "steps": [{"name": one.name, "state": one.state, "session": one.child} for one in steps_of(wait.payload)],
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
        "title": card.heading,
        "rendered": request.rendered,
        "escaped": request.escaped,
        "note": request.note,
        "parts": list(request.parts),
        "facts": [list(fact) for fact in card.open_facts],
        "details": [list(fact) for fact in card.folded_facts],
        "opened_at": time(wait.opened_at),
        "expires_at": time(wait.expires_at),
        "decided_by": wait.decided_by,
        "decided_at": time(wait.decided_at),
        "reason": wait.reason,
        "outcome": card.outcome,
        "question": card.question,
        "buttons": [{"verb": b.verb.value, "label": b.label, "handle": b.handle} for b in card.buttons],
    }


def _question(wait: Wait, card: QuestionCard) -> Json:
    """Return a question with the answers before it. Its buttons and its text field press handles, as an approval's."""
    return {
        "type": "question",
        "id": wait.id,
        "turn": wait.turn,
        "n": wait.n,
        "state": wait.state.value,
        "answered": [list(pair) for pair in card.answered],
        "question": card.question,
        "count": card.count,
        "asks": card.asks,
        "buttons": [
            {"label": one.label, "handle": one.handle, "chosen": one.chosen, "ends": one.ends} for one in card.buttons
        ],
        "write": card.write or "",
        "note": card.note,
        "opened_at": time(wait.opened_at),
        "expires_at": time(wait.expires_at),
        "decided_at": time(wait.decided_at),
    }


def _is_spoken(slot: Slot) -> bool:
    return slot.kind is SlotKind.FILE and slot.file is not None and slot.file.file == spoken_file(slot.turn, slot.n)


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
        "audio": f"/api/output/{slot.turn}/{slot.n}/spoken" if _is_spoken(slot) else None,
    }
