"""The tool `codesearch`: searches for source code and its documentation, with a service of its own settings."""

from __future__ import annotations

from dataclasses import replace

from agent_tools.websearch import SPEC as WEBSEARCH
from agent_tools.websearch import Args, SearchSettings, WebSearch, scope
from gateway.domain.tools import Availability
from gateway.ports import StatefulTool, ToolHost

__all__ = ["SPEC", "Args", "create", "missing", "scope"]

SPEC = replace(
    WEBSEARCH,
    name="codesearch",
    description="Search the web for source code, libraries and their documentation.",
    availability=Availability.MAIN,
    approval={},
    timeout_s=30.0,
    example="asyncio TaskGroup example",
    indexed=True,
)


def missing(settings: SearchSettings) -> str:
    """Return why the tool cannot work with these settings; empty when it can."""
    if settings.provider is not None:
        return ""
    return "codesearch needs a service: the owner can name one as provider in [tools.codesearch]."


def create(host: ToolHost) -> StatefulTool:
    """Make the tool."""
    return WebSearch(host, code=True)
