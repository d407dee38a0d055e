"""Egress proxies: HTTP proxies on sockets that listen in a sandbox session, one for each browser context."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from gateway.egress.addresses import Address
from gateway.egress.dial import (
    BUFFER,
    Connect,
    Dialler,
    Ends,
    Resolve,
    TurnedAwayError,
    connect_to,
    is_own_address,
    resolve_by,
)
from gateway.egress.exchange import ExchangeLimits, serve
from gateway.egress.hosts import Permitted
from gateway.ports import EgressProxy, TurnedAway
from gateway.system.dns import ThreadedResolver
from gateway.system.logging_setup import LogThrottle, log

TURNED_AT_MOST = 20
"""Number of the latest refusals that a proxy remembers."""
_LOOK_UPS = 8
"""Number of threads that resolve names for one proxy: its own, so that slow names do not delay the daemon's."""
_BREATH_S = 0.1
"""Seconds before accepting again when the system is out of descriptors."""


class Egress:
    """Factory of egress proxies. They share only the resolver, the connector and the limits."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        connect: Connect = connect_to,
        is_own: Callable[[Address], bool] = is_own_address,
        limits: ExchangeLimits | None = None,
    ) -> None:
        """Take the parts that tests replace. `resolve`: None asks the system."""
        self._resolve = resolve
        self._connect = connect
        self._is_own = is_own
        self._limits = limits or ExchangeLimits()

    def serve(
        self, sock: socket.socket, *, hosts: Sequence[str], address: str
    ) -> AbstractAsyncContextManager[EgressProxy]:
        """Serve a proxy on a listening socket of any network namespace.

        Connections left in the backlog are closed at the start, all others at the end. The socket stays open: it is
        the caller's. `hosts` as `Permitted` takes them; `address` is the socket's address for the program. Raises
        `BadRequest` for `hosts`.
        """
        return self._open(sock, Permitted(hosts), address)

    @asynccontextmanager
    async def _open(self, sock: socket.socket, permitted: Permitted, address: str) -> AsyncGenerator[EgressProxy]:
        dialler = Dialler(
            permitted=permitted,
            resolve=self._resolve or resolve_by(ThreadedResolver(_LOOK_UPS)),
            connect=self._connect,
            is_own=self._is_own,
            resolve_s=self._limits.resolve_s,
            connect_s=self._limits.connect_s,
        )
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            proxy = _OpenProxy(sock, address, dialler, self._limits, group)
            proxy.open()
            try:
                yield proxy
            except Exception as error:  # noqa: BLE001 - raised again below: a TaskGroup would wrap it
                failure = error
            finally:
                proxy.close()
        if failure is not None:
            raise failure


class _OpenProxy:
    """One egress proxy: accepts connections up to its limit, and remembers the latest refusals."""

    def __init__(
        self, sock: socket.socket, address: str, dialler: Dialler, limits: ExchangeLimits, group: asyncio.TaskGroup
    ) -> None:
        self._sock = sock
        self._address = address
        self._dialler = dialler
        self._limits = limits
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._served: set[asyncio.Task[None]] = set()
        self._turned: deque[TurnedAway] = deque(maxlen=TURNED_AT_MOST)
        self._is_open = False
        self._seldom = LogThrottle(self._loop.time)

    @property
    def address(self) -> str:
        return self._address

    def let(self, scopes: Container[str]) -> None:
        self._dialler.permitted.let(scopes)

    def turned_away(self) -> Sequence[TurnedAway]:
        turned = list(self._turned)
        self._turned.clear()
        return turned

    def open(self) -> None:
        """Start to accept; close connections that the socket's previous user left in the backlog."""
        self._sock.setblocking(False)
        with suppress(OSError):
            while True:
                self._sock.accept()[0].close()
        self._is_open = True
        self._resume()

    def close(self) -> None:
        """Stop accepting and cancel all connections; the group awaits their tasks."""
        self._is_open = False
        self._loop.remove_reader(self._sock)
        for task in self._served:
            task.cancel()

    def _resume(self) -> None:
        if self._is_open and len(self._served) < self._limits.connections:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        """Accept one connection. A callback, since a task awaiting accept can lose one when it is cancelled."""
        try:
            connection, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            log("egress").warning("a connection was not accepted", error=str(error))
            self._loop.remove_reader(self._sock)
            self._loop.call_later(_BREATH_S, self._resume)
            return
        task = self._group.create_task(self._serve(connection), name="egress-connection")
        self._served.add(task)
        task.add_done_callback(lambda task: self._ended(task, connection))
        if len(self._served) >= self._limits.connections:
            self._loop.remove_reader(self._sock)

    def _ended(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        connection.close()  # in case the task was cancelled before it started
        self._served.discard(task)
        self._resume()

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            client = Ends(*await asyncio.open_connection(sock=connection, limit=BUFFER))
        except OSError:
            return  # it is closed already
        try:
            await serve(client, self._dialler, self._limits, self._note)
        except Exception as error:  # noqa: BLE001 - an edge: one connection's failure does not end the proxy
            log("egress").error("a connection failed", exc_info=error)

    def _note(self, refusal: TurnedAwayError) -> None:
        self._seldom.tell(log("egress").info, "turned away", host=refusal.host, why=refusal.why)
        turned = TurnedAway(host=refusal.host, why=refusal.why)
        if turned not in self._turned:  # browsers retry, and would displace other entries
            self._turned.append(turned)
