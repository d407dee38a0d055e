"""The tool `websearch`: searches the web with the service that the owner configured. Without one it does not exist."""

from __future__ import annotations

from typing import Annotated, cast
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from agent_tools._web.searching import ADDRESSES, Query, Service, hits_of, request_of, shown
from agent_tools._web.urls import checked_url, host_and_port, scope_of
from gateway.domain.tools import (
    ApprovalMode,
    Availability,
    CallScope,
    Effect,
    ResultStatus,
    Risk,
    ToolResult,
    ToolSpec,
)
from gateway.ports import StatefulTool, ToolContext, ToolHost

BYTES = 2**20
"""Bytes of the longest answer of a service."""


class SearchSettings(BaseModel):
    """The owner's settings of web searches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: Service | None = Field(
        default=None, description='Service that searches: "searxng", "brave", "tavily" or "exa". None: no search.'
    )
    url: str | None = Field(default=None, max_length=1000, description="Its address, when it is not the usual one.")
    api_key: SecretStr | None = Field(default=None, description='Its key, as "env:NAME" or "file:/path".')

    @model_validator(mode="after")
    def _is_complete(self) -> SearchSettings:
        if self.provider is Service.SEARXNG and not self.url:
            raise _flaw("searxng has no usual address", 'Write url = "https://searx.example.org"')
        if self.provider not in (None, Service.SEARXNG) and self.api_key is None:
            raise _flaw(f"{self.provider} needs a key", 'Write api_key = "env:NAME"')
        if self.provider is None and (self.url or self.api_key):
            raise _flaw("there is no provider", f"Write provider = one of {', '.join(Service)}")
        if self.url:
            try:
                checked_url(self.url)
            except ValueError as error:
                raise _flaw(str(error), "Correct the address") from None
        return self

    @property
    def address(self) -> str:
        """Address of the service; empty without one."""
        return self.url or (ADDRESSES[self.provider] if self.provider else "")


def _flaw(what: str, cure: str) -> PydanticCustomError:
    return PydanticCustomError("flaw", "{what}", {"what": what, "cure": cure, "key": ""})


SPEC = ToolSpec(
    name="websearch",
    description="Search the web. Returns titles, addresses and snippets; fetch an address to read it.",
    risk=Risk.NETWORK,
    effect=Effect.PURE,
    availability=Availability.ALWAYS,
    approval={"main": ApprovalMode.ALLOW},
    timeout_s=25.0,
    positional="query",
    example="weather in Lisbon",
    settings=SearchSettings,
)


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Annotated[str, Field(min_length=1, max_length=500)]
    num_results: Annotated[int, Field(ge=1, le=20, validation_alias=AliasChoices("num_results", "numResults"))] = 8


def missing(settings: SearchSettings) -> str:
    """Return why the tool cannot work with these settings; empty when it can."""
    if settings.provider is not None:
        return ""
    return "websearch needs a service: the owner can name one as provider in [tools.websearch]."


def scope(_args: Args, settings: SearchSettings) -> CallScope:
    """Return the service's host, which gets the words."""
    host = scope_of(settings.address)
    return CallScope(risk=Risk.NETWORK, scope=host, subjects=(f"host:{host}",), sends=(host,))


def create(host: ToolHost) -> StatefulTool:
    """Make the tool."""
    return WebSearch(host, code=False)


class WebSearch:
    """The tool with its settings (`ports.StatefulTool`). It keeps nothing between calls."""

    def __init__(self, host: ToolHost, *, code: bool) -> None:
        """Take the settings. `code`: search for source code."""
        self._settings = cast("SearchSettings", host.settings)
        self._code = code

    async def serve(self) -> None:
        """Do nothing: there is nothing to keep."""

    async def run(self, ctx: ToolContext, args: Args) -> ToolResult:
        """Ask the service once."""
        settings = self._settings
        if settings.provider is None:
            return ToolResult(status=ResultStatus.ERROR, text="", code="not_configured", hint=missing(settings))
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        query = Query(words=args.query, count=args.num_results, code=self._code)
        wanted = request_of(settings.provider, settings.address, key, query)
        # The owner named the address, so it may be one of their own network.
        hosts = (host_and_port(checked_url(settings.address)),)
        found = await ctx.net.fetch(
            wanted.url, most=BYTES, within_s=SPEC.timeout_s, hosts=hosts, headers=wanted.headers, body=wanted.body
        )
        hits = hits_of(settings.provider, found.status, found.data, args.num_results)
        if not hits:
            return ToolResult(status=ResultStatus.OK, text=f"{urlsplit(wanted.url).hostname} found nothing.")
        return ToolResult(status=ResultStatus.OK, text=shown(hits), untrusted=True)
