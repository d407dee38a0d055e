"""Tabs, popups and dialogs: nothing of a page makes a session wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.domain.tools import ResultStatus
from tests.support.proof import figure
from tests.unit.agent_tools.browser.conftest import Desk

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for minutes; test_10_browser, test_guard and test_browser_reach stay"),
]


async def test_a_popup_becomes_a_tab(desk: Desk) -> None:
    await desk.open("/popup")
    result = await desk.click("Open one")
    assert "Note: The page opened tab 2. Go there with `tabs`." in result.text
    listed = (await desk("tabs")).text.split("\n")
    assert listed == [f"* 1  Popup  {desk.pages.here}/popup", f"  2  Other  {desk.pages.here}/other"]
    assert "The other page" in (await desk("tabs", tab=2)).text
    assert (await desk("close", tab=2)).text == "Tab 2 is closed."
    assert desk.url.endswith("/popup")
    assert (await desk("tabs", tab=2)).code == "tab"


async def test_more_popups_than_a_session_may_have(desk: Desk) -> None:
    await desk.open("/popups")
    started = time.monotonic()
    result = await desk.click("Open many")
    assert "more tabs than the 10" in result.text
    assert time.monotonic() - started < 25
    # A popup is there before it can be closed: the last of the hundred may still be on their way out.
    for _ in range(200):
        if len(desk.session.context.pages) <= 11:
            break
        await asyncio.sleep(0.05)
    figure("F24", "tabs of a page that opens them without end", len(desk.session.context.pages), 11)
    assert (await desk("close")).text.startswith("All tabs are closed.")
    await desk.open("/plain")


async def test_dialogs_are_dismissed_and_told(desk: Desk) -> None:
    await desk.open("/dialogs")
    result = await desk.click("Ask")
    assert result.status is ResultStatus.OK
    assert "false null" in result.text
    assert "dialog (alert), which was dismissed: look here\n" in result.text
    assert "dialog (prompt), which was dismissed: what?" in result.text
    assert "dismissed" not in (await desk("text")).text


async def test_dialogs_without_end(desk: Desk) -> None:
    await desk.open("/alerts")
    result = await desk.click("Ask for ever")
    assert "dialogs without end" in result.text
    await desk.open("/plain")


async def test_a_page_that_does_not_want_to_be_left(desk: Desk) -> None:
    await desk.open("/stays")
    await desk.click("Touch")
    assert "A plain page" in (await desk.open("/plain")).text
    await desk.open("/stays")
    await desk.click("Touch")
    started = time.monotonic()
    assert (await desk("close")).text == "All tabs are closed."
    assert time.monotonic() - started < 3


async def test_a_download_that_nobody_asked_for(desk: Desk) -> None:
    await desk.open("/files")
    result = await desk.click("The file")
    assert f"A download from {desk.pages.here}/file began and was stopped. Use `download` for it." in result.text
    result = await desk("open", url=f"{desk.pages.here}/file")
    assert (result.code, result.hint) == ("file", "Use `download` with the address.")
    assert not list(desk.session.folder.iterdir())
