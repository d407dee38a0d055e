"""Tabs stay on allowed hosts, however a page navigates."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Error

from agent_tools.browser.chromium import leave
from gateway.domain.rules import Verdict
from gateway.domain.scopes import Scopes
from gateway.domain.tools import ResultStatus
from gateway.ports import TurnedAway
from tests.unit.agent_tools.browser.conftest import PageSessions, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

CURE = "Open it: a person is asked first."


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["Link", "Tab", "Post", "Location", "Popup", "Blank"])
async def test_a_page_cannot_lead_to_another_host(rig: Rig, way: str) -> None:
    await rig.open(f"/lead?to={rig.pages.elsewhere}/other")
    result = await rig.click(way)
    assert f"{rig.pages.elsewhere}/other and was stopped. {CURE}" in result.text
    assert "The beginning" in result.text
    assert not rig.pages.reached("/other")
    assert "other" not in (await rig("tabs")).text.replace("/other", "", 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["Link", "Post", "Location", "Popup"])
async def test_nor_by_a_redirect_of_its_own_host(rig: Rig, way: str) -> None:
    await rig.open(f"/lead?to=/redirect?to={rig.pages.elsewhere}/other")
    result = await rig.click(way)
    assert f"{rig.pages.elsewhere}/other and was stopped" in result.text
    assert not rig.pages.reached("/other")


async def test_an_address_that_redirects_elsewhere_shows_nothing_of_it(rig: Rig) -> None:
    await rig.open("/plain")
    result = await rig("open", url=f"{rig.pages.here}/redirect?to={rig.pages.elsewhere}/other")
    assert (result.status, result.code, result.hint) == (ResultStatus.ERROR, "outside", CURE)
    assert f"{rig.pages.elsewhere}/other" in result.text
    assert not rig.pages.reached("/other")
    assert "The other page" not in (await rig("snapshot")).text


async def test_a_page_that_refreshes_itself_elsewhere(rig: Rig) -> None:
    result = await rig("open", url=f"{rig.pages.here}/refresh?to={rig.pages.elsewhere}/other")
    await asyncio.sleep(0.2)
    later = await rig("text")
    assert f"{rig.pages.elsewhere}/other and was stopped" in result.text + later.text
    assert "The other page" not in later.text
    assert not rig.pages.reached("/other")


async def test_back_does_not_lead_to_a_host_that_is_allowed_no_more(rig: Rig) -> None:
    both = rig.session.scopes | {rig.pages.elsewhere.removeprefix("http://")}
    here, rig.session.scopes = rig.session.scopes, both
    assert (await rig("open", url=f"{rig.pages.elsewhere}/other")).status is ResultStatus.OK
    await rig.open("/plain")
    rig.session.scopes = here
    result = await rig("back")
    assert (result.status, result.code) == (ResultStatus.ERROR, "outside")
    assert "The other page" not in result.text + (await rig("snapshot")).text


async def test_a_host_that_was_allowed_is_gone_to(rig: Rig) -> None:
    rig.session.scopes |= {rig.pages.elsewhere.removeprefix("http://")}
    await rig.open(f"/lead?to={rig.pages.elsewhere}/other")
    assert "The other page" in (await rig.click("Link")).text
    assert "The beginning" in (await rig("back")).text


async def test_another_host_in_a_frame_is_the_gates_matter(rig: Rig) -> None:
    result = await rig.open(f"/frame?to={rig.pages.elsewhere}/other")
    assert "The other page" in result.text
    assert "stopped" not in result.text


async def test_page_without_a_host_is_emptied(rig: Rig) -> None:
    await rig.open("/lead?to=/plain")
    result = await rig.click("Blob")
    assert "blob words" not in result.text + (await rig("snapshot")).text


@pytest.mark.parametrize("action", ["text", "snapshot", "screenshot", "pdf"])
async def test_tab_outside_the_scope_is_emptied_before_it_is_read(rig: Rig, action: str) -> None:
    await rig.open("/other")
    rig.session.scopes = Scopes()
    first = await rig(action)
    assert (first.status, first.code) == (ResultStatus.ERROR, "outside")
    assert not rig.work.pictures
    assert not rig.work.kept
    assert "The other page" not in first.text + (await rig("text")).text
    assert rig.url == "about:blank"


async def test_a_guard_leaves_other_sessions_alone(rig: Rig) -> None:
    browser = rig.session.context.browser
    assert browser is not None
    another = await browser.new_context()
    page = await another.new_page()
    await page.goto(f"{rig.pages.elsewhere}/other")
    assert await page.title() == "Other"
    await another.close()
    assert not rig.session.notes


async def test_guard_ends_with_its_page_session(sessions: PageSessions) -> None:
    """A guard left behind would be asked about every page of the other sessions."""
    session = await sessions.make()
    assert session.guard is not None
    await leave(session)
    with pytest.raises(Error, match="closed"):
        await session.guard.refuse_downloads()


async def test_a_page_that_the_gate_refused(rig: Rig) -> None:
    host = rig.pages.here.removeprefix("http://")
    page = rig.session.page
    assert page is not None

    async def refuse(_: object) -> None:
        rig.proxy.refused.append(TurnedAway(host=host, why="127.0.0.1 is a private address."))

    page.on("request", refuse)
    result = await rig("open", url=f"{rig.pages.here}/plain")
    assert (result.status, result.code) == (ResultStatus.ERROR, "refused")
    assert "127.0.0.1 is a private address." in result.text
    assert f'[tools.browser] hosts = ["{host}"]' in result.hint
    assert rig.url == "about:blank"


async def test_a_part_that_the_gate_refused_is_one_line(rig: Rig) -> None:
    await rig.open("/plain")
    rig.proxy.refused = [TurnedAway(host="10.0.0.9:80", why="It is a private address.")] * 3
    result = await rig("snapshot")
    assert result.text.count("10.0.0.9:80 (It is a private address.)") == 1
    assert "A plain page" in result.text


async def test_page_may_lead_to_hosts_that_the_rules_allow(rig: Rig) -> None:
    rig.session.scopes = Scopes(by_rules=lambda _: Verdict.ALLOW)
    assert (await rig.open("/form")).status is ResultStatus.OK
    assert (await rig("snapshot")).status is ResultStatus.OK
