"""Decorator for the tools of an owner: `from agent_tools.own import tool`.

An owner's file is also imported in a contained worker, which sees nothing else of ours. So this file imports only
Python's own library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

__all__ = ["tool"]

MARK = "__dragoman_tool__"
"""Attribute of a decorated function."""

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def tool(function: _F, /) -> _F: ...
@overload
def tool(
    *,
    risk: Literal["none", "read", "write", "execute", "network"] = "execute",
    effect: Literal["pure", "idempotent", "unsafe"] = "unsafe",
    permission: Literal["always", "main", "non-main", "blocked"] = "main",
    network: Literal["auto", "none", "public", "host"] = "auto",
    timeout: float = 30,
    positional: str = "",
    indexed: bool = True,
) -> Callable[[_F], _F]: ...
def tool(function: Any = None, /, **_policy: Any) -> Any:
    """Make a typed function a tool. Its docstring describes it; its annotations are the schema of its arguments.

    `risk`: worst effect; the default asks. `effect`: what happens to a call that a crash cut: the default is to tell
    that its outcome is unknown. `permission`: kinds of session that have it. `timeout`: seconds. `positional`: argument
    that takes the whole text of a command. `indexed`: False puts its schema into every request of a model.

    Write the values as literals: the daemon reads them from the file's text, without running it.
    """

    def mark(decorated: Any) -> Any:
        setattr(decorated, MARK, True)
        return decorated

    return mark if function is None else mark(function)
