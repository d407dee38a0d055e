"""Tabs, popups and dialogs: nothing of a page makes a session wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent_tools.browser.chromium import tidy
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


async def test_dialogs_ask_the_model_and_alerts_are_reported(desk: Desk) -> None:
    await desk.open("/dialogs")
    result = await desk.click("Ask")
    assert result.status is ResultStatus.OK
    assert result.text.startswith("The page shows a dialog (confirm) and waits: “sure?”.")
    assert "dialog (alert), which was dismissed: look here" in result.text
    result = await desk("dialog", submit=True)
    assert "dialog (prompt) and waits: “what?”" in result.text
    assert "true forty" in (await desk("dialog", submit=True, text="forty")).text
    assert "dismissed" not in (await desk("text")).text


@pytest.mark.parametrize("action", ["snapshot", "screenshot", "open", "tabs", "back"])
async def test_nothing_is_done_while_a_dialog_waits(desk: Desk, action: str) -> None:
    await desk.open("/dialogs")
    await desk.click("Ask")
    result = await desk(action, **({"url": f"{desk.pages.here}/plain"} if action == "open" else {}))
    assert (result.status, result.code) == (ResultStatus.ERROR, "dialog")
    assert "Nothing was done." in result.text
    assert "“sure?”" in result.text
    await desk("dialog", submit=False)
    assert "false null" in (await desk("dialog", submit=False)).text
    assert (await desk("dialog", submit=True)).text == "No dialog is open."


async def test_tabs_are_closed_while_a_dialog_waits(desk: Desk) -> None:
    await desk.open("/dialogs")
    await desk.click("Ask")
    started = time.monotonic()
    assert (await desk("close")).text == "All tabs are closed."
    assert time.monotonic() - started < 3
    assert "A plain page" in (await desk.open("/plain")).text


async def test_a_stopped_call_leaves_no_dialog_behind(desk: Desk) -> None:
    await desk.open("/dialogs")
    await desk.click("Ask")
    assert await tidy(desk.session)
    assert "false null" in (await desk("text")).text


async def test_dialogs_without_end(desk: Desk) -> None:
    await desk.open("/alerts")
    result = await desk.click("Ask for ever")
    assert "dialogs without end" in result.text
    await desk.open("/plain")


async def test_a_page_that_does_not_want_to_be_left(desk: Desk) -> None:
    await desk.open("/stays")
    await desk.click("Touch")
    assert "whether to leave it" in (await desk.open("/plain")).text
    assert "Touch" in (await desk("dialog", submit=False)).text
    assert "whether to leave it" in (await desk.open("/plain")).text
    assert "A plain page" in (await desk("dialog", submit=True)).text
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
