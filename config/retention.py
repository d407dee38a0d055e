"""Retention settings: for histories of sessions, and for the audit. `settings` has the defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field, StrictInt

from config.basics import SettingsTable


class KeepSettings(SettingsTable):
    """`keep` of `[sessions]`."""

    turns: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="The last turns of each session. Default: all."
    )
    days: Annotated[StrictInt, Field(ge=1, le=36_500)] | None = Field(
        default=None, description="Turns that ended in so many days. With `turns` too, either is enough to keep one."
    )

    @property
    def age(self) -> timedelta | None:
        """Return the time for which they are kept; None: for ever."""
        return None if self.days is None else timedelta(days=self.days)


class AuditKeepSettings(SettingsTable):
    """`keep` of `[audit]`."""

    days: Annotated[StrictInt, Field(ge=1, le=36_500)] | None = Field(
        default=None, description="Calls that started in so many days. Default: all."
    )

    @property
    def age(self) -> timedelta | None:
        """Return the time for which they are kept; None: for ever."""
        return None if self.days is None else timedelta(days=self.days)


class AuditSettings(SettingsTable):
    """`[audit]`."""

    keep: AuditKeepSettings = Field(
        default=AuditKeepSettings(),
        description="Retention of the audit: { days = 365 }. Older rows are removed once `dragoman audit export` has "
        "written them to a file. Default: everything.",
    )
