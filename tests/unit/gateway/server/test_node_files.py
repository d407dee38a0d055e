"""Files of another node: who may read them, and what is told when nobody can be asked."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.agent.attachments import FILE_AT_MOST
from gateway.domain.ids import OwnerName, SessionId
from gateway.domain.nodes import HomeHolder
from gateway.errors import BadRequest, FetchFailed, FileAway, StoreError
from gateway.server import node_files, node_inbox, node_uploads
from gateway.server.node_files import NodeFiles
from gateway.server.node_inbox import NodeInbox
from gateway.server.node_requests import NodeRequests
from gateway.server.node_uploads import AWAY, CLOSED, NodeUploads
from gateway.server.page.uploads import GONE, KEPT_FOR, Uploads
from gateway.toolcalls.workspaces import Workspaces
from tests.support.clock import FakeClock
from tests.support.fakes import FailingStore
from tests.support.makers import ANN

MAIN = SessionId("main:ann")
KEY = b"k" * 32
NAME = "t1-1.txt"
UPLOAD = "upload-0001"


class Placed(FailingStore):
    """A store that knows where the files of each session are."""

    places: tuple[HomeHolder, ...] = ()

    async def places_of(self, session: SessionId) -> tuple[HomeHolder, ...]:
        """Return them."""
        del session
        return self.places

    async def node_named(self, name: str) -> HomeHolder | None:
        """Return the node of a place."""
        return next((place for place in self.places if place.home == name), None)


@dataclass(slots=True)
class Two:
    """A node that has files, and one that is asked for them."""

    here: NodeFiles
    there: NodeFiles
    uploads: NodeUploads
    """Those of the node that asks."""
    uploads_there: NodeUploads
    inbox: NodeInbox
    inbox_there: NodeInbox
    store: Placed
    clock: FakeClock
    client: aiohttp.ClientSession
    url: str

    def stands(self, text: str, name: str = NAME) -> Path:
        """Put an output on the node that has files."""
        path = self.there.outputs(MAIN) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def at(self, address: str) -> None:
        """Say where the other node can be asked."""
        self.store.places = (HomeHolder(home="there", name="node-2", address=address, alive_at=self.clock.now()),)

    async def asked(self, **changes: str) -> int:
        """Return the status of a request as this node makes it, but for these words."""
        seen: list[str] = []
        place = self.store.places[0]

        async def note(request: web.Request) -> web.Response:
            seen.append(request.query_string)
            return web.Response(status=404)

        app = web.Application()
        app.router.add_get(node_files.PATH, note)
        async with TestServer(app) as server:
            self.store.places = (replace(place, address=str(server.make_url(""))),)
            assert await self.here.find(MAIN, NAME) is None
        query = dict(pair.split("=", 1) for pair in seen[0].split("&")) | changes
        words = "&".join(f"{key}={value}" for key, value in query.items())
        async with self.client.get(f"{self.url}{node_files.PATH}?{words}") as response:
            return response.status


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    clock = FakeClock()
    store = Placed(clock)
    async with aiohttp.ClientSession() as client:

        def files(home: str) -> NodeFiles:
            spaces = Workspaces(tmp_path / home)
            return NodeFiles(
                requests=requests(node_files, clock),
                home=home,
                homes=store,
                kept=spaces.kept,
                outputs=spaces.outputs,
            )

        def uploads(name: str) -> NodeUploads:
            own = Uploads(folder=tmp_path / name / "uploads", clock=clock)
            return NodeUploads(requests=requests(node_uploads, clock), node=name, homes=store, known=store, here=own)

        def inbox(home: str) -> NodeInbox:
            spaces = Workspaces(tmp_path / home)
            return NodeInbox(
                requests=requests(node_inbox, clock), home=home, homes=store, workspace=spaces.known_workspace
            )

        def requests(kind: Any, clock: FakeClock) -> NodeRequests:
            key = hmac.digest(KEY, kind.PATH.encode(), "sha256")
            return NodeRequests(path=kind.PATH, names=kind.NAMES, key=key, client=client, clock=clock)

        here, there = files("here"), files("there")
        both = uploads("here"), uploads("there")
        inboxes = inbox("here"), inbox("there")
        app = web.Application()
        for endpoint in (*there.endpoints(), *both[1].endpoints(), *inboxes[1].endpoints()):
            app.router.add_route(endpoint.method, endpoint.path, endpoint.handler)
        async with TestServer(app) as server:
            found = Two(here, there, *both, *inboxes, store, clock, client, str(server.make_url("")).rstrip("/"))
            found.at(found.url)
            yield found


async def test_a_file_elsewhere_is_fetched_once_and_kept(two: Two) -> None:
    there = two.stands("all of it")
    path = await two.here.find(MAIN, NAME)
    assert path is not None
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("all of it", 0o600)
    there.unlink()
    assert await two.here.find(MAIN, NAME) == path
    assert [entry.name for entry in path.parent.iterdir()] == [NAME]


async def test_a_file_that_is_nowhere_is_none(two: Two) -> None:
    assert await two.here.find(MAIN, NAME) is None
    two.store.places = ()
    assert await two.here.find(MAIN, NAME) is None
    two.here.home = ""
    two.at("http://nowhere.invalid")
    assert await two.here.find(MAIN, NAME) is None, "one node alone asks nobody"
    assert two.here.endpoints() == []


@pytest.mark.parametrize(
    ("address", "cure"),
    [("", "Set [cluster] address on node-2"), ("http://127.0.0.1:1", "Start node-2 again")],
)
async def test_a_node_that_cannot_be_asked_is_named(two: Two, address: str, cure: str) -> None:
    two.at(address)
    with pytest.raises(FileAway) as told:
        await two.here.find(MAIN, NAME)
    assert str(told.value).startswith("The file is on the node node-2, which cannot be reached now.")
    assert cure in str(told.value)


async def test_too_large_remote_file_is_not_fetched(two: Two) -> None:
    two.here.largest = 3
    two.stands("four")
    with pytest.raises(FileAway):
        await two.here.find(MAIN, NAME)
    assert list(two.here.outputs(MAIN).iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"file": "t1-2.txt"}, 403),
        ({"session": "main:bob"}, 403),
        ({"until": "99999999999"}, 403),
        ({"sig": ""}, 403),
        ({"sig": "0" * 64}, 403),
        ({"home": "here"}, 403),
    ],
)
async def test_only_what_was_signed_is_answered(two: Two, changes: dict[str, str], status: int) -> None:
    two.stands("all of it")
    two.stands("another", "t1-2.txt")
    assert await two.asked(**changes) == status


@pytest.mark.parametrize(("late_s", "status"), [(59, 200), (61, 403), (-59, 200), (-61, 403)])
async def test_a_request_is_good_for_a_minute(two: Two, late_s: int, status: int) -> None:
    """Also for a node whose clock is as far ahead."""
    two.stands("all of it")
    (clock := FakeClock()).advance(late_s)
    two.there.requests = replace(two.there.requests, clock=clock)
    assert await two.asked() == status


@pytest.mark.parametrize("name", ["", "..", "../secret", "/etc/passwd", "below/inner", "link.txt", "nul\0"])
async def test_no_name_leads_out_of_the_outputs(two: Two, name: str) -> None:
    """Neither where it is asked for nor where it is answered, even with a good signature."""
    folder = two.there.outputs(MAIN)
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "inner").write_text("inner")
    (folder.parent / "secret").write_text("secret")
    (folder / "link.txt").symlink_to(folder.parent / "secret")
    assert await two.here.find(MAIN, name) is None
    until = str(round(two.clock.now().timestamp()) + 30)
    words = {"session": MAIN, "file": name, "home": "there", "until": until}
    sig = two.there.requests.signature(*words.values())
    async with two.client.get(f"{two.url}{node_files.PATH}", params={**words, "sig": sig}) as response:
        assert response.status == 404


# --- uploads --------------------------------------------------------------------------------------


async def uploaded(two: Two, content: bytes = b"pears: 3") -> str:
    """Upload a file to the other node; return what its message carries."""

    async def body() -> AsyncIterator[bytes]:
        yield content

    await two.uploads_there.take(ANN, UPLOAD, "prices.txt", "text/plain", body())
    two.store.places = (HomeHolder(home="there", name="there", address=two.url, alive_at=two.clock.now()),)
    (file,) = await two.uploads_there.claim(ANN, [UPLOAD])
    return file.source


async def fetched(uploads: NodeUploads, source: str) -> bytes:
    found = bytearray()
    await uploads.fetch(ANN, source, found.extend)
    return bytes(found)


async def test_an_upload_is_fetched_from_the_node_that_took_it(two: Two) -> None:
    source = await uploaded(two, b"\n{}\n" * 50_000)
    assert await fetched(two.uploads, source) == b"\n{}\n" * 50_000
    assert await fetched(two.uploads_there, source) == b"\n{}\n" * 50_000
    two.uploads_there.node = ""
    assert await fetched(two.uploads_there, source) == b"\n{}\n" * 50_000, "one node alone, later"
    assert (await two.uploads_there.claim(ANN, [UPLOAD]))[0].source == UPLOAD
    assert two.uploads_there.endpoints() == []


async def test_a_message_may_reach_another_node_than_its_file(two: Two) -> None:
    source = await uploaded(two)
    (file,) = await two.uploads.claim(ANN, [UPLOAD])
    assert (file.source, file.name, file.media_type, file.size) == (source, "prices.txt", "text/plain", 8)
    assert await fetched(two.uploads, file.source) == b"pears: 3"
    for owner, key in ((OwnerName("bob"), UPLOAD), (ANN, "upload-0002")):
        with pytest.raises(BadRequest, match="not here"):
            await two.uploads.claim(owner, [key])
    two.clock.advance(KEPT_FOR.total_seconds() + 1)
    with pytest.raises(BadRequest, match="not here"):
        await two.uploads.claim(ANN, [UPLOAD])


async def test_an_upload_is_taken_while_the_store_is_away(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> None:
        raise StoreError("It is away.")

    monkeypatch.setattr(two.store, "put", away)
    source = await uploaded(two)
    assert await fetched(two.uploads_there, source) == b"pears: 3"


async def test_an_upload_of_a_node_that_is_away_is_missing(two: Two) -> None:
    """The reason is for people and models: no node is named in it."""
    source = await uploaded(two)
    await uploaded(two)
    two.uploads_there.here.drop(ANN, UPLOAD)
    with pytest.raises(FetchFailed) as told:
        await fetched(two.uploads, source)
    assert told.value.message == GONE
    for address, why, retryable in (("http://127.0.0.1:1", AWAY, True), ("", CLOSED, False)):
        two.store.places = (replace(two.store.places[0], address=address),)
        with pytest.raises(FetchFailed) as told:
            await fetched(two.uploads, source)
        assert (told.value.message, told.value.retryable) == (why, retryable)
    two.store.places = ()
    with pytest.raises(FetchFailed, match="machine that cannot be reached"):
        await fetched(two.uploads, source)


class _Full(Exception):
    """Error of the taker of a file."""


async def test_taker_of_an_upload_may_stop(two: Two) -> None:
    source = await uploaded(two)

    def full(data: bytes) -> None:
        raise _Full(data)

    with pytest.raises(_Full):
        await two.uploads.fetch(ANN, source, full)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"owner": "bob"}, 404),
        ({"file": "upload-0002"}, 404),
        ({"file": "../secret"}, 404),
        ({"file": "/etc/passwd"}, 404),
        ({"file": ""}, 404),
        ({"file": "link-0001"}, 404),
        ({"node": "here"}, 403),
        ({"until": "99999999999"}, 403),
    ],
)
async def test_only_an_upload_is_handed_out(two: Two, changes: dict[str, str], status: int) -> None:
    """Even with a good signature; without one, or with one for outputs, nothing is."""
    await uploaded(two)
    folder = two.uploads_there.here.folder_of(ANN)
    (folder.parent / "secret").write_text("{}\nsecret")
    (folder / "link-0001").symlink_to(folder.parent / "secret")
    until = str(round(two.clock.now().timestamp()) + 30)
    words = {"owner": ANN, "file": UPLOAD, "node": "there", "until": until} | changes
    for requests, answer in ((two.uploads.requests, status), (two.here.requests, 403)):
        asked = {**words, "sig": requests.signature(*words.values())}
        async with two.client.get(f"{two.url}{node_uploads.PATH}", params=asked) as response:
            assert response.status == answer
    async with two.client.get(f"{two.url}{node_uploads.PATH}", params=words) as response:
        assert response.status == 403


# --- files that people sent -----------------------------------------------------------------------


def sent(two: Two, data: bytes = b"OggS...", name: str = "i1-1.ogg") -> str:
    """Put a file into the inbox of the other node; return its path in the workspace."""
    inbox = two.inbox_there.workspace(MAIN) / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / name).write_bytes(data)
    return f"inbox/{name}"


async def test_a_file_of_another_inbox_is_read(two: Two) -> None:
    path = sent(two)
    assert await two.inbox.read(MAIN, path) == b"OggS..."
    assert not two.inbox.workspace(MAIN).exists(), "nothing is made here"
    assert await two.inbox.read(MAIN, "inbox/i1-2.ogg") is None
    two.at("http://127.0.0.1:1")
    with pytest.raises(FileAway, match="Start node-2 again"):
        await two.inbox.read(MAIN, path)
    two.inbox.home = ""
    assert await two.inbox.read(MAIN, path) is None, "one node alone asks nobody"
    assert two.inbox.endpoints() == []


async def test_a_large_file_of_an_inbox_is_left_there(two: Two) -> None:
    path = sent(two)
    with (two.inbox_there.workspace(MAIN) / path).open("r+b") as file:
        file.truncate(FILE_AT_MOST + 1)
    assert await two.inbox.read(MAIN, path) is None


@pytest.mark.parametrize("name", ["", "..", "../secret", "/etc/passwd", "below/inner", "link.ogg", "nul\0"])
async def test_no_name_leads_out_of_the_inbox(two: Two, name: str) -> None:
    """Neither where it is asked for nor where it is answered, even with a good signature."""
    sent(two)
    workspace = two.inbox_there.workspace(MAIN)
    (workspace / "secret").write_text("secret")
    (workspace / "inbox" / "below").mkdir()
    (workspace / "inbox" / "below" / "inner").write_text("inner")
    (workspace / "inbox" / "link.ogg").symlink_to(workspace / "secret")
    assert await two.inbox.read(MAIN, f"inbox/{name}") is None
    until = str(round(two.clock.now().timestamp()) + 30)
    words = {"session": MAIN, "file": name, "home": "there", "until": until}
    for requests, answer in ((two.inbox.requests, 404), (two.here.requests, 403)):
        asked = {**words, "sig": requests.signature(*words.values())}
        async with two.client.get(f"{two.url}{node_inbox.PATH}", params=asked) as response:
            assert response.status == answer
    assert await two.inbox.read(MAIN, "secret") is None
    assert await two.inbox.read(MAIN, "other/i1-1.ogg") is None
