"""Loading of the page: its waves of requests, and what it does when a file is gone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from gateway.server.page.assets import Assets
from tests.support.engine import Served
from tests.support.makers import ANN

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for seconds; test_page, test_line and test_keys stay"),
]
QUIET_S = 0.4
"""A browser that has asked for nothing so long waits for answers."""
OTHER = "0123456789abcdef"
"""A version that the page never had."""


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[Page]:
    """An empty page in a browser that has loaded nothing yet."""
    context = await browser.new_context()
    yield await context.new_page()
    await context.close()


async def waves_of(tab: Page, url: str) -> list[list[str]]:
    """Load a page, and answer its requests only when it makes no more; return the paths of each wave."""
    asked: list[Route] = []

    async def hold(route: Route) -> None:
        asked.append(route)

    await tab.route("**", hold)
    await tab.evaluate("url => { setTimeout(() => { location = url }) }", url)
    waves: list[list[str]] = []
    while True:
        before = -1
        while before != len(asked):
            before = len(asked)
            await asyncio.sleep(QUIET_S)
        if not asked:
            return waves
        wave, asked[:] = asked[:], []
        waves.append([route.request.url.removeprefix(url) for route in wave])
        for route in wave:
            await route.continue_()


async def test_all_files_of_the_page_come_in_its_second_wave(page: Served, tab: Page) -> None:
    waves = await waves_of(tab, f"{page.url}/")
    first, files, *rest = waves
    assert first == [""]
    assert [path for path in files if not path.startswith("static/")] == []
    assert {path.split("/", 2)[2] for path in files} >= {*Assets().imports, "theme.js", "app.css"}
    later = [path for wave in rest for path in wave if path.startswith("static/")]
    assert [path for path in later if not path.endswith("/icon.svg")] == []  # nothing waits for that picture
    await expect(tab.get_by_test_id("signin")).to_be_visible()


async def makes_stale(tab: Page, url: str, files: str, times: int) -> None:
    """Give the page of an earlier version, so often: it names files of that version."""
    left = [times]

    async def serve(route: Route) -> None:
        if not left[0] or not route.request.is_navigation_request():
            await route.continue_()
            return
        left[0] -= 1
        answer = await route.fetch()
        body = re.sub(rf"/static/[0-9a-f]{{16}}/({files})", rf"/static/{OTHER}/\1", await answer.text())
        await route.fulfill(response=answer, body=body)

    await tab.route(f"{url}/", serve)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "files", ["", r"views/card\.js", r"app\.js", r"chat\.css"], ids=["all", "deep", "entry", "style"]
)
async def test_a_page_of_an_older_version_reloads_itself(page: Served, tab: Page, files: str) -> None:
    """A reload keeps the code of a sign-in link, which works once."""
    await makes_stale(tab, page.url, files, times=1)
    await tab.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
    await expect(tab.get_by_test_id("composer")).to_be_visible()


async def test_a_page_that_stays_old_offers_to_reload(page: Served, tab: Page) -> None:
    """It loads itself anew once, and then leaves that to the person."""
    await makes_stale(tab, page.url, "", times=2)
    await tab.goto(page.url)
    button = tab.get_by_role("button", name="Reload the page")
    await expect(button).to_be_visible()
    await expect(tab.get_by_role("alert")).to_contain_text("Dragoman was updated")
    await button.click()
    await expect(tab.get_by_test_id("signin")).to_be_visible()
