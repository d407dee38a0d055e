"""A real Chromium with the web page in it, as a person uses it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, async_playwright, expect

from agent_tools.browser.chromium import starter
from agent_tools.browser.page_queries import teach
from tests.support.daemon import Daemon
from tests.support.patience import PATIENCE_S

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = (390, 844)
DESKTOP = (1280, 800)
SHOTS = os.environ.get("DRAGOMAN_SHOTS", "")
"""A folder: when it is set, `shot` keeps what the pages look like."""


def executable() -> str | None:
    """The Chromium to start; None leaves it to playwright, which may have its own."""
    named = os.environ.get("DRAGOMAN_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    """A headless browser that reaches nothing but what a test opens."""
    async with AsyncExitStack() as stack:
        playwright = await stack.enter_async_context(async_playwright())
        await teach(playwright)
        expect.set_options(timeout=PATIENCE_S * 1000)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        program = executable()
        browser = await playwright.chromium.launch(
            executable_path=program and starter(folder / "start", Path(program)),
            # Chromium's own sandbox refuses to run as root, which tests in a container often are.
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
        )
        stack.push_async_callback(browser.close)
        yield browser


class Person:
    """Somebody at the page."""

    def __init__(self, page: Page) -> None:
        """Watch the page's console: what the strict policy forbids shows there."""
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "401" not in message.text:
            self.complaints.append(message.text)

    async def say(self, text: str) -> None:
        """Write and send a message."""
        await self.page.get_by_test_id("composer").fill(text)
        await self.page.get_by_test_id("composer").press("Enter")

    def card(self) -> Locator:
        """The newest card that still has buttons."""
        return self.page.get_by_test_id("card").filter(has=self.page.get_by_test_id("card-button")).last

    async def press(self, verb: str) -> None:
        """Press a button of the newest open card."""
        await self.card().locator(f"[data-testid=card-button][data-verb={verb}]").click()

    async def sees(self, text: str, within_s: float = PATIENCE_S) -> None:
        """Wait until a text is on the page."""
        await expect(self.page.get_by_text(text).first).to_be_visible(timeout=within_s * 1000)

    async def shot(self, name: str) -> None:
        """Keep what the page looks like, when a folder for that is named."""
        if SHOTS:
            await self.page.screenshot(path=Path(SHOTS) / f"{name}.png")


async def sign_in(context: BrowserContext, daemon: Daemon, *owner: str) -> Person:
    """Open a fresh sign-in link in a browser."""
    person = Person(await context.new_page())
    await person.page.goto(await daemon.link(*owner))
    await expect(person.page.get_by_test_id("composer")).to_be_visible(timeout=PATIENCE_S * 1000)
    return person


@asynccontextmanager
async def at_the_page(
    daemon: Daemon, *owner: str, size: tuple[int, int] = DESKTOP, dark: bool = False
) -> AsyncGenerator[Person]:
    """An owner at the page in a browser of their own; fails when the browser's console complained."""
    async with chromium() as browser:
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        person = await sign_in(context, daemon, *owner)
        yield person
        assert person.complaints == []
