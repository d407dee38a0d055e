"""Decisions about calls that were asked about, interrupted by a crash, or spawned a child."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.steps import StepState
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, ResultStatus, Risk, ToolResult
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.decide import Runnable
from gateway.toolcalls.tool_set import Tool
from gateway.toolcalls.wait_results import after_a_wait, not_approved
from tests.support.fakes import Text
from tests.support.makers import EPOCH, scope_grant
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import asked, deciding, first, reaching, step, tool, waiting

OK, ERROR, DENIED = ResultStatus.OK, ResultStatus.ERROR, ResultStatus.DENIED
EXPIRED, CANCELLED, UNKNOWN = ResultStatus.EXPIRED, ResultStatus.CANCELLED, ResultStatus.UNKNOWN
HALF = "Do not assume success or failure; it is not run again unless it is asked for and allowed again."


# --- a call that was asked about ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "result"),
    [
        (
            waiting(WaitState.DENIED),
            ToolResult(status=DENIED, text="", code="denied", hint="Nothing was run."),
        ),
        (
            waiting(WaitState.DENIED, reason="use trash", decided=True),
            ToolResult(
                status=DENIED,
                text="",
                code="denied",
                hint="The person who denied it says: use trash Nothing was run.",
            ),
        ),
        (
            waiting(WaitState.EXPIRED),
            ToolResult(status=EXPIRED, text="", code="expired", hint="Nobody decided in time; nothing was run."),
        ),
        (
            waiting(WaitState.EXPIRED, decided=True),
            ToolResult(
                status=EXPIRED,
                text="",
                code="expired",
                hint="It was allowed, but could not start within 5 minutes of that; nothing was run.",
            ),
        ),
        (
            waiting(WaitState.CANCELLED, decided=True),
            ToolResult(status=CANCELLED, text="", code="withdrawn", hint="It was withdrawn; nothing was run."),
        ),
        (waiting(WaitState.OPEN), None),
        (waiting(WaitState.OPEN, kind=WaitKind.CHILD), None),
        (waiting(WaitState.APPROVED), None),  # of something else than an action
        (None, None),
    ],
)
def test_denied_call_gets_a_result_that_nothing_was_run(
    tmp_path: Path, wait: Wait | None, result: ToolResult | None
) -> None:
    one = step(state=StepState.ASKED)

    assert deciding(tmp_path).later(turn_view(steps=[one]), one, wait) == result


def test_approved_call_runs_as_it_was_shown(tmp_path: Path) -> None:
    by, one = deciding(tmp_path), step()
    request = asked(by, one)
    later = replace(one, state=StepState.ASKED)
    found = by.later(turn_view(steps=[later]), later, waiting(WaitState.APPROVED, approval=request))

    assert isinstance(found, Runnable)
    assert (found.wait, found.call.action, found.call.action_sha) == (
        "w0123456789abcdef",
        request.action,
        request.action_sha,
    )
    assert found.call.arguments == Text(text="ls")


def test_approved_call_keeps_its_scope(tmp_path: Path) -> None:
    host = CallScope(risk=Risk.NETWORK, scope="example.org")
    by, one = deciding(tmp_path, reaching(host)), step()
    request = asked(by, one)
    granted = [scope_grant("example.net"), scope_grant("example.com", "other")]
    wait = waiting(WaitState.APPROVED, approval=request)
    found = by.later(turn_view(steps=[one]), replace(one, state=StepState.ASKED), wait, granted)

    assert (request.risk, request.scope) == (Risk.NETWORK, "example.org")
    assert isinstance(found, Runnable)
    assert (found.call.call_scope, found.call.scopes.granted) == (host, {"example.org", "example.net"})


def test_approval_runs_nothing_when_the_tool_is_denied_by_now(tmp_path: Path) -> None:
    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(deciding(tmp_path), one))
    by = deciding(tmp_path, tool(approval={"main": ApprovalMode.DENY}))

    assert by.later(turn_view(steps=[one]), replace(one, state=StepState.ASKED), wait) == ToolResult(
        status=DENIED, text="", code="configured", hint="The configuration denies shell here."
    )


def test_a_tool_that_changed_since_it_was_asked_is_asked_again(tmp_path: Path) -> None:
    class Other(Text):
        mode: str

    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(deciding(tmp_path), one))
    by = deciding(tmp_path, replace(tool(), arguments=ModelArguments(Other)))

    assert by.later(turn_view(steps=[one]), replace(one, state=StepState.ASKED), wait) == ToolResult(
        status=ERROR,
        text="",
        code="invalid_arguments",
        hint="The tool changed after it was asked; ask again.",
    )


def test_texts_of_a_void_approval_and_of_a_call_behind_a_wait() -> None:
    assert not_approved() == ToolResult(
        status=DENIED,
        text="",
        code="not_approved",
        hint="Its approval is for another action, or was withdrawn; nothing was run.",
    )
    assert after_a_wait("browser") == ToolResult(
        status=CANCELLED,
        text="",
        code="behind_a_wait",
        hint="Not run: the call of browser before it waits for a decision, and its calls run in order. "
        "Make it again when you have the result of that one, if it is still right.",
    )


# --- a call that a crash cut in half --------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "began"),
    [(True, "the start at 00:00:05 UTC"), (False, "the start")],
)
def test_unsafe_call_cut_short_has_an_unknown_outcome(tmp_path: Path, known: bool, began: str) -> None:
    at = EPOCH + timedelta(seconds=5) if known else None
    one = replace(step(state=StepState.STARTED), started_at=at)

    assert deciding(tmp_path).later(turn_view(steps=[one]), one, None) == ToolResult(
        status=UNKNOWN,
        text="",
        code="unknown",
        hint=f"Outcome unknown: the process ended after {began}. {HALF}",
    )


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.PURE), True),
        (tool(Risk.READ, Effect.IDEMPOTENT), tool(Risk.READ, Effect.IDEMPOTENT), True),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.UNSAFE), False),
        # The settings changed over the restart: what would be asked about, or is refused, does not run by itself.
        (tool(Risk.READ, Effect.PURE), tool(Risk.WRITE, Effect.PURE), False),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.PURE, availability=Availability.BLOCKED), False),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.PURE, approval={"main": ApprovalMode.DENY}), False),
    ],
)
def test_repeatable_call_runs_again_when_still_allowed(tmp_path: Path, before: Tool, now: Tool, again: bool) -> None:
    one = step()
    allowed = first(deciding(tmp_path, before), one)
    cut = replace(one, state=StepState.STARTED)
    found = deciding(tmp_path, now).later(turn_view(steps=[cut]), cut, None)

    assert isinstance(allowed, Runnable)
    if again:
        assert isinstance(found, Runnable)
        assert (found.wait, found.call.action) == (None, allowed.call.action)
    else:
        assert isinstance(found, ToolResult)
        assert found.status is UNKNOWN


@pytest.mark.parametrize(
    ("effect", "availability", "again"),
    [
        (Effect.PURE, Availability.ALWAYS, True),
        (Effect.IDEMPOTENT, Availability.ALWAYS, True),
        (Effect.UNSAFE, Availability.ALWAYS, False),
        (Effect.PURE, Availability.BLOCKED, False),
    ],
)
def test_approved_cut_call_runs_again_as_approved(
    tmp_path: Path, effect: Effect, availability: Availability, again: bool
) -> None:
    one = step()
    request = asked(deciding(tmp_path, tool(effect=effect)), one)
    by = deciding(tmp_path, tool(effect=effect, availability=availability))
    # The transcript says something else than what was allowed: it is not what counts.
    cut = replace(step(arguments='{"text": "rm"}'), state=StepState.STARTED)
    found = by.later(turn_view(steps=[cut]), cut, waiting(WaitState.CONSUMED, approval=request))

    if again:
        assert isinstance(found, Runnable)
        assert (found.wait, found.call.action) == (None, request.action)
    else:
        assert isinstance(found, ToolResult)
        assert found.status is UNKNOWN


# --- a call that spawned a child ------------------------------------------------------------------


def ended(state: str, text: str = "", **more: Any) -> Wait:
    payload = {"child": "child:t.1", "state": state, "text": text, **more}
    return waiting(WaitState.ANSWERED, kind=WaitKind.CHILD, payload=payload)


@pytest.mark.parametrize(
    ("wait", "result"),
    [
        (
            ended("done", "Here.", active_ms=1200),
            ToolResult(status=OK, text="Here.", hint="From child:t.1.", duration_ms=1200, untrusted=True),
        ),
        (ended("done", "Here.", workflow="w"), ToolResult(status=OK, text="Here.", untrusted=True)),
        (ended("done"), ToolResult(status=OK, text="", hint="It said nothing. From child:t.1.")),
        (
            ended("failed", "Half of it."),
            ToolResult(
                status=ERROR,
                text="Half of it.",
                code="child_failed",
                hint="The sub-session failed. From child:t.1.",
                untrusted=True,
            ),
        ),
        (
            ended("failed"),
            ToolResult(
                status=ERROR,
                text="",
                code="child_failed",
                hint="The sub-session failed. It said nothing. From child:t.1.",
            ),
        ),
        (
            ended("stopped", "Half."),
            ToolResult(
                status=CANCELLED,
                text="Half.",
                code="child_stopped",
                hint="The sub-session was stopped. From child:t.1.",
                untrusted=True,
            ),
        ),
        (
            ended("dreaming", "?"),
            ToolResult(
                status=ERROR,
                text="",
                code="child_failed",
                hint="The sub-session ended in an unknown way.",
            ),
        ),
        (
            waiting(WaitState.ANSWERED, kind=WaitKind.CHILD),
            ToolResult(
                status=ERROR,
                text="",
                code="child_failed",
                hint="The sub-session ended in an unknown way.",
            ),
        ),
        (
            waiting(WaitState.EXPIRED, kind=WaitKind.CHILD),
            ToolResult(
                status=EXPIRED,
                text="",
                code="expired",
                hint="The sub-session did not end in time and was stopped.",
            ),
        ),
        (
            waiting(WaitState.CANCELLED, kind=WaitKind.CHILD),
            ToolResult(status=CANCELLED, text="", code="withdrawn", hint="The sub-session was stopped."),
        ),
    ],
)
def test_result_of_child_states_how_it_ended(tmp_path: Path, wait: Wait, result: ToolResult) -> None:
    one = step(state=StepState.STARTED)

    assert deciding(tmp_path).later(turn_view(steps=[one]), one, wait) == result


ANSWERED: dict[str, Any] = {
    "questions": [{"text": "Which day?", "options": []}],
    "answers": [["Friday"]],
    "requester": "x:1",
}
SAID = '[{"question": "Which day?", "answer": ["Friday"]}]'


@pytest.mark.parametrize(
    ("state", "payload", "result"),
    [
        (
            WaitState.ANSWERED,
            {},
            ToolResult(
                status=ERROR, text="", code="question_lost", hint="The question cannot be read any more. Ask again."
            ),
        ),
        (WaitState.ANSWERED, ANSWERED, ToolResult(status=OK, text=SAID, hint="Answered by None.")),
        (
            WaitState.EXPIRED,
            ANSWERED,
            ToolResult(
                status=EXPIRED,
                text=SAID,
                code="unanswered",
                hint="Nobody answered everything in time. A later answer comes as a message.",
            ),
        ),
        (
            WaitState.CANCELLED,
            {**ANSWERED, "answers": []},
            ToolResult(status=CANCELLED, text="", code="withdrawn", hint="The question was withdrawn."),
        ),
    ],
)
def test_result_of_a_question_has_the_answers(
    tmp_path: Path, state: WaitState, payload: dict[str, Any], result: ToolResult
) -> None:
    one, wait = step(state=StepState.STARTED), waiting(state, kind=WaitKind.QUESTION, payload=payload)
    assert deciding(tmp_path).later(turn_view(steps=[one]), one, wait) == result


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("done", "The middle is left out; the page shows all of it in child:t.1. From child:t.1."),
        (
            "failed",
            "The sub-session failed. The middle is left out; the page shows all of it in child:t.1. From child:t.1.",
        ),
    ],
)
def test_long_last_words_of_a_child_lose_their_middle(tmp_path: Path, state: str, hint: str) -> None:
    one = step(state=StepState.STARTED)
    found = deciding(tmp_path).later(turn_view(steps=[one]), one, ended(state, "a" * 20_000 + "b" * 20_000))

    assert isinstance(found, ToolResult)
    assert (found.hint, found.dropped_bytes) == (hint, 40_000 - 32_768)
    assert found.text == "a" * 16_384 + "\n[… 7,232 bytes left out …]\n" + "b" * 16_384


# --- a call whose files are elsewhere -------------------------------------------------------------


@pytest.mark.parametrize("approval_of", ["here", "elsewhere"])
@pytest.mark.parametrize("state", [StepState.ASKED, StepState.STARTED])
def test_an_approval_is_good_where_its_files_are(tmp_path: Path, approval_of: str, state: StepState) -> None:
    """Another place has other files at the same path, also for a call that a crash cut in half."""
    by, one = deciding(tmp_path / "here", tool(effect=Effect.IDEMPOTENT)), step()
    by.node = "node-1"
    request = asked(deciding(tmp_path / approval_of, tool(effect=Effect.IDEMPOTENT)), one)
    now = replace(one, state=state, started_at=EPOCH if state is StepState.STARTED else None)
    used = WaitState.CONSUMED if state is StepState.STARTED else WaitState.APPROVED
    found = by.later(turn_view(steps=[now]), now, waiting(used, approval=request))
    if approval_of == "here":
        assert isinstance(found, Runnable)
        return
    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == ((UNKNOWN, "unknown") if state is StepState.STARTED else (DENIED, "elsewhere"))


def test_a_card_names_the_node_while_there_are_others(tmp_path: Path) -> None:
    by, one = deciding(tmp_path), step()
    assert asked(by, one).node == ""
    by.node = "node-1"
    assert asked(by, one).node == "node-1"
