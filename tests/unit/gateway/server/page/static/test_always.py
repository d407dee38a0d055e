"""The second question on the page: asked in place, with the buttons that belong to it, and taken back."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gateway.domain.ids import SessionId
from tests.support.browser import Person
from tests.support.engine import Served
from tests.support.fakes import ANN_PAGE, calls

pytestmark = pytest.mark.asyncio(loop_scope="session")
SETTLED_MS = 500
"""Buttons that have just moved ignore the pointer for 400 ms."""


async def test_always_asks_in_place_and_back_takes_it_back(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    engine.model.script = [calls("shell:git push")]
    await engine.say("Publish it", where=ANN_PAGE)
    await engine.run(await engine.claim())
    buttons = ann.card().get_by_test_id("card-button")
    question = place.get_by_test_id("card-question")

    await expect(buttons).to_have_text(["Once1", "Always…2", "Deny3", "Deny with reason4"])
    await expect(question).to_have_count(0)
    await ann.press("always")
    await expect(question).to_contain_text("Always allow “shell git push” for 30 days?")
    await expect(buttons).to_have_text(["Just once1", "Back2", "In this chat3", "In this session4"])
    await ann.shot("always")
    await place.wait_for_timeout(SETTLED_MS)
    await ann.press("back")
    await expect(buttons).to_have_text(["Once1", "Always…2", "Deny3", "Deny with reason4"])
    await place.wait_for_timeout(SETTLED_MS)
    await ann.press("always")
    await expect(question).to_have_count(1)
    await place.wait_for_timeout(SETTLED_MS)
    await ann.press("grant_session")
    await expect(place.locator(".decided .outcome")).to_contain_text("ann allowed always in this session")
    (grant,) = await engine.store.live_grants()
    assert grant.session == SessionId("main:ann")
