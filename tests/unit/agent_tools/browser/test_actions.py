"""Each action on real pages, and pages that do not cooperate."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from playwright.async_api import Error

from agent_tools.browser.guard import ask
from gateway.domain.tools import ResultStatus
from tests.unit.agent_tools.browser.conftest import Rig

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.whole("a real Chromium for minutes; test_10_browser, test_guard and test_browser_reach stay"),
]


async def test_open_shows_title_address_status_and_elements(rig: Rig) -> None:
    result = await rig.open("/form")
    assert result.text.startswith(f"Page: Form — {rig.pages.here}/form (HTTP 200)\n")
    assert result.untrusted
    for piece in ('textbox "Name" [ref=', 'combobox "Colour" [ref=', 'button "Send" [ref='):
        assert piece in result.text


async def test_a_page_with_an_error_status_is_shown_with_it(rig: Rig) -> None:
    result = await rig.open("/nowhere")
    assert "Not here" in result.text
    assert "(HTTP 404)" in result.text


async def test_a_title_cannot_write_a_line_of_its_own(rig: Rig) -> None:
    first = (await rig.open("/title")).text.split("\n")[0]
    assert first == f"Page: One Page: forged — https://bank.example/ — {rig.pages.here}/title (HTTP 200)"


async def test_a_form_is_filled_in_and_sent(rig: Rig) -> None:
    await rig.open("/form")
    assert 'textbox "Name"' in (await rig("type", ref=await rig.ref("Name"), text="Ann")).text
    assert (await rig("select", ref=await rig.ref("Colour"), values=["Green"])).status is ResultStatus.OK
    result = await rig.click("Send")
    assert "You said name=Ann, colour=g" in result.text
    assert "/said?name=Ann&colour=g" in result.text.split("\n")[0]


async def test_type_replaces_and_submits(rig: Rig) -> None:
    await rig.open("/form")
    ref = await rig.ref("Name")
    await rig("type", ref=ref, text="first")
    assert "You said name=second" in (await rig("type", ref=ref, text="second", submit=True)).text


async def test_an_option_that_is_not_there_is_told_with_those_that_are(rig: Rig) -> None:
    await rig.open("/form")
    result = await rig("select", ref=await rig.ref("Colour"), values=["Blue"])
    assert (result.code, result.text) == ("options", "The list has no such option. It has: Red, Green")


async def test_keys(rig: Rig) -> None:
    await rig.open("/keys")
    assert "pressed Escape" in (await rig("press", key="Escape")).text
    assert "pressed a" in (await rig("press", key="a", ref=await rig.ref("Field"))).text
    result = await rig("press", key="Foo")
    assert (result.code, result.text) == ("key", "There is no such key.")


async def test_a_ref_that_is_gone(rig: Rig) -> None:
    await rig.open("/gone")
    ref = await rig.ref("First")
    await rig.click("Take away")
    more = {"type": {"text": "x"}, "select": {"values": ["x"]}, "press": {"key": "a"}}
    for action in ("click", "type", "select", "press", "scroll", "text", "screenshot"):
        result = await rig(action, ref=ref, **more.get(action, {}))
        assert (result.status, result.code) == (ResultStatus.ERROR, "ref"), action
        assert result.text.startswith(f"There is no {ref} on the page now."), action
        assert "new snapshot" in result.hint, action


async def test_a_ref_of_the_page_before_is_gone(rig: Rig) -> None:
    for _ in range(2):  # playwright names the refs of a session's later pages in another way
        await rig.open("/form")
        ref = await rig.ref("Send")
        await rig.open("/plain")
        assert (await rig("click", ref=ref)).code == "ref", ref


async def test_elements_that_cannot_be_used_say_why(rig: Rig) -> None:
    await rig.open("/form")
    assert (await rig("type", ref=await rig.ref("Send"), text="x")).code == "kind"
    assert (await rig("select", ref=await rig.ref("Name"), values=["x"])).code == "kind"
    result = await rig("upload", host=rig.pages.scope, ref=await rig.ref("Name"), path="gone.txt")
    assert (result.code, result.text) == ("path", "There is no file `gone.txt`.")
    assert "Call log" not in result.text


async def test_covered_element_is_reported(rig: Rig) -> None:
    await rig.open("/covered")
    result = await rig("click", ref=await rig.ref("Beneath"))
    assert (result.code, result.text) == ("covered", "Another element covers it.")


async def test_wait_for_text_and_for_time(rig: Rig) -> None:
    await rig.open("/late")
    assert "now" in (await rig("wait", text="now")).text
    started = time.monotonic()
    await rig("wait", amount=0.3)
    assert time.monotonic() - started >= 0.3
    result = await rig("wait", text="never", timeout=2)
    assert (result.code, result.text) == ("timeout", "The page did not show “never” within 1.1 seconds.")
    assert (await rig("wait", amount=31)).code == "wait"


@pytest.mark.parametrize("path", ["/reloads", "/turns"])
async def test_open_leaves_a_page_that_reloads_itself(new_desk: Rig, path: str) -> None:
    """Its own navigation interrupted ours, or took the tab back after it: an error, or the wrong page."""
    for n in range(2):
        assert new_desk.session.page is not None
        with suppress(Error):  # what it does is no concern of ours
            await new_desk.session.page.goto(new_desk.pages.here + path, wait_until="commit", timeout=5000)
        await asyncio.sleep(0.05)
        result = await new_desk("open", url=f"{new_desk.pages.here}/plain?{n}")
        assert result.status is ResultStatus.OK, (n, result)
        assert f"{new_desk.pages.here}/plain?{n} (HTTP 200)" in result.text.splitlines()[0]
        assert "A plain page" in result.text


@pytest.mark.parametrize("status", [204, 205])
@pytest.mark.parametrize("before", ["/plain", ""])
async def test_an_answer_without_a_page_is_asked_for_once(new_desk: Rig, status: int, before: str) -> None:
    if before:
        await new_desk.open(before)
    tab, asked = new_desk.session.page, len(new_desk.pages.asked)
    result = await new_desk("open", url=f"{new_desk.pages.here}/no-page?status={status}")

    assert (result.status, result.code) == (ResultStatus.ERROR, "no_page")
    assert result.text.startswith("The address gave no page.")
    assert "its tab was closed" not in result.text
    assert new_desk.pages.asked[asked:] == [f"{new_desk.pages.scope}/no-page"]
    assert new_desk.session.page is tab


async def test_back(rig: Rig) -> None:
    await rig.open("/plain")
    await rig.open("/other")
    assert "A plain page" in (await rig("back")).text


async def test_back_where_nothing_is_before(rig: Rig) -> None:
    await rig.open("/plain")
    await rig("back")
    result = await rig("back")
    assert (result.status, result.code) == (ResultStatus.ERROR, "history")


async def test_a_page_that_never_ends_is_scrolled_step_by_step(rig: Rig) -> None:
    await rig.open("/endless")
    first = await rig("scroll", direction="down")
    assert "shows what is at 720." in first.text
    for _ in range(3):
        await rig("scroll", amount=3)
    assert "item 60" in (await rig("text")).text
    assert "shows what is at 0." in (await rig("scroll", direction="up", amount=300)).text


async def test_scroll_to_an_element(rig: Rig) -> None:
    await rig.open("/large?n=2000")
    ref = await rig.ref("item 100")
    assert (await rig("scroll", ref=ref)).status is ResultStatus.OK


async def test_a_script_runs_on_no_page_of_another_host(rig: Rig) -> None:
    """The page moved by itself to a host that was allowed before: whoever allowed the script was not shown that one."""
    other = rig.pages.elsewhere.removeprefix("http://")
    rig.session.scopes |= {other}
    await rig("open", url=f"{rig.pages.elsewhere}/script")
    result = await rig("evaluate", host=rig.pages.scope, script="document.title = 'ran'")
    assert (result.status, result.code) == (ResultStatus.ERROR, "host")
    assert result.text.startswith(f"The page that is open is of {other}, and this was to be done on {rig.pages.scope}")
    assert result.hint.startswith(f"Open a page of {rig.pages.scope} first")
    assert "ran" not in (await rig("snapshot")).text
    assert (await rig("evaluate", host=other, script="answer")).text.endswith("42")


async def test_a_script_where_the_owner_allows_it(rig: Rig) -> None:
    await rig.open("/script")
    assert (await rig("evaluate", host=rig.pages.scope, script="({answer, list: [1, 'é']})")).text.endswith(
        '\n\n{"answer": 42, "list": [1, "é"]}'
    )
    result = await rig("evaluate", host=rig.pages.scope, script="gone()")
    assert (result.code, result.text) == ("script", "The script failed: ReferenceError: gone is not defined")
    assert (await rig("evaluate", host=rig.pages.scope, script="'x'.repeat(20000)")).code == "size"
    assert (await rig("evaluate", host=rig.pages.scope, script="while (true) nap();", timeout=2)).code == "hangs"


async def test_a_host_that_never_answers(rig: Rig) -> None:
    await rig.open("/plain")
    result = await rig("open", url=f"{rig.pages.here}/hang", timeout=2)
    assert (result.code, result.text) == ("timeout", "The host did not answer within 1.1 seconds.")
    assert "A plain page" in (await rig("snapshot")).text


async def test_a_link_to_a_host_that_never_answers(rig: Rig) -> None:
    await rig.open("/away?to=/hang")
    ref = await rig.ref("Away")
    result = await rig("click", ref=ref, timeout=3)
    assert (result.code, result.text) == (
        "timeout", "The page did not answer in time: what it was loading was stopped."
    )  # fmt: skip
    assert "Away" in (await rig("snapshot")).text


async def test_a_frame_that_never_comes(rig: Rig) -> None:
    started = time.monotonic()
    assert "The beginning" in (await rig.open("/frame?to=/hang")).text
    assert "[ref=" in (await rig("snapshot")).text
    assert time.monotonic() - started < 15


async def test_a_page_of_which_a_part_never_comes(rig: Rig) -> None:
    started = time.monotonic()
    assert "words" in (await rig.open("/slow-part")).text
    assert time.monotonic() - started < 6


async def test_a_host_that_refuses(rig: Rig) -> None:
    rig.session.scopes |= {"127.0.0.1:9"}
    result = await rig("open", url="http://127.0.0.1:2/")
    assert result.code == "outside"
    rig.session.scopes |= {"127.0.0.1:2"}
    page = rig.session.page
    for _ in range(5):  # the browser's error page comes at any moment, and must not cost the tab
        result = await rig("open", url="http://127.0.0.1:2/")
        assert (result.code, result.text) == ("load", "The host refuses connections.")
        assert (rig.url, rig.session.page) == ("about:blank", page)


async def test_a_page_that_hangs_is_closed_and_the_next_one_opens(new_desk: Rig) -> None:
    await new_desk.open("/loop")
    result = await new_desk.click("Hang")
    assert (result.status, result.code) == (ResultStatus.ERROR, "hangs")
    await new_desk.open("/plain")


async def test_a_call_that_is_cut_leaves_the_page_usable(rig: Rig) -> None:
    await rig.open("/plain")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await rig("open", url=f"{rig.pages.here}/hang")
    started = time.monotonic()
    assert "A plain page" in (await rig("text")).text
    assert time.monotonic() - started < 2


async def test_a_tab_that_crashes(rig: Rig) -> None:
    await rig.open("/plain")
    page = rig.session.page
    assert page is not None
    cdp = await rig.session.context.new_cdp_session(page)
    with suppress(TimeoutError, Error):  # nobody is left to answer
        async with asyncio.timeout(0.5):
            await ask(cdp, "Page.crash")
    result = await rig("snapshot")
    assert (result.status, result.code) == (ResultStatus.ERROR, "crashed")
    assert "Open the page again." in result.hint


async def test_without_an_open_page(rig: Rig) -> None:
    await rig("close")
    for action in ("snapshot", "text", "screenshot", "pdf", "back"):
        result = await rig(action)
        assert (result.code, result.text) == ("closed", "No page is open.")
    await rig.open("/plain")
