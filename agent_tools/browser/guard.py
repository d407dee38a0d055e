"""Navigation guard of one page session: keeps tabs on hosts that people allowed, and refuses unrequested downloads.

It works in the browser, before the egress proxy: it pauses every request for a document before it leaves, each redirect
again, popups included. (Playwright's own `route` does not see redirects, and costs a round trip for every picture.)
The egress proxy alone vets the loads of frames inside a page.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from playwright.async_api import BrowserContext, CDPSession, Error, Page

from agent_tools._web.urls import scope_of
from gateway.domain.scopes import Scopes
from gateway.domain.text import one_line

MOST_NOTES = 20
"""Notes about a page in one result."""
CURE = "Open it: a person is asked first."
_ASKED = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}
_ANSWERED = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}
_GUID = re.compile(r"[0-9a-f-]{36}")


@dataclass(slots=True, kw_only=True)
class Arrival:
    """State of a download that a call waits for."""

    force: bool
    """True to store a page as a file instead of showing it."""
    guid: str = ""
    """The browser's id of the download, also its file name; empty until it begins."""
    suggested: str = ""
    """File name given by the host. For display only, never a path."""
    received: int = 0
    total: int = 0
    """Bytes, 0 while unknown."""
    state: str = "inProgress"
    """`completed` or `canceled` at the end."""
    status: int = 0
    """HTTP status of the host when it is an error, else 0."""
    outside: str = ""
    """URL of a download stopped because nobody allowed its host."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each change of this state."""


class Guarded(Protocol):
    """The part of a page session that a guard uses."""

    @property
    def context(self) -> BrowserContext:
        """The guarded browser context."""
        ...

    @property
    def scopes(self) -> Scopes:
        """The currently allowed hosts."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes for the next result."""
        ...


def note(session: Guarded, text: str) -> None:
    """Add a note for the next result, without duplicates and up to `MOST_NOTES`, in case a page floods."""
    if text not in session.notes and len(session.notes) < MOST_NOTES:
        session.notes.append(text)


async def ask(cdp: CDPSession, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one command of the browser's debugging protocol."""
    return await cast("Any", cdp).send(method, params)  # playwright types the result as a bare dict


class Guard:
    """Filter for the document requests and downloads of one browser context."""

    def __init__(self, session: Guarded, cdp: CDPSession, context_id: str) -> None:
        """Bind a browser-level CDP session and the CDP id of the page session's context."""
        self._session = session
        self._cdp = cdp
        self._context_id = context_id
        self.stopped = ""
        """Last URL that a tab was stopped from opening; callers clear it."""
        self.making_tab = False
        """True while a call opens a tab, so that it is not treated as a popup."""
        self.arrival: Arrival | None = None

    @classmethod
    async def start(cls, session: Guarded, page: Page) -> Guard:
        """Start a guard for the context of this page; it runs until `end`."""
        browser = session.context.browser
        assert browser is not None, "a page session's context is made by a browser"
        of_page = await session.context.new_cdp_session(page)
        info = await ask(of_page, "Target.getTargetInfo")
        await of_page.detach()
        guard = cls(session, await browser.new_browser_cdp_session(), info["targetInfo"]["browserContextId"])
        await guard._begin()
        return guard

    async def _begin(self) -> None:
        self._cdp.on("Fetch.requestPaused", self._paused)
        self._cdp.on("Browser.downloadWillBegin", self._download_begins)
        self._cdp.on("Browser.downloadProgress", self._download_goes_on)
        await self.refuse_downloads()

    async def end(self) -> None:
        """Detach from the browser; an unanswered CDP session would block requests of other contexts for ever.

        Raises playwright's `Error` when the browser is gone already.
        """
        await self._cdp.detach()

    # --- documents ------------------------------------------------------------------------------

    async def _paused(self, event: dict[str, Any]) -> None:
        """Decide one paused document request of a tab or a frame of any context."""
        with suppress(Error):  # the tab was closed, which ends the request
            if "responseStatusCode" in event or "responseErrorReason" in event:
                await self._answered(event)
            elif self.allows(url := event["request"]["url"]) or not await self._is_tab(event["frameId"]):
                await ask(self._cdp, "Fetch.continueRequest", {"requestId": event["requestId"]})
            else:
                self.stopped = url
                note(self._session, f"The page wanted to go to {one_line(url, 2000)} and was stopped. {CURE}")
                await ask(self._cdp, "Fetch.failRequest", {"requestId": event["requestId"], "errorReason": "Aborted"})
                await self._close_if_empty(event["frameId"])

    def allows(self, url: str) -> bool:
        """Return whether people, or a rule, allowed the host of this URL."""
        return scope_of(url) in self._session.scopes

    async def _is_tab(self, frame: str) -> bool:
        """Return whether a frame is the main frame of a tab in this context; only that has a target of type page."""
        info = await self._target(frame)
        return info.get("type") == "page" and info.get("browserContextId") == self._context_id

    async def _target(self, frame: str) -> dict[str, Any]:
        try:
            return (await ask(self._cdp, "Target.getTargetInfo", {"targetId": frame}))["targetInfo"]
        except Error:  # a frame inside a page has no target
            return {}

    async def _close_if_empty(self, frame: str) -> None:
        """Close a popup whose only navigation was stopped."""
        info = await self._target(frame)
        tabs = len(self._session.context.pages)
        if info.get("openerId") and tabs > 1 and info.get("title", "") in {"", "about:blank"} and not info.get("url"):
            await ask(self._cdp, "Target.closeTarget", {"targetId": frame})

    # --- downloads ------------------------------------------------------------------------------

    async def refuse_downloads(self) -> None:
        """Refuse every download before its first byte. Idempotent."""
        await ask(self._cdp, "Fetch.enable", {"patterns": [_ASKED]})
        await ask(self._cdp, "Browser.setDownloadBehavior", self._behavior("deny"))

    async def accept_download(self, arrival: Arrival, folder: Path) -> None:
        """Accept one download into the folder, under a name chosen by the browser, until `refuse_downloads`."""
        self.arrival = arrival
        await ask(self._cdp, "Fetch.enable", {"patterns": [_ASKED, _ANSWERED]})
        await ask(
            self._cdp, "Browser.setDownloadBehavior", self._behavior("allowAndName") | {"downloadPath": str(folder)}
        )

    def _behavior(self, name: str) -> dict[str, Any]:
        return {"behavior": name, "browserContextId": self._context_id, "eventsEnabled": True}

    async def cancel_download(self, guid: str) -> None:
        """Cancel a download; the browser removes its partial file. No effect after its end."""
        with suppress(Error):  # it has ended meanwhile
            await ask(self._cdp, "Browser.cancelDownload", {"guid": guid, "browserContextId": self._context_id})

    async def _answered(self, event: dict[str, Any]) -> None:
        """Turn a response into a download while a call waits for one."""
        arrival, status = self.arrival, event.get("responseStatusCode", 0)
        held = {"requestId": event["requestId"]}
        if arrival is None or arrival.guid or status < 200 or 300 <= status < 400:
            await ask(self._cdp, "Fetch.continueRequest", held)
            return
        headers: list[dict[str, str]] = event.get("responseHeaders", [])
        is_page = any(one["name"].lower() == "content-type" and "html" in one["value"].lower() for one in headers)
        if (is_page and not arrival.force and status < 400) or not await self._is_tab(event["frameId"]):
            await ask(self._cdp, "Fetch.continueRequest", held)
        elif status >= 400:
            arrival.status = status
            arrival.moved.set()
            await ask(self._cdp, "Fetch.failRequest", held | {"errorReason": "Aborted"})
        else:
            await ask(
                self._cdp,
                "Fetch.continueResponse",
                held | {"responseCode": status, "responseHeaders": _as_file(headers)},
            )

    async def _download_begins(self, event: dict[str, Any]) -> None:
        """Accept the awaited download. Others of this context are refused or cancelled here."""
        arrival, url = self.arrival, str(event["url"])
        if arrival is None and not await self._is_tab(event["frameId"]):
            return  # from a frame or another session: refused as well
        shown = one_line(url, 500)
        if arrival is None:
            note(self._session, f"A download from {shown} began and was stopped. Use `download` for it.")
        elif arrival.guid or not _GUID.fullmatch(event["guid"]):
            await self.cancel_download(event["guid"])
            note(self._session, f"Another download, from {shown}, was stopped: one call takes one file.")
        elif not url.startswith("data:") and not self.allows(url.removeprefix("blob:")):
            arrival.outside = url
            arrival.moved.set()
            await self.cancel_download(event["guid"])
        else:
            arrival.guid, arrival.suggested = event["guid"], str(event.get("suggestedFilename", ""))
            arrival.moved.set()

    def _download_goes_on(self, event: dict[str, Any]) -> None:
        arrival = self.arrival
        if arrival is None or not arrival.guid or event["guid"] != arrival.guid:
            return
        arrival.received, arrival.total = int(event["receivedBytes"]), int(event["totalBytes"])
        arrival.state = str(event["state"])
        arrival.moved.set()


def _as_file(headers: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return response headers that make the browser store the body; a file name in them is kept."""
    given = next((one["value"] for one in headers if one["name"].lower() == "content-disposition"), "")
    named = given.partition(";")[2]
    others = [one for one in headers if one["name"].lower() != "content-disposition"]
    return [*others, {"name": "Content-Disposition", "value": f"attachment;{named}" if named else "attachment"}]
