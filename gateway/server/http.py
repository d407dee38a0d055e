"""HTTP server of the daemon: health, metrics and the routes of channels.

Every request passes the same `request_guard`: Host, then Origin, then sign-in. A route names its needs by `Auth`, so a
new one is covered by default. Anybody can open connections and send nothing. So each request has a timeout.
All connections together use at most a part of the process' files, and one address at most a part of these.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gateway.domain.nodes import Role, Standing
from gateway.domain.text import one_line
from gateway.domain.views import Counts
from gateway.domain.waits import Wait
from gateway.errors import PortInUse, StartError, StoreError
from gateway.ports import Auth, Clock, Endpoint, SignIns
from gateway.server.http_answers import Connection, error, on_prepare
from gateway.server.http_clients import ClientCounts, PendingConnection
from gateway.server.request_guard import Address, credential, refusal, source_of, speaks_for_others
from gateway.system.logging_setup import LogThrottle, log
from gateway.system.metrics import Metrics

BODY_AT_MOST = 1_048_576
"""Bytes of a request's body, uploads apart."""
SIGN_IN = "You are not signed in. Run `dragoman link` (in a clone `./run link`) and open the link it prints."
CROWDED = "Too many requests from your address at once. Close some pages of Dragoman, then try again."
STORE_WITHIN_S = 5.0
"""Timeout in seconds of the store's answer to `/readyz`."""
NAMED_AFTER_S = 1.0
"""Time after which a store that waits for a known reason is not waited for any more, in seconds."""
NO_ANSWER = f"no answer within {STORE_WITHIN_S:.0f} s; the log names the reason"
QUEUED_TOO_LONG = timedelta(seconds=60)
"""Age of the oldest waiting turn beyond which `/readyz` fails."""
HEADERS_WITHIN_S = 10.0
"""Timeout in seconds for a request's headers, and so for an idle connection too."""
BODY_WITHIN_S = 30.0
"""Timeout in seconds for a request's body."""
CONNECTIONS_AT_MOST = 1_000
"""Connections at once; fewer where the process may open few files."""
ADDRESSES_AT_LEAST = 4
"""Addresses needed to use up all connections. A page holds one for good, and up to six while it loads."""
SHOWN_AT_MOST = 200
"""Characters of a request that the log shows."""
ACCEPTED_AT_ONCE = 32
"""Backlog of accepted connections, open for a moment beyond those served until they are refused."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def connections_at_most() -> int:
    """Return how many connections to serve at once: half of the files that the process may open.

    The other half is for the rest of the daemon: 1,024 silent connections used to leave no files to store and tools.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_AT_MOST if soft == resource.RLIM_INFINITY else min(CONNECTIONS_AT_MOST, soft // 2)


class DaemonHealth(Protocol):
    """Part of the store that shows whether work can be accepted. All methods raise `StoreError`."""

    @property
    def waits_for(self) -> StoreError | None:
        """Return why requests to the store wait; None while they do not."""
        ...

    async def probe(self) -> None:
        """Write a row, so that a full disk is noticed."""
        ...

    async def counts(self) -> Counts:
        """Return the counts of queued work."""
        ...

    async def open_approvals(self, limit: int = 200) -> Sequence[Wait]:
        """Return open approvals, the oldest first."""
        ...


@dataclass(slots=True, kw_only=True)
class HttpServer:
    """HTTP server of the daemon, from `start` to `stop`."""

    address: Address
    endpoints: Sequence[Endpoint]
    sign_ins: SignIns
    health: DaemonHealth
    metrics: Metrics
    clock: Clock
    troubles: Callable[[], Sequence[str]] = tuple
    """Return the current problems of the channels; empty when all of them work."""
    accounts_up: Callable[[], Mapping[tuple[str, str], bool]] = dict[tuple[str, str], bool]
    """Return whether each account works now, by channel and account."""
    standing: Callable[[], Standing] = Standing
    """Return the standing of this node in its gateway."""
    headers_within_s: float = HEADERS_WITHIN_S
    body_within_s: float = BODY_WITHIN_S
    connections: int = field(default_factory=connections_at_most)
    """Connections served at once. Open ones, such as a page's, are never closed for new ones."""
    connections_of_one: int = 0
    """Limit of connections, and of requests under way, for one address; 0 is a quarter of all."""
    port: int = 0
    """Port in use, once it listens."""
    _log: Any = field(default_factory=lambda: log("http"))
    _runner: web.AppRunner | None = None
    _socket: asyncio.Server | None = None
    _is_full: bool = False
    _throttle: LogThrottle = field(init=False)
    _connected: ClientCounts = field(init=False)
    _requests: ClientCounts = field(init=False)
    """Requests under way. Behind a trusted proxy only they show how much one client uses."""

    def __post_init__(self) -> None:
        """Make the counters."""
        self._throttle = LogThrottle(self.clock.monotonic)
        of_one = self.connections_of_one or max(1, self.connections // ADDRESSES_AT_LEAST)
        self._connected, self._requests = ClientCounts(at_most=of_one), ClientCounts(at_most=of_one)

    async def start(self) -> None:
        """Start listening. Raises `StartError` when the port is not available."""
        server_logger.addFilter(_is_our_fault)
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_AT_MOST)
        app.on_response_prepare.append(on_prepare)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        for endpoint in self.endpoints:
            app.router.add_route(endpoint.method, endpoint.path, self._checked(endpoint))
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, handle_signals=False)
        await self._runner.setup()
        try:
            # Not aiohttp's `TCPSite`, which accepts everybody. asyncio accepts a whole backlog in one go.
            self._socket = await asyncio.get_running_loop().create_server(
                partial(PendingConnection, self._admit), self.address.host, self.address.port, backlog=ACCEPTED_AT_ONCE
            )
        except (OSError, socket.gaierror) as found:
            await self._runner.cleanup()
            raise _not_listening(found, self.address) from found
        self.port = int(self._socket.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end open connections. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- connections --------------------------------------------------------------------------

    def _admit(self, peer: str) -> asyncio.Protocol | None:
        """Return the protocol for a connection of this peer, or None to refuse it."""
        server = self._runner.server if self._runner is not None else None
        if server is None:
            return None
        full = len(server.connections) >= self.connections
        if full and not self._is_full:  # once, not for each: an attacker must not fill the log as well
            self._log.warning("no more connections are accepted", at_most=self.connections)
        self._is_full = full
        if full:
            return None
        if speaks_for_others(peer, self.address.trusted_proxies):
            return self._connection(server, lambda: None)
        if not self._connected.take(peer):
            self._throttle.tell(self._log.warning, "too many connections of one address", source=peer)
            return None
        return self._connection(server, partial(self._connected.leave, peer))

    def _connection(self, server: web.Server, leave: Callable[[], None]) -> Connection:
        return Connection(
            server,
            leave,
            loop=asyncio.get_running_loop(),
            access_log=None,
            # aiohttp's only timeout for a connection without a request: from its beginning, and after each answer.
            keepalive_timeout=self.headers_within_s,
            lingering_time=self.headers_within_s,  # after an answer that did not wait for the body
        )

    async def _in_time(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request; if its body does not arrive in time, answer 408 and close the connection."""
        deadline = asyncio.timeout(self.body_within_s)

        def whole() -> None:
            with suppress(RuntimeError):  # the body ended after the answer, which did not wait for it
                deadline.reschedule(None)

        def allow(seconds: float) -> None:
            deadline.reschedule(asyncio.get_running_loop().time() + seconds)

        _attach(request, allow_body_s=allow)
        try:
            async with deadline:
                request.content.on_eof(whole)
                return await handler(request)
        except TimeoutError:
            if not deadline.expired():
                raise
            response = error(408, "The request's body did not arrive in time.")
            response.force_close()
            return response

    # --- checks -------------------------------------------------------------------------------

    @property
    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            # Every header of that name: a proxy may add its own line below the sender's.
            hops = ",".join(request.headers.getall("X-Forwarded-For", []))
            source = source_of(request.remote or "", hops, self.address.trusted_proxies)
            if not self._requests.take(source):
                self._throttle.tell(self._log.warning, "too many requests of one address", source=one_line(source, 64))
                return error(429, CROWDED)
            try:
                _attach(request, source=source)
                return await self._answer(request, handler)
            finally:
                self._requests.leave(source)

        return guard

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request and handle it; turn a failure into an answer."""
        refused = refusal(request, self.address.hosts(self.port), self.address.origins(self.port))
        if refused is not None:
            asked = one_line(f"{request.method} {request.path}", SHOWN_AT_MOST)
            self._throttle.tell(self._log.warning, "refused", status=refused[0], asked=asked)
            return error(*refused)
        try:
            return await self._in_time(request, handler)
        except web.HTTPException as gone:
            return error(gone.status, gone.reason)
        except StoreError as trouble:
            return error(503, str(trouble))
        except ConnectionResetError:  # the caller hung up: a platform calls again, and nobody reads this answer
            return error(499, "The connection was closed before the answer.")
        except Exception:  # noqa: BLE001 - the http handlers: a failure becomes an answer (house rule 9)
            self._log.exception("handler failed", path=one_line(request.path, SHOWN_AT_MOST))
            return error(500, "Something went wrong inside Dragoman; see its log.")

    def _checked(self, endpoint: Endpoint) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            if endpoint.auth is Auth.COOKIE:
                shown = credential(request)
                ask = partial(self.sign_ins.owner_of, shown)
                owner = await ask()
                if owner is None:
                    return error(401, SIGN_IN)
                _attach(request, owner=owner, signed_in=ask, credential=shown)
            return await endpoint.handler(request)

        return handler

    # --- health -------------------------------------------------------------------------------

    async def _healthz(self, _request: web.Request) -> web.Response:
        """Answer that the process runs."""
        return web.json_response({"ok": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        """Answer for each role of this node whether work can be accepted, and 503 when one cannot."""
        standing, waited = self.standing(), 0.0
        problems: dict[Role, list[str]] = {role: [] for role in Role if role in standing.roles}
        for found in problems.values():
            if standing.trouble:
                found.append(standing.trouble)
            if standing.drained:
                found.append(f"drained; to go on: dragoman nodes resume {standing.name}")
        try:
            async with self._store_in_time():
                await self.health.probe()
                counts = await self.health.counts()
        except (StoreError, TimeoutError) as trouble:
            for found in problems.values():
                found.append(f"store: {str(trouble) or self.health.waits_for or NO_ANSWER}")
        else:
            oldest = counts.oldest_queued_at
            waited = (self.clock.now() - oldest).total_seconds() if oldest else 0.0
            if waited > QUEUED_TOO_LONG.total_seconds():
                problems.get(Role.WORKER, []).append(f"a turn has been queued for {waited:.0f} s")
            receives = Role.INGRESS if Role.INGRESS in problems else Role.DELIVERY
            problems.get(receives, []).extend(self.troubles())
        every = list(dict.fromkeys(one for found in problems.values() for one in found))
        body = {
            "ready": not every,
            "problems": every,
            "oldest_queued_s": round(waited, 1),
            "node": standing.name,
            "roles": {role.value: {"works": not found, "problems": found} for role, found in problems.items()},
            "differs": list(standing.differs),
            "durability": standing.terms.durability or "",
            "replicas": standing.terms.replicas,
            "lost": "" if standing.loss is None else standing.loss.sentence,
        }
        return web.json_response(body, status=503 if every else 200)

    @asynccontextmanager
    async def _store_in_time(self) -> AsyncGenerator[None]:
        """Raise `TimeoutError` when the store takes too long; earlier, when it says what it waits for."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(STORE_WITHIN_S) as limit:
            look = loop.call_later(NAMED_AFTER_S, lambda: self.health.waits_for and limit.reschedule(loop.time()))
            try:
                yield
            finally:
                look.cancel()

    async def _metrics(self, _request: web.Request) -> web.Response:
        """Answer with every metric, in Prometheus' text format."""
        counts = await self.health.counts()
        oldest = [one.opened_at for one in await self.health.open_approvals(1)]
        age_s = max(0.0, (self.clock.now() - oldest[0]).total_seconds()) if oldest else 0.0
        loss = self.standing().loss
        figures = {
            "queued_turns": counts.queued_turns,
            "running_turns": counts.running_turns,
            "parked_turns": counts.parked_turns,
            "open_approvals": counts.open_approvals,
            "oldest_approval_seconds": age_s,
            "due_slots": counts.due_slots,
            "dead_slots": counts.dead_slots,
            "lost_revisions": 0 if loss is None else loss.every,
            "tasks": len(asyncio.all_tasks()),
        }
        lines = [f"# TYPE dragoman_{name} gauge\ndragoman_{name} {value}\n" for name, value in figures.items()]
        body = generate_latest(self.metrics.registry) + "".join([*lines, *self._channels_up()]).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _channels_up(self) -> Iterator[str]:
        yield "# TYPE dragoman_channel_up gauge\n"
        for (channel, account), up in sorted(self.accounts_up().items()):
            labels = f"channel={_label(channel)},account={_label(account)}"
            yield f"dragoman_channel_up{{{labels}}} {int(up)}\n"


def _label(value: str) -> str:
    """Return the value of a label, escaped for Prometheus."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Return whether aiohttp logs an error of ours. Bytes that are not HTTP got a 400 and need no log entry."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _not_listening(error: OSError, address: Address) -> StartError:
    """Return the error for a failed listen, with its cure."""
    what = f"Cannot listen on {address.host}:{address.port}: {error.strerror or error}."
    if error.errno == errno.EADDRINUSE:
        return PortInUse(what, cure="Choose another [http] port (0 takes any free one), or stop what uses it.")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return StartError(what, cure="Set [http] port to 1024 or more, or allow this user lower ones.")
    return StartError(what, cure="Set [http] host to an address of this machine.")


def _attach(request: web.Request, **found: Any) -> None:
    """Attach values to a request for its handler, by name: channels would have to import aiohttp's typed keys."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", web.NotAppKeyWarning)
        request.update(found)
