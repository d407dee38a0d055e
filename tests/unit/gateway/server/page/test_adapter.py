"""The page over a real server: sign-in, files, and a socket that survives any input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from gateway.domain.ids import OwnerName
from gateway.domain.tools import Effect, Picture, ResultStatus, Risk, ToolResult
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.ports import COOKIE, ArtifactKind, ToolContext
from gateway.server.http_answers import HEADERS
from gateway.server.page.adapter import PRESSED
from gateway.server.request_guard import KEY_HEADER, Address
from tests.support.engine import Engine, Served, served
from tests.support.fakes import ANN_PAGE, CLEO, FakeTool, Text, calls, done
from tests.support.makers import ANN, inbound
from tests.support.patience import PATIENCE_S

SAY: dict[str, Any] = {"op": "say", "id": "say-00001", "text": "hello"}


async def much(ctx: ToolContext, _args: Text) -> ToolResult:
    ctx.output.write(b"line\n" * 50_000)
    return done("")


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)
    read = FakeTool(name="read", risk=Risk.READ, body=much)
    async with served(Engine(tmp_path, [shell, read])) as found:
        yield found


class Socket:
    """The page's side of its socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, frame: object) -> None:
        await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame: dict[str, Any] = await self.socket.receive_json()
                if wanted(frame):
                    return frame

    async def op(self, name: str) -> dict[str, Any]:
        return await self.until(lambda frame: frame["op"] == name)

    async def closed(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.socket.receive()).type not in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSING,
                aiohttp.WSMsgType.CLOSED,
            ):
                pass


@asynccontextmanager
async def opened(page: Served, owner: OwnerName = ANN, *, cookie: str = "") -> AsyncGenerator[Socket]:
    async with (
        page.client(cookie or await page.cookie(owner)) as client,
        client.ws_connect(f"{page.url}/ws") as socket,
    ):
        found = Socket(socket)
        await found.op("welcome")
        yield found


# --- sign-in ------------------------------------------------------------------------------------


async def test_link_signs_in_once_with_a_protected_cookie(page: Served) -> None:
    code = await page.web_access.mint_code(ANN)
    async with page.client() as client:
        async with client.post(f"{page.url}/api/signin", json={"code": code}) as response:
            answer = await response.json()
            assert (response.status, answer["owner"]) == (200, "ann")
            cookie = response.headers["Set-Cookie"]
            assert answer["key"] not in cookie
        async with client.get(f"{page.url}/api/me", headers={KEY_HEADER: answer["key"]}) as response:
            assert (response.status, await response.json()) == (200, {"owner": "ann"})
        async with client.post(f"{page.url}/api/signin", json={"code": code}) as response:
            assert response.status == 401
            assert "dragoman link" in (await response.json())["error"]

    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= parts
    assert not any(part.startswith("domain") for part in parts)
    assert "secure" not in parts  # plain http on loopback; a browser would not send it back otherwise


async def test_behind_https_the_cookie_is_secure(page: Served) -> None:
    page.http.address = Address(host="127.0.0.1", port=0, public_url="https://chat.example.org")
    code = await page.web_access.mint_code(ANN)
    async with (
        page.client(origin="https://chat.example.org") as client,
        client.post(f"{page.url}/api/signin", json={"code": code}) as response,
    ):
        assert response.status == 200
        assert "secure" in response.headers["Set-Cookie"].lower()


BODIES: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'{"code": null}',
    b'{"code": 7}',
    b'{"code": ""}',
    b'{"code": "\\ud800"}',
    b'{"code": "\\u0000"}',
    b'{"code": "' + b"x" * 201 + b'"}',
    b"\xff\xfe",
    b"[" * 4_000,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_nothing_but_a_code_signs_in(page: Served, body: bytes) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    async with (
        page.client() as client,
        client.post(f"{page.url}/api/signin", data=body, headers=headers) as response,
    ):
        assert response.status == 401
        assert "Set-Cookie" not in response.headers


async def test_a_code_in_the_address_signs_nobody_in(page: Served) -> None:
    """I18: what travels in an address ends in logs and histories."""
    code = await page.web_access.mint_code(ANN)
    async with page.client() as client:
        async with client.post(f"{page.url}/api/signin?code={code}") as response:
            assert response.status == 401
        async with client.get(f"{page.url}/?code={code}") as response:
            assert "Set-Cookie" not in response.headers
        async with client.get(f"{page.url}/api/me?dragoman={await page.cookie()}") as response:
            assert response.status == 401


async def test_guessing_is_stopped_after_ten_tries(page: Served) -> None:
    """Wrong codes lock their address, and no right code out of it."""
    code = await page.web_access.mint_code(ANN)
    async with page.client() as client:
        statuses: list[int] = []
        for given in [*(f"guess-{n}" for n in range(12)), code, code]:
            async with client.post(f"{page.url}/api/signin", json={"code": given}) as response:
                statuses.append(response.status)

    assert statuses == [401] * 10 + [429] * 2 + [200, 429]


async def test_private_answers_are_stored_by_no_cache(page: Served) -> None:
    """Of somebody who is signed in, and of a sign-in itself: it carries a key."""
    cookie, code = await page.cookie(), await page.web_access.mint_code(ANN)
    async with page.client(cookie) as client:
        found: list[tuple[int, str]] = []
        for path in (
            "/api/me",
            "/api/output/none/1",
            "/api/output/none/1/0",
            "/api/output/none/1/file/0",
            "/api/output/none/1/spoken",
        ):
            async with client.get(f"{page.url}{path}") as response:
                found.append((response.status, response.headers["Cache-Control"]))
        async with client.post(f"{page.url}/api/signin", json={"code": code}) as response:
            found.append((response.status, response.headers["Cache-Control"]))
    assert found == [(200, "no-store"), *[(404, "no-store")] * 4, (200, "no-store")]


async def test_sign_out_ends_its_cookie_and_socket_only(page: Served) -> None:
    cookie = await page.cookie()
    async with opened(page, cookie=cookie) as here, opened(page) as elsewhere:
        async with page.client(cookie) as client, client.post(f"{page.url}/api/signout") as response:
            assert response.status == 204
            assert f'{COOKIE}=""' in response.headers["Set-Cookie"]
        async with page.client(cookie) as client, client.get(f"{page.url}/api/me") as response:
            assert response.status == 401
        await here.closed()
        await elsewhere.send(SAY)
        assert (await elsewhere.op("said"))["ok"] is True


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["?gatewayUrl=ws://127.0.0.1:9/", "?url=https://evil.example", "?next=//evil.example", "?token=x", ""]
)
async def test_the_page_is_the_same_whatever_its_address_says(page: Served, query: str) -> None:
    """c1: no address of a server, no redirect and no secret is taken from the query."""
    async with page.client() as client:
        async with client.get(f"{page.url}/{query}", allow_redirects=False) as response:
            assert response.status == 200
            body = await response.text()
        async with client.get(f"{page.url}/") as plain:
            assert body == await plain.text()

    assert "evil.example" not in body
    assert "gatewayUrl" not in body
    assert "<script>" not in body  # nothing inline: the policy allows only files of our own


@pytest.mark.parametrize(
    "path",
    [
        "/static/../adapter.py",
        "/static/..%2fadapter.py",
        "/static/%2e%2e/adapter.py",
        "/static/..%5cadapter.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/./index.html/../../adapter.py",
        "/static/index.html%00.js",
        "/static/views/",
        "/static/0123456789abcdef/../../adapter.py",
        "/static/0123456789abcdef/%2fetc%2fpasswd",
        "/static/" + "a" * 5000,
        "/static/C:%5cx",
        "/../../etc/passwd",
    ],
)
async def test_only_files_of_the_page_are_served(page: Served, path: str) -> None:
    async with (
        page.client() as client,
        client.get(URL(page.url + path, encoded=True), allow_redirects=False) as response,
    ):
        body = await response.text()

    assert response.status in (400, 404)
    assert "root:" not in body
    assert "class WebChannel" not in body


async def test_long_output_is_given_only_to_people_who_may_see_it(page: Served) -> None:
    page.engine.model.script = [calls("read")]
    turn = await page.engine.say(where=ANN_PAGE)
    await page.engine.run(await page.engine.claim())
    url = f"{page.url}/api/output/{turn}/1"

    async with page.client(await page.cookie()) as ann, ann.get(url) as response:
        assert (response.status, len(await response.read())) == (200, 250_000)
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["Content-Disposition"] == f'attachment; filename="{turn}-1.txt"'
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
    for cookie, status in ((await page.cookie(CLEO), 404), ("", 401)):
        async with page.client(cookie) as other, other.get(url) as response:
            assert response.status == status
    async with page.client(await page.cookie()) as ann:
        for path in (f"{turn}/0", f"{turn}/99999999999999999999", "..%2f..%2fstate.key/1", f"{turn}/-1"):
            async with ann.get(URL(f"{page.url}/api/output/{path}", encoded=True)) as response:
                assert response.status == 404


async def test_picture_is_given_only_to_people_who_may_see_it(tmp_path: Path) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        made = (await ctx.artifacts.picture(b"\x89PNG", "image/png"), Picture(file="x.svg", media_type="image/svg+xml"))
        return ToolResult(status=ResultStatus.OK, text="drawn", pictures=made)

    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=draws)])
    async with served(engine) as page:
        engine.model.script = [calls("read")]
        turn = await engine.say(where=ANN_PAGE)
        await engine.run(await engine.claim())
        kept = await page.web_access.output(ANN, turn, 1, ArtifactKind.PICTURE, 0)
        assert kept is not None
        kept.with_name("x.svg").touch()
        url = f"{page.url}/api/output/{turn}/1"

        async with page.client(await page.cookie()) as ann, ann.get(f"{url}/0") as response:
            assert (response.status, await response.read()) == (200, b"\x89PNG")
            assert response.headers["Content-Type"] == "image/png"
            assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
        refused = ((ANN, "1", 404), (ANN, "2", 404), (ANN, "99999999999999999999", 404), (ANN, "-1", 404))
        for owner, at, status in (*refused, (CLEO, "0", 404)):
            async with page.client(await page.cookie(owner)) as other, other.get(f"{url}/{at}") as response:
                assert response.status == status
        async with page.client("") as nobody, nobody.get(f"{url}/0") as response:
            assert response.status == 401


# --- the socket ---------------------------------------------------------------------------------

FRAMES: list[str] = [
    "",
    "{",
    "[]",
    "null",
    "[" * 50_000,
    '{"op": "nosuch"}',
    '{"op": "open"}',
    '{"op": "open", "session": "main:cleo"}',
    '{"op": "open", "session": "main:ann", "after": "x"}',
    '{"op": "older", "session": "main:cleo", "before": 7}',
    '{"op": "older", "session": "nosuch", "before": 7}',
    '{"op": "close", "session": 7}',
    '{"op": "say"}',
    '{"op": "press"}',
]


@pytest.mark.parametrize("frame", FRAMES, ids=range(len(FRAMES)))
async def test_a_malformed_frame_is_answered_and_the_socket_lives(page: Served, frame: str) -> None:
    async with opened(page) as socket:
        await socket.send(frame)
        assert (await socket.op("error"))["text"]
        await socket.send(SAY)
        assert (await socket.op("said"))["ok"] is True


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        ({**SAY, "text": ""}, {"op": "said", "id": "say-00001", "ok": False}),
        ({**SAY, "text": "x" * 200_001}, {"op": "said", "id": "say-00001", "ok": False}),
        ({**SAY, "text": "half \ud83d"}, {"op": "said", "id": "say-00001", "ok": False}),
        ({**SAY, "id": "x"}, {"op": "said", "id": "x", "ok": False}),
        ({"op": "press", "id": "press-001"}, {"op": "pressed", "id": "press-001", "result": "not_valid"}),
        (
            {"op": "press", "id": "press-001", "handle": "forged"},
            {"op": "pressed", "id": "press-001", "result": "not_valid"},
        ),
    ],
    ids=range(6),
)
async def test_a_refused_frame_with_an_id_is_answered_by_it(
    page: Served, frame: dict[str, Any], answer: dict[str, Any]
) -> None:
    async with opened(page) as socket:
        await socket.send(frame)
        found = await socket.op(answer["op"])
        assert {key: found[key] for key in answer} == answer
        assert found.get("error") or found.get("text")
        await socket.send(SAY)
        await socket.until(lambda frame: frame["op"] == "said" and frame["ok"])


async def test_too_long_message_is_refused_with_a_cure(page: Served) -> None:
    async with opened(page) as socket:
        await socket.send({**SAY, "text": "x" * 200_001})
        assert "200,000 characters. Send it in parts" in (await socket.op("said"))["error"]

    assert await page.engine.store.sessions() == []


async def test_binary_frames_are_nothing_and_the_socket_lives(page: Served) -> None:
    async with opened(page) as socket:
        await socket.socket.send_bytes(b"\x00\xff")
        await socket.send(SAY)
        assert (await socket.op("said"))["ok"] is True


async def test_message_repeated_with_its_id_is_one_message(page: Served) -> None:
    async with opened(page) as socket:
        for _ in range(3):
            await socket.send(SAY)
            assert (await socket.op("said"))["ok"] is True
    async with opened(page) as socket:  # … and after the page came back
        await socket.send(SAY)
        assert (await socket.op("said"))["ok"] is True

    assert (await page.engine.store.counts()).queued_turns == 1


async def test_a_session_is_followed_live_and_another_owners_is_not(page: Served) -> None:
    async with opened(page) as ann, opened(page, CLEO) as cleo:
        await ann.send({"op": "open", "session": "main:ann"})
        assert (await ann.op("rows"))["rows"] == []
        await cleo.send({"op": "open", "session": "main:ann"})
        assert "no such session" in (await cleo.op("error"))["text"]
        await ann.send(SAY)
        rows = await ann.until(lambda frame: frame["op"] == "rows" and bool(frame["rows"]))
        assert {row["type"] for row in rows["rows"]} == {"turn", "message"}
        await ann.send({"op": "close", "session": "main:ann"})
        await cleo.send(SAY)
        assert (await cleo.op("said"))["ok"] is True  # and no row of Ann's came before it

    assert {line.session.id for line in await page.engine.store.sessions()} == {"main:ann", "main:cleo"}


async def test_a_page_goes_on_from_what_it_has(page: Served) -> None:
    await page.engine.say("one", where=ANN_PAGE)
    async with opened(page) as socket:
        await socket.send({"op": "open", "session": "main:ann", "after": None})
        first = await socket.op("rows")
    await page.engine.ingress.message(inbound("/status", where=ANN_PAGE))
    async with opened(page) as socket:
        await socket.send({"op": "open", "session": "main:ann", "after": first["rev"]})
        second = await socket.op("rows")

        await socket.send({"op": "open", "session": "main:ann", "after": second["rev"]})
        third = await socket.op("rows")

    assert (third["rows"], third["rev"], third["more"]) == ([], second["rev"], False)
    assert all(row["rev"] > first["rev"] for row in second["rows"])
    assert {row["type"] for row in second["rows"]} == {"message", "slot"}


async def test_a_button_of_the_page_decides_once(page: Served) -> None:
    page.engine.model.script = [calls("shell:ls")]
    await page.engine.say(where=ANN_PAGE)
    await page.engine.run(await page.engine.claim())
    async with opened(page) as socket, opened(page, CLEO) as cleo:
        await socket.send({"op": "open", "session": "main:ann"})
        rows = (await socket.op("rows"))["rows"]
        (approval,) = [row for row in rows if row["type"] == "approval"]
        handle = approval["buttons"][0]["handle"]
        press = {"op": "press", "id": "press-001", "handle": handle}
        await cleo.send(press)
        assert (await cleo.op("pressed"))["result"] == "not_valid"
        for id, result in (("press-002", "approved"), ("press-002", "duplicate"), ("press-003", "already")):
            await socket.send({**press, "id": id})
            found = await socket.until(lambda frame: frame["op"] == "pressed")
            assert (found["result"], found["text"]) == (result, PRESSED[PressResult(result)])


async def test_twenty_sessions_are_open_at_once_and_no_more(page: Served) -> None:
    """Those that are refused do not count."""
    *groups, last = await page.engine.groups(21)
    async with opened(page) as socket:
        for n in range(30):
            await socket.send({"op": "open", "session": f"chat:nosuch-{n}"})
            await socket.until(lambda frame: frame["op"] == "error" and "At most" not in frame["text"])
        for group in groups:
            await socket.send({"op": "open", "session": group})
            await socket.until(lambda frame: frame["op"] == "rows")
        await socket.send({"op": "open", "session": last})
        await socket.until(lambda frame: "At most 20" in frame.get("text", ""))


@pytest.mark.parametrize("origin", ["", None, "null", "https://evil.example"])
async def test_only_the_page_itself_opens_the_socket(page: Served, origin: str | None) -> None:
    cookie, _, key = (await page.cookie()).partition(".")
    headers = {"Cookie": f"{COOKIE}={cookie}", KEY_HEADER: key} | ({"Origin": origin} if origin is not None else {})
    async with aiohttp.ClientSession(headers=headers) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{page.url}/ws")

    assert refused.value.status == 403


async def test_a_cookie_that_another_port_got_is_worth_nothing(page: Served) -> None:
    """Browsers send a host's cookies to all its ports, so to a server that a tool was allowed to start there."""
    stolen = (await page.cookie()).partition(".")[0]
    async with page.client(stolen) as thief:
        async with thief.get(f"{page.url}/api/me") as response:
            assert response.status == 401
        for guess in ((), ("dragoman",), ("dragoman", "guess"), ("dragoman", stolen)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await thief.ws_connect(f"{page.url}/ws", protocols=guess)
            assert refused.value.status == 401


async def test_a_browsers_socket_shows_the_key_as_a_sub_protocol(page: Served) -> None:
    cookie, _, key = (await page.cookie()).partition(".")
    async with (
        page.client(cookie) as client,
        client.ws_connect(f"{page.url}/ws", protocols=("dragoman", key)) as socket,
    ):
        assert socket.protocol == "dragoman"


async def test_without_a_cookie_there_is_no_socket(page: Served) -> None:
    for cookie in ("", "forged"):
        async with page.client(cookie) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{page.url}/ws")
        assert refused.value.status == 401


async def test_an_open_page_counts_as_seen(page: Served) -> None:
    async with opened(page) as socket:
        await socket.send(SAY)
        await socket.op("said")

    assert (await page.engine.store.last_contact(ANN, [])).page_seen_at == page.engine.clock.now()


def test_every_press_result_has_a_text() -> None:
    assert set(PRESSED) == set(PRESSED_TEXT) == set(PressResult)
