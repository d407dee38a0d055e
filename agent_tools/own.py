"""Decorator for the tools of an owner, and what such a tool may know of its call.

Used by their files: `from agent_tools.own import Context, tool`.

An owner's file is also imported in a contained worker, which sees nothing else of ours. So this file imports only
Python's own library.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

__all__ = ["Context", "tool"]

MARK = "__dragoman_tool__"
"""Attribute of a decorated function."""
PROGRESS_CHARS = 200
"""Characters of the longest line of progress."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Context:
    """One call of a tool. A parameter with this type gets it, and a model never sees that parameter."""

    def __init__(
        self, *, session: str, workspace: Path, show: Callable[[str], None], is_cancelled: Callable[[], bool]
    ) -> None:
        """Take the facts of the call. Made for each call by its worker or the daemon."""
        self.session = session
        """Id of the session that the call belongs to."""
        self.workspace = workspace
        """Folder of the session, in which the tool may work."""
        self._show = show
        self._is_cancelled = is_cancelled
        self._ended = False

    def progress(self, text: str) -> None:
        """Show one short line in the status line of the turn. It is no part of the result. Does nothing afterwards."""
        if not self._ended:
            self._show(str(text)[:PROGRESS_CHARS])

    @property
    def cancelled(self) -> bool:
        """True when the call was stopped or is past its timeout, and after its end: return soon."""
        return self._ended or self._is_cancelled()

    def end(self) -> None:
        """Take note that the call ended."""
        self._ended = True


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

    `risk`: worst effect; the default asks. `effect`: what happens to a call that a crash cut: by default its outcome is
    unknown. `permission`: kinds of session that have it. `timeout`: seconds. `positional`: argument that takes the
    whole text of a command. `indexed`: False puts its schema into every request of a model.

    Write the values as literals: the daemon reads them from the file's text, without running it.
    """

    def mark(decorated: Any) -> Any:
        setattr(decorated, MARK, True)
        return decorated

    return mark if function is None else mark(function)
