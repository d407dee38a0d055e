from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from config.load import load
from config.plugins import tool_specs
from gateway.app import App, build
from gateway.app.core import Fakes
from gateway.domain.nodes import Role, Standing
from gateway.domain.tools import Risk
from gateway.errors import StartError, StoreError
from gateway.ports import Auth, Endpoint
from gateway.sandbox import Containment
from gateway.server.http import HttpServer
from gateway.server.http_answers import HEADERS
from gateway.server.request_guard import Address
from gateway.store.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.engine import Engine, Served, served
from tests.support.fakes import FakeTool
from tests.support.patience import PATIENCE_S

HOSTS = frozenset({"127.0.0.1:8470", "dragoman.example"})
ORIGINS = frozenset({"http://127.0.0.1:8470", "https://dragoman.example"})
OURS = {"Host": "127.0.0.1:8470"}


# --- every route of the daemon ------------------------------------------------------------------


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """Return the daemon in its default wiring; only its server listens."""
    config = tmp_path / "config.toml"
    config.write_text("[http]\nport = 0\n")
    loaded = load(config, tmp_path / "state", {"HOME": str(tmp_path)}, tool_specs())
    clock = FakeClock()
    async with aiohttp.ClientSession() as client:
        made = build(
            loaded,
            containment=Containment(can_bwrap=False, can_pid_namespace=False),
            environ={},
            client=client,
            fakes=Fakes(clock=clock, store=MemoryStore(clock)),
        )
        await made.daemon.http.start()
        yield made
        await made.daemon.http.stop()


def routes(app: App) -> list[tuple[str, str]]:
    """Return method and path of every route, including new ones."""
    runner = app.daemon.http._runner  # pyright: ignore[reportPrivateUsage] - all real routes
    assert runner is not None
    found = {
        (route.method, route.resource.canonical) for route in runner.app.router.routes() if route.resource is not None
    }
    return sorted((method, _filled(path)) for method, path in found if method != "HEAD")


def _filled(path: str) -> str:
    named = {"path": "x.js", "turn": "t1", "message": "i1", "n": "1", "k": "1", "key": "upload-0001"}
    return path.format_map(named)


def by_cookie(app: App) -> set[tuple[str, str]]:
    """Return the routes that need a sign-in."""
    endpoints = app.daemon.http.endpoints
    return {(e.method, e.path.split("{")[0]) for e in endpoints if e.auth is Auth.COOKIE}


async def asked(app: App, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], Any]:
    url = f"http://127.0.0.1:{app.daemon.http.port}{path}"
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, url, headers=headers, allow_redirects=False) as response,
    ):
        return response.status, response.headers, await response.read()


def test_public_endpoints_are_exactly_three(app: App) -> None:
    public = {(e.method, e.path) for e in app.daemon.http.endpoints if e.auth is not Auth.COOKIE}

    assert public == {("GET", "/"), ("GET", "/static/{path:.+}"), ("POST", "/api/signin")}
    assert len(routes(app)) == len(app.daemon.http.endpoints) + 3  # and health, readiness, metrics


CLAIMS: list[dict[str, str]] = [
    {},
    {"Cookie": "dragoman=forged"},
    {"Authorization": "Bearer x"},
    {"X-Forwarded-For": "127.0.0.1", "X-Owner": "owner", "X-Scopes": "admin"},
]
"""c3: nothing that a client says of itself is believed."""


async def test_every_route_asks_for_a_cookie_where_it_needs_one(app: App) -> None:
    for method, path in routes(app):
        needs = any(method == m and path.startswith(p) for m, p in by_cookie(app) if p != "/")
        for headers in (
            {},
            {"Cookie": "dragoman=forged"},
            {"Authorization": "Bearer x"},
            {"X-Owner": "owner", "X-Forwarded-For": "127.0.0.1"},
        ):
            status, found, _ = await asked(app, method, path, headers)
            assert (status == 401) == (needs or (method, path) == ("POST", "/api/signin")), (method, path, status)
            assert "Set-Cookie" not in found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_every_route_refuses_a_foreign_host_and_a_foreign_page(
    app: App, headers: Mapping[str, str], status: int
) -> None:
    for method, path in routes(app):
        for more in ({}, {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}):
            found, _, body = await asked(app, method, path, {**more, **headers})
            assert (found, "error" in json.loads(body)) == (status, True), (method, path)


async def test_every_route_that_changes_something_refuses_other_sites(app: App) -> None:
    for method, path in routes(app):
        status, _, _ = await asked(app, method, path, {"Sec-Fetch-Site": "cross-site"})
        assert (status == 403) == (method != "GET"), (method, path)
    status, _, _ = await asked(app, "GET", "/ws", {"Sec-Fetch-Site": "cross-site", "Upgrade": "websocket"})
    assert status == 403


async def test_every_answer_carries_the_headers_that_protect_a_page(app: App) -> None:
    answers = [await asked(app, method, path, {}) for method, path in routes(app)]
    answers += [
        await asked(app, "GET", "/nosuch", {}),
        await asked(app, "DELETE", "/", {}),
        await asked(app, "GET", "/", {"Host": "evil.example"}),
        await asked(app, "GET", "/", {"If-None-Match": "x"}),
    ]

    for status, headers, _ in answers:
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, status
        assert "Server" not in headers, status
    assert "default-src 'self'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("no request at all\r\n\r\n", 400),
        ("GET / HTTP/9.9\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX: " + "x" * 9_000 + "\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nExpect: tea\r\n\r\n", 417),
        ("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", 200),
    ],
)
async def test_no_answer_names_the_version_of_its_server(app: App, request_: str, status: int) -> None:
    """Not even an answer that no handler made."""
    port = app.daemon.http.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_.replace("{host}", f"127.0.0.1:{port}").encode())
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    writer.close()
    assert head.split()[1] == str(status)
    assert [word for word in ("server:", "aiohttp", "python") if word in head] == []
    assert [name for name in HEADERS if f"{name.lower()}: " not in head] == []


async def test_only_public_files_may_be_kept_by_a_browser(app: App) -> None:
    """Answers of any new route are private unless it sets a cache rule."""
    for method, path in [*routes(app), ("GET", "/static/app.js"), ("GET", "/nosuch")]:
        _, headers, _ = await asked(app, method, path, {})
        public = (method, path) in {("GET", "/"), ("GET", "/static/app.js")}
        assert (headers["Cache-Control"] == "no-store") == (not public), (method, path)


async def test_a_body_that_is_too_large_is_not_read(app: App) -> None:
    url = f"http://127.0.0.1:{app.daemon.http.port}/api/signin"
    async with aiohttp.ClientSession() as client, client.post(url, data=io.BytesIO(b"x" * 2_000_000)) as response:
        assert response.status in (401, 413)


# --- health -------------------------------------------------------------------------------------


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(Engine(tmp_path)) as found:
        yield found


async def got(page: Served, path: str) -> tuple[int, str]:
    async with page.client() as client, client.get(page.url + path) as response:
        return response.status, await response.text()


async def test_a_store_that_does_not_answer_is_named(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.http.STORE_WITHIN_S", 0.05)
    monkeypatch.setattr(page.engine.store, "probe", asyncio.Event().wait)
    status, text = await got(page, "/readyz")
    assert (status, "store: no answer within" in text) == (503, True)
    why = StoreError("Redis is a replica.", cure="Make it a primary.")
    monkeypatch.setattr(type(page.engine.store), "waits_for", why)
    monkeypatch.setattr("gateway.server.http.STORE_WITHIN_S", 3600)
    monkeypatch.setattr("gateway.server.http.NAMED_AFTER_S", 0.05)
    status, text = await got(page, "/readyz")
    assert (status, "store: Redis is a replica. Make it a primary." in text) == (503, True)


async def test_readiness_needs_a_writing_store_and_short_queues(page: Served) -> None:
    assert await got(page, "/healthz") == (200, '{"ok": true}')
    assert (await got(page, "/readyz"))[0] == 200

    page.engine.store.failing = {"probe": 1}
    status, text = await got(page, "/readyz")
    assert (status, "store: The store failed" in text) == (503, True)
    assert (await got(page, "/healthz"))[0] == 200

    await page.engine.say()
    page.engine.clock.advance(61)
    status, text = await got(page, "/readyz")
    assert (status, "a turn has been queued for 61 s" in text) == (503, True)


async def roles(page: Served, standing: Standing, *troubles: str) -> tuple[int, dict[str, list[str]]]:
    """The status of /readyz and the problems of each role."""
    page.http.standing, page.http.troubles = (lambda: standing), (lambda: troubles)
    status, text = await got(page, "/readyz")
    assert json.loads(text)["node"] == standing.name
    found = json.loads(text)["roles"]
    assert all(one["works"] is not bool(one["problems"]) for one in found.values())
    return status, {name: one["problems"] for name, one in found.items()}


async def test_readiness_lists_each_role(page: Served) -> None:
    every, sends = frozenset(Role), frozenset({Role.WORKER, Role.DELIVERY})
    await page.engine.say()
    page.engine.clock.advance(61)
    late = "a turn has been queued for 61 s"
    bot = "no answer from Telegram"
    assert await roles(page, Standing(name="a"), bot) == (503, {"ingress": [bot], "worker": [late], "delivery": []})
    assert await roles(page, Standing(name="a", roles=sends), bot) == (503, {"worker": [late], "delivery": [bot]})
    assert await roles(page, Standing(name="a", roles=every - {Role.WORKER})) == (200, {"ingress": [], "delivery": []})


async def test_a_drained_node_is_not_ready_in_any_role(page: Served) -> None:
    status, found = await roles(page, Standing(name="a", drained=True))
    assert status == 503
    assert set(map(str, found.values())) == {"['drained; to go on: dragoman nodes resume a']"}
    status, found = await roles(page, Standing(name="a", trouble="Another node has its name."))
    assert (status, found["delivery"]) == (503, ["Another node has its name."])


async def test_another_configuration_is_reported_and_does_not_stop_it(page: Served) -> None:
    page.http.standing = lambda: Standing(differs=("b is configured otherwise: owners.",))
    status, text = await got(page, "/readyz")
    assert (status, json.loads(text)["differs"]) == (200, ["b is configured otherwise: owners."])


async def test_metrics_count_what_happens_and_name_nobody(page: Served) -> None:
    await page.engine.say("a private word")
    status, text = await got(page, "/metrics")

    assert status == 200
    assert 'dragoman_messages_total{outcome="queued"} 1.0' in text
    assert "dragoman_queued_turns 1" in text
    assert re.search(r"^dragoman_tasks [1-9]", text, re.MULTILINE)
    assert not re.search(r"[:/]1001\b", text)
    assert "private" not in text


async def test_metrics_tell_the_age_of_the_oldest_open_approval(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])
    async with served(engine) as page:
        assert "dragoman_oldest_approval_seconds 0.0" in (await got(page, "/metrics"))[1]
        lease = await engine.planned("shell:one")
        await engine.settle(lease)
        engine.clock.advance(90)
        assert "dragoman_oldest_approval_seconds 90.0" in (await got(page, "/metrics"))[1]
        (wait,) = await engine.waits(lease.turn)
        await engine.press(wait.id)
        assert "dragoman_oldest_approval_seconds 0.0" in (await got(page, "/metrics"))[1]


async def test_metrics_tell_which_accounts_work(page: Served) -> None:
    page.http.accounts_up = lambda: {("telegram", "a"): True, ("slack", 'b"\\\n'): False}
    text = (await got(page, "/metrics"))[1]

    assert 'dragoman_channel_up{channel="telegram",account="a"} 1\n' in text
    assert r'dragoman_channel_up{channel="slack",account="b\"\\\n"} 0' in text


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "status", "logged", "words"),
    [
        (RuntimeError("a secret detail"), 500, 1, "see its log"),
        (ConnectionResetError("a secret detail"), 499, 0, "The connection was closed"),
    ],
)
async def test_a_handler_that_breaks_tells_nothing_of_why(
    raised: Exception, status: int, logged: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A caller that hung up is no failure of ours: the log has none."""

    async def breaks(_request: web.Request) -> web.Response:
        raise raised

    engine = Engine(tmp_path)
    endpoint = Endpoint(method="GET", path="/breaks", handler=breaks, auth=Auth.PUBLIC)
    http = HttpServer(
        address=Address(host="127.0.0.1", port=0),
        endpoints=[endpoint],
        sign_ins=engine.web_access(),
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
    )
    await http.start()
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{http.port}/breaks") as response,
    ):
        text = await response.text()
    await http.stop()
    await http.stop()

    assert response.status == status
    assert "secret" not in text
    assert words in text
    assert capsys.readouterr().out.count("handler failed") == logged


async def test_a_port_that_is_taken_is_reported_with_the_cure(page: Served, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    http = HttpServer(
        address=Address(host="127.0.0.1", port=page.http.port),
        endpoints=[],
        sign_ins=engine.web_access(),
        health=engine.store,
        metrics=engine.metrics,
        clock=engine.clock,
    )
    with pytest.raises(StartError, match=r"Cannot listen on 127\.0\.0\.1:\d+: .*Choose another"):
        async with asyncio.timeout(PATIENCE_S):
            await http.start()
