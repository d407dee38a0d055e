"""Aliases of tools: names from other programs that models use, and their repair. No model is offered one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "bash": "shell",
        "read_file": "read",
        "write_file": "write",
        "edit_file": "edit",
        "list_directory": "list",
        "web_fetch": "webfetch",
        "web_search": "websearch",
        "todowrite": "todo_write",
        "todoread": "todo_read",
        "ask_user_question": "ask_user",
        "question": "ask_user",
        "spawn_agent": "sessions_spawn",
        "agent_message": "sessions_send",
        "workflow_orchestrate": "workflow",
        "browser_action": "browser",
    }
)
"""Name of the tool here, by its name elsewhere."""


def repaired(name: str, known: Collection[str]) -> str:
    """Return the known tool that a name means: as written, in lower case, or by an alias. Else the name itself."""
    if name in known:
        return name
    lower = name.lower()
    found = lower if lower in known else ALIASES.get(lower, "")
    return found if found in known else name
