"""Third: the daemon is killed at any moment and started again. Nothing is lost, nothing runs twice."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.support.browser import at_the_page
from tests.support.daemon import Daemon, page_of


async def test_the_waiting_button_still_works_once(daemon: Daemon) -> None:
    """Killed while a card waits: the same page comes back by itself, and the same button runs it, once."""
    async with at_the_page(daemon) as owner:
        await owner.say("/shell echo survived | tee -a proof")
        await expect(owner.card()).to_contain_text("survived")
        await daemon.kill()
        await expect(owner.page.get_by_test_id("connection")).to_be_visible()
        await owner.shot("03-offline")
        await daemon.start()
        await owner.press("once")
        await owner.sees("exit 0")
        [proof] = daemon.state.rglob("proof")
        assert proof.read_text() == "survived\n"
        owner.complaints = [one for one in owner.complaints if "WebSocket" not in one and "ERR_" not in one]


@pytest.mark.whole("a browser for a second; test_line has the page while the daemon stops")
async def test_message_written_during_a_downtime_arrives_once(daemon: Daemon) -> None:
    """A message sent to a dead daemon waits in the page and is taken once when it is back."""
    async with at_the_page(daemon) as owner:
        await daemon.kill()
        await expect(owner.page.get_by_test_id("connection")).to_be_visible()
        await owner.say("/status")
        await daemon.start()
        await owner.sees("This session")
        await expect(owner.page.get_by_test_id("message")).to_have_count(1)
        owner.complaints = [one for one in owner.complaints if "WebSocket" not in one and "ERR_" not in one]


@pytest.mark.whole("the contract suite accepts a message twice")
async def test_the_same_message_sent_twice_is_one(daemon: Daemon) -> None:
    """A page that did not see the acknowledgement sends the same id again; it counts once."""
    async with page_of(daemon) as page:
        for _ in range(3):
            assert (await page.say("/status", id="the-same-id"))["ok"]
        await page.until_row("slot", lambda row: row["kind"] == "reply")
        assert sum(1 for row in page.rows.values() if row["type"] == "message") == 1


async def test_a_command_cut_by_a_kill_is_not_run_again(daemon: Daemon) -> None:
    """Killed while a command runs: its processes are gone, and the result says that the outcome is unknown."""
    async with page_of(daemon) as page:
        await page.say("/shell echo ran >> runs; sleep 1000")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "started")
        while not [path for path in daemon.state.rglob("runs") if path.read_text()]:
            await page.say("/help")
        await daemon.kill()
    await daemon.start()
    async with page_of(daemon) as page:
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert step["result"]["status"] == "unknown"
        [runs] = daemon.state.rglob("runs")
        assert runs.read_text() == "ran\n"


@pytest.mark.whole("test_shutdown stays")
async def test_shutdown_cancels_what_runs_and_says_so(daemon: Daemon) -> None:
    """SIGTERM: the command is killed, the daemon ends within ten seconds, and the result tells it."""
    async with page_of(daemon) as page:
        await page.say("/shell env echo begun; sleep 1000")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        await page.until_frame(lambda frame: frame["op"] == "output" and "begun" in frame["text"])
        assert await daemon.stop(within_s=10) == 0
    await daemon.start()
    async with page_of(daemon) as page:
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert (step["result"]["status"], step["result"]["code"]) == ("cancelled", "shutdown")
        await page.until_row("turn", lambda row: row["state"] == "done")
