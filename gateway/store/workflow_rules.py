"""Rules for workflows: the stored graph, its ready steps, and its results. Pure.

Shared by every store. The graph stands in the payload of the one wait on which the turn parks, under `workflow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, cast

from gateway.domain.children import NewChild, SpawnMode
from gateway.domain.ids import SessionId
from gateway.domain.steps import Usage
from gateway.domain.text import as_quote, head_and_tail_bytes
from gateway.domain.turns import TurnState
from gateway.domain.waits import ChildEnd
from gateway.domain.workflows import WORKFLOW, NewStep, inputs_of, with_inputs_named
from gateway.store.child_rules import End

RESULT_BYTES = 8_192
"""Bytes of UTF-8 of one step's result that are kept."""
INPUT_CHARS = 18_000
"""Characters of all results that one step is given."""
RESULTS_BYTES = 30_000
"""Bytes of UTF-8 of all results together."""

Row = Mapping[str, Any]
WAITING, RUNNING, DONE, FAILED, STOPPED, NOT_RUN = "waiting", "running", "done", "failed", "stopped", "not run"
_ENDED = {TurnState.DONE: DONE, TurnState.STOPPED: STOPPED}
_BROKEN = frozenset({FAILED, STOPPED, NOT_RUN})


def payload_of(steps: Sequence[NewStep]) -> dict[str, Any]:
    """Return the payload of a workflow in which nothing has begun. `child` is the first one's, for lists."""
    rows = [_row(step) for step in steps]
    return {"child": steps[0].child.session, WORKFLOW: rows}


def _row(step: NewStep) -> dict[str, Any]:
    child = asdict(step.child)
    child |= {
        "tools": list(step.child.tools),
        "mode": step.child.mode.value,
        "expires_in": step.child.expires_in.total_seconds(),
    }
    return {"name": step.name, "needs": list(step.needs), "state": WAITING, "text": "", "child": child}


def rows_of(payload: Row) -> list[Row]:
    """Return the stored steps of a workflow; none for any other wait."""
    found = payload.get(WORKFLOW)
    return cast("list[Row]", found) if isinstance(found, list) else []


def sessions_of(payload: Row) -> list[SessionId]:
    """Return the children that began."""
    return [_child(row).session for row in rows_of(payload) if row["state"] != WAITING and row["state"] != NOT_RUN]


def begin_ready(payload: Row, room: int) -> tuple[dict[str, Any], list[tuple[NewChild, str]]]:
    """Return the payload with up to `room` ready steps running, and the child of each with the results it is given."""
    rows, begun = [dict(row) for row in rows_of(payload)], list[tuple[NewChild, str]]()
    states = {row["name"]: row["state"] for row in rows}
    for row in rows:
        if len(begun) < room and row["state"] == WAITING and all(states[need] == DONE for need in row["needs"]):
            row["state"] = RUNNING
            begun.append(_with_inputs(row, rows))
    return {**payload, WORKFLOW: rows}, begun


def _with_inputs(row: Row, rows: Sequence[Row]) -> tuple[NewChild, str]:
    child = _child(row)
    wanted = inputs_of(child.task)
    most = INPUT_CHARS // max(1, len(wanted))
    texts = {one["name"]: str(one["text"]) for one in rows}
    quoted = [f"Result of {name}:\n{as_quote(texts[name], most) or 'Nothing.'}" for name in wanted]
    given = {**row["child"], "task": with_inputs_named(child.task)}
    return _child({**row, "child": given}), "\n\n".join(quoted)


def _child(row: Row) -> NewChild:
    stored: dict[str, Any] = {**row["child"]}
    stored["tools"] = tuple(stored["tools"])
    stored["mode"] = SpawnMode(stored["mode"])
    stored["expires_in"] = timedelta(seconds=stored["expires_in"])
    return NewChild(**stored)


def with_end(payload: Row, end: End, active_ms: int, spent: Usage) -> dict[str, Any]:
    """Return the payload after the end of one step's child. A step that was not running stays as it is."""
    rows = [dict(row) for row in rows_of(payload)]
    for row in rows:
        if _child(row).session == end.child and row["state"] == RUNNING:
            row["state"] = _ENDED.get(end.state, FAILED)
            row["text"] = head_and_tail_bytes(end.words, RESULT_BYTES)[0]
            row["used"] = [active_ms, spent.input_tokens, spent.output_tokens, spent.cost_micros]
    _give_up(rows)
    return {**payload, WORKFLOW: rows}


def _give_up(rows: Sequence[dict[str, Any]]) -> None:
    """Mark what can no longer run, in as many passes as the longest chain has links."""
    for _ in rows:
        broken = {str(row["name"]): row for row in rows if row["state"] in _BROKEN}
        for row in rows:
            lost = next((need for need in row["needs"] if need in broken), None)
            if row["state"] == WAITING and lost is not None:
                row["state"], row["text"] = NOT_RUN, f"It needs {lost}: {broken[lost]['state']}."


def has_ended(payload: Row) -> bool:
    """Return whether no step runs or will run."""
    return all(row["state"] not in (WAITING, RUNNING) for row in rows_of(payload))


def _shown(row: Row, most: int) -> str:
    """Return a step's result; why it did not run are the gateway's own words."""
    return str(row["text"]) if row["state"] == NOT_RUN else as_quote(row["text"], most)


def answer_of(payload: Row) -> dict[str, Any]:
    """Return the payload of a workflow that has ended: that of a child's end, with every result in order."""
    rows = rows_of(payload)
    each = RESULTS_BYTES // len(rows)
    texts = [f"## {row['name']}: {row['state']}\n{_shown(row, each)}".strip() for row in rows]
    used = [sum(column) for column in zip(*(row.get("used") or [0, 0, 0, 0] for row in rows), strict=True)]
    state = TurnState.DONE if all(row["state"] == DONE for row in rows) else TurnState.FAILED
    end = ChildEnd(
        child=SessionId(str(payload["child"])),
        state=state,
        text="\n\n".join(texts),
        active_ms=used[0],
        usage=Usage(input_tokens=used[1], output_tokens=used[2], cost_micros=used[3]),
    )
    return {**payload, **end.as_payload()}
