"""The guard of one session: its tabs stay on hosts that people allowed, and nothing is downloaded unasked.

It stands between the tabs and the gate, at the browser itself: every request for a document is held there before it
leaves, each redirect of it anew, those of popups too. (Playwright's own `route` does not see redirects, and costs a
round trip for every picture.) What frames inside a page load is left to the gate.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from playwright.async_api import BrowserContext, CDPSession, Error, Page

from agent_tools.browser.hosts import scope_of
from gateway.domain.text import one_line
from gateway.domain.tools import EVERY_SCOPE

MOST_NOTES = 20
CURE = "Open it: a person is asked first."
_ASKED = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}
_ANSWERED = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}
_GUID = re.compile(r"[0-9a-f-]{36}")


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A download that a call waits for."""

    force: bool
    """Whether a page is stored as a file too, in place of being shown."""
    guid: str = ""
    """The browser's name for it, and the name of its file; empty until it begins."""
    suggested: str = ""
    """What the host calls it. Only ever shown."""
    received: int = 0
    total: int = 0
    """Bytes, as far as they are known."""
    state: str = "inProgress"
    """`completed` or `canceled` at the end."""
    status: int = 0
    """The host's HTTP status, when it was an error."""
    outside: str = ""
    """Where it would have come from, when nobody allowed that host."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something of this changes."""


class Guarded(Protocol):
    """What a guard knows of its session."""

    @property
    def context(self) -> BrowserContext:
        """Whose tabs are guarded."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """The hosts that people allowed, as they are now."""
        ...

    @property
    def notes(self) -> list[str]:
        """What is told in the next result."""
        ...


def note(session: Guarded, text: str) -> None:
    """Tell something in the next result, once; a page that floods is cut short."""
    if text not in session.notes and len(session.notes) < MOST_NOTES:
        session.notes.append(text)


async def ask(cdp: CDPSession, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one command of the browser's debugging protocol."""
    return await cast("Any", cdp).send(method, params)  # playwright types it as a dict of nothing known


class Guard:
    """Holds the requests for documents of one browser context."""

    def __init__(self, session: Guarded, cdp: CDPSession, context_id: str) -> None:
        """Take a session of the browser's own debugging protocol, and the protocol's name of the session's context."""
        self._session = session
        self._cdp = cdp
        self._context_id = context_id
        self.stopped = ""
        """The last address that a tab was kept from; callers clear it."""
        self.making_tab = False
        """True while a call makes a tab: that is no popup."""
        self.arrival: Arrival | None = None

    @classmethod
    async def start(cls, session: Guarded, page: Page) -> Guard:
        """Watch the context of this page from now on, until `end`."""
        browser = session.context.browser
        assert browser is not None, "a session's context is made by a browser"
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
        """Let go of other contexts' requests too: a session that nobody answers would hold them for ever.

        Raises playwright's `Error` when the browser is gone already.
        """
        await self._cdp.detach()

    # --- documents ------------------------------------------------------------------------------

    async def _paused(self, event: dict[str, Any]) -> None:
        """Decide about one document that a tab or a frame of any context asks for."""
        with suppress(Error):  # the tab was closed meanwhile, and the request with it
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
        """Say whether people allowed this address' host."""
        scope = scope_of(url)
        return scope != "" and not self._session.scopes.isdisjoint((scope, EVERY_SCOPE))

    async def _is_tab(self, frame: str) -> bool:
        """Say whether a frame is the main one of a tab of this context: only that has a target of this kind."""
        info = await self._target(frame)
        return info.get("type") == "page" and info.get("browserContextId") == self._context_id

    async def _target(self, frame: str) -> dict[str, Any]:
        try:
            return (await ask(self._cdp, "Target.getTargetInfo", {"targetId": frame}))["targetInfo"]
        except Error:  # a frame within a page has none
            return {}

    async def _close_if_empty(self, frame: str) -> None:
        """Close a popup that was opened only for the address that it was kept from."""
        info = await self._target(frame)
        tabs = len(self._session.context.pages)
        if info.get("openerId") and tabs > 1 and info.get("title", "") in {"", "about:blank"} and not info.get("url"):
            await ask(self._cdp, "Target.closeTarget", {"targetId": frame})

    # --- downloads ------------------------------------------------------------------------------

    async def refuse_downloads(self) -> None:
        """Stop every download before its first byte. Again is safe."""
        await ask(self._cdp, "Fetch.enable", {"patterns": [_ASKED]})
        await ask(self._cdp, "Browser.setDownloadBehavior", self._behavior("deny"))

    async def accept_download(self, arrival: Arrival, folder: Path) -> None:
        """Take one download into the folder, under a name of the browser's own, until `refuse_downloads`."""
        self.arrival = arrival
        await ask(self._cdp, "Fetch.enable", {"patterns": [_ASKED, _ANSWERED]})
        await ask(
            self._cdp, "Browser.setDownloadBehavior", self._behavior("allowAndName") | {"downloadPath": str(folder)}
        )

    def _behavior(self, name: str) -> dict[str, Any]:
        return {"behavior": name, "browserContextId": self._context_id, "eventsEnabled": True}

    async def cancel_download(self, guid: str) -> None:
        """Stop a download; its partial file is removed by the browser. One that has ended is left alone."""
        with suppress(Error):  # it has just ended
            await ask(self._cdp, "Browser.cancelDownload", {"guid": guid, "browserContextId": self._context_id})

    async def _answered(self, event: dict[str, Any]) -> None:
        """While a download is waited for: have what would be shown stored."""
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
        """Take the one that is waited for. The others of this context are denied, or stopped here."""
        arrival, url = self.arrival, str(event["url"])
        if arrival is None and not await self._is_tab(event["frameId"]):
            return  # a frame's, or another session's: denied as well
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
    """Return the headers of an answer so that a browser stores it; a name that it has is kept."""
    given = next((one["value"] for one in headers if one["name"].lower() == "content-disposition"), "")
    named = given.partition(";")[2]
    others = [one for one in headers if one["name"].lower() != "content-disposition"]
    return [*others, {"name": "Content-Disposition", "value": f"attachment;{named}" if named else "attachment"}]
