from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from gateway.egress import Egress
from gateway.egress.dial import Ends
from gateway.egress.exchange import ExchangeLimits
from gateway.errors import BadRequest
from gateway.system.logging_setup import TOLD_AT_MOST
from tests.unit.gateway.egress.rig import PUBLIC, Rig, opened, until
from tests.unit.gateway.egress.test_addresses import BLOCKED
from tests.unit.gateway.egress.test_hosts import REFUSED


def written(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


async def connect_through(rig: Rig, host: str) -> bytes:
    return await rig.ask(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")


# --- what is refused ------------------------------------------------------------------------------


async def test_no_vector_reaches_the_inner_server() -> None:
    odd = [text for text in REFUSED if text and text.isprintable() and text.isascii() and not set(" #/?") & set(text)]
    plain = [*(written(address) for address, _ in BLOCKED), "localhost", "LOCALHOST", "metadata.google.internal"]
    async with opened({"localhost": [["127.0.0.1"]], "metadata.google.internal": [["169.254.169.254"]]}) as rig:
        for host in [*plain, *odd]:
            asked = await rig.get(f"http://{host}/")
            assert asked.startswith(b"HTTP/1.1 403 "), host
            tunnelled = await connect_through(rig, host if host in odd else f"{host}:443")
            assert tunnelled.startswith(b"HTTP/1.1 403 "), host
            assert rig.proxy.turned_away()
        assert rig.inner.connections == 0
        assert rig.dialled == rig.looked_up == []


@pytest.mark.parametrize(("address", "why"), BLOCKED)
async def test_a_name_with_one_blocked_address_is_refused_and_told(address: str, why: str) -> None:
    async with opened({"two.example": [[PUBLIC, address]]}) as rig:
        response = await rig.get("http://two.example/")
        assert response.startswith(b"HTTP/1.1 403 ")
        assert why.encode() in body_of(response)
        assert (await connect_through(rig, "two.example:443")).startswith(b"HTTP/1.1 403 ")
        assert [turned.host for turned in rig.proxy.turned_away()] == ["two.example:80", "two.example:443"]
        assert rig.proxy.turned_away() == []
        assert rig.inner.connections == 0


async def test_rebound_name_is_dialled_by_its_vetted_address() -> None:
    async with opened({"bound.example": [[PUBLIC], ["127.0.0.1"]]}) as rig:
        assert (await rig.get("http://bound.example/")).startswith(b"HTTP/1.1 200 ")
        assert rig.looked_up == ["bound.example"]
        assert rig.dialled == [f"{PUBLIC} 80"]
        assert (await rig.get("http://bound.example/")).startswith(b"HTTP/1.1 403 ")
        assert rig.dialled == [f"{PUBLIC} 80"]
        assert rig.inner.connections == 1


@pytest.mark.parametrize("scheme", ["https", "ftp", "file", "gopher", "ws", "view-source", "javascript"])
async def test_only_http_goes_without_a_tunnel(scheme: str) -> None:
    async with opened() as rig:
        assert (await rig.get(f"{scheme}://inner.example/")).startswith(b"HTTP/1.1 403 ")
        assert [turned.host for turned in rig.proxy.turned_away()] == [f"{scheme}://inner.example"]
        assert rig.inner.connections == 0


async def test_last_twenty_refusals_are_stored_for_display() -> None:
    async with opened() as rig:
        for n in range(25):
            await connect_through(rig, f"10.0.0.{n}:22")
            await connect_through(rig, f"10.0.0.{n}:22")
        assert [turned.host for turned in rig.proxy.turned_away()] == [f"10.0.0.{n}:22" for n in range(5, 25)]
        await connect_through(rig, "a\\b" + "c" * 300)
        (turned,) = rig.proxy.turned_away()
        assert len(turned.host) == 100


async def test_refusals_cannot_fill_the_log() -> None:
    with capture_logs() as logs:
        async with opened() as rig:
            for n in range(TOLD_AT_MOST + 10):
                await connect_through(rig, f"10.0.0.{n}:22")
    assert [line["host"] for line in logs] == [f"10.0.0.{n}:22" for n in range(TOLD_AT_MOST)]


async def test_unreachable_host_is_a_bad_gateway_with_the_reason() -> None:
    async with opened() as rig:
        response = await rig.get("http://unknown.example/")
        assert response.startswith(b"HTTP/1.1 502 ")
        assert b"Name or service not known" in response
        assert rig.proxy.turned_away() == []


async def test_invalid_permitted_hosts_are_refused_at_opening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock, pytest.raises(BadRequest, match="cannot be permitted"):
        async with Egress().serve(sock, hosts=["http://intranet/"], address="http://127.0.0.1:1"):
            pass


# --- what goes through ----------------------------------------------------------------------------


async def test_a_permitted_host_is_reached_at_its_port() -> None:
    async with opened({"grafana.corp.example": [["10.0.0.5"]]}, hosts=["*.corp.example:3000", "127.0.0.1:8000"]) as rig:
        assert (await rig.get("http://grafana.corp.example:3000/")).startswith(b"HTTP/1.1 200 ")
        assert (await rig.get("http://127.0.0.1:8000/")).startswith(b"HTTP/1.1 200 ")
        assert rig.dialled == ["10.0.0.5 3000", "127.0.0.1 8000"]
        assert (await rig.get("http://127.0.0.1:8001/")).startswith(b"HTTP/1.1 403 ")
        assert [headers["host"] for _, headers, _ in rig.inner.requests] == [
            "grafana.corp.example:3000",
            "127.0.0.1:8000",
        ]


async def test_url_host_wins_and_hop_by_hop_headers_are_dropped() -> None:
    async with opened() as rig:
        response = await rig.get(
            "http://INNER.example?q=1",
            "Host: other.example",
            "Host: 127.0.0.1",
            "Accept: */*",
            "Proxy-Authorization: Basic c2VjcmV0",
            "Proxy-Connection: keep-alive",
            "Connection: keep-alive, X-Mine, Upgrade",
            "Upgrade: websocket",
            "X-Mine: 1",
            "TE: trailers",
        )
        line, headers, _ = rig.inner.requests[0]
        assert line == "GET /?q=1 HTTP/1.1"
        assert headers == {"host": "inner.example", "accept": "*/*", "connection": "close"}
        head = response.partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert head == [b"HTTP/1.1 200 OK", b"Set-Cookie: a=b", b"Content-Length: 0", b"Connection: close"]


async def test_bodies_go_both_ways_however_they_are_framed() -> None:
    async with opened() as rig:
        sized = await rig.ask(b"POST http://inner.example/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
        assert body_of(sized) == b"hello"
        chunks = b"POST http://inner.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n"
        chunked = await rig.ask(chunks + b"A\r\n, chunked!\r\n0\r\nX: y\r\n\r\n")
        assert body_of(chunked) == b"hello, chunked!"
        assert body_of(await rig.get("http://inner.example/chunked")) == b"b\r\nhello world\r\n0\r\n\r\n"
        ending = await rig.get("http://inner.example/until-end")
        assert ending == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"
        assert (await rig.get("http://inner.example/none")).startswith(b"HTTP/1.1 204 ")
        assert body_of(await rig.get("http://inner.example/", method="HEAD")) == b""
        assert (await rig.get("http://inner.example/stays-open")).startswith(b"HTTP/1.1 200 ")


async def test_a_server_may_ask_for_the_body_and_may_answer_before_it() -> None:
    async with opened() as rig, rig.connected() as ends, asyncio.timeout(5):
        ends.writer.write(b"PUT http://inner.example/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await ends.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        ends.writer.write(b"ok")
        assert body_of(await ends.reader.read()) == b"ok"
        early = await rig.ask(b"POST http://inner.example/early HTTP/1.1\r\nContent-Length: 9000\r\n\r\nbegun")
        assert early.startswith(b"HTTP/1.1 413 ")


async def test_big_bodies_stream_in_little_memory() -> None:
    async with opened() as rig, rig.connected() as down, rig.connected() as up, asyncio.timeout(30):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        down.writer.write(b"GET http://inner.example/big HTTP/1.1\r\n\r\n")
        await down.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)  # nobody reads: the server has to wait
        received = 0
        while data := await down.reader.read(65_536):
            received += len(data)
        assert received == 20_000_000
        up.writer.write(b"POST http://inner.example/none HTTP/1.1\r\nContent-Length: 20000000\r\n\r\n")
        for _ in range(200):
            up.writer.write(b"x" * 100_000)
            await up.writer.drain()
        assert (await up.reader.read()).startswith(b"HTTP/1.1 204 ")
        assert rig.inner.received == 20_000_000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_192  # KiB


async def test_a_tunnel_carries_both_ways_and_one_may_end_first() -> None:
    async with opened() as rig, rig.connected() as ends, asyncio.timeout(5):
        ends.writer.write(b"CONNECT inner.example:443 HTTP/1.1\r\nHost: inner.example:443\r\n\r\n")
        assert (await ends.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        ends.writer.write(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n")
        await asyncio.sleep(0.05)
        ends.writer.write(b"through")
        ends.writer.write_eof()
        assert body_of(await ends.reader.read()) == b"through"
        assert rig.dialled == [f"{PUBLIC} 443"]


@pytest.mark.parametrize("path", ["/garbage", "/switch"])
async def test_a_server_that_speaks_otherwise_is_a_bad_gateway(path: str) -> None:
    async with opened() as rig:
        assert (await rig.get(f"http://inner.example{path}")).startswith(b"HTTP/1.1 502 ")


async def test_half_a_body_is_not_taken_for_a_whole_one() -> None:
    async with opened() as rig, rig.connected() as ends, asyncio.timeout(5):
        ends.writer.write(b"GET http://inner.example/short HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await ends.reader.read()


# --- limits and the end ---------------------------------------------------------------------------


async def test_slow_head_times_out() -> None:
    async with opened(limits=ExchangeLimits(head_s=0.2)) as rig, rig.connected() as ends, asyncio.timeout(5):
        with suppress(ConnectionError):
            for _ in range(10):
                ends.writer.write(b"G")
                await asyncio.sleep(0.03)
        assert (await ends.reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_silent_client_is_closed() -> None:
    async with opened(limits=ExchangeLimits(silent_s=0.1)) as rig:
        assert await rig.ask(b"") == b""


async def test_a_silent_tunnel_is_cut_and_a_busy_one_is_not() -> None:
    async with opened(limits=ExchangeLimits(idle_s=0.3)) as rig, rig.connected() as ends, asyncio.timeout(5):
        ends.writer.write(b"CONNECT inner.example:443 HTTP/1.1\r\n\r\n")
        await ends.reader.readuntil(b"\r\n\r\n")
        for _ in range(6):
            ends.writer.write(b"x")
            await asyncio.sleep(0.1)
        assert not ends.reader.at_eof()
        assert rig.inner.open == 1
        with pytest.raises(ConnectionResetError):
            await ends.reader.read()


async def test_a_client_that_leaves_ends_its_request() -> None:
    async with opened() as rig:
        async with rig.connected() as ends:
            ends.writer.write(b"GET http://inner.example/silent HTTP/1.1\r\n\r\n")
            await until(lambda: bool(rig.inner.requests))
            assert rig.inner.open == 1
        await until(lambda: rig.inner.open == 0)


async def test_three_hundred_at_once_are_all_served_within_the_bound() -> None:
    async with opened(limits=ExchangeLimits(connections=16)) as rig, asyncio.timeout(30):
        most = 0

        async def one(n: int) -> bytes:
            nonlocal most
            response = await rig.ask(f"GET http://inner.example/?{n} HTTP/1.1\r\n\r\n", wait_s=30)
            most = max(most, rig.inner.open)
            return response

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(n)) for n in range(300)]
        assert all(task.result().startswith(b"HTTP/1.1 200 ") for task in tasks)
        assert most <= 17  # one that ends, while the next begins


async def test_closed_proxy_closes_its_connections_but_not_the_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port))
        async with Egress().serve(sock, hosts=[], address="http://127.0.0.1:9") as proxy:
            assert proxy.address == "http://127.0.0.1:9"
            assert early.recv(1) == b""  # it came before the proxy was open
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http")
            await asyncio.sleep(0.05)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
        early.close()
        async with Egress().serve(sock, hosts=[], address="http://127.0.0.1:9"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT 10.0.0.1:80 HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            writer.transport.abort()


async def test_error_of_the_user_is_raised_unchanged_and_ends_tunnels() -> None:
    async def use() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            async with Egress().serve(sock, hosts=[], address="http://127.0.0.1:9"):
                reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
                writer.write(b"GET")
                ends.append(Ends(reader, writer))
                await asyncio.sleep(0.05)
                raise LookupError("mine")

    ends: list[Ends] = []
    async with asyncio.timeout(5):
        with pytest.raises(LookupError, match="mine"):
            await use()
        assert await ends[0].reader.read() == b""
    ends[0].writer.transport.abort()
