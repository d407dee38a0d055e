"""The web page's own settings, read by the configuration before any message can come."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, StrictBool

SECRETS: tuple[str, ...] = ()
"""Nothing of its own: keys of the page have no form, and a sign-in link's code is hidden everywhere."""


class WebSettings(BaseModel):
    """`[channels.web]`. Durations are written `"30d"`; the configuration reads them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: StrictBool = Field(default=True, description="Serve the web page and let owners sign in there.")
    cookie_lifetime: timedelta = Field(
        default=timedelta(days=30), description="How long a sign-in on the page lasts, counted from the sign-in."
    )
