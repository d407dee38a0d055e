"""Files on the page: added by button, drop and paste, shown as chips, sent, and offered again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from playwright.async_api import FilePayload, Locator, Route, expect

from gateway.domain.ids import PAGE, main_session
from gateway.domain.messages import Received
from gateway.domain.steps import Answer
from tests.support.browser import PHONE, Person
from tests.support.engine import Served
from tests.support.makers import ANN

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for seconds; test_uploads stays"),
]
PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89"
    b"\0\0\0\rIDATx\x9cc\x18\x05\xa3\0\0\x01\x01\0\x01\xa6\xfe\xa2\x1c\0\0\0\0IEND\xaeB`\x82"
)
HAND_OVER = """(how) => {
    const given = new DataTransfer();
    given.items.add(new File([new Uint8Array([137, 80, 78, 71])], "shot.png", {type: "image/png"}));
    if (how === "text too") given.setData("text/plain", "a table");
    const field = document.querySelector("[data-testid=composer]");
    if (how !== "drop") {
        const event = new ClipboardEvent("paste", {clipboardData: given, bubbles: true, cancelable: true});
        return field.dispatchEvent(event);
    }
    const place = document.querySelector(".scroller");
    for (const kind of ["dragover", "drop"])
        place.dispatchEvent(new DragEvent(kind, {dataTransfer: given, bubbles: true, cancelable: true})); }"""
"""Paste or drop a picture, as a browser does."""


def file(name: str, data: bytes, kind: str = "text/plain") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": data}


async def choose(ann: Person, *files: FilePayload) -> None:
    """Choose files as the dialog of the paperclip gives them."""
    await ann.page.get_by_test_id("file-input").set_input_files(list(files))


def chips(ann: Person, state: str = "") -> Locator:
    found = ann.page.get_by_test_id("chip")
    return found.and_(ann.page.locator(f"[data-state={state}]")) if state else found


async def received(page: Served) -> Sequence[Received]:
    rows = await page.engine.store.older(main_session(ANN), None, 50)
    return [row.item for row in rows.rows if isinstance(row.item, Received)]


async def test_files_are_added_in_three_ways_and_reach_the_agent(page: Served, ann: Person) -> None:
    page.engine.channels[PAGE] = page.web
    async with ann.page.expect_file_chooser() as chooser:
        await ann.page.get_by_role("button", name="Add files").click()
    await (await chooser.value).set_files([file("notes.txt", b"pears: 3"), file("prices.csv", b"a,b")])
    assert await ann.page.evaluate(HAND_OVER, "text too") is True  # a text with a picture of it is pasted as text
    for how in ("paste", "drop"):
        await ann.page.evaluate(HAND_OVER, how)
    await expect(chips(ann, "ready")).to_have_count(4)
    await chips(ann).filter(has_text="prices.csv").get_by_role("button", name="Remove prices.csv").click()
    await expect(chips(ann)).to_have_count(3)
    await expect(ann.page.locator(".upload .remove:focus")).to_have_count(1)
    await ann.say("What is in them?")
    await expect(chips(ann)).to_have_count(0)
    await expect(ann.page.get_by_test_id("message").get_by_test_id("attached")).to_have_count(3)
    page.engine.model.script = [Answer(text="Pears.", model="scripted")]
    await page.engine.run(await page.engine.claim())
    await ann.sees("Pears.")
    await expect(ann.page.get_by_test_id("attached").filter(has_text="notes.txt").locator("code")).to_contain_text(
        "inbox/"
    )
    (message,) = await received(page)
    assert [one.name for one in message.message.attachments] == ["notes.txt", "shot.png", "shot.png"]
    assert [one.trouble for one in message.files or ()] == ["", "", ""]


async def test_a_broken_upload_is_offered_again_and_text_stays(page: Served, ann: Person) -> None:
    async def breaks(route: Route) -> None:
        await route.abort()

    await ann.page.route("**/api/uploads/*", breaks)
    await choose(ann, file("notes.txt", b"pears: 3"))
    await expect(chips(ann, "broken")).to_contain_text("The upload broke off.")
    await ann.say("Read this")
    await ann.sees("A file is not there")
    await expect(ann.page.get_by_test_id("composer")).to_have_value("Read this")
    await ann.page.unroute("**/api/uploads/*")
    await ann.page.reload()
    await expect(chips(ann, "lost")).to_contain_text("Choose it again")
    await choose(ann, file("notes.txt", b"pears: 3"))
    await expect(chips(ann, "ready")).to_have_count(1)
    await expect(chips(ann)).to_have_count(1)
    await ann.page.get_by_test_id("composer").press("Enter")
    await expect(ann.page.get_by_test_id("message").get_by_test_id("attached")).to_have_count(1)
    ann.complaints.clear()  # of the requests that were to fail


async def test_a_message_waits_for_its_files_and_then_goes(page: Served, ann: Person) -> None:
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await ann.page.route("**/api/uploads/*", hold)
    await choose(ann, file("notes.txt", b"pears: 3"))
    await ann.say("Read this")
    await ann.sees("Sent as soon as the files are there.")
    assert await ann.page.get_by_test_id("message").count() == 0
    await held[0].continue_()
    await expect(ann.page.get_by_test_id("message")).to_contain_text("notes.txt")
    await expect(ann.page.get_by_test_id("composer")).to_have_value("")


async def test_the_page_refuses_bad_files_in_words(page: Served, ann: Person) -> None:
    await choose(ann, file("nothing.txt", b""))
    await ann.sees("nothing.txt is empty, or a folder.")
    await choose(ann, *[file(f"{n}.txt", b"x") for n in range(50)])
    await ann.sees("40 files are not added. A message has at most 10 files.")
    await expect(chips(ann, "ready")).to_have_count(10)


async def test_chips_as_they_look(page: Served, ann: Person) -> None:
    held: list[Route] = []

    async def pause(route: Route) -> None:
        name = route.request.headers.get("x-dragoman-name", "")
        if "slow" in name:
            held.append(route)
        else:
            await (route.abort() if "broken" in name else route.continue_())

    await ann.page.route("**/api/uploads/*", pause)
    long = f"broken {'very ' * 12}long name.docx"
    await choose(ann, file("shot.png", PNG, "image/png"), file("slow prices.xlsx", b"x" * 300_000), file(long, b"xx"))
    await choose(ann, file("תפוחים.pdf", b"x" * 12_345))
    await expect(chips(ann, "ready")).to_have_count(2)
    await ann.page.get_by_test_id("composer").fill("What do these say about prices?")
    for name, size in (("desk", (1280, 800)), ("phone", PHONE)):
        await ann.page.set_viewport_size({"width": size[0], "height": size[1]})
        wide = await ann.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert wide is False
        for colours in ("light", "dark"):
            await ann.page.emulate_media(color_scheme=colours)
            await ann.shot(f"upload-{name}-{colours}")
    await held[0].abort()
    await expect(chips(ann, "broken")).to_have_count(2)
    ann.complaints.clear()
