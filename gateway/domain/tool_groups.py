"""Groups of tools, and the ladder of generations. Used by rules, presets and the filter of offered tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

NEWEST = 8
"""Highest generation: every tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolGroup:
    """Tools that belong together. Rules name them as `group:NAME`."""

    generation: int
    """Lowest generation that has them."""
    about: str
    """Purpose, in a few words."""
    tools: frozenset[str]
    """Names of tools. Also those that are not built in: a tool that takes such a name belongs to the group."""


def _group(generation: int, about: str, *tools: str) -> ToolGroup:
    return ToolGroup(generation=generation, about=about, tools=frozenset(tools))


GROUPS: Mapping[str, ToolGroup] = MappingProxyType(
    {
        "files": _group(
            1, "read and change files, run programs",
            "shell", "shell_poll", "shell_kill", "read", "write", "edit", "multiedit", "apply_patch", "undo",
        ),
        "edit": _group(1, "change files", "write", "edit", "multiedit", "apply_patch", "undo"),
        "search": _group(2, "find and list files", "glob", "grep", "list"),
        "planning": _group(
            3, "plan and ask", "task", "todo_write", "todo_read", "ask_user", "plan_enter", "plan_exit"
        ),
        "network": _group(4, "read the web", "webfetch", "websearch", "codesearch", "skill"),
        "memory": _group(5, "remember", "memory_store", "memory_search", "code_index"),
        "vision": _group(6, "see and use screens", "browser", "screenshot", "canvas", "computer_use"),
        "agents": _group(
            7, "sub-sessions",
            "sessions_spawn", "sessions_list", "sessions_stop", "sessions_send", "sessions_history",
            "workflow",
        ),
        "evolution": _group(8, "improve the agent itself", "strategy_optimize", "tool_create", "self_evaluate"),
    }
)  # fmt: skip


@lru_cache(maxsize=1024)
def groups_of(tool: str, own: str = "") -> frozenset[str]:
    """Return the names of the groups that a tool is in. `own`: the one that a tool of others names itself."""
    return frozenset(name for name, group in GROUPS.items() if tool in group.tools or name == own)


@lru_cache(maxsize=1024)
def generation_of(tool: str, own: str = "") -> int:
    """Return the lowest generation that has a tool. A tool in no group belongs to the newest alone."""
    return min((GROUPS[name].generation for name in groups_of(tool, own)), default=NEWEST)
