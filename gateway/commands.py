"""Commands: what a text that begins with `/` asks for, and the gateway's own answers to control commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeAlias

from gateway.model.ids import OwnerName, SessionId
from gateway.model.sessions import Session, SessionKind
from gateway.model.views import Counts, SessionLine
from gateway.model.waits import Wait
from gateway.permission import describe_permission
from gateway.ports import CommandInfo
from gateway.registry import Registry, Tool, usage
from gateway.routing import may_see

CONTROL: Mapping[str, str] = MappingProxyType(
    {
        "help": "what can be said here",
        "status": "what is running, waiting and connected",
        "new": "stop, and begin a new history",
        "stop": "stop what is running or waiting here",
        "tools": "which tools this session may use",
        "sessions": "the conversations that you may see",
        "approvals": "what waits for a decision",
    }
)

START = "start"
"""Sent by platforms when a chat is opened for the first time: /help with a greeting, and not listed."""
GREETING = "Welcome. I am an agent with tools; what could do harm waits until somebody allows it with a button."

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:@[A-Za-z0-9_]+)?(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlainText:
    """No command: for the model."""


@dataclass(frozen=True, slots=True)
class ControlCommand:
    """One of `CONTROL`, or `START`; handled at ingress."""

    name: str


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """A tool called by hand; runs as a command turn."""

    tool: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """Looks like a command and is none."""

    name: str


Parsed: TypeAlias = PlainText | ControlCommand | ToolCommand | UnknownCommand


def code(text: str) -> str:
    """Return what people or configuration chose as Markdown code: one line that can be seen, and that forges nothing.

    Names, titles and ids stand in the gateway's own texts by this alone: `**owner** [approve](…)` is a name, too.
    """
    seen = "".join(char for char in " ".join(text.split()) if char.isprintable())
    line = " ".join(seen.split()) or "?"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def parse(text: str, tools: Collection[str]) -> Parsed:
    """Say what a message asks for. `/usr/bin is full` is plain text; `/nosuch` is an unknown command."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return PlainText()
    name = match.group(1).lower()
    if name in CONTROL or name == START:
        return ControlCommand(name)
    return ToolCommand(name) if name in tools else UnknownCommand(name)


def unknown_text(name: str, tools: Collection[str]) -> str:
    """Answer an unknown command with the nearest one."""
    near = get_close_matches(name, [*CONTROL, *tools], n=1)
    hint = f" Did you mean {code('/' + near[0])}?" if near else ""
    return f"There is no command {code('/' + name)}.{hint} `/help` lists them."


def help_text(registry: Registry, session: Session) -> str:
    """Answer /help."""
    lines = [f"- `/{name}`: {about}" for name, about in CONTROL.items()]
    lines += [
        f"- {code(usage(tool.spec).removeprefix('Usage: '))}: {tool.spec.description}"
        for tool in registry.seen_by(session)
    ]
    return "\n".join(["Write to talk to the agent, or use a command:", "", *lines])


def start_text(registry: Registry, session: Session) -> str:
    """Answer /start."""
    return f"{GREETING}\n\n{help_text(registry, session)}"


def tools_text(registry: Registry, session: Session) -> str:
    """Answer /tools."""
    tools = registry.seen_by(session)
    if not tools:
        return "This session may use no tools."
    return "\n".join(["Tools of this session:", "", *(_tool_line(tool) for tool in tools)])


def _tool_line(tool: Tool) -> str:
    where = describe_permission(tool.policy.permission)
    sandbox = f", sandbox {tool.policy.sandbox}" if tool.policy.sandbox else ""
    return f"- {code(tool.spec.name)}: {where}, {tool.spec.risk}, stops after {tool.policy.timeout_s:g} s{sandbox}"


def status_text(counts: Counts, lines: Sequence[SessionLine], session: Session, model: str, now: datetime) -> str:
    """Answer /status: this session first, then, in an owner's main session alone, the daemon.

    In any other session everybody reads along, and how busy the daemon is and with which model is the owners' affair.
    """
    here = next((line for line in lines if line.session.id == session.id), None)
    running, waiting, queued = (here.running, here.waiting, here.queued) if here else (0, 0, 0)
    said = [
        f"This session ({code(session.id)}, {session.kind}): {running} running, {waiting} waiting for a decision, "
        f"{queued} queued."
    ]
    if session.kind is SessionKind.MAIN:
        said += _daemon_lines(counts, model, now)
    return "\n".join(said)


def _daemon_lines(counts: Counts, model: str, now: datetime) -> list[str]:
    oldest = counts.oldest_queued_at
    since = f", the oldest for {(now - oldest).total_seconds():.0f} s" if oldest else ""
    return [
        f"All sessions: {counts.running_turns} running, {counts.parked_turns} parked, "
        f"{counts.queued_turns} queued{since}; {counts.open_waits} open approvals; "
        f"{counts.due_slots} messages to be sent, {counts.dead_slots} given up.",
        f"Model: {code(model)}.",
    ]


def sessions_text(lines: Sequence[SessionLine], owner: OwnerName | None, session: Session) -> str:
    """Answer /sessions: all that this person may see."""
    seen = [line for line in lines if _visible(line.session, owner, session)]
    rows = [
        f"- {code(line.session.id)} ({line.session.kind}, {code(line.session.title)}): {line.running} running, "
        f"{line.waiting} waiting, last active {line.session.active_at:%Y-%m-%d %H:%M} UTC"
        for line in seen
    ]
    return "\n".join(["Sessions:", "", *rows])


def approvals_text(
    waits: Sequence[Wait], sessions: Mapping[SessionId, Session], owner: OwnerName | None, here: Session
) -> str:
    """Answer /approvals. Text decides nothing: the buttons are on the cards."""
    shown = [w for w in waits if w.session in sessions and _visible(sessions[w.session], owner, here)]
    if not shown:
        return "Nothing waits for a decision."
    rows = [
        f"- {code(w.approval.action.tool)} in {code(w.session)}, asked {w.opened_at:%H:%M}, "
        f"answer by {w.expires_at:%H:%M} UTC"
        for w in shown
        if w.approval is not None
    ]
    return "\n".join(["Waiting for a decision; press the button on the card:", "", *rows])


def _visible(session: Session, owner: OwnerName | None, here: Session) -> bool:
    if owner is not None and here.kind is SessionKind.MAIN:
        return may_see(owner, session.owner, session.root_kind)
    return session.id == here.id


def command_list(registry: Registry, session: Session) -> list[CommandInfo]:
    """The commands of a session as a channel offers them, the gateway's own first."""
    control = [CommandInfo(name=name, usage=f"/{name}", about=about) for name, about in CONTROL.items()]
    tools = [
        CommandInfo(name=t.spec.name, usage=usage(t.spec).removeprefix("Usage: "), about=t.spec.description)
        for t in registry.seen_by(session)
    ]
    return [*control, *tools]
