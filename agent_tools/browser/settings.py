"""Settings of `[tools.browser]`, validated when the configuration is loaded."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from agent_tools._web.settings import PrivateHost

SHORTEST_IDLE_S, LONGEST_IDLE_S = 10, 86_400
"""Limits in seconds of the idle timeout."""


def _flaw(what: str, cure: str) -> PydanticCustomError:
    """Make the error that the configuration reports with its cure."""
    return PydanticCustomError("flaw", "{what}", {"what": what, "cure": cure, "key": ""})


def _idle(value: timedelta) -> timedelta:
    if not SHORTEST_IDLE_S <= value.total_seconds() <= LONGEST_IDLE_S:
        raise _flaw("that is too short or too long", 'Write "10s" to "24h", for instance "5m"')
    return value


class BrowserSettings(BaseModel):
    """The owner's settings of the browser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: tuple[PrivateHost, ...] = Field(
        default=(),
        max_length=100,
        description='Hosts of the private network that it may reach, as in "wiki.lan", "10.0.0.5:8080" or "*.lan".',
    )
    executable: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="The Chromium to run. Default: the one that is found."
    )
    evaluate: Literal["blocked", "ask"] = Field(
        default="blocked", description="Scripts in a page: never run, or each one asked for."
    )
    sessions: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(
        default=6,
        description="Sessions with open pages at once; each costs about 70 MB. The oldest gives way.",
    )
    idle: Annotated[timedelta, AfterValidator(_idle)] = Field(
        default=timedelta(minutes=5), description="Idle time after which it is shut down; cookies are kept."
    )
    download_mb: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        default=100, description="The largest file that is downloaded, in megabytes."
    )
