"""The gates: HTTP proxies on sockets that listen in an enclosure, each the way out of one browser context."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
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
_LOOK_UPS = 8
"""Names of one gate that are looked up side by side: apart from the daemon's own, which slow ones must not hold up."""
_BREATH_S = 0.1
"""Seconds before accepting again when the system is out of descriptors."""


class Egress:
    """Opens gates. All that they share is how one looks a name up and connects."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        connect: Connect = connect_to,
        is_own: Callable[[Address], bool] = is_own_address,
        limits: ExchangeLimits | None = None,
    ) -> None:
        """Take what tests replace. `resolve`: None asks the system."""
        self._resolve = resolve
        self._connect = connect
        self._is_own = is_own
        self._limits = limits or ExchangeLimits()

    def gate(
        self, sock: socket.socket, *, hosts: Sequence[str], address: str
    ) -> AbstractAsyncContextManager[EgressProxy]:
        """Serve a proxy on a socket that listens already, in whichever network namespace it was made.

        What connected before it opened is cut off; at its end all its connections are, and the socket stays open: it
        is the caller's. `hosts` as `Permitted` takes them; `address` is how its user reaches the socket. Raises
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
            gate = _OpenGate(sock, address, dialler, self._limits, group)
            gate.open()
            try:
                yield gate
            except Exception as error:  # noqa: BLE001 - raised again below: a TaskGroup would wrap it
                failure = error
            finally:
                gate.close()
        if failure is not None:
            raise failure


class _OpenGate:
    """One gate while it is open: accepts connections as far as there is room, and remembers refusals."""

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

    def let(self, scopes: Collection[str]) -> None:
        self._dialler.permitted.let(scopes)

    def turned_away(self) -> Sequence[TurnedAway]:
        turned = list(self._turned)
        self._turned.clear()
        return turned

    def open(self) -> None:
        """Begin to accept; what the last user of the socket left in its backlog is cut off."""
        self._sock.setblocking(False)
        with suppress(OSError):
            while True:
                self._sock.accept()[0].close()
        self._is_open = True
        self._resume()

    def close(self) -> None:
        """Accept no more and end all connections; their tasks are awaited by the group."""
        self._is_open = False
        self._loop.remove_reader(self._sock)
        for task in self._served:
            task.cancel()

    def _resume(self) -> None:
        if self._is_open and len(self._served) < self._limits.connections:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        """Take one connection. A callback: a task that waits to accept can lose one when it is cancelled."""
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
        connection.close()  # of a task that was cancelled before it began
        self._served.discard(task)
        self._resume()

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            client = Ends(*await asyncio.open_connection(sock=connection, limit=BUFFER))
        except OSError:
            return  # it is gone already
        try:
            await serve(client, self._dialler, self._limits, self._note)
        except Exception as error:  # noqa: BLE001 - an edge: one connection's failure is not the gate's
            log("egress").error("a connection failed", exc_info=error)

    def _note(self, refusal: TurnedAwayError) -> None:
        self._seldom.tell(log("egress").info, "turned away", host=refusal.host, why=refusal.why)
        turned = TurnedAway(host=refusal.host, why=refusal.why)
        if turned not in self._turned:  # browsers try again, and would push the others out
            self._turned.append(turned)
