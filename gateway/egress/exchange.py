"""Handler of one connection to an egress proxy: a tunnel, one plain request, or an error response of our own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from gateway.egress.bodies import BrokenBodyError, Pulse, copy_body, tunnel
from gateway.egress.dial import Dialler, Ends, TurnedAwayError, UnreachableError
from gateway.egress.hosts import Host, shown
from gateway.egress.wire import CONNECTED, MalformedError, Request, Response, answer, read_request, read_response

HEADS_AT_MOST = 20
"""Number of heads of one response: interim ones such as `100 Continue`, and the final one."""
GOODBYE_S = 2.0
"""Timeout in seconds for the other end to read the last bytes and close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeLimits:
    """Limits of one egress proxy."""

    connections: int = 128
    """Number of concurrent connections; further ones wait in the backlog."""
    silent_s: float = 60.0
    """Timeout in seconds for a connection's first byte: browsers open some in advance."""
    head_s: float = 10.0
    """Timeout in seconds from the first byte to the end of the head."""
    resolve_s: float = 10.0
    """Timeout in seconds for a name."""
    connect_s: float = 5.0
    """Timeout in seconds for each address."""
    idle_s: float = 600.0
    """Idle timeout in seconds, without a byte in either direction."""


class _BrokenOffError(Exception):
    """Connection lost during an exchange: both ends are reset, so that a partial body is not taken as whole."""


async def serve(
    client: Ends, dialler: Dialler, limits: ExchangeLimits, turned: Callable[[TurnedAwayError], None]
) -> None:
    """Serve one connection to its end, and close it, also when cancelled. `turned` is called with a refusal."""
    async with _closing(client):
        method = ""
        try:
            request = await _read_request(client, limits)
            if request is None:
                return
            method = request.method
            host = _admit(request, dialler)
            server = await dialler.dial(host)
        except MalformedError as error:
            await _say(client, answer(error.status, error.why))
        except TurnedAwayError as error:
            turned(error)
            await _say(client, answer(403, f"Refused: {error.host}. {error.why}", method=method))
        except UnreachableError as error:
            await _say(client, answer(502, str(error), method=method))
        else:
            async with _closing(server):
                await _forward(request, host, client, server, Pulse(limits.idle_s))


async def _forward(request: Request, host: Host, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        if request.method == "CONNECT":
            client.writer.write(CONNECTED)
            await tunnel(client, server, pulse)
        else:
            # The host of the request line wins over the Host header.
            server.writer.write(request.head(str(host).removesuffix(":80")))
            await _exchange(request, client, server, pulse)
            await _linger(client)
    except* (OSError, BrokenBodyError, _BrokenOffError):
        _cut(client)
        _cut(server)


async def _read_request(client: Ends, limits: ExchangeLimits) -> Request | None:
    """Read the head of the one request; None when none came in time."""
    try:
        async with asyncio.timeout(limits.silent_s):
            first = await client.reader.readexactly(1)
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return None
    try:
        async with asyncio.timeout(limits.head_s):
            return read_request(first + await client.reader.readuntil(b"\r\n\r\n"))
    except TimeoutError:
        raise MalformedError(408, f"Its head was not whole in {limits.head_s:g} s.") from None
    except asyncio.LimitOverrunError:
        raise MalformedError(431, "Its head is longer than 64 KiB.") from None
    except (OSError, asyncio.IncompleteReadError):
        return None


def _admit(request: Request, dialler: Dialler) -> Host:
    if request.method == "CONNECT":
        return dialler.admit(request.host)
    if request.scheme != "http":
        asked = shown(f"{request.scheme}://{request.host}")
        raise TurnedAwayError(asked, "Only http goes this way, and https through CONNECT.")
    return dialler.admit(request.host, port=80)


async def _exchange(request: Request, client: Ends, server: Ends, pulse: Pulse) -> None:
    """Forward one request and its response concurrently: some servers answer before they have read the body."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send(request, client, server, pulse), name="egress-request")
        await _respond(request, client, server, pulse)
        sending.cancel()


async def _send(request: Request, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        await copy_body(client, server, request.body, pulse)
    except ConnectionError:
        return  # the server reads no more of it, but may have answered
    if not await client.reader.read(1):
        raise _BrokenOffError  # the client has gone


async def _respond(request: Request, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        response = await _final_response(request, client, server, pulse)
    except UnreachableError as error:
        client.writer.write(answer(502, str(error), method=request.method))
        return
    client.writer.write(response.head())
    await copy_body(server, client, response.body, pulse)


async def _final_response(request: Request, client: Ends, server: Ends, pulse: Pulse) -> Response:
    """Forward interim responses, and return the final one."""
    for _ in range(HEADS_AT_MOST):
        response = await _read_response(request, server, pulse)
        if not response.is_interim:
            return response
        client.writer.write(response.head())
        await asyncio.sleep(0)  # a head of 64 KiB takes long to parse, and the next may be buffered already
    raise UnreachableError(f"{shown(request.host)} cannot be used. It sent only interim responses.")


async def _read_response(request: Request, server: Ends, pulse: Pulse) -> Response:
    try:
        head = await pulse.wait(partial(server.reader.readuntil, b"\r\n\r\n"))
        return read_response(head, method=request.method)
    except asyncio.LimitOverrunError:
        why = "The head of its answer is longer than 64 KiB."
    except (OSError, asyncio.IncompleteReadError):
        why = "It closed the connection or timed out before it answered."
    except ValueError as error:
        why = str(error)
    raise UnreachableError(f"{shown(request.host)} cannot be used. {why}")


async def _say(client: Ends, data: bytes) -> None:
    client.writer.write(data)
    await _linger(client)


async def _linger(client: Ends) -> None:
    """Close our direction, then wait for the other end: after a full close, a late byte would destroy our response."""
    try:
        async with asyncio.timeout(GOODBYE_S):
            client.writer.write_eof()
            while await client.reader.read(65_536):
                pass
    except OSError:
        pass


def _cut(ends: Ends) -> None:
    """Reset a connection: a plain close could mark a body as complete."""
    with suppress(OSError):  # it is closed already
        ends.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.writer.transport.abort()


@asynccontextmanager
async def _closing(ends: Ends) -> AsyncGenerator[None]:
    """Close at the end: written bytes have `GOODBYE_S` to go out, but nothing outlives a cancellation."""
    try:
        yield
        ends.writer.close()
        async with asyncio.timeout(GOODBYE_S):
            await ends.writer.wait_closed()
    except OSError:
        pass
    finally:
        ends.writer.transport.abort()
