"""Second: a command is written, a card asks, a button decides, and only then it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support.browser import PHONE, at_the_page, chromium, sign_in
from tests.support.daemon import Daemon, page_of, running


async def test_once_runs_it_and_the_output_is_read(daemon: Daemon) -> None:
    """A command that writes: a card with its parts and their verdicts, Once, the output."""
    async with at_the_page(daemon) as owner:
        await owner.say("/shell uname -a > kernel.txt; cat kernel.txt")
        await expect(owner.card()).to_contain_text("uname -a > kernel.txt")
        await expect(owner.card()).to_contain_text("> kernel.txt · writes")
        await expect(owner.card()).to_contain_text("cat kernel.txt · reads only")
        await owner.shot("02-card")
        await owner.press("once")
        await owner.sees("Linux")
        await owner.sees("allowed once")
        await owner.shot("02-output")


async def test_a_command_that_only_reads_runs_at_once(daemon: Daemon) -> None:
    """`/shell uname -s`: no card, the output is the answer. In its sandbox it has no network."""
    async with page_of(daemon) as page:
        await page.say("/shell uname -s")
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert (step["result"]["status"], step["result"]["text"]) == ("ok", "Linux\n")


@pytest.mark.whole("the same path; the command that runs once stays")
async def test_a_denial_runs_nothing(daemon: Daemon) -> None:
    """Deny: nothing was run, and the answer says so."""
    async with page_of(daemon) as page:
        await page.say("/shell touch should-not-exist")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        assert (await page.press(page.button(asked, "deny")))["result"] == "denied"
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert step["result"]["status"] == "denied"
        assert list(daemon.state.rglob("should-not-exist")) == []


@pytest.mark.whole("a browser for a second; reasons on Telegram and Slack stay")
async def test_a_reason_is_told(daemon: Daemon) -> None:
    """Deny with reason: what the person writes is in the result."""
    async with at_the_page(daemon, size=PHONE) as owner:
        await owner.say("/shell reboot")
        await owner.press("deny_reason")
        await owner.page.get_by_test_id("card-reason").fill("not during the day")
        await owner.page.get_by_test_id("card-reason").press("Enter")
        await owner.sees("not during the day")
        await owner.shot("02-reason-phone")


@pytest.mark.whole("two browsers; a decision is shown wherever its card is: the contract of channels")
async def test_a_second_page_is_live_and_can_press(daemon: Daemon) -> None:
    """Two browsers show the same session; the second presses what the first asked for, and both see it."""
    async with chromium() as browser:
        first = await sign_in(await browser.new_context(), daemon)
        second = await sign_in(await browser.new_context(color_scheme="dark"), daemon)
        await first.say("/shell env echo from-the-first; sleep 0.2; echo live")
        await expect(second.card()).to_contain_text("from-the-first")
        await second.press("once")
        await first.sees("live")
        await second.sees("live")
        await expect(first.page.get_by_test_id("card-button")).to_have_count(0)
        await second.shot("02-second-page-dark")


@pytest.mark.whole("the same path; the command that runs once stays")
async def test_a_command_that_writes_a_huge_file_is_stopped(tmp_path: Path) -> None:
    """The result names the limit and its setting; the file ends there."""
    async with running(tmp_path, "[sandbox]\nfile_mb = 3\nmemory_mb = 300\n") as daemon, page_of(daemon) as page:
        await page.say("/shell ulimit -d; exec head -c 9000000 /dev/zero > huge")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert "307200\n" in step["result"]["text"]
        assert "[a file reached the limit of 3 MB: [sandbox] file_mb]" in step["result"]["text"]
        [huge] = daemon.state.rglob("huge")
        assert huge.stat().st_size == 3 * 1024 * 1024


@pytest.mark.whole("the same path; the command that runs once stays")
async def test_a_press_counts_once_whoever_presses(daemon: Daemon) -> None:
    """The same button on two pages: one wins, the other is told."""
    async with page_of(daemon) as first, page_of(daemon) as second:
        await first.say("/shell echo once >> counter")
        asked = await first.until_row("approval", lambda row: row["state"] == "open")
        assert (await first.press(first.button(asked, "once")))["result"] == "approved"
        assert (await second.press(first.button(asked, "once")))["result"] == "already"
        await first.until_row("turn", lambda row: row["state"] == "done")
        [counter] = daemon.state.rglob("counter")
        assert counter.read_text() == "once\n"


async def test_a_forged_button_does_nothing(daemon: Daemon) -> None:
    """A handle with one character changed is not valid, and the card stays open."""
    async with page_of(daemon) as page:
        await page.say("/shell env echo forged")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        handle = page.button(asked, "once")
        forged = handle[:-1] + ("A" if handle[-1] != "A" else "B")
        assert (await page.press(forged))["result"] == "not_valid"
        assert (await page.press(page.button(asked, "deny") + "x"))["result"] == "not_valid"
        assert (await page.press(handle))["result"] == "approved"


@pytest.mark.whole("the same path; the command that runs once stays")
async def test_long_output_is_kept_whole_in_a_file(daemon: Daemon) -> None:
    """Head and tail are shown; everything can be opened from the page."""
    async with page_of(daemon) as page:
        await page.say("/shell env seq 1 100000")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        result = step["result"]
        assert result["text"].startswith("1\n2\n")
        assert result["text"].rstrip().endswith("100000")
        assert result["dropped_bytes"] > 400_000
        async with page.client.get(f"{daemon.url}{result['full']}") as response:
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert await response.text() == "".join(f"{n}\n" for n in range(1, 100001))


async def test_stop_ends_a_running_command_and_keeps_what_it_printed(daemon: Daemon) -> None:
    """/stop: the process is gone within a second, its partial output stays."""
    async with page_of(daemon) as page:
        await page.say("/shell env echo begun; sleep 1000")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        await page.until_frame(lambda frame: frame["op"] == "output" and "begun" in frame["text"])
        await page.say("/stop")
        await page.until_row("turn", lambda row: row["state"] == "stopped", within_s=2)
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert (step["result"]["status"], step["result"]["text"]) == ("cancelled", "begun\n")


@pytest.mark.whole("waits 8 s; the timeouts of the shell have tests of their own")
async def test_a_timeout_ends_it_too(daemon: Daemon) -> None:
    """A call past its limit is stopped; the result says so and keeps the output."""
    daemon.config = "[tools.shell]\ntimeout = 1\n"
    await daemon.stop()
    await daemon.start()
    async with page_of(daemon) as page:
        await page.say("/shell env echo begun; sleep 1000")
        asked = await page.until_row("approval", lambda row: row["state"] == "open")
        await page.press(page.button(asked, "once"))
        step = await page.until_row("step", lambda row: row["kind"] == "tool" and row["state"] == "finished")
        assert (step["result"]["status"], step["result"]["text"]) == ("timeout", "begun\n")
