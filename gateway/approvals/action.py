"""Exact action of an approval: its hashes and its text on cards. Used by the call decider and by cards. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from gateway.domain.ids import Principal, SessionId, TurnId
from gateway.domain.tools import Action, CallScope, Risk, SubjectKind
from gateway.domain.waits import EXPIRED_TEXT, GRANTED, ApprovalRequest, Vote, Wait, WaitState
from gateway.policy.routing import AllowedPeople
from gateway.policy.rules import place_of
from gateway.policy.shell import LINES_AT_MOST, parse, part_verdicts

_COMMAND = f"{SubjectKind.COMMAND}:"
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\[rtbfu]")  # a control character in JSON; not a literal backslash
_LONG_SPACES = re.compile(r" {9,}")
_LONG_BREAKS = re.compile(r"(?:⏎\n){3,}")


# --- hashes -------------------------------------------------------------------------------------


def canonical(action: Action) -> str:
    """Return the canonical text of an action, with every field that is set and every argument."""
    fields: dict[str, Any] = {
        "tool": action.tool,
        "arguments": dict(action.arguments),
        "cwd": action.cwd,
        "sandbox": action.sandbox or "",
    }
    if action.network is not None:
        fields["network"] = action.network
    if action.read_only:
        fields["read_only"] = True
    if action.home:
        fields["home"] = action.home
    return json.dumps(
        fields,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def action_key(action: Action) -> str:
    """Return the SHA-256 of the canonical action, equal for every requester. Grants and loop checks compare it."""
    return hashlib.sha256(canonical(action).encode()).hexdigest()


def action_sha(
    key: str,
    session: SessionId,
    turn: TurnId,
    n: int,
    requester: Principal,
    prepared: Mapping[str, Any] | None = None,
) -> str:
    """Return the SHA-256 that binds an action to one session, turn, step and requester. An approval is for it alone.

    `prepared`: the `Preview.state` that the action depends on.
    """
    bound: list[Any] = [key, session, turn, n, requester]
    if prepared is not None:
        bound.append(dict(prepared))
    return hashlib.sha256(json.dumps(bound, sort_keys=True, allow_nan=False).encode()).hexdigest()


# --- text on cards ------------------------------------------------------------------------------


def render(text: str) -> str:
    """Show text so that what is read is what runs: printable ASCII and marked line breaks, all else escaped.

    The text can be read back exactly: `tests/support/rendered.py` does.
    """
    out: list[str] = []
    for char in text:
        if char == "\\":
            out.append("\\\\")
        elif " " <= char <= "~":
            out.append(char)
        elif char == "\n":
            out.append("⏎\n")
        else:
            out.append(f"\\u{{{ord(char):X}}}")
    shown = _LONG_SPACES.sub(lambda m: f"␠×{len(m.group())};", "".join(out))
    return _LONG_BREAKS.sub(lambda m: f"⏎×{len(m.group()) // 2};\n", shown)


def render_action(action: Action, shows: str | None, in_preview: Collection[str] = ()) -> str:
    """Show a whole action: the argument that runs first, then every other one, by name.

    `in_preview`: arguments whose effect the preview shows.
    """
    arguments = dict(action.arguments)
    lines: list[str] = []
    if shows is not None and isinstance(arguments.get(shows), str):
        lines.append(render(str(arguments.pop(shows))))
    lines += [
        f"{render(name)} = {render(json.dumps(value, ensure_ascii=False, sort_keys=True))}"
        for name, value in sorted(arguments.items())
        if value is not None and name not in in_preview
    ]
    return "\n".join(lines)


def needs_escape(action: Action, preview: str = "") -> bool:
    """Return whether the arguments or the preview hold anything but printable ASCII and line breaks."""
    text = json.dumps([dict(action.arguments), preview], ensure_ascii=False)
    return any(not (" " <= char <= "~") for char in text) or bool(_ESCAPED.search(text))


def part_lines(call_scope: CallScope) -> tuple[str, ...]:
    """Return a line for each part of a shell command, escaped as the action is; none for one part that simply runs."""
    place = place_of(call_scope)
    texts = [one.removeprefix(_COMMAND) for one in call_scope.subjects if one.startswith(_COMMAND)]
    found = [pair for text in texts for pair in part_verdicts(parse(text), place)]
    if [verdict for _, verdict in found] == ["runs"]:
        return ()
    return tuple(" · ".join(filter(None, (render(text), verdict))) for text, verdict in found)[:LINES_AT_MOST]


_WANTS = MappingProxyType(
    {
        Risk.NONE: "wants to act",
        Risk.READ: "wants to read",
        Risk.WRITE: "wants to change something",
        Risk.EXECUTE: "wants to run",
        Risk.NETWORK: "wants to use the network",
    }
)


def title(request: ApprovalRequest) -> str:
    """Return the first line of an open card: the tool and what it wants."""
    return f"{request.action.tool} {_WANTS[request.risk]}{_summary(request)}"


def subject(request: ApprovalRequest) -> str:
    """Return the first line of a decided card, which wants nothing any more."""
    return f"{request.action.tool}{_summary(request)}"


def _summary(request: ApprovalRequest) -> str:
    return f": {render(request.summary)}" if request.summary else ""


_ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "chat": "allowed always in this chat",
        "session": "allowed always in this session",
        "person": "allowed always for the person who asked",
    }
)
"""Words for a decision by the place of its grant."""


def outcome_line(wait: Wait, people: AllowedPeople) -> str:
    """Return the outcome of an approval in one line; empty while it is open.

    The web page writes the `HH:MM UTC` in it as the reader's own time (`outcomeOf` in `page/static/views/card.js`).
    """
    others = [vote.person for vote in Vote.of(wait) if vote.principal != wait.decided_by]
    who = name_of(wait.decided_by, people)
    at = f", {wait.decided_at:%H:%M} UTC" if wait.decided_at else ""
    reason = f": {wait.reason}" if wait.reason else ""
    allowed = _ALLOWED.get(str(wait.payload.get(GRANTED)), "")
    if not allowed:
        allowed = "allowed for this session" if wait.approval is not None and wait.approval.scope else "allowed once"
    all_of_them = " and ".join([*others, who])
    return {
        WaitState.OPEN: "",
        WaitState.APPROVED: f"{all_of_them} {allowed}{at}",
        WaitState.CONSUMED: f"{all_of_them} {allowed}{at}",
        WaitState.DENIED: f"{who} denied{at}{reason}",
        WaitState.EXPIRED: EXPIRED_TEXT,
        WaitState.CANCELLED: "Withdrawn; nothing was run",
        WaitState.SUPERSEDED: "Expired while Dragoman was down; it is asked again",
        WaitState.ANSWERED: "",
    }[wait.state]


def name_of(who: Principal | None, people: AllowedPeople) -> str:
    """Return the name of a principal on cards: the owner's name, else the principal itself."""
    if who is None:
        return "Nobody"
    return people.owner_of(who) or who
