"""Settings of the web page. Read by the configuration at start, used by `adapter`."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, StrictBool

SECRETS: tuple[str, ...] = ()
"""Patterns for redaction: none. The page's keys have no fixed form, and a sign-in code is redacted everywhere."""


class WebSettings(BaseModel):
    """Settings `[channels.web]`. Durations are written `"30d"`; the configuration parses them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: StrictBool = Field(default=True, description="Serve the web page and let owners sign in there.")
    cookie_lifetime: timedelta = Field(
        default=timedelta(days=30), description="How long a sign-in on the page lasts, counted from the sign-in."
    )
