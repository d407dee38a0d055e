"""Places, dragging, selection and elements without a role, also where a page does not cooperate."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from agent_tools.browser.clickables import HEADING, Clickable, annotated, listed, parsed
from agent_tools.browser.mouse import How, how_of
from agent_tools.browser.reading import BRIEF
from gateway.domain.tools import ResultStatus
from tests.unit.agent_tools.browser.conftest import Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")
chromium = pytest.mark.whole("a real Chromium; the first pages of test_interactions stay")


# --- a real page ----------------------------------------------------------------------------------


@chromium
async def test_a_drawing_is_reported_with_the_cure(rig: Rig) -> None:
    seen = (await rig.open("/hands")).text
    assert HEADING in seen
    assert "- drawing <canvas>" in seen
    assert "[300x20000 at 0,200]" in seen
    assert "(What is inside a drawing or a closed part has no ref: take a `screenshot`" in seen


@chromium
async def test_places_need_a_screenshot_of_the_page_as_it_is(rig: Rig) -> None:
    await rig.open("/hands")
    assert (await rig("click", ref="10,10")).text == "There is no screenshot of this page."
    await rig("screenshot")
    result = await rig("click", ref="1280,10")
    assert (result.code, result.text) == (
        "place", "1280,10 is outside of the last screenshot, which is 1280 by 800 pixels."
    )  # fmt: skip
    assert "at 100 50" in (await rig("click", ref="100,250")).text
    await rig("scroll", direction="down")
    assert (await rig("click", ref="100,250")).text == "The page was scrolled after the last screenshot."
    await rig("screenshot")
    await rig("resize", to="600,500")
    assert "another size" in (await rig("click", ref="100,250")).text
    await rig("resize", to="1280,800")
    await rig.open("/plain")
    assert (await rig("click", ref="100,250")).code == "place"


@chromium
async def test_a_place_of_a_tall_picture_is_scrolled_to(rig: Rig) -> None:
    await rig.open("/hands")
    await rig("screenshot", full_page=True)
    assert "at 100 8800" in (await rig("click", ref="100,9000")).text
    assert "outside" in (await rig("click", ref="100,10000")).text


@chromium
async def test_an_element_without_a_role_goes_stale(rig: Rig) -> None:
    seen = (await rig.open("/hands")).text
    ref = next(line for line in seen.splitlines() if "clickable" in line and "[click]" in line)
    ref = ref.partition("[ref=")[2].partition("]")[0]
    assert ref.startswith("x")
    assert (await rig("click", ref=ref)).status is ResultStatus.OK
    assert (await rig("click", ref=ref)).text.startswith(f"There is no {ref} on the page now.")
    await rig.open("/crowd")
    assert (await rig("click", ref=ref)).code == "ref"


@chromium
async def test_marks_are_taken_away_after_a_screenshot(rig: Rig) -> None:
    await rig.open("/hands")
    result = await rig("screenshot")
    assert "elements without a name are marked with their refs." in result.text
    assert rig.session.page is not None
    assert await rig.session.page.evaluate("document.documentElement.children.length") == 2


@chromium
async def test_ends_of_a_drag_must_show_together(rig: Rig) -> None:
    await rig.open("/hands")
    result = await rig("drag", ref=await rig.ref("Words"), to="e99999")
    assert result.code == "ref"
    seen = (await rig("snapshot")).text
    far = next(line for line in seen.splitlines() if "Far" in line).partition("[ref=")[2].partition("]")[0]
    result = await rig("drag", ref=await rig.ref("Words"), to=far)
    assert (result.code, result.text) == ("place", "The two ends do not show at the same time.")
    await rig("screenshot")
    assert (await rig("drag", ref="5,5", to="5,5000")).code == "place"


@chromium
async def test_a_window_has_limits(rig: Rig) -> None:
    await rig.open("/plain")
    result = await rig("resize", to="20000,20000")
    assert (result.code, result.text) == ("size", "No window is 20000 by 20000.")


@chromium
async def test_text_is_selected_and_missing_text_is_told(rig: Rig) -> None:
    await rig.open("/hands")
    words = (await rig("snapshot")).text
    ref = next(line for line in words.splitlines() if "one two" in line).partition("[ref=")[2].partition("]")[0]
    assert "Selected “two three”." in (await rig("select", ref=ref, text="two three")).text
    assert (await rig("select", ref=ref, text="four")).code == "text"


@chromium
async def test_the_value_of_a_textarea_is_read_whole(rig: Rig) -> None:
    await rig.open("/hands")
    assert (await rig("text", ref=await rig.ref("Words"))).text.endswith("a\nb" * 3000)


@chromium
async def test_thousands_of_elements_with_handlers_cost_little(rig: Rig) -> None:
    await rig.open("/crowd")
    started = time.monotonic()
    result = await rig("press", key="a")
    assert time.monotonic() - started < 5
    assert len(result.text) < BRIEF + 500
    assert "more: take a `screenshot`" in result.text or "clickable" in result.text


@chromium
async def test_a_flood_of_listeners_is_not_read(new_desk: Rig) -> None:
    """A page may have any number of them, and each is a part of one message."""
    await new_desk.open("/listeners")
    started = time.monotonic()
    result = await new_desk("snapshot")
    assert time.monotonic() - started < 3
    assert "One" in result.text
    assert "[double-click]" not in result.text


@chromium
async def test_200_popups_leave_ten_tabs(new_desk: Rig) -> None:
    await new_desk.open("/200")
    await new_desk.click("Open many")
    for _ in range(200):  # they are closed as fast as they come
        if len(new_desk.session.context.pages) <= 11:
            break
        await asyncio.sleep(0.05)
    assert len(new_desk.session.context.pages) <= 11
    assert (await new_desk("close")).text.startswith("All tabs are closed.")


# --- text, pure -----------------------------------------------------------------------------------

PLUS = Clickable(ref="", listed="e5", near='Adults "2"', uses="")
TREE = '- button "+" [ref=e5]\n- text: "[ref=e5]"\n- generic [ref=e7] [cursor=pointer]: Save'


async def test_lines_say_what_is_near_in_quotes() -> None:
    lines = annotated(TREE, [PLUS]).split("\n")
    assert lines[0] == f'- button "+" [ref=e5] [near={json.dumps(PLUS.near)}]'
    assert lines[1:] == TREE.split("\n")[1:]


async def test_a_pointer_says_that_a_click_is_of_use() -> None:
    save = Clickable(ref="x1", listed="e7", kind="clickable", tag="div", name="Save", uses="click")
    assert annotated(TREE, [save]) == TREE
    assert listed(TREE, [save], 1000) == ""


async def test_clickables_missing_in_the_tree_are_listed_up_to_a_limit() -> None:
    found = [Clickable(ref=f"x{n}", kind="clickable", tag="i", near="Bin", uses="click") for n in range(100)]
    more = listed(TREE, found, 500)
    assert more.startswith(f'{HEADING}- clickable [ref=x0] [near="Bin"] [click]\n')
    assert "more: take a `screenshot`" in more
    assert len(more) < 700


@pytest.mark.parametrize("line", ["", "x\t1", "e\te1", "y\t1\t2\t3", "x\t1\tclickable\ti\tname\tnear\tclick\t1 2 3 4"])
async def test_a_line_that_was_cut_is_left_out(line: str) -> None:
    assert parsed(line) is None


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (None, How("left", 1, 0, ())),
        ("double", How("left", 2, 0, ())),
        ("hold", How("left", 1, 1200, ())),
        ("right+Shift", How("right", 1, 0, ("Shift",))),
        ("Control+Alt+double", How("left", 2, 0, ("Control", "Alt"))),
    ],
)
async def test_ways_to_click(text: str | None, how: How) -> None:
    assert how_of(text) == how
