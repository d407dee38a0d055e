"""Results of calls that a wait decided: denied, expired, withdrawn, or ended by a child. Used by `decide`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from gateway.domain.text import head_and_tail_bytes
from gateway.domain.tools import ResultStatus, ToolResult
from gateway.domain.turns import TurnState
from gateway.domain.waits import DECISION_GOOD_FOR_S, GOES_ON, ChildEnd, Wait, WaitState, child_of, inquiry_of

CHILD_BYTES = 32_768
"""Bytes of UTF-8 of a sub-session's answer that its parent gets, head and tail."""

_NOT_RUN: Mapping[WaitState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        WaitState.DENIED: (ResultStatus.DENIED, "denied", "Nothing was run."),
        WaitState.EXPIRED: (ResultStatus.EXPIRED, "expired", "Nobody decided in time; nothing was run."),
        WaitState.CANCELLED: (ResultStatus.CANCELLED, "withdrawn", "It was withdrawn; nothing was run."),
    }
)
_CHILD_CUT: Mapping[WaitState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        WaitState.EXPIRED: (ResultStatus.EXPIRED, "expired", "The sub-session did not end in time and was stopped."),
        WaitState.CANCELLED: (ResultStatus.CANCELLED, "withdrawn", "The sub-session was stopped."),
    }
)
_CHILD_ENDED: Mapping[TurnState, tuple[ResultStatus, str, str]] = MappingProxyType(
    {
        TurnState.DONE: (ResultStatus.OK, "", ""),
        TurnState.FAILED: (ResultStatus.ERROR, "child_failed", "The sub-session failed."),
        TurnState.STOPPED: (ResultStatus.CANCELLED, "child_stopped", "The sub-session was stopped."),
    }
)


def of_decision(wait: Wait) -> ToolResult | None:
    """Return the result of a call whose approval was denied, expired or withdrawn; None for any other wait."""
    if wait.state not in _NOT_RUN:
        return None
    status, code, hint = _NOT_RUN[wait.state]
    if wait.state is WaitState.EXPIRED and wait.decided_at is not None:
        minutes = DECISION_GOOD_FOR_S // 60
        hint = f"It was allowed, but could not start within {minutes} minutes of that; nothing was run."
    reason = f"The person who denied it says: {wait.reason} " if wait.reason else ""
    return ToolResult(status=status, text="", code=code, hint=f"{reason}{hint}")


def not_approved() -> ToolResult:
    """Return the result of a call whose approval is not valid."""
    hint = "Its approval is for another action, or was withdrawn; nothing was run."
    return ToolResult(status=ResultStatus.DENIED, text="", code="not_approved", hint=hint)


def changed_since_asked() -> ToolResult:
    """Return the result of an approved call whose files are no longer those that its card showed."""
    hint = "The files changed after it was asked, so the approval does not hold; nothing was run. Look and ask again."
    return ToolResult(status=ResultStatus.DENIED, text="", code="changed", hint=hint)


def files_elsewhere() -> ToolResult:
    """Return the result of an approved call whose files are on another machine."""
    hint = "It was approved for the files of another machine, so nothing was run. Look what is here, and ask again."
    return ToolResult(status=ResultStatus.DENIED, text="", code="elsewhere", hint=hint)


def after_a_wait(tool: str) -> ToolResult:
    """Return the result of a call made after a waiting one of the same tool, whose effect is not known yet."""
    hint = (
        f"Not run: the call of {tool} before it waits for a decision, and its calls run in order. "
        "Make it again when you have the result of that one, if it is still right."
    )
    return ToolResult(status=ResultStatus.CANCELLED, text="", code="behind_a_wait", hint=hint)


def of_question(wait: Wait) -> ToolResult:
    """Return the result of a call that asked a person: the answers as JSON, also those given before it was over."""
    inquiry = inquiry_of(wait)
    if inquiry is None:
        hint = "The question cannot be read any more. Ask again."
        return ToolResult(status=ResultStatus.ERROR, text="", code="question_lost", hint=hint)
    answers = [
        {"question": question.text, "answer": list(answer)}
        for question, answer in zip(inquiry.questions, inquiry.answers, strict=False)
    ]
    text = json.dumps(answers, ensure_ascii=False) if answers else ""
    if wait.state is WaitState.ANSWERED:
        return ToolResult(status=ResultStatus.OK, text=text, hint=f"Answered by {wait.decided_by}.")
    if wait.state is WaitState.EXPIRED:
        hint = f"Nobody answered {'everything ' if answers else ''}in time. A later answer comes as a message."
        return ToolResult(status=ResultStatus.EXPIRED, text=text, code="unanswered", hint=hint)
    return ToolResult(status=ResultStatus.CANCELLED, text=text, code="withdrawn", hint="The question was withdrawn.")


def of_child(wait: Wait) -> ToolResult:
    """Return the result of a call that waited for a child: it spawned it, or wrote to it."""
    if wait.state is WaitState.EXPIRED and wait.payload.get(GOES_ON):
        hint = f"{child_of(wait)} has not answered yet and goes on. Its answer comes later, as a message."
        return ToolResult(status=ResultStatus.EXPIRED, text="", code="no_answer_yet", hint=hint)
    if wait.state in _CHILD_CUT:
        status, code, hint = _CHILD_CUT[wait.state]
        return ToolResult(status=status, text="", code=code, hint=hint)
    end = ChildEnd.of(wait)
    if end is None:
        hint = "The sub-session ended in an unknown way."
        return ToolResult(status=ResultStatus.ERROR, text="", code="child_failed", hint=hint)
    status, code, hint = _CHILD_ENDED[end.state]
    if "workflow" in wait.payload and end.state is TurnState.FAILED:
        code, hint = "steps_failed", "Not every step was done; the results say why."
    text, dropped = head_and_tail_bytes(end.text, CHILD_BYTES)
    if dropped:
        hint = f"{hint} The middle is left out; the page shows all of it in {end.child}.".strip()
    elif not text:
        hint = f"{hint} It said nothing.".strip()
    if "workflow" not in wait.payload and end.child:  # by which it can be asked again
        hint = f"{hint} From {end.child}.".strip()
    # The answer may repeat anything that the child read, strangers' text too.
    return ToolResult(
        status=status,
        text=text,
        code=code,
        hint=hint,
        duration_ms=end.active_ms,
        dropped_bytes=dropped,
        untrusted=bool(text),
    )
