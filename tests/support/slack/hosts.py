"""Hosts of the world outside, all on loopback: what is asked at which, by whom, and what each answers.

Over TLS that needs no certificate, as nobody here could have one for `files.slack.com`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer

from tests.support.ports import free_port

Answer = Callable[[web.BaseRequest], web.Response]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    host: str
    path: str
    token: str
    """The header `Authorization`; empty for none."""


@dataclass(slots=True)
class Hosts:
    """All of them. A host without an answer of its own says 404."""

    answers: Mapping[str, Answer]
    port: int
    asked: list[Asked] = field(default_factory=list[Asked])

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request as the host that it was meant for."""
        host = request.host.partition(":")[0]
        self.asked.append(Asked(host, request.path_qs, request.headers.get("Authorization", "")))
        answer = self.answers.get(host)
        return web.Response(status=404) if answer is None else answer(request)


class _Here(AbstractResolver):
    """Finds every host here, and one that is an address already where it is."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The one place."""
        found = ResolveResult(
            hostname=host, host="127.0.0.1", port=self._hosts.port, family=family, proto=0, flags=socket.AI_NUMERICHOST
        )
        return [found]

    async def close(self) -> None:
        """Nothing is open."""


def _tls(purpose: int) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH-AES128-SHA:@SECLEVEL=0")
    return context


@asynccontextmanager
async def hosts(answers: Mapping[str, Answer]) -> AsyncGenerator[tuple[Hosts, aiohttp.ClientSession]]:
    """The hosts, and a client for which there are no others."""
    found = Hosts(answers, port=free_port())
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", found.handle)
    server = TestServer(application, port=found.port)
    await server.start_server(ssl=_tls(ssl.PROTOCOL_TLS_SERVER))
    connector = aiohttp.TCPConnector(resolver=_Here(found), ssl=_tls(ssl.PROTOCOL_TLS_CLIENT))
    try:
        async with aiohttp.ClientSession(connector=connector) as client:
            yield found, client
    finally:
        await server.close()
