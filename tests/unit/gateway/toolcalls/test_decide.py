"""Decisions about new calls and their texts, by the decider alone, without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, Field
from structlog.testing import capture_logs

from gateway.approvals import action_key, action_sha
from gateway.domain.ids import TurnId, main_session
from gateway.domain.rules import Verdict
from gateway.domain.steps import Step, StepState
from gateway.domain.tools import (
    Action,
    ApprovalMode,
    Availability,
    CallScope,
    ResultStatus,
    Risk,
    SandboxPolicy,
    ToolResult,
)
from gateway.domain.turns import TurnLimits
from gateway.domain.waits import WaitState
from gateway.toolcalls.decide import COMPARED_AT_MOST, Asked, Runnable, SameCalls
from gateway.toolcalls.workspaces import Workspaces
from tests.support.fakes import Text
from tests.support.makers import ANN, ANN_TELEGRAM, BOB
from tests.support.turns import turn_view
from tests.unit.gateway.policy.test_rules import rule
from tests.unit.gateway.toolcalls.rig import SECRET, asked, counted, deciding, first, reaching, step, tool, waiting

ERROR, DENIED = ResultStatus.ERROR, ResultStatus.DENIED

# --- a call for which nothing was done yet --------------------------------------------------------


def test_allowed_call_is_runnable(tmp_path: Path) -> None:
    by, one = deciding(tmp_path, tool(Risk.READ)), step()
    found = first(by, one)

    assert isinstance(found, Runnable)
    assert (found.wait, found.call.step, found.call.arguments) == (None, one, Text(text="ls"))
    assert found.call.action == Action(
        tool="shell",
        arguments={"text": "ls"},
        cwd=str(Workspaces(tmp_path).workspace(main_session(ANN))),
        home=Workspaces(tmp_path).home(),
        sandbox=None,
    )
    assert found.call.action_sha == action_sha(
        action_key(found.call.action), main_session(ANN), TurnId("t"), 1, ANN_TELEGRAM
    )


def test_approval_request_binds_the_action_to_its_requester(tmp_path: Path) -> None:
    by, one = deciding(tmp_path), step()
    view = turn_view(steps=[one], who=BOB)
    found = first(by, one, view)

    assert isinstance(found, Asked)
    request = found.request
    assert (request.risk, request.requester, request.rendered) == (Risk.EXECUTE, BOB, "ls")
    assert (request.escaped, request.note, request.scope) == (False, "", "")
    assert request.action_key == action_key(request.action)
    assert request.action_sha == action_sha(request.action_key, main_session(ANN), TurnId("t"), 1, BOB)


def test_configured_secret_is_hidden_and_a_lookalike_shown(tmp_path: Path) -> None:
    lookalike = "sk-aaaabbbbccccddddeeee"
    by, one = deciding(tmp_path), step(arguments=json.dumps({"text": f"curl -H 'X: {SECRET}' example.org {lookalike}"}))
    found = first(by, one)

    assert isinstance(found, Asked)
    assert found.request.rendered == f"curl -H 'X: [hidden]' example.org {lookalike}"
    assert found.request.note == "A secret is hidden here, and used as written."
    assert SECRET in found.request.action.arguments["text"]


@pytest.mark.parametrize(
    "secret",
    ["pässwort-ganz-geheim", 'ab"cd"ef-secret', "back\\slash-secret", "two         words", "line1\nline2secret"],
)
@pytest.mark.parametrize("shows", ["text", None])
def test_a_secret_is_hidden_although_a_card_writes_it_otherwise(tmp_path: Path, secret: str, shows: str | None) -> None:
    made = tool()
    made = replace(made, spec=replace(made.spec, shows=shows))
    by = deciding(tmp_path, made, secrets=[secret])
    found = first(by, step(arguments=json.dumps({"text": f"use {secret} here"})))

    assert isinstance(found, Asked)
    assert found.request.rendered == ("use [hidden] here" if shows else 'text = "use [hidden] here"')
    assert found.request.note == "A secret is hidden here, and used as written."
    assert found.request.action.arguments["text"] == f"use {secret} here"


def test_a_card_shows_a_command_whole_when_a_secret_is_a_word(tmp_path: Path) -> None:
    found = first(deciding(tmp_path, secrets=["ollama"]), step(arguments=json.dumps({"text": "ollama run llama3"})))

    assert isinstance(found, Asked)
    assert "ollama run llama3" in found.request.rendered
    assert found.request.note == ""


def test_card_counts_hidden_secrets(tmp_path: Path) -> None:
    found = first(deciding(tmp_path), step(arguments=json.dumps({"text": f"echo {SECRET} {SECRET}"})))

    assert isinstance(found, Asked)
    assert found.request.note == "2 secrets are hidden here, and used as written."


@pytest.mark.parametrize(
    ("made", "given", "status", "code", "hint"),
    [
        (step(tool="nosuch"), {}, ERROR, "unknown_tool", "There is no tool 'nosuch'. Available: shell."),
        (step(), {"availability": Availability.BLOCKED}, DENIED, "blocked", "The owner has blocked shell."),
        (
            step(),
            {"approval": {"main": ApprovalMode.DENY}},
            DENIED,
            "configured",
            "The configuration denies shell here.",
        ),
        (
            step(arguments='{"text": "' + "x" * 65_537 + '"}'),
            {},
            DENIED,
            "too_long_to_show",
            "It is longer than 64 KiB as shown, too long to be read before a decision. Make it shorter.",
        ),
    ],
)
def test_refusal_has_a_reason_and_is_counted(
    tmp_path: Path, made: Step, given: Mapping[str, Any], status: ResultStatus, code: str, hint: str
) -> None:
    by = deciding(tmp_path, tool(**given))

    assert first(by, made) == ToolResult(status=status, text="", code=code, hint=hint)
    assert counted(by, "deny", code) == 1
    assert counted(by, "allow") is None


def test_call_at_the_display_limit_is_asked(tmp_path: Path) -> None:
    found = first(deciding(tmp_path), step(arguments='{"text": "' + "x" * 65_536 + '"}'))

    assert isinstance(found, Asked)
    assert len(found.request.rendered) == 65_536


def test_call_is_refused_beyond_the_limit_of_a_turn(tmp_path: Path) -> None:
    by = deciding(tmp_path, tool(Risk.READ), limits=TurnLimits(calls=2))
    steps = [step(n, arguments=f'{{"text": "{n}"}}') for n in (1, 2, 3)]
    view = turn_view(steps=steps)

    assert [isinstance(first(by, one, view), Runnable) for one in steps] == [True, True, False]
    assert first(by, steps[2], view) == ToolResult(
        status=DENIED, text="", code="configured", hint="A turn may make 2 calls; this one exceeds the limit."
    )


def test_unusable_workspace_is_denied_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("in the way")
    found = first(deciding(tmp_path), step())

    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == (DENIED, "policy_error")
    assert found.hint.startswith(f"The workspace {tmp_path}")


def test_a_sandbox_that_there_is_not_is_a_refusal(tmp_path: Path) -> None:
    found = first(deciding(tmp_path, tool(sandbox=SandboxPolicy.BASIC)), step())

    assert isinstance(found, ToolResult)
    assert (found.status, found.code) == (DENIED, "sandbox_missing")
    assert found.hint.startswith("This needs the sandbox `basic`:")


def test_a_decision_that_fails_is_no_and_the_log_says_why(tmp_path: Path) -> None:
    """I02. A step without a call cannot be decided: it is refused like anything else that goes wrong there."""
    answer = replace(step(), call=None)

    with capture_logs() as logs:
        found = first(deciding(tmp_path), answer)
    assert found == ToolResult(
        status=DENIED, text="", code="policy_error", hint="The decision failed, so the answer is no."
    )
    ((exc_info, line),) = [(one.pop("exc_info"), one) for one in logs]
    assert line == {"event": "decision failed", "turn": "t", "n": 1, "module": "decide", "log_level": "error"}
    assert exc_info


def test_call_is_refused_when_its_scope_fails(tmp_path: Path) -> None:
    def broken(_: Text) -> CallScope:
        raise LookupError("no such host")

    with capture_logs() as logs:
        found = first(deciding(tmp_path, replace(tool(), call_scope=broken)), step())
    assert found == ToolResult(
        status=DENIED,
        text="",
        code="policy_error",
        hint="shell could not determine the scope of this call, so the answer is no.",
    )
    assert [(one["event"], one["tool"]) for one in logs] == [("call scope failed", "shell")]


@pytest.mark.parametrize(
    ("repeated", "sandbox", "note"),
    [
        (2, None, ""),
        (3, None, "The same call was made 3 times before in this turn."),
        (0, SandboxPolicy.AUTO, "No sandbox: this runs on the host with the daemon's rights."),
        (
            4,
            SandboxPolicy.AUTO,
            "No sandbox: this runs on the host with the daemon's rights. "
            "The same call was made 4 times before in this turn.",
        ),
    ],
)
def test_a_card_says_what_should_give_pause(
    tmp_path: Path, repeated: int, sandbox: SandboxPolicy | None, note: str
) -> None:
    steps = [step(n) for n in range(1, repeated + 2)]
    found = first(deciding(tmp_path, tool(sandbox=sandbox)), steps[-1], turn_view(steps=steps))

    assert isinstance(found, Asked)
    assert found.request.note == note


def test_card_names_the_files_that_git_may_take_along(tmp_path: Path) -> None:
    made = reaching(CallScope(risk=Risk.EXECUTE, subjects=("command:git push",)))
    rules = (rule("*", Verdict.ALLOW), rule("*.env", Verdict.DENY))
    found = first(deciding(tmp_path, replace(made, policy=replace(made.policy, rules=rules))), step())

    assert isinstance(found, Asked)
    assert found.request.note.startswith("Git may take along or show files that fit '*.env'.")


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


def test_long_calls_that_were_written_differently_are_no_loop(tmp_path: Path) -> None:
    long = "x" * COMPARED_AT_MOST
    forms = [f'{{"text": "{long}"}}', f'{{"text":"{long}"}}', f'{{ "text":"{long}"}}', f'{{"text":"{long}" }}']
    steps = [step(n, arguments=form) for n, form in enumerate(forms, 1)]

    assert isinstance(first(deciding(tmp_path, tool(Risk.READ)), steps[-1], turn_view(steps=steps)), Runnable)


def test_the_longest_arguments_that_are_read_are_read() -> None:
    forms = ['{"a":1,"b":"%s"}', '{"b":"%s","a":1}']
    room = COMPARED_AT_MOST - len(forms[0] % "")
    key = SameCalls()

    assert len({key(step(n, arguments=form % ("x" * room))) for n, form in enumerate(forms)}) == 1
    assert len({key(step(n, arguments=form % ("x" * (room + 1)))) for n, form in enumerate(forms, 2)}) == 2


def test_lone_surrogates_in_arguments_are_compared() -> None:
    key = SameCalls()

    assert key(step(1, arguments="\ud800")) == key(step(2, arguments="\ud800")) != key(step(3, arguments="\udfff"))


class Rich(Text):
    """Arguments that need conversion to JSON, one of them with an alias."""

    model_config = ConfigDict(populate_by_name=True)

    place: Path = Path("/tmp")
    within: timedelta = Field(default=timedelta(seconds=90), alias="timeout")


def test_approved_action_holds_plain_data_by_argument_name(tmp_path: Path) -> None:
    by = deciding(tmp_path, tool(arguments=Rich))
    request = asked(by, step(arguments='{"text": "ls", "timeout": 5}'))

    assert request.action.arguments == {"text": "ls", "place": "/tmp", "within": "PT5S"}
    wait = waiting(WaitState.APPROVED, approval=request)
    found = by.later(turn_view(steps=[step()]), step(state=StepState.ASKED), wait)
    assert isinstance(found, Runnable)
    assert found.call.arguments == Rich(text="ls", timeout=timedelta(seconds=5))


# --- whose calls run in order ---------------------------------------------------------------------


def test_ordered_tool_names_tools_with_calls_in_order(tmp_path: Path) -> None:
    assert deciding(tmp_path, reaching(CallScope(risk=Risk.READ))).ordered_tool(step()) == "shell"
    assert deciding(tmp_path, replace(tool(), keeps=True)).ordered_tool(step()) == "shell"
    assert deciding(tmp_path).ordered_tool(step()) == ""
    assert deciding(tmp_path).ordered_tool(step(tool="nosuch")) == ""
    assert deciding(tmp_path).ordered_tool(replace(step(), call=None)) == ""
