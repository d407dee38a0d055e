"""The arguments of a call, as a model writes them: valid and shown whole, or a refusal that says what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from agent_tools import (
    ask_user,
    sessions_history,
    sessions_list,
    sessions_send,
    sessions_spawn,
    sessions_stop,
    shell,
    shell_kill,
    shell_poll,
    task,
    todo_write,
)
from gateway.approvals import action
from gateway.approvals.action import action_key, needs_escape, render_action
from gateway.domain import nesting
from gateway.domain.decisions import Deny, DenyReason
from gateway.domain.tools import Action, Risk, SandboxMode, ToolPolicy
from gateway.domain.waits import ApprovalRequest
from gateway.store.codec import APPROVAL
from gateway.toolcalls import arguments
from gateway.toolcalls.arguments import ModelArguments, check_arguments
from gateway.toolcalls.tool_set import Tool
from tests.fuzz import givens
from tests.support.makers import ANN_TELEGRAM
from tests.support.rendered import unrender

OWN = (
    *(ask_user, sessions_history, sessions_list, sessions_send, sessions_spawn, sessions_stop),
    *(shell, shell_kill, shell_poll, task, todo_write),
)
READS = (action, nesting, arguments, *OWN)
WORDS = (
    *(b"data", b"[" * 99, b"[" * 199, b"]" * 199),
    *(b"command", b"timeout", b"timeout_s", b"workdir", b"directory", b"description", b"task", b"tools", b"mode"),
    *(b"run", b"session", b"id", b"title", b"agent", b"NaN", b"Infinity", b"600", b"\\u0000", b"\\ud800"),
    *(b"questions", b"question", b"options", b"several", b"todos", b"text", b"state", b"content", b"status", b"done"),
    *(b"pty", b"tty", b"background", b"job", b"input", b"wait", b"true", b"25"),
    *(b"message", b"wait_s", b"before", b"limit", b"calls", b"prompt", b"task_id"),
)


def _tool(module: Any) -> Tool:
    policy = ToolPolicy(
        availability=module.SPEC.availability, approval={}, timeout_s=30.0, actions={}, sandbox=module.SPEC.sandbox
    )
    return Tool(spec=module.SPEC, policy=policy, arguments=ModelArguments(module.Args), run=module.run)


class _Anything(BaseModel):
    """The arguments of a tool that an owner brings."""

    data: Any


TOOLS = (
    *map(_tool, OWN),
    replace(_tool(shell), arguments=ModelArguments(_Anything)),
)


def target(data: bytes) -> None:
    text = givens.text(data)
    for tool in TOOLS:
        found = check_arguments(tool.arguments, text, tool.syntax)
        if isinstance(found, Deny):
            assert found.reason is DenyReason.INVALID_ARGUMENTS
            assert found.hint
            assert len(found.hint) < 10_000, "a refusal of any length"
            found.hint.encode()  # it is stored, and told to the model
            continue
        assert isinstance(json.loads(text), dict), "what is no JSON was taken for arguments"
        arguments = found.model_dump(mode="json", by_alias=False)
        action = Action(tool=tool.spec.name, arguments=arguments, cwd="/w", sandbox=SandboxMode.BASIC)
        _asked(action)
        shown = render_action(action, tool.spec.shows)
        assert all(" " <= char <= "~" or char in "\n⏎␠×" for char in shown), "something that is not what it looks like"
        first = arguments.get(tool.spec.shows or "")
        assert not isinstance(first, str) or unrender(shown).startswith(first), "not all of it is shown"
        needs_escape(action)


def _asked(action: Action) -> None:
    """Check that the request is stored, and reads back as the same."""
    request = ApprovalRequest(
        action=action,
        risk=Risk.EXECUTE,
        action_key=action_key(action),
        action_sha="",
        requester=ANN_TELEGRAM,
        rendered="",
        escaped=False,
    )
    again = APPROVAL.load(APPROVAL.dump(request))
    assert action_key(again.action) == request.action_key, "something else is asked for than what was"
