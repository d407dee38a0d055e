"""Page session: the browser state of one session, kept between calls. Used by every action.

Playwright is imported for types only: the daemon starts without it.
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
    """One session's cookies, tabs and egress proxy. Closed as a whole; calls of one session run one at a time."""

    context: BrowserContext
    proxy: EgressProxy
    folder: Path
    """Private folder for downloads and uploads, in the sandbox session's folder; removed with this page session."""
    page: Page | None = None
    """The current tab."""
    scopes: frozenset[str] = frozenset()
    """Allowed hosts (`hosts.scope_of`), set before each call; the guard enforces them."""
    notes: list[str] = field(default_factory=list[str])
    """Events between results, a sentence each (a dialog was dismissed, a popup became tab 2, a navigation was
    stopped): added to the next result and cleared."""
    crashed: list[Page] = field(default_factory=list["Page"])
    """Tabs whose page crashed; closed before the next call."""
    stuck: bool = False
    """True when a tab hangs and cannot be closed: this page session ends with the call, and the next opens another."""
    guard: Guard | None = None
    """Guard that keeps the tabs on allowed hosts; set by `tabs.prepare`."""
