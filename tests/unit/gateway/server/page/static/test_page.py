"""The page in a real Chromium, beside an engine that the test moves: sub-sessions, and what answers cost."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from gateway.domain.durability import Durability
from gateway.domain.events import TextDelta, session_topic
from gateway.domain.ids import SessionId, TurnId, answer_slot
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import Artifact, Effect, ResultStatus, Risk, ToolResult
from gateway.domain.views import SessionLine
from gateway.errors import ModelError, StoreError
from gateway.ports import ToolContext
from tests.support.browser import Person, chromium
from tests.support.engine import Engine, Served, served
from tests.support.fakes import ANN_PAGE, FakeTool, Text, calls
from tests.support.makers import ANN, CHAT, attachment, inbound
from tests.unit.gateway.toolcalls.subsession_rig import call, ended, spawning

pytestmark = pytest.mark.asyncio(loop_scope="session")
MAIN = SessionId("main:ann")


async def spawn(engine: Engine, *tasks: str, mode: str = "run") -> TurnId:
    """A turn on the page that spawns these; its model says no more for now."""
    asked = tuple(call("sessions_spawn", n, task=task, mode=mode) for n, task in enumerate(tasks))
    engine.model.script = [Answer(text="They look.", calls=asked, model="big")]
    turn = await engine.say("Look around", where=ANN_PAGE)
    await engine.run(await engine.claim())
    return turn


def child(page: Page, title: str) -> Locator:
    """The block of a sub-session in its parent."""
    return page.get_by_test_id("child").filter(has_text=title)


async def test_card_of_a_sub_session_is_pressed_in_main(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "count the files", "name the kernel")
    await expect(place.get_by_test_id("child")).to_have_count(2)
    engine.model.script = [calls("shell:find / | wc -l")]
    await engine.run(await engine.claim())

    files = child(place, "count the files")
    await expect(files).to_have_attribute("data-standing", "waits for a decision")
    await expect(files.get_by_test_id("card")).to_contain_text("find / | wc -l")
    await expect(child(place, "name the kernel")).to_have_attribute("data-standing", "queued")
    await expect(place.get_by_text("1 card waits for you")).to_be_visible()
    await place.locator("h1").click()
    await place.keyboard.press("a")
    await expect(files.get_by_test_id("card")).to_be_focused()
    await place.keyboard.press("1")
    await expect(files.get_by_test_id("card")).to_contain_text("ann allowed once")
    await expect(files.get_by_test_id("card-button")).to_have_count(0)


@pytest.mark.whole("a page for a second; other tests of sub-sessions on the page stay")
async def test_the_card_of_one_below_a_sub_session_stands_in_main_too(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "look after the disk")
    engine.model.script = [Answer(text="", calls=(call("sessions_spawn", task="ask df"),), model="big")]
    await engine.run(await engine.claim())
    engine.model.script = [calls("shell:df -h")]
    await engine.run(await engine.claim())

    outer = place.get_by_test_id("child").first
    await expect(outer).to_have_attribute("data-standing", "waits for sub-sessions")
    inner = outer.get_by_test_id("child")
    await expect(inner).to_have_attribute("data-standing", "waits for a decision")
    await inner.locator("[data-verb=deny]").click()
    await expect(inner.get_by_test_id("card")).to_contain_text("ann denied")
    await ann.shot("unit-two-below")


async def test_sub_sessions_end_in_their_parent_and_fold_in_the_list(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "count the files", "name the kernel")
    cost = Usage(input_tokens=1_000, output_tokens=24, cost_micros=2_500)
    engine.model.script = [Answer(text="There are **42** files.", usage=cost)]
    await engine.run(await engine.claim())
    files = child(place, "count the files")
    await expect(files).to_have_attribute("data-standing", "done")
    await expect(files).to_contain_text("There are 42 files.")
    await expect(files).to_contain_text("1,024 tokens · $0.003")
    await expect(place.get_by_test_id("session-item")).to_have_count(2)  # main, and the one that is queued

    engine.model.script = [ModelError("It is away.", cure="Try again."), Answer(text="That is it.", model="big")]
    await engine.run(await engine.claim())
    await engine.run(await engine.claim())
    await expect(child(place, "name the kernel")).to_have_attribute("data-standing", "failed")
    await expect(place.get_by_text("In all: 2 calls · 1,024 tokens · $0.003")).to_be_visible()
    await expect(place.get_by_test_id("session-item")).to_have_count(1)
    await place.get_by_test_id("session-fold").click()
    await expect(place.get_by_test_id("session-item")).to_have_count(3)


async def test_a_store_that_went_back_to_a_backup_is_read_again(
    page: Served, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's rows have higher revisions than anything that comes."""
    engine, place = page.engine, ann.page
    await page.engine.say("Look around", where=ANN_PAGE)
    await expect(place.get_by_text("Look around")).to_be_visible()
    await place.evaluate("window.before = true")
    of_store, asked = engine.store.sessions, 0

    async def behind(**_: object) -> list[SessionLine]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreError("away for a moment: pages come again")
        return [replace(line, rev=1) for line in await of_store()]

    monkeypatch.setattr(engine.store, "sessions", behind)
    await engine.say("And again", where=ANN_PAGE)

    await place.wait_for_function("() => !window.before")
    await expect(place.get_by_text("And again")).to_be_visible()


async def test_a_store_that_may_lose_something_is_named(page: Served, ann: Person) -> None:
    """A person at the page is told, and it stays to be read below the name; a store that loses nothing has no line."""
    shown, told = ann.page.get_by_test_id("store-warning"), ann.page.locator(".toast")
    await expect(shown).to_have_count(0)
    page.web_access.warning = lambda: Durability.ONE_SECOND.warning
    await ann.page.reload()
    await expect(told).to_have_text(Durability.ONE_SECOND.warning)
    await expect(shown).to_be_visible()
    await expect(shown).to_have_text(Durability.ONE_SECOND.warning)
    await expect(shown).to_have_attribute("title", Durability.ONE_SECOND.warning)


@pytest.mark.whole("a page for a second; sub-sessions that end and fold in the list stay")
async def test_unlisted_session_leaves_the_page(page: Served, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "count the files", "name the kernel")
    await expect(place.get_by_test_id("session-item")).to_have_count(3)
    of_store = engine.store.sessions
    monkeypatch.setattr(engine.store, "sessions", partial(of_store, ended=0))  # as with fifty that ended later
    await ended(engine, await engine.claim(), "There are 42.")

    await expect(place.get_by_test_id("session-item")).to_have_count(2)
    await expect(place.get_by_test_id("session-fold")).to_have_count(0)
    await expect(child(place, "count the files")).to_have_attribute("data-standing", "done")


@pytest.mark.whole("a page for a second; other tests of sub-sessions on the page stay")
async def test_a_sub_session_is_opened_and_left_again(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "count the files")
    await place.get_by_test_id("child-open").click()
    await expect(place.get_by_test_id("task")).to_contain_text("count the files")
    await expect(place.get_by_test_id("composer")).to_have_count(0)
    engine.model.script = [Answer(text="There are 42.")]
    await engine.run(await engine.claim())
    await expect(place.get_by_test_id("answer")).to_contain_text("There are 42.")
    await place.get_by_test_id("to-parent").click()
    await expect(child(place, "count the files")).to_have_attribute("data-standing", "done")


@pytest.mark.whole("a page for a second; other tests of sub-sessions on the page stay")
async def test_the_end_of_one_in_the_background_is_a_quiet_line(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await spawn(engine, "watch the build", mode="session")
    await ended(engine, await engine.claim(), "It is through.")

    told = place.get_by_test_id("child-ended")
    await expect(told).to_contain_text("A sub-session has ended, done: watch the build")
    await expect(told.get_by_text("It is through.")).to_be_hidden()
    await told.get_by_text("What it said").click()
    await expect(told.get_by_text("It is through.")).to_be_visible()
    await expect(place.get_by_test_id("message")).to_have_count(1)  # Ann's
    await place.reload()  # then nothing is known of it but its rows
    await expect(child(place, "watch the build")).to_have_attribute("data-standing", "done")


@pytest.mark.whole("a page for a second; the text that grows and is taken back stays")
async def test_growing_answer_of_a_chat_is_shown_on_the_page(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    turn = await engine.say()
    lease = await engine.claim()
    await expect(place.get_by_text("Working…")).to_be_visible()
    beginning = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text="It is", n=0, id=answer_slot(turn, 0))
    for start, text in ((0, "It is"), (5, " a long "), (13, "story. ")):
        piece = TextDelta(session=MAIN, turn=turn, n=0, start=start, text=text)
        engine.store.event_bus.publish(session_topic(MAIN), piece)
        await engine.store.open_slot(lease, beginning)
    answer = place.get_by_test_id("answer")
    await expect(answer).to_have_text("It is a long story.")
    engine.model.script = [Answer(text="It is a long story, told.", model="big")]
    await engine.run(lease)
    await expect(answer).to_contain_text("It is a long story, told.")


async def test_text_of_a_model_that_failed_is_taken_back(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    engine.model.hold = True
    turn = await engine.say(where=ANN_PAGE)
    lease = await engine.claim()

    def written(start: int, text: str) -> None:
        piece = TextDelta(session=MAIN, turn=turn, n=0, start=start, text=text)
        engine.store.event_bus.publish(session_topic(MAIN), piece)

    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run(lease), name="turn")
        await engine.model.until_asked()
        await expect(place.get_by_text("Working…")).to_be_visible()
        written(0, "The first says **some")
        answer = place.get_by_test_id("answer")
        await expect(answer).to_contain_text("The first says")
        written(0, "")
        written(0, "The second ")
        written(11, "is here. ")
        await expect(answer).to_have_text("The second is here.")
        engine.model.script = [Answer(text="The second is here now.", model="other")]
        engine.model.go.set()
    await expect(answer).to_contain_text("The second is here now.")
    await expect(place.locator(".foot")).to_contain_text("other")


# --- calls --------------------------------------------------------------------------------------


async def test_a_call_that_prints_nothing_is_seen_to_end(tmp_path: Path, browser: Browser) -> None:
    """`/shell date > now.txt`: its end stands below its card, also in a page that is opened later."""

    async def writes(_ctx: ToolContext, _args: Text) -> ToolResult:
        return ToolResult(status=ResultStatus.OK, text="", exit_code=0)

    engine = spawning(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE, body=writes)])
    engine.clock.advance((datetime.now(UTC) - engine.clock.now()).total_seconds())  # as in the browser
    async with served(engine) as page:
        person = Person(await browser.new_page())
        await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
        await expect(person.page.get_by_test_id("composer")).to_be_visible()
        engine.operator.script = [calls("shell:date > now.txt"), Answer(text="exit 0 · 0.0 s")]
        await engine.say("/shell date > now.txt", where=ANN_PAGE)
        await engine.run(await engine.claim())
        await person.press("once")
        await expect(person.page.locator(".outcome")).to_contain_text("ann allowed once")
        await engine.run(await engine.claim())
        ended = person.page.get_by_test_id("step").filter(has_text="done").filter(has_text="exit 0")
        await expect(ended).to_be_visible()
        await person.page.reload()
        await expect(ended).to_be_visible()
        await person.page.set_viewport_size({"width": 390, "height": 844})
        await expect(ended.locator(".word")).to_be_visible()
        assert person.complaints == []
        await person.page.context.close()


@pytest.mark.whole("a page for a second; the arithmetic of a status line stays")
async def test_no_time_is_negative_when_the_clock_was_ahead(tmp_path: Path, browser: Browser) -> None:
    """The clock is put back while a turn runs: what took no time by it is shown without a time."""

    async def looks(_ctx: ToolContext, _args: Text) -> ToolResult:
        engine.clock.advance(5)
        engine.clock.step(-60)
        return ToolResult(status=ResultStatus.OK, text="noon")

    engine = spawning(tmp_path, [FakeTool(name="read", body=looks)])
    engine.clock.step((datetime.now(UTC) - engine.clock.now()).total_seconds() + 60)
    async with served(engine) as page:
        person = Person(await browser.new_page())
        place = person.page
        await place.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
        engine.model.script = [replace(calls("read"), text="I look."), Answer(text="It is noon.", model="big")]
        await engine.say("What time is it?", where=ANN_PAGE)
        await engine.run(await engine.claim())
        await place.locator(".foot button").click()
        await expect(place.get_by_test_id("inspector")).to_contain_text("Took")
        assert not re.search(r"-\d", await place.locator("main").inner_text())
        assert person.complaints == []
        await place.context.close()


# --- pictures -----------------------------------------------------------------------------------

DOT = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""A picture of one pixel."""


@pytest.mark.whole("a real Chromium; the picture that is about to be seen stays")
async def test_a_picture_and_the_hint_of_a_call_are_shown_in_its_step(tmp_path: Path) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        made = await ctx.artifacts.picture(DOT, "image/gif")
        return ToolResult(status=ResultStatus.OK, text="", pictures=(made,), hint="It is in `dot.gif`, and `big.")

    engine = spawning(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=draws)])
    async with served(engine) as page, chromium() as browser:
        person = Person(await browser.new_page())
        await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
        await expect(person.page.get_by_test_id("composer")).to_be_visible()
        engine.model.script = [calls("read")]
        await engine.say("Draw.", where=ANN_PAGE)
        await engine.run(await engine.claim())
        step = person.page.get_by_test_id("step")
        shown = step.get_by_test_id("picture")
        await expect(shown).to_be_visible()
        assert await shown.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") == 1
        await expect(step.locator(".hint")).to_have_text("It is in dot.gif, and `big.")
        await expect(step.locator(".hint code")).to_have_text("dot.gif")
        assert person.complaints == []


# --- files --------------------------------------------------------------------------------------


@pytest.mark.whole("a real Chromium; the picture that is about to be seen stays")
async def test_file_of_a_call_is_a_download_and_of_a_message_a_name(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        made = await ctx.artifacts.picture(b"<b>bill</b>", "image/png")
        file = Artifact(file=made.file, name="../Bill <1>.html", media_type="text/html")
        return ToolResult(status=ResultStatus.OK, text="", files=(file,))

    engine = spawning(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=saves)])
    async with served(engine) as page, chromium() as browser:
        person = Person(await browser.new_page())
        await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
        await expect(person.page.get_by_test_id("composer")).to_be_visible()
        engine.model.script = [calls("read")]
        said = replace(inbound("", where=ANN_PAGE), attachments=(attachment("my <b>photo</b>.png"),))
        assert await engine.ingress.message(said) is not None
        await engine.run(await engine.claim())
        attached = person.page.get_by_test_id("attached")
        await expect(attached).to_contain_text("b.png")
        await expect(attached).to_contain_text("Files of this channel cannot be read here.")
        link = person.page.get_by_test_id("step").get_by_test_id("download")
        await expect(link).to_have_text("Download Bill 1.html")
        async with person.page.expect_download() as saved:
            await link.click()
        download = await saved.value
        assert download.suggested_filename == "Bill 1.html"
        assert _content(await download.path()) == b"<b>bill</b>"
        assert person.complaints == []


def _content(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_picture_is_fetched_when_it_is_about_to_be_seen(tmp_path: Path, browser: Browser) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        return ToolResult(status=ResultStatus.OK, text="", pictures=(await ctx.artifacts.picture(DOT, "image/gif"),))

    engine = spawning(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=draws)])
    engine.model.script = [calls("read"), Answer(text="\n\n".join(["A long answer."] * 200), model="scripted")]
    await engine.say("Draw.", where=ANN_PAGE)
    await engine.run(await engine.claim())
    async with served(engine) as page:
        person = Person(await browser.new_page())
        await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
        step = person.page.get_by_test_id("step")
        await expect(step).to_be_attached()
        await expect(step.get_by_test_id("picture-later")).to_be_attached()
        await expect(step.get_by_test_id("picture")).not_to_be_attached()
        await step.scroll_into_view_if_needed()
        await expect(step.get_by_test_id("picture")).to_be_visible()
        assert person.complaints == []
        await person.page.context.close()
