"""Uploads of the page at the wire: what is taken, once and whole, and how everything else is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from gateway.agent.attachments import FILE_AT_MOST, FILES_AT_MOST
from gateway.app.wiring import make_node_uploads, make_page
from gateway.domain.ids import PAGE, NodeId, OwnerName
from gateway.domain.prompts import UserText
from gateway.domain.steps import Answer
from gateway.domain.turns import TurnState
from gateway.errors import BadRequest, FetchFailed, StoreFull
from gateway.ports import COOKIE
from gateway.server.node_uploads import AWAY
from gateway.server.page import uploads as subject
from gateway.server.page.uploads import KEPT_FOR, Uploads
from gateway.server.request_guard import KEY_HEADER
from tests.support.clock import FakeClock
from tests.support.engine import Engine, Served, served
from tests.support.fakes import CLEO
from tests.support.makers import ANN
from tests.support.patience import PATIENCE_S
from tests.support.surroundings import until

KEY = "upload-0001"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    engine = Engine(tmp_path)
    async with served(engine) as found:
        engine.channels[PAGE] = found.web
        yield found


def kept(page: Served) -> list[Path]:
    """All files below the folder of uploads, partial ones included."""
    return [path for path in (page.engine.core.loaded.state / "uploads").rglob("*") if path.is_file()]


async def put(page: Served, data: Any, *, key: str = KEY, owner: OwnerName = ANN, **headers: str) -> tuple[int, Any]:
    """Upload a file; return the status and the answer."""
    named = {"X-Dragoman-Name": quote("notes.txt"), "Content-Type": "text/plain"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        page.client(await page.cookie(owner)) as client,
        client.put(f"{page.url}/api/uploads/{key}", data=data, headers=named) as response,
    ):
        return response.status, await response.json()


async def say(page: Served, *frames: dict[str, Any], owner: OwnerName = ANN) -> list[dict[str, Any]]:
    """Send frames; return the answer to each."""
    cookie = await page.cookie(owner)
    async with page.client(cookie) as client, client.ws_connect(f"{page.url}/ws", protocols=protocol(cookie)) as ws:
        answers: list[dict[str, Any]] = []
        for frame in frames:
            await ws.send_json({"op": "say", "id": "say-00001", "text": "", **frame})
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await ws.receive_json())["op"] not in ("said", "error"):
                    pass
            answers.append(answer)
        return answers


def protocol(cookie: str) -> list[str]:
    return [COOKIE, cookie.partition(".")[2]]


async def test_a_file_reaches_workspace_and_model_as_of_a_chat(page: Served) -> None:
    assert await put(page, b"pears: 3", X_Dragoman_Name=quote("prices of fruit.txt")) == (
        200,
        {"id": KEY, "name": "prices of fruit.txt", "size": 8},
    )
    assert (await put(page, PNG, key="picture-01", X_Dragoman_Name="shot.png", Content_Type="image/png"))[0] == 200
    (said,) = await say(page, {"files": [KEY, "picture-01"]})
    assert said["ok"] is True
    engine = page.engine
    engine.model.script = [Answer(text="Three.", model="scripted")]
    lease = await engine.claim()
    await engine.run(lease)
    files = (await engine.store.turn(lease.turn)).inputs[0].files
    assert files is not None
    assert [(file.size, file.media_type, file.trouble) for file in files] == [
        (8, "text/plain", ""),
        (108, "image/png", ""),
    ]
    workspace = engine.workspaces.workspace(lease.session)
    assert (workspace / files[0].path).read_bytes() == b"pears: 3"
    (told,) = [one for one in engine.model.requests[-1].messages if isinstance(one, UserText)]
    assert 'called "prices of fruit.txt"' in told.data
    assert [one.data for one in told.images] == [PNG]


async def test_a_turn_goes_on_without_a_file_of_a_node_that_is_away(page: Served) -> None:
    """The message is answered; the model is told which file is missing, and not where it is."""
    engine = page.engine
    others = replace(engine.core, home="there", node=NodeId("took#1"))
    page.web.uploads = make_node_uploads(others)
    engine.channels[PAGE] = make_page(replace(engine.core, home="here", node=NodeId("runs#1")), page.web_access)
    assert (await put(page, b"pears: 3"))[0] == 200
    (said,) = await say(page, {"text": "How many?", "files": [KEY]})
    assert said["ok"] is True
    kept(page)[0].unlink()
    engine.model.script = [Answer(text="I cannot see it.", model="scripted")]
    lease = await engine.claim()
    await engine.run(lease)
    view = await engine.store.turn(lease.turn)
    assert (view.turn.state, [file.trouble for file in view.inputs[0].files or ()]) == (TurnState.DONE, [AWAY])
    (told,) = [one for one in engine.model.requests[-1].messages if isinstance(one, UserText)]
    assert told.text == "How many?"
    assert f'Not there: a file called "notes.txt". {AWAY}' in told.data
    assert "took" not in told.data


async def test_a_retry_with_the_same_key_is_taken_once(page: Served) -> None:
    first = await put(page, b"first")
    assert first == await put(page, b"another")
    (path,) = kept(page)
    assert path.read_bytes().endswith(b"\nfirst")
    frame = {"files": [KEY, KEY]}
    assert [answer["ok"] for answer in await say(page, frame, frame)] == [True, True]
    rows = await page.engine.store.older((await page.engine.claim()).session, None, 10)
    received = [row.item for row in rows.rows if hasattr(row.item, "message")]
    assert len(received) == 1


NAMES = {
    "..": "..",
    "../../etc/passwd": "../../etc/passwd",
    "a\0b.txt": "a b.txt",
    "two\nlines": "two lines",
    "x" * 300: "x" * 255,
    "exe\u202efdp.txt": "exe fdp.txt",
    "": "file",
    "\u200b": "file",
    "naïve – 文件.pdf": "naïve – 文件.pdf",
}


async def test_an_odd_name_is_shown_and_is_never_a_path(page: Served) -> None:
    for n, (name, shown) in enumerate(NAMES.items()):
        status, answer = await put(page, b"x", key=f"upload-00{n:02}", X_Dragoman_Name=quote(name))
        assert (status, answer["name"]) == (200, shown)
    assert {path.name for path in kept(page)} == {f"upload-00{n:02}" for n in range(len(NAMES))}
    assert len({path.parent for path in kept(page)}) == 1


async def test_a_bad_upload_is_refused_in_words_and_leaves_nothing(page: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(FILE_AT_MOST // 1_000_000 + 2):
            yield b"\0" * 1_000_000

    for data, key, status, words in (
        (b"", KEY, 400, "empty"),
        (endless(), KEY, 413, "more than 25 MB"),
        (b"x", "short", 400, "8 to 64"),
        (b"x", "a" * 65, 400, "8 to 64"),
        (b"x", "%2e%2e%2fpasswd", 400, "8 to 64"),
    ):
        found, answer = await put(page, data, key=key)
        assert (found, words in answer["error"]) == (status, True)
    assert kept(page) == []


async def raw(page: Served, *lines: str, body: bytes = b"", cookie: str) -> bytes:
    """Send a request by hand, and hang up after what is answered in a moment."""
    signed, _, key = cookie.partition(".")
    head = [f"PUT /api/uploads/{KEY} HTTP/1.1", f"Host: 127.0.0.1:{page.http.port}", f"Cookie: {COOKIE}={signed}"]
    head += [f"{KEY_HEADER}: {key}", f"Origin: {page.url}", *lines]
    reader, writer = await asyncio.open_connection("127.0.0.1", page.http.port)
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    await writer.drain()
    try:
        async with asyncio.timeout(0.2):
            return await reader.readline()
    except TimeoutError:
        return b""
    finally:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()


async def test_an_upload_that_breaks_off_leaves_no_half_file(page: Served) -> None:
    """Its length said too large, too much to come, or no number at all."""
    page.http.headers_within_s = 0.1  # no longer does it linger over a body that it did not wait for
    cookie = await page.cookie()
    assert b" 413 " in await raw(page, f"Content-Length: {FILE_AT_MOST + 1}", body=b"x", cookie=cookie)
    assert b" 400 " in await raw(page, "Content-Length: pears", body=b"x", cookie=cookie)
    assert await raw(page, "Content-Length: 1000", body=b"half", cookie=cookie) == b""
    assert await raw(page, "Transfer-Encoding: chunked", body=b"4\r\nhalf\r\n", cookie=cookie) == b""
    await until(lambda: kept(page) == [])
    assert (await put(page, b"whole"))[1]["size"] == 5
    await until(lambda: not any("RequestHandler" in repr(task.get_coro()) for task in asyncio.all_tasks()))


async def test_only_the_signed_in_owner_and_page_can_upload(page: Served) -> None:
    url, cookie = f"{page.url}/api/uploads/{KEY}", await page.cookie()
    for sign_in, origin, status in (
        ("", page.url, 401),
        (cookie.partition(".")[0], page.url, 401),
        (cookie, "https://evil.example", 403),
    ):
        async with page.client(sign_in, origin=origin) as client:
            for method in ("PUT", "DELETE"):
                async with client.request(method, url, data=b"x") as response:
                    assert response.status == status
    signed, _, key = cookie.partition(".")
    async with aiohttp.ClientSession(headers={KEY_HEADER: key, "Cookie": f"{COOKIE}={signed}"}) as nowhere:
        for method in ("PUT", "DELETE"):
            async with nowhere.request(method, url, data=b"x") as response:
                assert response.status == 403
    assert kept(page) == []


async def test_a_file_of_another_owner_is_not_there(page: Served) -> None:
    assert (await put(page, b"mine"))[0] == 200
    (said,) = await say(page, {"files": [KEY]}, owner=CLEO)
    assert (said["ok"], said["error"]) == (False, "A file of this message is not here. Add it again.")
    async with page.client(await page.cookie(CLEO)) as cleo, cleo.delete(f"{page.url}/api/uploads/{KEY}") as response:
        assert response.status == 204
    assert len(kept(page)) == 1
    async with page.client(await page.cookie()) as ann, ann.delete(f"{page.url}/api/uploads/{KEY}") as response:
        assert response.status == 204
    assert kept(page) == []
    with pytest.raises(FetchFailed, match="not kept any more"):
        await Uploads(folder=page.engine.core.loaded.state / "uploads", clock=page.engine.clock).fetch(
            ANN, KEY, lambda _: None
        )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([f"upload-00{n:02}" for n in range(50)], f"at most {FILES_AT_MOST} files"),
        (["../../etc/passwd"], "upload ids"),
        ([7], "upload ids"),
        ("upload-0001", "upload ids"),
        ([], "it is empty"),
    ],
)
async def test_a_message_with_bad_files_is_refused_in_words(page: Served, files: Any, words: str) -> None:
    (said,) = await say(page, {"files": files})
    assert said["ok"] is False
    assert words in said["error"]


# --- the files themselves -------------------------------------------------------------------------


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


@pytest.fixture
def files(tmp_path: Path) -> Uploads:
    return Uploads(folder=tmp_path / "uploads", clock=FakeClock())


async def test_a_sweep_removes_leftovers_and_expired_files(files: Uploads) -> None:
    await files.take(ANN, KEY, "a", "", pieces(b"a"))
    (folder,) = files.folder.iterdir()
    (folder / ".0123.part").write_bytes(b"half")  # as a kill leaves it
    files.sweep()
    assert [path.name for path in folder.iterdir()] == [KEY]
    assert isinstance(files.clock, FakeClock)
    files.clock.advance(KEPT_FOR.total_seconds() - 1)
    files.claim(ANN, [KEY])
    files.clock.advance(KEPT_FOR.total_seconds() - 1)
    files.sweep()
    assert [path.name for path in folder.iterdir()] == [KEY]
    files.clock.advance(2)
    files.sweep()
    assert list(folder.iterdir()) == []


async def test_a_sweep_leaves_what_is_being_written(files: Uploads) -> None:
    async def swept() -> AsyncIterator[bytes]:
        yield b"one "
        files.sweep()
        yield b"two"

    assert (await files.take(ANN, KEY, "a", "", swept())).size == 7


async def test_a_full_disk_refuses_in_words_and_keeps_nothing(files: Uploads) -> None:
    async def full() -> AsyncIterator[bytes]:
        yield b"one "
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StoreFull, match="Free space"):
        await files.take(ANN, KEY, "a", "", full())
    assert [path for path in files.folder.rglob("*") if path.is_file()] == []


async def test_an_owner_has_so_many_bytes_and_no_more(files: Uploads) -> None:
    (folder := files.folder_of(ANN)).mkdir(parents=True)
    with (folder / "upload-0000").open("wb") as sparse:
        sparse.truncate(subject.OWNER_AT_MOST)
    with pytest.raises(StoreFull, match="2 GB together"):
        await files.take(ANN, KEY, "a", "", pieces(b"a"), 1)
    assert (await files.take(CLEO, KEY, "a", "", pieces(b"a"), 1)).size == 1


async def test_two_uploads_of_one_key_keep_the_first(files: Uploads) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"slow"
        await files.take(ANN, KEY, "fast", "", pieces(b"fast"))

    assert (await files.take(ANN, KEY, "slow", "", slow())).name == "fast"
    with pytest.raises(BadRequest, match="not here"):
        files.claim(ANN, [KEY, "upload-0002"])
