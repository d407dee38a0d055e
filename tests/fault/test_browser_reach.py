"""A browser under attack: real Chromium, sandbox session and egress proxies; no page reaches anything inside.

One browser for each way of containment tries all of it. The listeners inside and the proxies' connections are judged.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from gateway.domain.scopes import Scopes
from gateway.domain.tools import ResultStatus
from gateway.errors import BadRequest
from gateway.sandbox import probe
from gateway.toolcalls.files import WorkspaceFiles
from tests.fault.browser_rig import CANARY, LIE, LIES, Attacked, Siege, besieged, targets
from tests.support.proof import figure

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["basic", "off"])
async def siege(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Siege]:
    async with besieged(tmp_path_factory.mktemp("state"), request.param, await probe()) as running:
        begun = await running.session().done("tabs")  # what runs from here on belongs to no single test
        assert begun.status is ResultStatus.OK, begun
        yield running


contained = pytest.mark.parametrize("siege", ["basic"], indirect=True)
"""For what is the same in each way of containment."""


def nothing_was_reached(siege: Siege, *sessions: Attacked) -> None:
    reached = [*siege.inner.met, *siege.net.dialled]
    figure("REACH", "connections that led inside, of one attack", len(reached), 0)
    assert reached == []
    assert CANARY not in "".join(told for one in sessions for told in one.told)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["parts", "targets", "tops that a person allowed"])
async def test_nothing_inside_is_reached(siege: Siege, way: str) -> None:
    """Also where a person allowed the host: an approval is no way around the proxy."""
    await everything_is_tried(siege, way)


@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
@contained
@pytest.mark.parametrize("way", ["files", "tops"])
async def test_nor_are_files_and_hosts_that_nobody_allowed(siege: Siege, way: str) -> None:
    await everything_is_tried(siege, way)


async def everything_is_tried(siege: Siege, way: str) -> None:
    ann = siege.session()
    if "allowed" in way:
        ann.scopes |= siege.inside
    opened = await ann.done("open", url=f"http://{siege.page}/?way={way.split()[0]}")
    assert opened.status is ResultStatus.OK, opened
    await ann.done("wait", text="all tried")
    assert "all tried" in (await ann.done("text")).text
    assert way == "files" or re.search("refused on the way|was stopped", "".join(ann.told)), "nothing was tried"
    nothing_was_reached(siege, ann)


@contained
async def test_no_way_to_write_an_address_leads_inside(siege: Siege) -> None:
    ann = siege.session()
    ann.scopes |= siege.inside
    inside = [*targets(siege.inner.port), f"http://{siege.page}\\@127.0.0.1:{siege.inner.port}/",
              f"http://127.0.0.1:{siege.inner.port}\\@{siege.page}/", f"http://public.test#@{siege.page}:1/",
              (siege.state / "canary.txt").as_uri(), "view-source:http://inner.test/", "chrome://version",
              "javascript:1", "data:text/html,x", "blob:http://inner.test/x", "http://[fe80::1%25lo]/",
              "http://inner.test\t/"]  # fmt: skip
    for url in inside:
        result = await ann("open", url=url)
        assert result is None or result.status is not ResultStatus.OK or "public.test" in url, (url, result)
    await ann("download", url=f"http://127.0.0.1:{siege.inner.port}/file")
    await ann("download", url=f"http://{siege.page}/r?to=http://127.0.0.1:{siege.inner.port}/file")
    nothing_was_reached(siege, ann)


@contained
async def test_a_name_that_changes_its_address_leads_nowhere(siege: Siege) -> None:
    ann = siege.session()
    siege.net.rebound = False
    first = await ann.done("open", url="http://rebind.test/?way=none")
    assert first.status is ResultStatus.OK, first
    siege.net.rebound = True
    again = await ann.done("open", url="http://rebind.test/?way=again")
    assert (again.status, again.code) == (ResultStatus.ERROR, "refused"), again
    nothing_was_reached(siege, ann)


@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
@contained
@pytest.mark.parametrize("lie", LIES)
async def test_forged_page_text_is_marked_untrusted(siege: Siege, lie: str) -> None:
    """Text outside the block of strangers' words is ours: an error's text had the page's words in it."""
    ann = siege.session()
    for result in [
        await ann.done("open", url=f"http://{siege.page}/lies?n={quote(lie)}"),
        await ann.done("screenshot", full_page=True),
        await ann.done("scroll"),
    ]:
        assert LIE not in result.hint
        assert LIE not in result.text or result.untrusted


@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
@contained
async def test_one_session_has_nothing_of_another(siege: Siege) -> None:
    ann, bob = siege.session(), siege.session("bob")
    url = f"http://{siege.page}/?way=none"
    script = "document.cookie = localStorage.x = 'x=' + 'of' + 'ann'; document.cookie"
    for one in (ann, bob):
        await one.done("open", url=url)
    assert "x=ofann" in (await ann.done("evaluate", host=siege.page, script=script)).text
    await ann.done("close")
    await ann.done("open", url=url)
    seen = "document.cookie + localStorage.x + (await caches.keys()) + (await navigator.locks.query()).held.length"
    script = f"(async () => {seen})()"
    assert "x=ofann" in (await ann.done("evaluate", host=siege.page, script=script)).text
    assert "ofann" not in (await bob.done("evaluate", host=siege.page, script=script)).text
    assert (await bob.done("tabs")).text.count("\n") == 0
    tool = siege.state / "tools" / "browser"
    assert [path for path in (tool, *(tool / "states").iterdir()) if path.stat().st_mode & 0o077] == []


@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
@contained
async def test_cookies_are_kept_however_much_pages_stored(siege: Siege) -> None:
    """Reading what two hundred origins stored took too long, so nothing was kept, although the result said so."""
    eve = siege.session("eve")
    await eve.done("open", url=f"http://{siege.page}/store")
    await eve.done("close")
    assert (await eve.done("open", url=f"http://{siege.page}/?way=none")).status is ResultStatus.OK
    assert "x=kept" in (await eve.done("evaluate", host=siege.page, script="document.cookie")).text


@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
@contained
@pytest.mark.parametrize(
    "kept", ["[]", '{"cookies": [{"name": "x"}]}', '{"cookies": [], "origins": [{"origin": "x"}]}']
)
async def test_bad_saved_cookie_costs_a_sign_in_only(siege: Siege, kept: str) -> None:
    """One cookie that Chromium does not take shut the session out for as long as it was kept."""
    states = siege.state / "tools" / "browser" / "states"
    states.mkdir(exist_ok=True)
    (states / "mia.json").write_text(kept)
    mia = siege.session("mia")
    assert (await mia.done("open", url=f"http://{siege.page}/?way=none")).status is ResultStatus.OK
    await mia.done("close")


@contained
async def test_download_above_the_artifact_limit_is_in_the_workspace(siege: Siege) -> None:
    """Between what the tool and what the gateway took for 50 MB it was said to have failed."""
    ann = siege.session()
    result = await ann.done("download", url=f"http://{siege.page}/file?size=51000000", path="all.bin")
    assert (result.status, result.files) == (ResultStatus.OK, ()), result
    assert (ann.workspace / "all.bin").stat().st_size == 51_000_000


@contained
@pytest.mark.whole("a browser for seconds; test_nothing_inside_is_reached stays")
async def test_a_file_is_not_given_to_a_frame_of_another_host(siege: Siege) -> None:
    """An approver of an upload has the open page in mind, not an advertisement in it."""
    ann = siege.session()
    ann.scopes = Scopes(frozenset({siege.page}))
    (ann.workspace / "secret.txt").write_text("secret")
    seen = (await ann.done("open", url=f"http://{siege.page}/upload")).text
    own, framed = re.findall(r'"File" (?:\[\w+\] )?\[ref=(\w+)\]', seen)
    refused = await ann.done("upload", host=siege.page, ref=framed, path="secret.txt")
    assert (refused.status, refused.code) == (ResultStatus.ERROR, "outside"), refused
    assert (await ann.done("upload", host=siege.page, ref=own, path="secret.txt")).status is ResultStatus.OK
    ann.scopes |= {"public.test"}
    assert (await ann.done("upload", host=siege.page, ref=framed, path="secret.txt")).status is ResultStatus.OK


@pytest.mark.whole("a browser of its own; test_nothing_inside_is_reached stays")
async def test_a_link_in_place_of_the_browsers_folder_is_not_followed(tmp_path: Path) -> None:
    """A page that took over the browser can write there: what it plants must not become the daemon's way out."""
    outside, folder, home = tmp_path / "outside", tmp_path / "seat", tmp_path / "home"
    for made in (outside, home):
        made.mkdir()
    folder.symlink_to(outside)
    (home / "mine.txt").write_text("mine")
    (outside / "guid").write_text(CANARY)
    with pytest.raises(BadRequest):
        await WorkspaceFiles(home).hand_over("mine.txt", folder, 1000)
    with pytest.raises(BadRequest):
        await WorkspaceFiles(home).take_in(folder / "guid", "taken.txt", 1000)
    assert sorted(path.name for path in (*outside.iterdir(), *home.iterdir())) == ["guid", "mine.txt"]
