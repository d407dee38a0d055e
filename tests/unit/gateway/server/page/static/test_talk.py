"""Messages, questions and answers, as the page shows them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TypedDict, cast
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, Route, expect

from gateway.domain.ids import Principal
from gateway.domain.steps import Answer
from gateway.domain.waits import PressResult, Verb
from gateway.server import page
from tests.support.browser import Person
from tests.support.engine import Served
from tests.support.fakes import ANN_PAGE, calls
from tests.support.makers import ANN

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for seconds; test_page, test_line and test_keys stay"),
]
STATIC = Path(page.__file__).with_name("static")
WAITS = "Waits; given to the agent at its next step."
LISTEN = """() => {
    window.heard = [];
    for (const region of document.querySelectorAll("[aria-live]"))
        new MutationObserver(() => region.textContent && window.heard.push(region.textContent.trim()))
            .observe(region, {childList: true, characterData: true, subtree: true}); }"""
"""From now on what screen readers are told is kept: they read what changes."""
RENDER = """async text => {
    const {renderMarkdown, writer} = await import("/static/markdown.js");
    const whole = document.createElement("div");
    renderMarkdown(whole, text);
    const live = document.createElement("div");
    const out = writer(live);
    for (const char of text) out.write(char);
    out.end();
    const told = root => ({
        text: root.textContent,
        links: [...root.querySelectorAll("a")].map(link => [link.textContent, link.getAttribute("href")]),
        code: [...root.querySelectorAll("pre")].map(block => block.textContent),
        items: root.querySelectorAll("li").length,
    });
    return [told(whole), told(live)]; }"""
"""An answer's text, links, blocks of code and points, when it is whole and as it streams."""

DEPTH = """async text => {
    const {renderMarkdown} = await import("/static/markdown.js");
    const root = document.createElement("div");
    renderMarkdown(root, text);
    const depth = node => 1 + Math.max(0, ...[...node.children].map(depth));
    return depth(root); }"""
"""Depth of nested elements in an answer."""
SLOW = """async ([texts, most]) => {
    const {renderMarkdown} = await import("/static/markdown.js");
    const taken = text => {
        const began = performance.now();
        renderMarkdown(document.createElement("div"), text);
        return performance.now() - began; };
    const plain = () => taken("word\\n\\n".repeat(10000));
    const before = plain();
    const each = Object.entries(texts).map(([name, text]) => [name, taken(text)]);
    const longest = Math.max(most, 10 * Math.max(before, plain()));
    return each.filter(([, ms]) => ms > longest).map(([name]) => name); }"""
"""The names of those that take longer than so many ms, on a busy machine than ten times as 10,000 lines."""
CHATTED = """async () => {
    const {sessionState} = await import(new URL("state.js", document.querySelector("script[type=module]").src));
    const {store, entries} = sessionState("main:ann");
    const at = store.list.findIndex(row => row.type === "approval" && row.state !== "open");
    return [at, store.more, entries.value.map(entry => entry.kind === "card" ? "card" : entry.row.text)]; }"""
"""Index of a decided approval in main's rows, `more`, and the drawn entries."""
OLDER = """async () => {
    const own = name => import(new URL(name, document.querySelector("script[type=module]").src));
    const {sessionState} = await own("state.js");
    const {loadOlder} = await own("actions.js");
    const state = sessionState("main:ann");
    for (let waited = 0; state.store.more && waited < 500; waited += 1) {
        loadOlder("main:ann");
        await new Promise(done => setTimeout(done, 10)); } }"""
"""All that is older is loaded."""
TRIM = """async () => {
    const {applyFrame, emptyStore, entriesOf, trim} = await import("/static/rows.js");
    const rows = (...ords) => ords.map(ord => ({type: "message", id: `m${ord}`, ord, rev: ord, text: `${ord}`}));
    const drawn = store => [store.from, store.more, entriesOf(store).map(entry => entry.ord)];
    const [begun, short] = [emptyStore(), emptyStore()];
    applyFrame(begun, {rows: rows(7, 8, 9), rev: 9, more: true}, true);
    applyFrame(begun, {rows: rows(2), rev: 10, more: false}, false);
    const found = [drawn(begun)];
    trim(begun, 2);
    found.push(drawn(begun));
    applyFrame(begun, {rows: rows(1), rev: 11, more: false}, false);
    trim(begun, 2);
    applyFrame(begun, {rows: rows(3), rev: 12, more: false}, false);
    trim(begun, 3);
    found.push(drawn(begun));
    applyFrame(short, {rows: [], rev: 0, more: false}, true);
    applyFrame(short, {rows: rows(1, 2, 3), rev: 3, more: false}, false);
    found.push(drawn(short));
    trim(short, 2);
    found.push(drawn(short));
    return found; }"""
"""Drawn entries and their start, before and after rows far up change and old ones are trimmed; `more`."""

BELOW = """async () => {
    const {applyFrame, emptyStore, entriesOf} = await import("/static/rows.js");
    const below = (state, status) => {
        const store = emptyStore();
        const step = {type: "step", id: "t/1", kind: "tool", turn: "t", n: 1, state: "finished", result: {status}};
        const card = {type: "approval", id: "w", turn: "t", n: 1, state};
        applyFrame(store, {rows: [{...step, ord: 1, rev: 1}, {...card, ord: 2, rev: 2}], rev: 2, more: false}, true);
        return entriesOf(store).map(entry => [entry.kind, Boolean(entry.step)]); };
    return [below("denied", "denied"), below("consumed", "ok"), below("superseded", "ok")]; }"""
"""True for a call that has ended and stands below its card: a grant or a rule may allow a repeated call."""

CUT_OFF = """async () => {
    const {redeem} = await import("/static/actions.js");
    const kept = window.fetch;
    window.fetch = () => Promise.resolve(new Response("{", {status: 200}));
    await redeem("code").catch(() => null);
    window.fetch = kept;
    return document.documentElement.hasAttribute("data-signing-in"); }"""
"""True if a sign-in whose answer breaks off continues for the script that waits for its end."""


HOME = """async () => {
    const {Anchor} = await import("/static/scroll.js");
    const [scroller, content] = [document.createElement("div"), document.createElement("div")];
    scroller.style = "height: 200px; overflow-y: auto";
    const say = () => content.appendChild(document.createElement("p")).append("Said.");
    for (let count = 0; count < 50; count += 1) say();
    scroller.append(content);
    document.body.append(scroller);
    const anchor = new Anchor(scroller, content, {top() {}, bottom() {}, end() {}});
    const frames = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const to = async top => { scroller.scrollTop = top; await frames(); return anchor.follow; };
    await frames();
    await to(100);
    const found = [await to(scroller.scrollHeight), await to(0)];
    say();
    await frames();
    found.push(scroller.scrollTop);
    anchor.end();
    scroller.remove();
    return found; }"""
"""Positions of a reader who scrolled to the end, then to the beginning, and after a change."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(browser: Browser) -> AsyncIterator[Page]:
    """An empty page beside the modules, without a server."""

    async def serve(route: Route, request: Request) -> None:
        path = STATIC / urlsplit(request.url).path.removeprefix("/static/")
        await (route.fulfill(path=path) if path.suffix else route.fulfill(body="", content_type="text/html"))

    found = await browser.new_page()
    await found.route("**", serve)
    await found.goto("http://desk/")
    yield found
    await found.close()


class Rendered(TypedDict):
    """Result of `RENDER`."""

    text: str
    links: list[tuple[str, str]]
    code: list[str]
    items: int


async def rendered(place: Page, text: str) -> Rendered:
    """Return the rendering of a text, which must be the same in both ways."""
    whole, live = cast("list[Rendered]", await place.evaluate(RENDER, text))
    assert whole == live
    return whole


async def bare(place: Page, text: str) -> list[str]:
    """The addresses in a text, each of which is shown as what it is, with all that stands around it."""
    found = await rendered(place, text)
    assert found["text"] == text.replace("*", "")
    assert all(shown == address for shown, address in found["links"])
    return [address for _, address in found["links"]]


# --- what is said -----------------------------------------------------------------------------------


async def test_only_a_message_during_work_waits_for_the_next_step(page: Served, ann: Person) -> None:
    engine, messages = page.engine, ann.page.get_by_test_id("message")
    await engine.say("Begin", where=ANN_PAGE)
    await engine.claim()
    await ann.sees("Working…")
    await expect(messages).to_have_count(1)
    await expect(messages).not_to_contain_text(WAITS)
    await engine.say("And hurry", where=ANN_PAGE)
    await expect(messages.filter(has_text="And hurry")).to_contain_text(WAITS)
    await expect(messages.filter(has_text="Begin")).not_to_contain_text(WAITS)


async def test_screen_reader_announces_each_answer_even_when_equal(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await place.evaluate(LISTEN)
    for count in (1, 2):
        engine.model.script = [calls("shell:rm -r old"), Answer(text="Done.", model="scripted")]
        await engine.say(f"Tidy up {count}", where=ANN_PAGE)
        await engine.run(await engine.claim())
        await ann.press("once")
        await expect(ann.card()).to_have_count(0)
        await engine.run(await engine.claim())
        await expect(place.get_by_test_id("answer")).to_have_count(count)
    once = ["Waits for your decision: execute, shell wants to run. Press a to go there.", "Allowed.", "Dragoman: Done."]
    assert await place.evaluate("window.heard") == once * 2


async def test_arrow_up_returns_the_last_written_message(page: Served, ann: Person) -> None:
    await page.engine.say("Count the files", where=ANN_PAGE)
    await page.engine.claim()
    await ann.page.get_by_role("button", name="Stop").click()
    await ann.sees("Stopping…")
    await ann.page.get_by_test_id("composer").press("ArrowUp")
    await expect(ann.page.get_by_test_id("composer")).to_have_value("Count the files")


# --- what is asked ----------------------------------------------------------------------------------


async def test_the_key_to_a_card_finds_it_however_far_up_it_is(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    engine.model.script = [calls("shell:rm -r old")]
    await engine.say("Tidy up", where=ANN_PAGE)
    await engine.run(await engine.claim())
    for count in range(310):
        await engine.say(f"Are you there? {count}", where=ANN_PAGE)
    await place.reload()
    await ann.sees("Are you there? 309")
    await place.locator("h1").click()
    await place.keyboard.press("a")
    await expect(place.get_by_test_id("card")).to_be_focused()
    await expect(place.get_by_test_id("card")).to_be_in_viewport()


async def test_a_change_far_up_hides_nothing_of_what_is_between(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    engine.model.script = [calls("shell:rm -r old")]
    turn = await engine.say("Tidy up", where=ANN_PAGE)
    await engine.run(await engine.claim())
    for count in range(310):
        await engine.say(f"Are you there? {count}", where=ANN_PAGE)
    await place.reload()
    await ann.sees("Are you there? 309")
    (wait,) = await engine.waits(turn)
    pressed = await engine.press(wait.id, Verb.DENY, where=ANN_PAGE, who=Principal("web:ann"))
    assert pressed.result is PressResult.DENIED
    await place.wait_for_function(f"async () => (await ({CHATTED})())[0] >= 0")
    _, more, drawn = cast("tuple[int, bool, list[str]]", await place.evaluate(CHATTED))
    assert (more, "card" in drawn) == (True, False)

    await place.evaluate(OLDER)
    _, more, drawn = cast("tuple[int, bool, list[str]]", await place.evaluate(CHATTED))
    told = [text for text in drawn if text and not text.startswith("Noted.")]
    assert told == ["Tidy up", "card", *(f"Are you there? {n}" for n in range(310))]
    assert not more


async def test_reader_back_at_the_beginning_stays_there(desk: Page) -> None:
    """In one go, as with the key Home."""
    assert await desk.evaluate(HOME) == [True, False, 0]


async def test_a_call_that_ran_stands_below_its_card(desk: Page) -> None:
    assert await desk.evaluate(BELOW) == [[["card", False]], [["card", True]], [["card", True]]]


async def test_a_sign_in_that_breaks_off_has_ended(desk: Page) -> None:
    """Otherwise a page that is to load itself anew asks ten times a second whether it may, for ever."""
    assert not await desk.evaluate(CUT_OFF)


async def test_trimmed_rows_leave_no_gap(desk: Page) -> None:
    assert await desk.evaluate(TRIM) == [
        [7, True, [7, 8, 9]],
        [8, True, [8, 9]],
        [8, True, [8, 9]],
        [1, False, [1, 2, 3]],
        [2, True, [2, 3]],
    ]


async def test_decision_has_the_readers_clock_and_output_no_colours(page: Served, browser: Browser) -> None:
    engine = page.engine
    context = await browser.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    person = Person(await context.new_page())
    await person.page.goto(f"{page.url}/#code={await page.web_access.mint_code(ANN)}")
    engine.model.script = [
        calls("shell:printf '\x1b]0;title\x07\x1b[1;31mred\x1b[0m\x1b(B and \x1b[2Kplain'"),
        Answer(text=""),
    ]
    await engine.say("Print", where=ANN_PAGE)
    await engine.run(await engine.claim())
    await person.press("once")
    decided = engine.clock.now() + timedelta(hours=5, minutes=30)  # stands still while the browser's clock goes on
    await expect(person.page.locator(".outcome")).to_have_text(f"ann allowed once, {decided:%H:%M}")
    await expect(person.page.locator(".decided .title")).to_have_text(re.compile("^shell printf"))  # it wants no more
    await engine.run(await engine.claim())
    await expect(person.page.get_by_test_id("output")).to_have_text("shell printf 'red and plain'")
    assert person.complaints == []
    await context.close()


# --- what is answered -------------------------------------------------------------------------------


async def test_an_address_in_an_answer_ends_where_it_ends(desk: Page) -> None:
    wiki = "https://en.wikipedia.org/wiki/Foo_(bar)"
    assert await bare(desk, f"See {wiki}. Or https://a.org/b, or (see https://a.org/c_d_e).") == [
        wiki,
        "https://a.org/b",
        "https://a.org/c_d_e",
    ]
    assert await bare(desk, '**https://a.org/x_y**. *https://a.org/z*: "https://a.org/?q=1&r=[2]"!') == [
        "https://a.org/x_y",
        "https://a.org/z",
        "https://a.org/?q=1&r=[2]",
    ]
    assert await bare(desk, "请访问 https://a.org/docs，然后继续。") == ["https://a.org/docs"]
    assert await bare(desk, "请访问https://a.org。") == ["https://a.org"]
    named = f'[wiki]({wiki}) [titled](https://a.org "The title") [https://a.org/x_y](<https://a.org/z>).'
    assert (await rendered(desk, named))["links"] == [
        ["wiki", "https://en.wikipedia.org/wiki/Foo_%28bar%29"],
        ["titled", "https://a.org"],
        ["https://a.org/x_y", "https://a.org/z"],
    ]
    code = await rendered(desk, "`https://a.org/b).` and\n\n```\nhttps://a.org/c_d).\n```")
    assert (code["links"], code["code"]) == ([], ["https://a.org/c_d)."])


async def test_code_in_a_list_is_indented_and_may_have_blank_lines(desk: Page) -> None:
    steps = "1. Install\n   ```sh\n   if true; then\n\n       pip install\n   fi\n   ```\n2. Run"
    found = await rendered(desk, steps)
    assert (found["code"], found["items"]) == (["if true; then\n\n    pip install\nfi"], 2)
    below = "- a\n  - b\n    ```py\n    def f():\n\n        return 1\n    ```\n- c"
    found = await rendered(desk, below)
    assert (found["code"], found["items"]) == (["def f():\n\n    return 1"], 3)
    loose = "1. Install\n\n   ```sh\n   pip install\n   ```\n\n2. Run"
    assert (await rendered(desk, loose))["code"] == ["pip install"]
    assert (await rendered(desk, "```\n  as it is\n```"))["code"] == ["  as it is"]


async def test_endless_nesting_is_shown_flat(desk: Page) -> None:
    for text in ("> " * 3_000 + "x", "~~a *b " * 1_500, "*a __b " * 1_500):
        assert await desk.evaluate(DEPTH, text) < 120
    unclosed = "*a __b " * 200 + "end"
    assert (await rendered(desk, unclosed))["text"] == unclosed
    marked = "a *b* __c__ [d](https://a.org/e) ![f](/g) [h] https://a.org/i j"
    assert (await rendered(desk, "> " * 120 + marked))["text"].split() == marked.split()


async def test_pending_markup_settles(desk: Page) -> None:
    """The same in both ways, and nothing is lost."""
    many = 1_700
    for text in ("1" * many, "-" * many + "x", "\N{GRINNING FACE}" * many, f"{'1' * 499}\N{GRINNING FACE} x"):
        assert (await rendered(desk, text))["text"] == text
    for text in ("- " * many + "x", "x" + "`" * many, "<br" + " " * many + ">", "`x" + "`" * many, "`" * many):
        await rendered(desk, text)
    opened = await rendered(desk, "```" + "a " * many + "\ncode\n```\nafter")
    assert opened["text"].replace("Copy", "").replace("after", "") == "a " * many + "\ncode"
    wide = await rendered(desk, f"|a|\n|{'-' * many}|\n|b|\n\nafter")
    assert wide["text"] == "abafter"
    far = "https://a.org/" + "b" * 3_000
    named = f'[c]({far}{" " * many}"title") [d](/{"e" * many}) f'
    assert (await rendered(desk, named))["links"] == [["c", far], ["d", None]]


async def test_an_answer_takes_no_longer_than_it_is_long(desk: Page) -> None:
    """Each of these took ten seconds and more."""
    many = 200_000
    texts = {
        "digits": "1" * many,
        "a rule": "-" * many,
        "points": "- " * 100_000,
        "ticks": "`" * many,
        "ticks in a line": "x" + "`" * many,
        "a language": "```" + "a" * many,
        "a break": "<br" + " " * many,
        "an address": f"[a](https://a.org/{'b' * many})",
        "no title": f"[a](b{' ' * many})",
        "underscores": "a" + "_" * 60_000,
        "a table": "|a|b|\n|-|-|\n" + "|c|d|\n" * 15_000,
    }
    assert await desk.evaluate(SLOW, [texts, 4_000]) == []


async def test_table_on_a_phone_breaks_no_word_and_keeps_directions(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    await place.set_viewport_size({"width": 390, "height": 844})
    about = "whether a person is asked before the tool runs, and who that is"
    table = f"| Option | Default | What it does | Since |\n|---|---|---|---|\n| `approval` | ask | {about} | 1.0 |"
    engine.model.script = [Answer(text=f"{table}\n\nשלום, עולם!", model="scripted")]
    await engine.say("مرحبا (hello)!", where=ANN_PAGE)
    await engine.run(await engine.claim())
    answer = place.get_by_test_id("answer")
    assert await answer.locator("td code").evaluate("word => word.getClientRects().length") == 1
    await expect(place.locator(".bubble")).to_have_css("direction", "rtl")
    lines = await answer.locator("p").first.evaluate("""line => {
        const words = document.createRange();
        words.selectNodeContents(line);
        return line.getBoundingClientRect().right - words.getBoundingClientRect().right; }""")
    assert abs(lines) < 1  # it begins at the right
