"""Page session: the browser state of one session, kept between calls. Used by every action.

Playwright is imported for types only: the daemon starts without it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.domain.scopes import NO_SCOPES, Scopes
from gateway.ports import EgressProxy

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Page

    from agent_tools.browser.guard import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """The last screenshot, whose pixels are places for the next calls."""

    page: Page
    url: str
    """URL of the page at that time, without its fragment."""
    left: float
    top: float
    """Pixels of the document to the left of the picture and above it."""
    width: float
    height: float
    scrolled: tuple[int, int, int, int]
    """Scroll position and size of the window at that time."""
    window: bool
    """True when it shows the window: its places are good until the page is scrolled."""


@dataclass(slots=True, kw_only=True, eq=False)
class PageSession:
    """One session's cookies, tabs and egress proxy. Closed as a whole; calls of one session run one at a time."""

    context: BrowserContext
    proxy: EgressProxy
    folder: Path
    """Private folder for downloads and uploads, in the sandbox session's folder; removed with this page session."""
    page: Page | None = None
    """The current tab."""
    scopes: Scopes = NO_SCOPES
    """Allowed hosts (`hosts.scope_of`), set before each call; the guard enforces them."""
    notes: list[str] = field(default_factory=list[str])
    """Events between results, a sentence each (a dialog was dismissed, a popup became tab 2, a navigation was
    stopped): added to the next result and cleared."""
    crashed: list[Page] = field(default_factory=list["Page"])
    """Tabs whose page crashed; closed before the next call."""
    stuck: bool = False
    """True when a tab hangs and cannot be closed: this page session ends with the call, and the next opens another."""
    dialogs: list[Dialog] = field(default_factory=list["Dialog"])
    """Dialogs that wait for the model's answer; the page stands still until then."""
    refuses_dialogs: bool = False
    """True while a page is repaired after a stopped call: nobody would answer."""
    interrupt: asyncio.Timeout | None = None
    """Scope of the running action, which a dialog ends: nothing else happens before its answer."""
    next_number: int = 1
    """Number of the next element without a role (`x1`). Never reused, so that a stale ref names nothing."""
    shot: Shot | None = None
    """The last screenshot; None when there is none."""
    guard: Guard | None = None
    """Guard that keeps the tabs on allowed hosts; set by `tabs.prepare`."""
