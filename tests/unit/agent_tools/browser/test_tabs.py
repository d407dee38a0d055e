"""Tabs, popups and dialogs: nothing of a page makes a session wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent_tools.browser.chromium import tidy
from gateway.domain.tools import ResultStatus
from tests.support.proof import figure
from tests.unit.agent_tools.browser.conftest import Rig

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for minutes; test_10_browser, test_guard and test_browser_reach stay"),
]


async def test_a_popup_becomes_a_tab(rig: Rig) -> None:
    await rig.open("/popup")
    result = await rig.click("Open one")
    assert "Note: The page opened tab 2. Go there with `tabs`." in result.text
    listed = (await rig("tabs")).text.split("\n")
    assert listed == [f"* 1  Popup  {rig.pages.here}/popup", f"  2  Other  {rig.pages.here}/other"]
    assert "The other page" in (await rig("tabs", tab=2)).text
    assert (await rig("close", tab=2)).text == "Tab 2 is closed."
    assert rig.url.endswith("/popup")
    assert (await rig("tabs", tab=2)).code == "tab"


async def test_more_popups_than_a_session_may_have(rig: Rig) -> None:
    await rig.open("/popups")
    started = time.monotonic()
    result = await rig.click("Open many")
    assert "more tabs than the 10" in result.text
    assert time.monotonic() - started < 25
    # A popup is there before it can be closed: the last of the hundred may still be on their way out.
    for _ in range(200):
        if len(rig.session.context.pages) <= 11:
            break
        await asyncio.sleep(0.05)
    figure("F24", "tabs of a page that opens them without end", len(rig.session.context.pages), 11)
    assert (await rig("close")).text.startswith("All tabs are closed.")
    await rig.open("/plain")


async def test_dialogs_ask_the_model_and_alerts_are_reported(rig: Rig) -> None:
    await rig.open("/dialogs")
    result = await rig.click("Ask")
    assert result.status is ResultStatus.OK
    assert result.text.startswith("The page shows a dialog (confirm) and waits: “sure?”.")
    assert "dialog (alert), which was dismissed: look here" in result.text
    result = await rig("dialog", submit=True)
    assert "dialog (prompt) and waits: “what?”" in result.text
    assert "true forty" in (await rig("dialog", submit=True, text="forty")).text
    assert "dismissed" not in (await rig("text")).text


@pytest.mark.parametrize("action", ["snapshot", "screenshot", "open", "tabs", "back"])
async def test_nothing_is_done_while_a_dialog_waits(rig: Rig, action: str) -> None:
    await rig.open("/dialogs")
    await rig.click("Ask")
    result = await rig(action, **({"url": f"{rig.pages.here}/plain"} if action == "open" else {}))
    assert (result.status, result.code) == (ResultStatus.ERROR, "dialog")
    assert "Nothing was done." in result.text
    assert "“sure?”" in result.text
    await rig("dialog", submit=False)
    assert "false null" in (await rig("dialog", submit=False)).text
    assert (await rig("dialog", submit=True)).text == "No dialog is open."


async def test_tabs_are_closed_while_a_dialog_waits(rig: Rig) -> None:
    await rig.open("/dialogs")
    await rig.click("Ask")
    started = time.monotonic()
    assert (await rig("close")).text == "All tabs are closed."
    assert time.monotonic() - started < 3
    assert "A plain page" in (await rig.open("/plain")).text


async def test_a_stopped_call_leaves_no_dialog_behind(rig: Rig) -> None:
    await rig.open("/dialogs")
    await rig.click("Ask")
    assert await tidy(rig.session)
    assert "false null" in (await rig("text")).text


async def test_dialogs_without_end(rig: Rig) -> None:
    await rig.open("/alerts")
    result = await rig.click("Ask for ever")
    assert "dialogs without end" in result.text
    await rig.open("/plain")


async def test_a_page_that_does_not_want_to_be_left(rig: Rig) -> None:
    await rig.open("/stays")
    await rig.click("Touch")
    assert "whether to leave it" in (await rig.open("/plain")).text
    assert "Touch" in (await rig("dialog", submit=False)).text
    assert "whether to leave it" in (await rig.open("/plain")).text
    assert "A plain page" in (await rig("dialog", submit=True)).text
    await rig.open("/stays")
    await rig.click("Touch")
    started = time.monotonic()
    assert (await rig("close")).text == "All tabs are closed."
    assert time.monotonic() - started < 3


async def test_a_download_that_nobody_asked_for(rig: Rig) -> None:
    await rig.open("/files")
    result = await rig.click("The file")
    assert f"A download from {rig.pages.here}/file began and was stopped. Use `download` for it." in result.text
    result = await rig("open", url=f"{rig.pages.here}/file")
    assert (result.code, result.hint) == ("file", "Use `download` with the address.")
    assert not list(rig.session.folder.iterdir())
