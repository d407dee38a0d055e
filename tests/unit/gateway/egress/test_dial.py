from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.addresses import Address, vet_address
from gateway.egress.dial import Dialler, Ends, TurnedAwayError, UnreachableError, connect_to, is_own_address, resolve_by
from gateway.egress.hosts import Permitted
from gateway.system.dns import ThreadedResolver
from tests.unit.gateway.egress.test_addresses import BLOCKED, OPEN
from tests.unit.gateway.egress.test_hosts import REFUSED

PUBLIC = "93.184.215.14"


class Nowhere(asyncio.Transport):
    """A connection on which nothing comes."""

    def is_closing(self) -> bool:
        return True


class World:
    """Fake resolver and network that record the names resolved and the addresses dialled."""

    def __init__(self, names: dict[str, list[str]], *, dead: Sequence[str] = (), own: Sequence[str] = ()) -> None:
        self.names = names
        self.dead = dead
        self.own = own
        self.looked_up: list[str] = []
        self.dialled: list[str] = []

    async def resolve(self, name: str, _port: int) -> Sequence[str]:
        self.looked_up.append(name)
        if name == "slow.example":
            await asyncio.sleep(60)
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[name]

    async def connect(self, address: Address, port: int) -> Ends:
        self.dialled.append(f"{address} {port}")
        if str(address) == "1.0.0.1":
            await asyncio.sleep(60)
        if str(address) in self.dead:
            raise ConnectionRefusedError(111, "Connection refused")
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        return Ends(reader, asyncio.StreamWriter(Nowhere(), protocol, reader, asyncio.get_running_loop()))

    async def dial(self, text: str, hosts: Sequence[str] = ()) -> Ends:
        dialler = Dialler(
            permitted=Permitted(hosts),
            resolve=self.resolve,
            connect=self.connect,
            is_own=lambda address: str(address) in self.own,
            resolve_s=0.05,
            connect_s=0.05,
        )
        return await dialler.dial(dialler.admit(text, port=80))


async def refusal(world: World, text: str, hosts: Sequence[str] = ()) -> TurnedAwayError:
    with pytest.raises(TurnedAwayError) as caught:
        await world.dial(text, hosts)
    assert world.dialled == []
    return caught.value


@pytest.mark.parametrize(("address", "why"), BLOCKED)
async def test_a_name_that_leads_to_a_blocked_address_is_refused(address: str, why: str) -> None:
    error = await refusal(World({"a.example": [PUBLIC, address]}), "a.example:443")
    assert why in error.why
    assert error.host == "a.example:443"


@pytest.mark.parametrize("text", REFUSED)
async def test_a_host_in_an_odd_form_is_not_even_looked_up(text: str) -> None:
    world = World({})
    await refusal(world, text)
    assert world.looked_up == []


@pytest.mark.parametrize("address", OPEN)
async def test_a_name_of_the_open_internet_is_dialled_by_its_address(address: str) -> None:
    world = World({"a.example": [address]})
    await world.dial("A.example:443")
    assert world.looked_up == ["a.example"]
    assert world.dialled == [f"{ip_address(address)} 443"]


async def test_this_machines_own_public_address_is_refused() -> None:
    error = await refusal(World({"a.example": [PUBLIC]}, own=[PUBLIC]), "a.example")
    assert "this machine itself" in error.why


@pytest.mark.parametrize("answer", ["", "localhost", "127.1", "fe80::1%eth0", "93.184.215.14\n"])
async def test_an_answer_that_is_no_address_is_refused(answer: str) -> None:
    error = await refusal(World({"a.example": [answer]}), "a.example")
    assert "not an address" in error.why


async def test_a_permitted_host_may_be_private_and_have_its_port() -> None:
    world = World({"grafana.corp.example": ["10.0.0.5"]})
    await world.dial("grafana.corp.example:3000", ["*.corp.example:3000"])
    assert world.dialled == ["10.0.0.5 3000"]


async def test_a_permitted_host_does_not_lead_to_the_clouds_metadata() -> None:
    world = World({"grafana.corp.example": ["169.254.169.254"]})
    await refusal(world, "grafana.corp.example", ["grafana.corp.example"])


async def test_the_next_address_is_tried_when_one_is_dead_or_silent() -> None:
    world = World({"a.example": ["8.8.4.4", "1.0.0.1", PUBLIC]}, dead=["8.8.4.4"])
    await world.dial("a.example")
    assert world.dialled == ["8.8.4.4 80", "1.0.0.1 80", f"{PUBLIC} 80"]
    assert world.looked_up == ["a.example"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unknown.example", "not found: Name or service not known"),
        ("slow.example", "not found in"),
        ("empty.example", "no address"),
        ("dead.example", "Connection refused"),
        ("silent.example", "no answer in"),
    ],
)
async def test_unreachable_host_is_reported_with_the_reason(name: str, why: str) -> None:
    names = {"empty.example": [], "dead.example": ["8.8.4.4"], "silent.example": ["1.0.0.1"]}
    with pytest.raises(UnreachableError, match=why):
        await World(names, dead=["8.8.4.4"]).dial(name)


@given(
    text=st.one_of(st.text(max_size=20), st.from_regex(r"[a-z0-9.:\[\]@\\%x-]{1,20}", fullmatch=True)),
    blocked=st.sampled_from([address for address, _ in BLOCKED]),
    others=st.lists(st.sampled_from(OPEN), max_size=2),
)
def test_no_text_leads_to_a_blocked_address(text: str, blocked: str, others: list[str]) -> None:
    world = World({})

    async def anywhere(name: str, _port: int) -> Sequence[str]:
        return [*others, blocked] if name else []

    async def attempt() -> None:
        world.resolve = anywhere
        try:
            await world.dial(text)
        except TurnedAwayError:
            return
        # Only a public address that was asked for as such gets through: nothing was looked up for it.
        assert not vet_address(ip_address(world.dialled[0].split()[0]))
        assert f"{ip_address(blocked)} 80" not in world.dialled

    asyncio.run(attempt())


def test_the_kernel_says_which_addresses_are_our_own() -> None:
    assert is_own_address(ip_address("127.0.0.1"))
    assert not is_own_address(ip_address("8.8.8.8"))
    assert not is_own_address(ip_address("2606:4700::1111"))


async def test_the_system_resolves_and_connects() -> None:
    async def hello(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert "127.0.0.1" in await resolve_by(ThreadedResolver(1))("localhost", port)
    ends = await connect_to(ip_address("127.0.0.1"), port)
    assert await ends.reader.read() == b"hello"
    ends.writer.close()
    await ends.writer.wait_closed()
    server.close()
    await server.wait_closed()
