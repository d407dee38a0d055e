"""Requests through a real proxy on loopback, and the errors that the proxy causes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from channels._shared.http import HttpAnswer, Unanswered, Wire, within
from gateway.domain.proxy import Proxy
from tests.support.proxy_server import ProxyServer

PASSWORD = "very%20secret"
USER = f"ann:{PASSWORD}"


@pytest.fixture
async def client() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def root() -> AsyncGenerator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.method + (await request.text()))

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.parametrize("wanted", ["", "ann:very secret"])
async def test_requests_and_files_go_through_proxy(client: aiohttp.ClientSession, root: str, wanted: str) -> None:
    async with ProxyServer(user=wanted).serve() as proxy:
        wire = Wire("Somewhere", client, Proxy(proxy.url_with(USER) if wanted else proxy.url))
        found = await wire.ask("POST", f"{root}say", "say", within(5), data=b"hello")
        file = await wire.get(URL(f"{root}file"), {})
        assert isinstance(found, HttpAnswer)
        assert isinstance(file, aiohttp.ClientResponse)
        assert (found.body, await file.read()) == (b"POSThello", b"GET")
        assert [one.partition(" HTTP")[0] for one in proxy.asked] == [f"POST {root}say", f"GET {root}file"]


async def test_tls_goes_through_tunnel(client: aiohttp.ClientSession, root: str) -> None:
    """The server at its end has no TLS here, so nothing is sent."""
    there = root.removeprefix("http://").rstrip("/")
    async with ProxyServer(user="ann:very secret").serve() as proxy:
        wire = Wire("Somewhere", client, Proxy(proxy.url_with(USER)))
        found = await wire.ask("POST", f"https://{there}/say", "say", within(5))
        assert isinstance(found, Unanswered)
        assert not found.sent
        assert proxy.asked == [f"CONNECT {there} HTTP/1.1"]


async def test_proxy_without_password_is_named_with_cure(client: aiohttp.ClientSession, root: str) -> None:
    async with ProxyServer(user="ann:another").serve() as proxy:
        wire = Wire("Somewhere", client, Proxy(proxy.url_with(USER)))
        for url in (root, "https://somewhere.example/"):
            found = await wire.ask("POST", url, "say", within(5))
            told = f"The proxy {proxy.url} does not take this user and password (407). Correct the setting proxy, "
            assert isinstance(found, Unanswered)
            assert (found.sent, found.why.startswith(told)) == (False, True), found.why
            assert "secret" not in found.why
        assert isinstance(await wire.get(URL(root), {}), Unanswered)


async def test_proxy_that_does_not_connect_is_named(client: aiohttp.ClientSession) -> None:
    async with ProxyServer(status=403).serve() as proxy:
        found = await Wire("Somewhere", client, Proxy(proxy.url)).ask("GET", "https://a.example/", "say", within(5))
    told = f"The proxy {proxy.url} does not connect to this server (403). Let it do so, or correct the setting proxy."
    assert found == Unanswered(sent=False, why=told)


async def test_proxy_that_is_not_there_is_named(client: aiohttp.ClientSession, root: str) -> None:
    found = await Wire("Somewhere", client, Proxy(f"http://{USER}@127.0.0.1:9")).ask("GET", root, "say", within(5))
    told = "The proxy http://127.0.0.1:9 cannot be reached (no connection can be made). "
    assert found == Unanswered(sent=False, why=f"{told}Start it, or correct the setting proxy.")


def test_proxy_shows_no_password() -> None:
    proxy = Proxy(f"http://{USER}@[::1]:3128")
    assert (str(proxy), repr(proxy)) == ("http://[::1]:3128", "Proxy()")
