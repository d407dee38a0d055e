"""A session's place in the browser: what the actions of one call work on, kept from call to call.

Nothing of playwright is imported here before it runs: the daemon starts without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ports import EgressProxy

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from agent_tools.browser.guard import Guard


@dataclass(slots=True, kw_only=True, eq=False)
class PageSession:
    """One session's cookies, tabs and way out. Closed as a whole; calls of one session come one after another."""

    context: BrowserContext
    gate: EgressProxy
    folder: Path
    """For downloads and uploads: private to this seat, beneath the enclosure's folder; removed with the seat."""
    page: Page | None = None
    """The current tab."""
    scopes: frozenset[str] = frozenset()
    """The hosts that people allowed (`hosts.scope_of`), set anew before each call: what the guard goes by."""
    notes: list[str] = field(default_factory=list[str])
    """What happened beside a call, a sentence each (a dialog was dismissed, a popup became tab 2, a navigation was
    stopped): told in the next result and cleared."""
    crashed: list[Page] = field(default_factory=list["Page"])
    """Tabs whose page crashed, until they are closed before the next call."""
    stuck: bool = False
    """A tab hangs and does not even close: this place ends with the call, and the next call is given another."""
    guard: Guard | None = None
    """Keeps the tabs on allowed hosts; `tabs.prepare` sets it."""
