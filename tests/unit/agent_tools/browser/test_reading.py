"""Page content within bounds of size and time."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from agent_tools.browser.errors import Trouble, meaning, one_line
from agent_tools.browser.page_queries import asked
from agent_tools.browser.reading import LONGEST, fitted, part, ref_of
from gateway.domain.tools import ResultStatus
from tests.unit.agent_tools.browser.conftest import Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

TREE = """- main [ref=e1]:
  - list [ref=e2]:
    - listitem [ref=e3]: "one [ref=e9]"
    - listitem [ref=e4]: two
  - button "three [ref=e4]" [ref=e5]"""


async def test_a_part_of_a_page(rig: Rig) -> None:
    await rig.open("/form")
    ref = await rig.ref("Colour")
    result = await rig("snapshot", ref=ref)
    assert 'option "Green"' in result.text
    assert "Send" not in result.text
    assert (await rig("click", ref=ref)).status is ResultStatus.OK
    assert (await rig("snapshot", ref="e9999")).code == "ref"


async def test_text_of_a_page_and_of_an_element(rig: Rig) -> None:
    await rig.open("/popup")
    assert "In a new tab" in (await rig("text")).text
    assert (await rig("text", ref=await rig.ref("In a new tab"))).text.endswith("\n\nIn a new tab")


async def test_a_long_page_is_cut_with_a_hint(rig: Rig) -> None:
    result = await rig.open("/large?n=2000")
    assert len(result.text) < LONGEST + 500
    assert "this is its beginning" in result.text
    footer = re.search(r"contentinfo \[ref=(\w+)\]", result.text)
    assert footer is not None
    assert 'button "The last"' in (await rig("snapshot", ref=footer[1])).text
    words = (await rig("text")).text
    assert words.startswith("Page: Large")


@pytest.mark.by_the_clock
async def test_a_huge_page_does_not_hang(rig: Rig) -> None:
    started = time.monotonic()
    result = await rig.open("/large?n=32000")
    assert "too many for a snapshot" in result.text
    assert "item 100" in result.text
    assert len(result.text) < LONGEST + 500
    assert "item 100" in (await rig("text")).text
    assert time.monotonic() - started < 20


FORGED = """() => {
  const long = 'forged '.repeat(10_000_000);
  String.prototype.slice = String.prototype.trim = Array.prototype.join = () => long;
  for (const name of ['innerText', 'textContent']) Object.defineProperty(Node.prototype, name, { get: () => long });
  Object.defineProperty(HTMLElement.prototype, 'innerText', { get: () => long });
  document.getElementsByTagName = () => ({ length: long });
  Object.defineProperty(Element.prototype, 'scrollHeight', { get: () => long });
}"""
LONG = """() => {
  const one = document.createElement('p');
  one.style.whiteSpace = 'nowrap';  // wrapped, it takes minutes to lay out
  one.append('long '.repeat(200_000));
  document.body.append(one);
}"""


async def test_a_page_cannot_replace_what_its_text_is_cut_with(new_desk: Rig) -> None:
    """A page returned 100 MB of text once, and everything stopped while it was read."""
    await new_desk.open("/popup")
    ref = await new_desk.ref("In a new tab")
    assert new_desk.session.page is not None
    await new_desk.session.page.evaluate(FORGED)
    with _little_memory():
        for more in ({}, {"ref": ref}):
            result = await new_desk("text", **more)
            assert "In a new tab" in result.text
            assert "forged" not in result.text
        assert (await new_desk("scroll", direction="down")).status is ResultStatus.OK
        assert await asked(new_desk.session.page, "words", 5.0, limit=8) == "Open one"


@pytest.mark.whole("a text that is longer still stays")
async def test_a_long_text_is_cut_before_it_comes_here(rig: Rig) -> None:
    await rig.open("/plain")
    assert rig.session.page is not None
    await rig.session.page.evaluate(LONG)
    with _little_memory(1_000_000):
        words = (await rig("text")).text
    assert len(words) < LONGEST + 500
    assert "This is the beginning" in words


async def test_snapshot_of_a_very_long_text_is_refused(rig: Rig) -> None:
    await rig.open("/plain")
    assert rig.session.page is not None
    much = LONG.replace("200_000", "1_100_000").replace("whiteSpace = 'nowrap'", "display = 'none'")  # nor laid out
    await rig.session.page.evaluate(much)
    with _little_memory():
        found = (await rig("snapshot")).text
        assert "too many for a snapshot" in found
        assert len(found) < LONGEST + 500
        assert len((await rig("text")).text) < LONGEST + 500


@contextmanager
def _little_memory(limit: int = 3_000_000) -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


async def test_pictures(rig: Rig) -> None:
    await rig.open("/plain")
    result = await rig("screenshot")
    assert [one.media_type for one in result.pictures] == ["image/jpeg"]
    assert _size(rig.work.pictures[0]) == (1280, 800)
    await rig.open("/tall")
    assert (await rig("screenshot", full_page=True)).status is ResultStatus.OK
    assert _size(rig.work.pictures[1])[1] == 10_000
    await rig.open("/form")
    assert (await rig("screenshot", ref=await rig.ref("Send"))).status is ResultStatus.OK
    assert _size(rig.work.pictures[2])[1] < 100


def _size(jpeg: bytes) -> tuple[int, int]:
    """Width and height, from the frame header."""
    assert jpeg[:2] == b"\xff\xd8"
    at = 2
    while jpeg[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4])
    return int.from_bytes(jpeg[at + 7 : at + 9]), int.from_bytes(jpeg[at + 5 : at + 7])


# --- without a browser ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "ref"),
    [
        ('- button "x" [ref=e5]', "e5"),
        ('- button "x [ref=e1]" [ref=f2e5] [cursor=pointer]:', "f2e5"),
        ('- button "x \\" [ref=e1]" [ref=e6]', "e6"),
        ("- text: words [ref=e1]", ""),
        ("- paragraph [ref=e3]: words [ref=e1]", "e3"),
        ("- /url: /x", ""),
    ],
)
async def test_refs_are_not_words_of_the_page(line: str, ref: str) -> None:
    assert ref_of(line) == ref


async def test_a_part_of_a_snapshot() -> None:
    assert part(TREE, "e2") == '- list [ref=e2]:\n  - listitem [ref=e3]: "one [ref=e9]"\n  - listitem [ref=e4]: two'
    assert part(TREE, "e5") == '- button "three [ref=e4]" [ref=e5]'
    with pytest.raises(Trouble):
        part(TREE, "e9")


async def test_a_snapshot_that_is_too_long_keeps_its_outline() -> None:
    rows = "\n".join(f"    - link [ref=e{n}]:\n      - /url: /{n}" for n in range(10, 3000))
    tree = f"- main [ref=e1]:\n  - list [ref=e2]:\n{rows}\n  - button [ref=e3]"
    shown = fitted(tree, 6000)
    assert len(shown) < 6000
    assert "- button [ref=e3]" in shown
    assert "The rest in outline" in shown
    assert fitted(TREE, 6000) == TREE
    assert len(fitted("x" * 100_000, 6000)) < 7000


async def test_messages_are_short_and_ours() -> None:
    told = meaning("Locator.click: Timeout 10000ms exceeded.\nCall log:\n  - <div> intercepts pointer events")
    assert told.text == "Another element covers it."
    assert meaning("Page.goto: net::ERR_NEW_THING at http://x/").text == "The page could not be loaded (NEW_THING)."
    assert "\n" not in meaning("Something\nelse\x1b[0m").text
    assert one_line("a\u202e\n\n b\x00" + "c" * 100, 10) == "a b ccccc…"
