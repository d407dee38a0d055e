"""Commands: parser for texts that begin with `/`, and reply texts of control commands. Used by ingress. Pure.

`control_replies` carries them out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeAlias

from gateway.domain.ids import OwnerName, Principal, SessionId
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.steps import Usage
from gateway.domain.text import as_code, split_command
from gateway.domain.tools import USUAL_TIMEOUT_S, Availability, Risk
from gateway.domain.views import ChildLine, Counts, SessionLine, Spent
from gateway.domain.waits import Wait
from gateway.policy.permission import describe_availability
from gateway.policy.routing import may_see
from gateway.ports import CommandInfo
from gateway.system.figures import count, money
from gateway.toolcalls.tool_set import Tool, ToolSet

CONTROL: Mapping[str, str] = MappingProxyType(
    {
        "help": "list the commands; `/help NAME` says more about one",
        "status": "show what is running and waiting",
        "new": "stop and begin a new history",
        "stop": "stop what is running or waiting here",
        "tools": "list the tools of this session; `/tools off NAME` takes one away, `/tools on NAME` gives it back",
        "plan": "look and plan only, until a plan is agreed to or /build ends it",
        "build": "work without the limits of a plan",
        "preset": "show the presets, or choose one with `/preset NAME`",
        "sessions": "list the sessions that you may see",
        "approvals": "list what waits for a decision",
        "grants": "list what is allowed without a question; `/grants revoke ID` takes one back",
        "why": "say why the last call ran or did not; `/why TOOL TEXT` explains the decision about a call",
        "tree": "list the sub-sessions of this session",
        "usage": "show tokens and cost, today and in 30 days",
    }
)

START = "start"
"""Command that platforms send when a chat is first opened: /help with a greeting. Not listed."""
GREETING = "Welcome. I am an agent with tools. What could do harm waits until somebody allows it with a button."

USAGE_DAYS = 30
"""Days that /usage sums up."""
_EFFECTS: Mapping[Risk, str] = MappingProxyType(
    {
        Risk.NONE: "within the session",
        Risk.READ: "reads",
        Risk.WRITE: "writes",
        Risk.EXECUTE: "executes",
        Risk.NETWORK: "uses the network",
    }
)


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text for the model, not a command."""


@dataclass(frozen=True, slots=True)
class ControlCommand:
    """Command in `CONTROL`, or `START`; handled at ingress."""

    name: str


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """Tool called by hand; runs as a command turn."""

    tool: str
    """Word typed for the tool: its name or its short name."""


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """Text in the form of a command that does not exist."""

    name: str


Parsed: TypeAlias = PlainText | ControlCommand | ToolCommand | UnknownCommand


def parse(text: str, tools: Collection[str]) -> Parsed:
    """Return the kind of a message's text; `tools` are the words that call tools by hand.

    `/usr/bin is full` is plain text; `/nosuch` is an unknown command.
    """
    command = split_command(text)
    if command is None:
        return PlainText()
    name, _ = command
    if name in CONTROL or name == START:
        return ControlCommand(name)
    return ToolCommand(name) if name in tools else UnknownCommand(name)


def unknown_text(name: str, tools: Collection[str]) -> str:
    """Return the reply to an unknown command, with the nearest known one."""
    known = [*CONTROL, *tools]
    begun = [one for one in known if len(name) > 1 and one.startswith(name)]
    near = begun or get_close_matches(name, known, n=1)
    hint = f" Did you mean {as_code('/' + near[0])}?" if near else ""
    return f"There is no command {as_code('/' + name)}.{hint} `/help` lists them."


def help_text(offered: ToolSet, session: Session, about: str = "") -> str:
    """Return the reply to /help, or to `/help NAME`."""
    tools, name = {tool.spec.by_hand: tool for tool in offered.seen_by(session)}, about.strip().removeprefix("/")
    if name in CONTROL:
        return f"`/{name}`: {CONTROL[name]}"
    if name:
        tool = tools.get(name) or next((tool for tool in tools.values() if tool.spec.name == name), None)
        return unknown_text(name, list(tools)) if tool is None else _about(tool)
    lines = [f"- `/{name}`: {about}" for name, about in CONTROL.items()]
    text = ["Write to talk to the agent, or use a command:", "", *lines]
    if tools:
        text += ["", "Tools that you can call yourself; `/help NAME` says how:", ""]
        text.append(", ".join(as_code(f"/{name}") for name in sorted(tools)))
    return "\n".join(text)


def _about(tool: Tool) -> str:
    """Return syntax and description of a tool. They may be a foreign server's: as code they format nothing."""
    return f"{as_code(tool.syntax)}\n\n{as_code(tool.spec.description)}"


def start_text(offered: ToolSet, session: Session) -> str:
    """Return the reply to /start."""
    return f"{GREETING}\n\n{help_text(offered, session)}"


def tools_text(offered: ToolSet, session: Session, *, owner: bool = False) -> str:
    """Return the reply to /tools. An owner also reads why the other tools do not exist here."""
    tools = offered.seen_by(session)
    head = (
        f"Tools of this session. Each exists everywhere and stops after {USUAL_TIMEOUT_S:g} s, unless said otherwise:"
    )
    lines = [head, "", *(_tool_line(tool) for tool in tools)]
    if not tools:
        lines = ["This session may use no tools."]
    hidden = offered.hidden_from(session) if owner else []
    if hidden:
        preset = as_code(offered.preset_of(session).name)
        lines += ["", f"Not here (the preset is {preset}):", ""]
        lines += [f"- {as_code(tool.spec.name)}: {deny.hint}" for tool, deny in hidden]
    return "\n".join(lines)


def _tool_line(tool: Tool) -> str:
    """Return a tool's risk, and where it differs from the others."""
    policy = tool.policy
    said = [_EFFECTS[tool.spec.risk]]
    if policy.availability is not Availability.ALWAYS:
        said.append(describe_availability(policy.availability))
    if policy.timeout_s != USUAL_TIMEOUT_S:
        said.append(f"stops after {policy.timeout_s:g} s")
    if policy.sandbox:
        said.append(f"sandbox {policy.sandbox}" + (f", network {policy.network}" if policy.network else ""))
    return f"- {as_code(tool.spec.name)}: {'; '.join(said)}"


def status_text(
    counts: Counts, lines: Sequence[SessionLine], session: Session, model: str, now: datetime, jobs: Sequence[str] = ()
) -> str:
    """Return the reply to /status: this session and, only in an owner's main session, the daemon.

    Others read along in any other session; the daemon's load and model are for the owners alone. `jobs`: the live ones.
    """
    here = next((line for line in lines if line.session.id == session.id), None)
    running, waiting, queued = (here.running, here.waiting, here.queued) if here else (0, 0, 0)
    preset = f", preset {as_code(session.preset)}" if session.preset else ""
    text = [
        f"This session ({as_code(session.id)}, {session.kind}{preset}): {running} running, "
        f"{waiting} waiting for a decision, {queued} queued."
    ]
    if jobs:
        text.append(f"In the background: {', '.join(jobs)}. /stop ends them.")
    if session.kind is SessionKind.MAIN:
        text += _daemon_lines(counts, model, now)
    return "\n".join(text)


def _daemon_lines(counts: Counts, model: str, now: datetime) -> list[str]:
    oldest = counts.oldest_queued_at
    since = f", the oldest for {(now - oldest).total_seconds():.0f} s" if oldest else ""
    return [
        f"All sessions: {counts.running_turns} running, {counts.parked_turns} parked, "
        f"{counts.queued_turns} queued{since}; {count(counts.open_approvals, 'open approval')}; "
        f"{count(counts.grants, 'grant')}; {count(counts.due_slots, 'message')} to be sent, "
        f"{counts.dead_slots} given up.",
        f"Model: {as_code(model)}.",
    ]


def sessions_text(lines: Sequence[SessionLine], owner: OwnerName | None, session: Session) -> str:
    """Return the reply to /sessions: every session that this person may see."""
    seen = [line for line in lines if _visible(line.session, owner, session)]
    rows = [
        f"- {as_code(line.session.id)} ({line.session.kind}, {as_code(line.session.title)}): {line.running} running, "
        f"{line.waiting} waiting, last active {line.session.active_at:%Y-%m-%d %H:%M} UTC"
        for line in seen
    ]
    return "\n".join(["Sessions:", "", *rows])


def approvals_text(
    waits: Sequence[Wait], sessions: Mapping[SessionId, Session], owner: OwnerName | None, here: Session
) -> str:
    """Return the reply to /approvals. Text decides nothing: the buttons are on the cards."""
    shown = [w for w in waits if w.session in sessions and _visible(sessions[w.session], owner, here)]
    if not shown:
        return "Nothing waits for a decision."
    rows = [
        f"- {as_code(w.approval.action.tool)} in {as_code(w.session)}, asked {w.opened_at:%H:%M}, "
        f"answer by {w.expires_at:%H:%M} UTC"
        for w in shown
        if w.approval is not None
    ]
    return "\n".join(["Waiting for a decision; press the button on the card:", "", *rows])


def tree_text(family: Sequence[ChildLine]) -> str:
    """Return the reply to /tree. Titles come from a model or a person; `sessions_stop` takes the ids."""
    if not family:
        return "There are no sub-sessions in this session."
    return "\n".join(["Sub-sessions:", "", *(_child_line(one) for one in family)])


def _child_line(one: ChildLine) -> str:
    depth = one.session.lineage.depth if one.session.lineage else 1
    waits = f", {one.waiting} waiting for a decision" if one.waiting else ""
    tokens = one.input_tokens + one.output_tokens
    state = f"{one.turn.state}{waits}, {tokens:,} tokens"
    return f"{'  ' * (depth - 1)}- {as_code(one.session.title)}: {state}, {as_code(one.session.id)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageScope:
    """Usage that a person may see."""

    persons: frozenset[Principal]
    """Principals whose usage counts as the person's own."""
    all: bool
    """True to add everybody's usage, the models and the cost, which are for the owners alone."""


def usage_text(spent: Sequence[Spent], scope: UsageScope, today: date, currency: str) -> str:
    """Return the reply to /usage, for today and for the `USAGE_DAYS` that end today.

    Listed by model and with cost in `currency` if the scope covers everybody; otherwise tokens only.
    """
    own = [one for one in spent if one.principal in scope.persons]
    groups: list[tuple[str, Sequence[Spent]]] = [
        ("You, today", [one for one in own if one.day == today]),
        (f"You, in {USAGE_DAYS} days", own),
    ]
    if scope.all:
        groups.append(("Everybody, today", [one for one in spent if one.day == today]))
        groups.append((f"Everybody, in {USAGE_DAYS} days", spent))
    return "\n\n".join(
        f"{title}:\n\n{_used(lines, currency) if scope.all else _tokens(lines)}" for title, lines in groups
    )


def _tokens(lines: Sequence[Spent]) -> str:
    read = sum(one.usage.input_tokens for one in lines)
    written = sum(one.usage.output_tokens for one in lines)
    return f"- {read:,} tokens read, {written:,} written" if lines else "- nothing"


def _used(lines: Sequence[Spent], currency: str) -> str:
    by_model: dict[str, list[Spent]] = {}
    for one in lines:
        by_model.setdefault(one.model, []).append(one)
    rows = [_used_line(as_code(model), some, currency) for model, some in sorted(by_model.items())]
    if len(rows) > 1:
        rows.append(_used_line("in all", lines, currency))
    return "\n".join(f"- {row}" for row in rows) or "- nothing"


def _used_line(name: str, lines: Sequence[Spent], currency: str) -> str:
    answers = sum(one.answers for one in lines)
    used = sum((one.usage for one in lines), Usage())
    cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
    parts = [count(answers, "answer"), f"{used.input_tokens:,} tokens read{cached}", f"{used.output_tokens:,} written"]
    if used.cost_micros:
        parts.append(money(used.cost_micros, currency))
    return f"{name}: {', '.join(parts)}"


def _visible(session: Session, owner: OwnerName | None, here: Session) -> bool:
    if owner is not None and here.kind is SessionKind.MAIN:
        return may_see(owner, session.owner, session.root_kind)
    return session.id == here.id


def command_list(offered: ToolSet, session: Session) -> list[CommandInfo]:
    """Return the commands of a session for a channel's menu, the control commands first."""
    control = [CommandInfo(name=name, usage=f"/{name}", about=about) for name, about in CONTROL.items()]
    tools = [
        CommandInfo(name=t.spec.by_hand, usage=t.syntax.removeprefix("Usage: "), about=t.spec.description)
        for t in offered.seen_by(session)
    ]
    return [*control, *tools]
