"""A real Chromium, and the page in it beside an engine that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, expect

from agent_tools import ask_user, todo_write
from gateway.domain.tools import Effect, Risk
from tests.conftest import no_tasks_left
from tests.support.browser import Person, chromium
from tests.support.engine import Served, served
from tests.support.fakes import FakeTool
from tests.support.makers import ANN
from tests.unit.gateway.toolcalls.subsession_rig import own_tool, spawning


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests: to start one takes a second and a half. Each test has a page, and cookies, of its own."""
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def no_task_is_left(browser: Browser) -> AsyncIterator[None]:
    """As everywhere, in the loop that these tests share; what the browser runs by is no test's."""
    async with no_tasks_left():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    """The page of an engine with a tool that is asked about."""
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    engine = spawning(tmp_path, [shell, *map(own_tool, (ask_user, todo_write))])
    engine.clock.advance((datetime.now(UTC) - engine.clock.now()).total_seconds())  # as in the browser
    async with served(engine) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def ann(page: Served, browser: Browser) -> AsyncIterator[Person]:
    """Ann at the page, in a browser of her own."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    person = Person(await context.new_page())
    await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
    await expect(person.page.get_by_test_id("composer")).to_be_visible()
    yield person
    await context.close()
    assert person.complaints == []
