"""One connection to a gate, from its first byte to its end: a tunnel, one plain request, or an answer of our own."""

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
"""Of one response: those of `100 Continue` and the like, and the one that counts."""
GOODBYE_S = 2.0
"""Seconds that the other end has to take what is still to be said, and to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeLimits:
    """What a gate bears. Seconds, and counts for each gate."""

    connections: int = 128
    """Served side by side; further ones wait in the backlog."""
    silent_s: float = 60.0
    """Until a connection's first byte: browsers open some in advance."""
    head_s: float = 10.0
    """From then on, until its head is whole."""
    resolve_s: float = 10.0
    connect_s: float = 5.0
    """For each address."""
    idle_s: float = 600.0
    """Without a byte in either direction."""


class _BrokenOffError(Exception):
    """It ended in the middle of something: both ends are cut, so that nobody takes half for whole."""


async def serve(
    client: Ends, dialler: Dialler, limits: ExchangeLimits, turned: Callable[[TurnedAwayError], None]
) -> None:
    """Serve one connection to its end. `turned` is told of a refusal. Closes the connection, also when cancelled."""
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
                await _hand_over(request, host, client, server, Pulse(limits.idle_s))


async def _hand_over(request: Request, host: Host, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        if request.method == "CONNECT":
            client.writer.write(CONNECTED)
            await tunnel(client, server, pulse)
        else:
            # The address won over what the Host header said.
            server.writer.write(request.head(str(host).removesuffix(":80")))
            await _exchange(request, client, server, pulse)
            await _linger(client)
    except* (OSError, BrokenBodyError, _BrokenOffError):
        _cut(client)
        _cut(server)


async def _read_request(client: Ends, limits: ExchangeLimits) -> Request | None:
    """Read the head of the one request; None when none came."""
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
    """Hand on one request and its response, side by side: some servers answer before the body is through."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send(request, client, server, pulse), name="egress-request")
        await _respond(request, client, server, pulse)
        sending.cancel()


async def _send(request: Request, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        await copy_body(client, server, request.body, pulse)
    except ConnectionError:
        return  # the server takes no more of it, but may have answered
    if not await client.reader.read(1):
        raise _BrokenOffError  # nobody waits for the response any more


async def _respond(request: Request, client: Ends, server: Ends, pulse: Pulse) -> None:
    try:
        response = await _final_response(request, client, server, pulse)
    except UnreachableError as error:
        client.writer.write(answer(502, str(error), method=request.method))
        return
    client.writer.write(response.head())
    await copy_body(server, client, response.body, pulse)


async def _final_response(request: Request, client: Ends, server: Ends, pulse: Pulse) -> Response:
    """Hand on what comes before the response that counts, and return that one."""
    for _ in range(HEADS_AT_MOST):
        response = await _read_response(request, server, pulse)
        if not response.is_interim:
            return response
        client.writer.write(response.head())
        await asyncio.sleep(0)  # a head of 64 KiB takes a while to read, and the next one may be there already
    raise UnreachableError(f"{shown(request.host)} cannot be used. It only ever says that it goes on.")


async def _read_response(request: Request, server: Ends, pulse: Pulse) -> Response:
    try:
        head = await pulse.wait(partial(server.reader.readuntil, b"\r\n\r\n"))
        return read_response(head, method=request.method)
    except asyncio.LimitOverrunError:
        why = "The head of its answer is longer than 64 KiB."
    except (OSError, asyncio.IncompleteReadError):
        why = "It broke off, or was silent for too long, before it answered."
    except ValueError as error:
        why = str(error)
    raise UnreachableError(f"{shown(request.host)} cannot be used. {why}")


async def _say(client: Ends, data: bytes) -> None:
    client.writer.write(data)
    await _linger(client)


async def _linger(client: Ends) -> None:
    """Close our direction, then wait for the other's end: closed at once, a late byte would destroy what we said."""
    try:
        async with asyncio.timeout(GOODBYE_S):
            client.writer.write_eof()
            while await client.reader.read(65_536):
                pass
    except OSError:
        pass


def _cut(ends: Ends) -> None:
    """Reset a connection: a plain end would be one way to say that a body is whole."""
    with suppress(OSError):  # it is gone already
        ends.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.writer.transport.abort()


@asynccontextmanager
async def _closing(ends: Ends) -> AsyncGenerator[None]:
    """Close at the end: what was written may still go out for a moment, but nothing outlives a cancellation."""
    try:
        yield
        ends.writer.close()
        async with asyncio.timeout(GOODBYE_S):
            await ends.writer.wait_closed()
    except OSError:
        pass
    finally:
        ends.writer.transport.abort()
