"""First: the daemon starts with nothing configured, and its owner signs in with a link that works once."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import expect

from tests.support.browser import at_the_page, chromium, sign_in
from tests.support.daemon import Daemon, running


async def test_the_link_signs_in_and_leaves_no_trace_in_the_address(tmp_path: Path) -> None:
    """The code stands in the fragment, which browsers never send, and the page erases it at once.

    This daemon, and the command that makes the link, start as people start them.
    """
    async with running(tmp_path, warm=False) as daemon, at_the_page(daemon) as owner:
        assert "code=" not in owner.page.url


@pytest.mark.whole("a browser for a second; the answer without a model has a test of its own")
async def test_plain_text_is_answered_with_how_to_attach_a_model(daemon: Daemon) -> None:
    """No model is configured: the answer says so, and what to write into the configuration."""
    async with at_the_page(daemon) as owner:
        await owner.say("Which kernel is this?")
        await owner.sees("No model is attached")
        await owner.sees("openai:gpt-5-mini")
        await owner.shot("01-no-model")


@pytest.mark.whole("the contract suite redeems a code twice")
async def test_a_link_works_once(daemon: Daemon) -> None:
    """A later visitor of the same link reads how to get a new one."""
    async with chromium() as browser:
        link = await daemon.link()
        first = await browser.new_context()
        page = await first.new_page()
        await page.goto(link)
        await expect(page.get_by_test_id("composer")).to_be_visible()
        second = await browser.new_context()
        late = await second.new_page()
        await late.goto(link)
        await expect(late.get_by_test_id("signin")).to_contain_text("dragoman link")


async def test_the_cookie_outlives_a_restart(daemon: Daemon) -> None:
    """A signed-in owner stays signed in when the daemon is started again."""
    async with chromium() as browser:
        context = await browser.new_context()
        owner = await sign_in(context, daemon)
        await daemon.stop()
        await daemon.start()
        await owner.say("/status")
        await owner.sees("This session")


async def test_nobody_gets_in_without_a_cookie(daemon: Daemon) -> None:
    """The socket, and everything behind it, demands a sign-in."""
    async with aiohttp.ClientSession(headers={"Origin": daemon.url}) as client:
        async with client.get(f"{daemon.url}/ws") as response:
            assert response.status == 401
        async with client.get(f"{daemon.url}/api/me") as response:
            assert "dragoman link" in (await response.json())["error"]
