"""The keyboard: input methods compose in peace, and one-letter keys can be switched off."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.browser import Person
from tests.support.engine import Served
from tests.support.fakes import ANN_PAGE, calls

pytestmark = pytest.mark.asyncio(loop_scope="session")
COMPOSED = [{"isComposing": True}, {"keyCode": 229}]
"""Marks of a key that belongs to an input method: the standard's, and Safari's, whose Enter ends it first."""
KEY = """(target, event) => !target.dispatchEvent(
    new KeyboardEvent("keydown", {bubbles: true, cancelable: true, ...event}))"""
"""Press a key as an input method does; tell whether the page took it."""


@pytest.mark.parametrize("composed", COMPOSED, ids=["standard", "safari"])
@pytest.mark.sampled(1)
async def test_enter_in_a_composition_sends_nothing(ann: Person, composed: dict[str, object]) -> None:
    composer = ann.page.get_by_test_id("composer")
    await composer.fill("にほ")
    assert not await composer.evaluate(KEY, {"key": "Enter", **composed})
    await expect(composer).to_have_value("にほ")
    await composer.fill("日本")
    await composer.press("Enter")
    await ann.sees("日本")
    await expect(ann.page.get_by_text("にほ")).to_have_count(0)


@pytest.mark.parametrize("composed", COMPOSED, ids=["standard", "safari"])
@pytest.mark.whole("a page for a second; Enter in a composition stays")
async def test_a_composition_keeps_the_keys_of_a_card(page: Served, ann: Person, composed: dict[str, object]) -> None:
    """Escape ends the composition, and not the reason that is being written."""
    page.engine.model.script = [calls("shell:uptime")]
    await page.engine.say("Look", where=ANN_PAGE)
    await page.engine.run(await page.engine.claim())
    await ann.press("deny_reason")
    reason = ann.page.get_by_test_id("card-reason")
    await reason.fill("いま")
    assert not await reason.evaluate(KEY, {"key": "Escape", **composed})
    assert not await ann.page.locator("body").evaluate(KEY, {"key": "?", **composed})
    await expect(reason).to_have_value("いま")
    await expect(ann.page.get_by_role("dialog")).to_have_count(0)


REOPEN = """dialog => {
    const how = {bubbles: true, cancelable: true};
    const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, ...how}));
    new MutationObserver((_, observer) => { observer.disconnect(); press("?"); }).observe(dialog, {attributes: true});
    press("Escape");
}"""
"""Press `?` again between the closing of the help and its `close` event."""


@pytest.mark.whole("a page for a second; that the help opens and closes stays, where keys are switched off")
async def test_help_opens_again_at_once(ann: Person) -> None:
    await ann.page.get_by_role("button", name="Keyboard help").click()
    dialog = ann.page.locator("dialog.help")
    await expect(dialog).to_be_visible()
    await dialog.evaluate(REOPEN)
    await expect(dialog).to_have_attribute("open", "")
    await ann.page.wait_for_timeout(300)
    await expect(dialog).to_be_visible()
    await ann.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def switch(page: Page, state: str) -> None:
    """Turn one-letter keys on or off in the help, and close it."""
    await page.get_by_role("button", name="Keyboard help").click()
    dialog = page.get_by_role("dialog")
    keys = dialog.get_by_role("switch", name="One-letter keys")
    await keys.click()
    await expect(keys).to_be_checked(checked=state == "on")
    await expect(dialog.get_by_role("status")).to_contain_text(f"One-letter keys are {state}")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_one_letter_keys_can_be_switched_off(page: Served, ann: Person) -> None:
    """The choice is kept in this browser; no hint names a key that does nothing."""
    page.engine.model.script = [calls("shell:uptime")]
    await page.engine.say("Look", where=ANN_PAGE)
    await page.engine.run(await page.engine.claim())
    place, composer = ann.page, ann.page.get_by_test_id("composer")
    chip = place.locator(".waiting-chip")
    await expect(chip.locator("kbd")).to_be_visible()
    await switch(place, "off")
    for _ in range(2):
        await expect(chip.locator("kbd")).to_be_hidden()
        await ann.card().focus()
        for key in ["?", "/", "j", "i", "a", ".", "3"]:
            await place.keyboard.press(key)
        await expect(ann.card()).to_be_focused()
        await expect(ann.card().get_by_test_id("card-button").first).not_to_have_attribute("aria-keyshortcuts", "1")
        await expect(place.get_by_role("dialog")).to_have_count(0)
        await expect(place.get_by_test_id("card-reason")).to_have_count(0)
        await composer.press("/")
        await expect(place.get_by_role("listbox")).to_be_visible()
        await composer.fill("")
        await place.reload()
    await switch(place, "on")
    await expect(chip.locator("kbd")).to_be_visible()
    await place.keyboard.press("?")
    await expect(place.get_by_role("dialog")).to_be_visible()
