"""Shared by the tools for sub-sessions: ids, names and the limit of work as arguments, and what is out of reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, Field, StringConstraints

from gateway.domain.tools import ResultStatus, ToolResult
from gateway.errors import Forbidden, NotFound

Session = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    Field(description="Its id, as sessions_list says."),
]
"""Argument that names a sub-session."""


Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
"""Name of an agent, a model, a preset or a tool."""
WorkSeconds = Annotated[
    float | None,
    Field(
        ge=1,
        le=86_400,
        validation_alias=AliasChoices("timeout", "timeout_s", "timeout_seconds"),
        description="Seconds of work.",
    ),
]
"""Limit of a sub-session's work. Its field is not called `timeout`: that limits the call itself."""


def out_of_reach(error: NotFound | Forbidden, missing: str, forbidden: str) -> ToolResult:
    """Return the result of a call for a session that it may not reach, with the hint for its reason.

    The texts are the same for every set of tools: a call must not find out other people's sessions.
    """
    if isinstance(error, NotFound):
        return ToolResult(status=ResultStatus.ERROR, text="", code="not_found", hint=missing)
    return ToolResult(status=ResultStatus.DENIED, text="", code="not_yours", hint=forbidden)
