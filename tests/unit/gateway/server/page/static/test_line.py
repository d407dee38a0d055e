"""The page where the line, the storage or the sign-in is not as it should be: nothing is lost, doubled or another's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, WebSocket, expect

from gateway.domain.ids import OwnerName, main_session
from gateway.domain.messages import Received
from tests.support.browser import Person
from tests.support.engine import Engine, Served
from tests.support.fakes import CLEO, in_background
from tests.support.makers import ANN

pytestmark = pytest.mark.asyncio(loop_scope="session")
SWALLOW = "() => { window.send = WebSocket.prototype.send; WebSocket.prototype.send = () => {}; }"
"""From now on nothing arrives, and nobody says so: as with a server that is stopped, or a line that was cut."""
CARRY = "() => { WebSocket.prototype.send = window.send; }"
"""Until now."""
HANG = """() => {
    const real = fetch;
    window.answers = [];
    window.fetch = (url, asked) => url !== "/api/me" ? real(url, asked) : new Promise((answer, fail) => {
        window.answers.push(() => answer(real(url, {headers: asked.headers})));
        asked.signal?.addEventListener("abort", () => fail(asked.signal.reason)); }); }"""
"""From now on the question who is signed in is answered when the test says so."""
HURRY = """() => {
    const real = AbortSignal.timeout;
    AbortSignal.timeout = ms => real.call(AbortSignal, ms / 50); }"""
"""From now on what is given up after ten seconds is given up at once."""
DROP = "() => dispatchEvent(new Event('offline')) && undefined"
"""Event of a browser whose network goes."""
FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }"
FORBIDDEN = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError') }})"


@pytest_asyncio.fixture(loop_scope="session")
async def tab(page: Served, ann: Person) -> AsyncIterator[Person]:
    """Another tab of Ann's browser."""
    person = Person(await ann.page.context.new_page())
    await person.page.goto(page.url)
    await expect(person.page.get_by_test_id("composer")).to_be_visible()
    yield person
    assert person.complaints == []


async def said(engine: Engine, owner: OwnerName = ANN) -> list[str]:
    """The messages of an owner's main session, sorted."""
    rows = await engine.store.older(main_session(owner), None, 100)
    return sorted(row.item.message.text for row in rows.rows if isinstance(row.item, Received))


async def goes_offline(*people: Person) -> None:
    """Take the network from their browser."""
    await people[0].page.context.set_offline(True)
    for one in people:
        await one.sees("Not connected")


async def comes_back(*people: Person) -> None:
    """Give it back; that the browser complained meanwhile was to be expected."""
    await people[0].page.context.set_offline(False)
    for one in people:
        await expect(one.page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        one.complaints.clear()


def sockets(place: Page) -> list[WebSocket]:
    """The connections that a page makes from now on."""
    found: list[WebSocket] = []
    place.on("websocket", lambda made: found.append(made))
    return found


# --- what waits to be sent ------------------------------------------------------------------------


async def test_text_too_long_for_the_server_is_refused_in_the_page(ann: Person) -> None:
    made, composer = sockets(ann.page), ann.page.get_by_test_id("composer")
    log = "\x01" * 180_000  # six bytes each on the wire: a megabyte, of which a browser draws a sixth
    await composer.evaluate(
        "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})); }", log
    )
    await composer.press("Enter")
    await ann.sees("Not sent. It is too long for one message. Send it in parts.")
    assert made == []  # the server ends the connection for such a message

    await composer.fill("meanwhile")
    await ann.page.get_by_role("button", name="Edit").click()
    await expect(ann.page.locator("[data-pending]")).to_have_count(0)
    assert await composer.input_value() == f"{log}\n\nmeanwhile"


async def test_text_of_one_person_is_not_sent_by_the_next_to_sign_in(page: Served, ann: Person) -> None:
    place = ann.page
    await goes_offline(ann)
    await ann.say("of Ann, for Ann")
    await place.context.clear_cookies()
    await place.context.set_offline(False)
    await ann.sees("Your sign-in has ended.")  # after a pause that grows with each try
    ann.complaints.clear()

    await place.evaluate(f"location.hash = 'code={await page.web_access.mint_code(CLEO)}'")
    await ann.say("of Cleo")
    await expect(place.locator("[data-pending]")).to_have_count(0)
    assert await said(page.engine, CLEO) == ["of Cleo"]

    await place.evaluate(f"location.hash = 'code={await page.web_access.mint_code(ANN)}'")
    await ann.sees("of Ann, for Ann")
    await expect(place.locator("[data-pending]")).to_have_count(0)
    assert await said(page.engine) == ["of Ann, for Ann"]


@pytest.mark.whole("a page for a second; other tests of the line to the daemon stay")
async def test_two_tabs_keep_what_is_written_in_each(page: Served, ann: Person, tab: Person) -> None:
    await ann.page.get_by_test_id("composer").fill("long, and dear to Ann")
    await tab.say("at once")
    await expect(tab.page.locator("[data-pending]")).to_have_count(0)
    await ann.page.reload()
    await expect(ann.page.get_by_test_id("composer")).to_have_value("long, and dear to Ann")

    await goes_offline(ann, tab)
    await ann.say("from one")
    await tab.say("from the other")
    await ann.page.close()
    ann.complaints.clear()
    await comes_back(tab)
    await tab.sees("from one")
    await expect(tab.page.locator("[data-pending]")).to_have_count(0)
    assert await said(page.engine) == ["at once", "from one", "from the other"]
    await tab.page.reload()
    await tab.sees("from one")
    await expect(tab.page.locator("[data-pending]")).to_have_count(0)


# --- the line -------------------------------------------------------------------------------------


@pytest.mark.whole("a page for a second; other tests of the line to the daemon stay")
async def test_a_question_that_is_never_answered_keeps_nobody_away(ann: Person) -> None:
    place = ann.page
    await place.evaluate(HANG)
    await place.evaluate(HURRY)
    await place.evaluate(DROP)
    await expect(place.get_by_test_id("connection")).to_have_attribute("data-state", "open")


@pytest.mark.whole("a page for a second; other tests of the line to the daemon stay")
async def test_manual_reconnect_leaves_one_connection(ann: Person) -> None:
    place, made = ann.page, sockets(ann.page)
    await place.evaluate(HANG)
    await place.evaluate(DROP)
    await place.wait_for_function("() => window.answers.length")
    await place.get_by_role("button", name="Try now").click()
    await expect(place.get_by_test_id("connection")).to_have_attribute("data-state", "open")
    async with place.expect_response("**/api/me"):
        await place.evaluate("window.answers.forEach(answer => answer())")
    await ann.say("hello")
    await expect(place.locator("[data-pending]")).to_have_count(0)
    assert [one.is_closed() for one in made] == [False]


async def tries_now(place: Page) -> None:
    """Press "Try now", unless the page has connected by itself meanwhile."""
    await place.get_by_role("button", name="Try now").evaluate_all("all => all.forEach(one => one.click())")


async def test_a_dead_line_is_noticed_by_who_reads_and_by_who_writes(page: Served, ann: Person) -> None:
    place, line = ann.page, ann.page.get_by_test_id("connection")
    await place.clock.install()
    await place.reload()
    await ann.sees("Nothing here yet")
    await place.evaluate(SWALLOW)
    await place.clock.fast_forward(61_000)
    await place.clock.fast_forward(11_000)
    await ann.sees("Not connected")

    await tries_now(place)
    await expect(line).to_have_attribute("data-state", "open")
    await ann.say("hello")
    await ann.sees("Sending…")
    await place.clock.fast_forward(11_000)
    await ann.sees("Not connected")

    await place.evaluate(CARRY)
    await tries_now(place)
    await expect(place.locator("[data-pending]")).to_have_count(0)
    assert await said(page.engine) == ["hello"]


async def test_text_written_during_a_stop_is_sent_afterwards(page: Served, ann: Person) -> None:
    async with in_background(page.web.run(page.engine.ingress)):
        pass
    await ann.sees("Not connected")
    await ann.say("hello")
    await ann.page.get_by_role("button", name="Try now").click()
    await expect(ann.page.locator("[data-pending=sending]")).to_have_count(1)
    async with in_background(page.web.run(page.engine.ingress)):
        await expect(ann.page.locator("[data-pending]")).to_have_count(0)
        await expect(ann.page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        ann.complaints.clear()
    assert await said(page.engine) == ["hello"]


# --- signing in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", [FULL, FORBIDDEN], ids=["full", "forbidden"])
@pytest.mark.whole("a page for a second; other tests of the line to the daemon stay")
async def test_the_page_opens_where_nothing_can_be_kept(page: Served, browser: Browser, storage: str) -> None:
    context = await browser.new_context()
    await context.add_init_script(storage)
    person = Person(await context.new_page())
    await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
    await expect(person.page.get_by_test_id("composer")).to_be_visible()
    await person.say("hello")
    await expect(person.page.locator("[data-pending]")).to_have_count(0)
    assert (await said(page.engine), person.complaints) == (["hello"], [])
    await context.close()


@pytest.mark.whole("a page for a second; what a person without a sign-in is told of such a link stays")
async def test_a_link_that_does_not_work_throws_nobody_out(page: Served, ann: Person) -> None:
    place = ann.page
    used = await page.web_access.mint_code(ANN)
    assert await page.web_access.sign_in(used, "here") is not None
    await place.get_by_test_id("composer").fill("a draft")
    for code in (used, "%E0%A4%A"):
        await place.evaluate(f"location.hash = 'code={code}'")
        await ann.sees("You are signed in as before.")
        await expect(place.get_by_test_id("composer")).to_have_value("a draft")
        await expect(place.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        await place.reload()  # the words stay for some seconds


async def test_bad_link_is_explained_once_without_a_sign_in(page: Served, browser: Browser) -> None:
    context = await browser.new_context()
    place = await context.new_page()
    await place.goto(f"{page.url}/#code=used")
    await expect(place.get_by_role("alert")).to_have_text(
        "This link was used or has expired. Run dragoman link (in a clone ./run link) for a new one."
    )
    await context.close()
