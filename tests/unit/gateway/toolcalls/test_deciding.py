"""What becomes of one call, and in which words: each case by itself, without an engine around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, Field

from gateway.approvals import action_key, action_sha
from gateway.execution import Workspaces
from gateway.model.ids import CallId, TurnId, WaitId, main_session
from gateway.model.sessions import TurnLimits
from gateway.model.tools import (
    Action,
    Approval,
    Effect,
    Permission,
    Reach,
    ResultStatus,
    Risk,
    Sandbox,
    Step,
    StepKind,
    StepState,
    ToolCall,
    ToolResult,
)
from gateway.model.views import TurnView
from gateway.model.waits import ApprovalRequest, Wait, WaitKind, WaitState
from gateway.observe import Meters
from gateway.registry import Registry, Tool
from gateway.toolcalls.deciding import (
    COMPARED_AT_MOST,
    Asked,
    Deciding,
    Found,
    Permits,
    Runnable,
    SameCalls,
    after_a_wait,
    head_and_tail,
    not_approved,
)
from tests.support.fakes import NO_SANDBOX, FakeTool, Text
from tests.support.makers import ANN, ANN_TELEGRAM, BOB, EPOCH
from tests.support.turns import turn_view

OK, ERROR, DENIED = ResultStatus.OK, ResultStatus.ERROR, ResultStatus.DENIED
EXPIRED, CANCELLED, UNKNOWN = ResultStatus.EXPIRED, ResultStatus.CANCELLED, ResultStatus.UNKNOWN
LIST = '{"text": "ls"}'
HALF = "Do not assume success or failure; it is not run again unless it is asked for and allowed anew."  # of both hints


def step(n: int = 1, tool: str = "shell", arguments: str = LIST, *, state: StepState = StepState.PLANNED) -> Step:
    call = ToolCall(id=CallId(f"c{n}"), tool=tool, arguments=arguments)
    return Step(turn=TurnId("t"), n=n, kind=StepKind.TOOL, state=state, call=call, answer_n=0)


def tool(risk: Risk = Risk.EXECUTE, effect: Effect = Effect.UNSAFE, **given: Any) -> Tool:
    return FakeTool(name="shell", risk=risk, effect=effect, **given).tool()


def reaching(what: Reach) -> Tool:
    """A tool all of whose calls reach this."""

    def reach(_: Text) -> Reach:
        return what

    return replace(tool(), reach=reach)


def deciding(folder: Path, *tools: Tool, limits: TurnLimits | None = None) -> Deciding:
    return Deciding(
        registry=Registry(tools or [tool()], sandboxed=False),
        workspaces=Workspaces(folder),
        containment=NO_SANDBOX,
        limits=limits or TurnLimits(),
        meters=Meters(),
    )


def first(by: Deciding, one: Step, view: TurnView | None = None, *, askable: bool = True) -> Found:
    return by.first(view or turn_view(steps=[one]), one, SameCalls(), askable=askable)


def counted(by: Deciding, decision: str, reason: str = "") -> float | None:
    labels = {"decision": decision, "reason": reason}
    return by.meters.registry.get_sample_value("dragoman_decisions_total", labels)


def waiting(
    state: WaitState,
    *,
    kind: WaitKind = WaitKind.APPROVAL,
    approval: ApprovalRequest | None = None,
    payload: Mapping[str, Any] | None = None,
    reason: str = "",
    decided: bool = False,
) -> Wait:
    return Wait(
        id=WaitId("w0123456789abcdef"),
        kind=kind,
        session=main_session(ANN),
        turn=TurnId("t"),
        n=1,
        state=state,
        approval=approval,
        payload=payload or {},
        opened_at=EPOCH,
        expires_at=EPOCH + timedelta(hours=1),
        decided_at=EPOCH if decided else None,
        reason=reason,
    )


def asked(by: Deciding, one: Step) -> ApprovalRequest:
    """What was asked about a call."""
    found = first(by, one)
    assert isinstance(found, Asked)
    return found.request


# --- a call for which nothing was done yet --------------------------------------------------------


def test_what_is_allowed_may_run_and_is_counted(tmp_path: Path) -> None:
    by, one = deciding(tmp_path, tool(Risk.READ)), step()
    found = first(by, one)

    assert isinstance(found, Runnable)
    assert (found.wait, found.call.step, found.call.arguments) == (None, one, Text(text="ls"))
    assert found.call.action == Action(
        tool="shell",
        arguments={"text": "ls"},
        cwd=str(Workspaces(tmp_path).workspace(main_session(ANN))),
        sandbox="",
    )
    assert found.call.action_sha == action_sha(
        action_key(found.call.action), main_session(ANN), TurnId("t"), 1, ANN_TELEGRAM
    )
    assert counted(by, "allow") == 1


def test_what_is_asked_binds_the_whole_action_to_who_asked(tmp_path: Path) -> None:
    by, one = deciding(tmp_path), step()
    view = turn_view(steps=[one], who=BOB)
    found = first(by, one, view)

    assert isinstance(found, Asked)
    request = found.request
    assert (request.risk, request.requester, request.rendered) == (Risk.EXECUTE, BOB, "ls")
    assert (request.escaped, request.note, request.scope) == (False, "", "")
    assert request.action_key == action_key(request.action)
    assert request.action_sha == action_sha(request.action_key, main_session(ANN), TurnId("t"), 1, BOB)


@pytest.mark.parametrize(
    ("made", "given", "status", "code", "hint"),
    [
        (step(tool="nosuch"), {}, ERROR, "unknown_tool", "There is no tool 'nosuch'. Available: shell."),
        (step(), {"permission": Permission.BLOCKED}, DENIED, "blocked", "The owner has blocked shell."),
        (
            step(),
            {"approval": {"main": Approval.DENY}},
            DENIED,
            "configured",
            "The configuration denies shell here.",
        ),
        (
            step(arguments='{"text": "' + "x" * 65_537 + '"}'),
            {},
            DENIED,
            "too_long_to_show",
            "It is longer than 64 KiB as shown, so nobody could read it before allowing it. Make it shorter.",
        ),
    ],
)
def test_what_is_refused_says_so_and_is_counted(
    tmp_path: Path, made: Step, given: Mapping[str, Any], status: ResultStatus, code: str, hint: str
) -> None:
    by = deciding(tmp_path, tool(**given))

    assert first(by, made) == ToolResult(status=status, text="", code=code, hint=hint)
    assert counted(by, "deny", code) == 1
    assert counted(by, "allow") is None


def test_what_is_just_short_enough_to_show_is_asked(tmp_path: Path) -> None:
    found = first(deciding(tmp_path), step(arguments='{"text": "' + "x" * 65_536 + '"}'))

    assert isinstance(found, Asked)
    assert len(found.request.rendered) == 65_536


def test_a_call_beyond_the_most_of_a_turn_is_refused(tmp_path: Path) -> None:
    by = deciding(tmp_path, tool(Risk.READ), limits=TurnLimits(calls=2))
    steps = [step(n, arguments=f'{{"text": "{n}"}}') for n in (1, 2, 3)]
    view = turn_view(steps=steps)

    assert [isinstance(first(by, one, view), Runnable) for one in steps] == [True, True, False]
    assert first(by, steps[2], view) == ToolResult(
        status=DENIED, text="", code="configured", hint="A turn may make 2 calls; this one is beyond."
    )


def test_a_workspace_that_cannot_be_used_is_a_refusal_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("in the way")
    found = first(deciding(tmp_path), step())

    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == (DENIED, "policy_error")
    assert found.hint.startswith(f"The workspace {tmp_path}")


def test_a_sandbox_that_there_is_not_is_a_refusal(tmp_path: Path) -> None:
    found = first(deciding(tmp_path, tool(sandbox=Sandbox.BASIC)), step())

    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == (DENIED, "sandbox_missing")
    assert found.hint


def test_a_decision_that_fails_is_no(tmp_path: Path) -> None:
    """I02. A step without a call cannot be decided: it is refused like anything else that goes wrong there."""
    answer = replace(step(), call=None)

    assert first(deciding(tmp_path), answer) == ToolResult(
        status=DENIED, text="", code="policy_error", hint="The decision failed, so the answer is no."
    )


def test_a_tool_that_cannot_say_what_a_call_reaches_is_refused(tmp_path: Path) -> None:
    def broken(_: Text) -> Reach:
        raise LookupError("no such host")

    assert first(deciding(tmp_path, replace(tool(), reach=broken)), step()) == ToolResult(
        status=DENIED,
        text="",
        code="policy_error",
        hint="shell could not say what this call reaches, so the answer is no.",
    )


@pytest.mark.parametrize(
    ("repeated", "sandbox", "note"),
    [
        (2, None, ""),
        (3, None, "The same call was made 3 times before in this turn."),
        (0, Sandbox.AUTO, "No sandbox: this runs on the host with the daemon's rights."),
        (
            4,
            Sandbox.AUTO,
            "No sandbox: this runs on the host with the daemon's rights. "
            "The same call was made 4 times before in this turn.",
        ),
    ],
)
def test_a_card_says_what_should_give_pause(tmp_path: Path, repeated: int, sandbox: Sandbox | None, note: str) -> None:
    steps = [step(n) for n in range(1, repeated + 2)]
    found = first(deciding(tmp_path, tool(sandbox=sandbox)), steps[-1], turn_view(steps=steps))

    assert isinstance(found, Asked)
    assert found.request.note == note


def test_a_loop_about_which_nobody_can_be_asked_ends(tmp_path: Path) -> None:
    steps = [step(n) for n in range(1, 5)]
    found = first(deciding(tmp_path, tool(Risk.READ)), steps[-1], turn_view(steps=steps), askable=False)

    assert found == ToolResult(
        status=DENIED,
        text="",
        code="loop",
        hint="The same call was made over and over in this turn, and nobody can be asked whether to go on.",
    )


def test_very_long_arguments_are_compared_as_they_were_written() -> None:
    short, long = '{"a":1,"b":"%s"}', '{"b":"%s","a":1}'
    for size, same in [(10, True), (COMPARED_AT_MOST, False)]:
        key = SameCalls()
        keys = {key(step(n, arguments=form % ("x" * size))) for n, form in enumerate([short, long, short], 1)}
        assert len(keys) == (1 if same else 2)


def test_the_longest_arguments_that_are_read_are_read() -> None:
    forms = ['{"a":1,"b":"%s"}', '{"b":"%s","a":1}']
    room = COMPARED_AT_MOST - len(forms[0] % "")
    key = SameCalls()

    assert len({key(step(n, arguments=form % ("x" * room))) for n, form in enumerate(forms)}) == 1
    assert len({key(step(n, arguments=form % ("x" * (room + 1)))) for n, form in enumerate(forms, 2)}) == 2


def test_half_a_surrogate_pair_in_arguments_is_compared_like_any_other() -> None:
    key = SameCalls()

    assert key(step(1, arguments="\ud800")) == key(step(2, arguments="\ud800")) != key(step(3, arguments="\udfff"))


class Rich(Text):
    """Arguments that are no JSON by themselves, one with another name for its model."""

    model_config = ConfigDict(populate_by_name=True)

    place: Path = Path("/tmp")
    within: timedelta = Field(default=timedelta(seconds=90), alias="timeout")


def test_what_is_bound_is_plain_data_by_the_names_of_the_arguments(tmp_path: Path) -> None:
    by = deciding(tmp_path, tool(arguments=Rich))
    request = asked(by, step(arguments='{"text": "ls", "timeout": 5}'))

    assert request.action.arguments == {"text": "ls", "place": "/tmp", "within": "PT5S"}
    wait = waiting(WaitState.APPROVED, approval=request)
    found = by.later(turn_view(steps=[step()]), step(state=StepState.ASKED), wait)
    assert isinstance(found, Runnable)
    assert found.call.arguments == Rich(text="ls", timeout=timedelta(seconds=5))


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
def test_what_was_not_allowed_is_a_result_that_says_nothing_was_run(
    tmp_path: Path, wait: Wait | None, result: ToolResult | None
) -> None:
    one = step(state=StepState.ASKED)

    assert deciding(tmp_path).later(turn_view(steps=[one]), one, wait) == result


def test_what_was_allowed_runs_as_it_was_shown(tmp_path: Path) -> None:
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


def test_what_was_allowed_of_a_reach_keeps_it(tmp_path: Path) -> None:
    host = Reach(risk=Risk.NETWORK, scope="example.org")
    by, one = deciding(tmp_path, reaching(host)), step()
    request = asked(by, one)
    permits: Permits = [("shell", "example.net"), ("other", "example.com")]
    wait = waiting(WaitState.APPROVED, approval=request)
    found = by.later(turn_view(steps=[one]), replace(one, state=StepState.ASKED), wait, permits)

    assert (request.risk, request.scope) == (Risk.NETWORK, "example.org")
    assert isinstance(found, Runnable)
    assert (found.call.reach, found.call.scopes) == (host, {"example.org", "example.net"})


def test_a_tool_that_changed_since_it_was_asked_is_asked_again(tmp_path: Path) -> None:
    class Other(Text):
        mode: str

    one = step()
    wait = waiting(WaitState.APPROVED, approval=asked(deciding(tmp_path), one))
    by = deciding(tmp_path, replace(tool(), arguments=Other))

    assert by.later(turn_view(steps=[one]), replace(one, state=StepState.ASKED), wait) == ToolResult(
        status=ERROR,
        text="",
        code="invalid_arguments",
        hint="The tool changed after it was asked; ask again.",
    )


def test_the_words_of_an_approval_that_does_not_hold_and_of_a_call_behind_a_wait() -> None:
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
    [(True, "the start at 00:00:05 UTC"), (False, "the start at an unknown time")],
)
def test_what_may_have_happened_is_said_to_be_unknown(tmp_path: Path, known: bool, began: str) -> None:
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
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.CHECKABLE), False),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.UNSAFE), False),
        # The settings changed over the restart: what would be asked about, or is refused, does not run by itself.
        (tool(Risk.READ, Effect.PURE), tool(Risk.WRITE, Effect.PURE), False),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.PURE, permission=Permission.BLOCKED), False),
        (tool(Risk.READ, Effect.PURE), tool(Risk.READ, Effect.PURE, approval={"main": Approval.DENY}), False),
    ],
)
def test_what_may_run_twice_runs_again_when_it_is_still_allowed(
    tmp_path: Path, before: Tool, now: Tool, again: bool
) -> None:
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
    ("effect", "permission", "again"),
    [
        (Effect.PURE, Permission.ALWAYS, True),
        (Effect.IDEMPOTENT, Permission.ALWAYS, True),
        (Effect.UNSAFE, Permission.ALWAYS, False),
        (Effect.PURE, Permission.BLOCKED, False),
    ],
)
def test_what_was_approved_and_cut_runs_again_as_it_was_approved(
    tmp_path: Path, effect: Effect, permission: Permission, again: bool
) -> None:
    one = step()
    request = asked(deciding(tmp_path, tool(effect=effect)), one)
    by = deciding(tmp_path, tool(effect=effect, permission=permission))
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
        (ended("done", "Here.", active_ms=1200), ToolResult(status=OK, text="Here.", duration_ms=1200)),
        (ended("done"), ToolResult(status=OK, text="", hint="It said nothing.")),
        (
            ended("failed", "Half of it."),
            ToolResult(status=ERROR, text="Half of it.", code="child_failed", hint="The sub-session failed."),
        ),
        (
            ended("failed"),
            ToolResult(status=ERROR, text="", code="child_failed", hint="The sub-session failed. It said nothing."),
        ),
        (
            ended("stopped", "Half."),
            ToolResult(status=CANCELLED, text="Half.", code="child_stopped", hint="The sub-session was stopped."),
        ),
        (
            ended("dreaming", "?"),
            ToolResult(
                status=ERROR,
                text="?",
                code="child_failed",
                hint="The sub-session ended in a way that is not known.",
            ),
        ),
        (
            waiting(WaitState.ANSWERED, kind=WaitKind.CHILD),
            ToolResult(
                status=ERROR,
                text="",
                code="child_failed",
                hint="The sub-session ended in a way that is not known. It said nothing.",
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
def test_the_one_result_of_a_child_says_how_it_ended(tmp_path: Path, wait: Wait, result: ToolResult) -> None:
    one = step(state=StepState.STARTED)

    assert deciding(tmp_path).later(turn_view(steps=[one]), one, wait) == result


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("done", "The middle is left out; the page shows all of it in child:t.1."),
        ("failed", "The sub-session failed. The middle is left out; the page shows all of it in child:t.1."),
    ],
)
def test_long_last_words_of_a_child_lose_their_middle(tmp_path: Path, state: str, hint: str) -> None:
    one = step(state=StepState.STARTED)
    found = deciding(tmp_path).later(turn_view(steps=[one]), one, ended(state, "a" * 20_000 + "b" * 20_000))

    assert isinstance(found, ToolResult)
    assert (found.hint, found.dropped_bytes) == (hint, 40_000 - 32_768)
    assert found.text == "a" * 16_384 + "\n[… 7,232 bytes left out …]\n" + "b" * 16_384


@pytest.mark.parametrize(
    ("text", "most", "shown", "dropped"),
    [
        ("", 4, "", 0),
        ("abcd", 4, "abcd", 0),
        ("abcde", 4, "ab\n[… 1 bytes left out …]\nde", 1),
        ("a" * 2_000, 4, "aa\n[… 1,996 bytes left out …]\naa", 1_996),
        ("ééé", 6, "ééé", 0),
        ("éééé", 6, "é\n[… 2 bytes left out …]\né", 2),  # no half letters
        ("\ud800", 4, "\ud800", 0),
        ("\ud800bcdef", 4, "?b\n[… 2 bytes left out …]\nef", 2),
    ],
)
def test_head_and_tail(text: str, most: int, shown: str, dropped: int) -> None:
    assert head_and_tail(text, most) == (shown, dropped)


# --- whose calls run in order ---------------------------------------------------------------------


def test_a_tool_that_keeps_something_is_named_and_others_are_not(tmp_path: Path) -> None:
    keeping = reaching(Reach(risk=Risk.READ))

    assert deciding(tmp_path, keeping).kept(step()) == "shell"
    assert deciding(tmp_path).kept(step()) == ""
    assert deciding(tmp_path).kept(step(tool="nosuch")) == ""
    assert deciding(tmp_path).kept(replace(step(), call=None)) == ""
