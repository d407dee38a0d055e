"""Checks of a request before authentication."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.server.request_guard import Address, refusal, source_of

HOSTS = frozenset({"127.0.0.1:8470", "dragoman.example"})
ORIGINS = frozenset({"http://127.0.0.1:8470", "https://dragoman.example"})
OURS = {"Host": "127.0.0.1:8470"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", OURS, None),
        ("GET", {"Host": "DRAGOMAN.example"}, None),
        ("GET", {}, 421),
        ("GET", {"Host": ""}, 421),
        ("GET", {"Host": "evil.example"}, 421),
        ("GET", {"Host": "127.0.0.1"}, 421),
        ("GET", {"Host": "127.0.0.1:8471"}, 421),
        ("GET", {"Host": "dragoman.example.evil.example"}, 421),
        ("GET", {"Host": "dragoman.example:443"}, 421),
        ("GET", {"Host": "dragoman.example."}, 421),
        ("GET", {"Host": "evil.example", "X-Forwarded-Host": "dragoman.example"}, 421),
        ("POST", {**OURS, "Origin": "http://127.0.0.1:8470"}, None),
        ("POST", {**OURS, "Origin": "https://dragoman.example"}, None),
        ("POST", {**OURS, "Origin": "HTTPS://DRAGOMAN.EXAMPLE"}, None),
        ("GET", {**OURS, "Origin": "https://evil.example"}, 403),
        ("GET", {**OURS, "Origin": "null"}, 403),
        ("GET", {**OURS, "Origin": ""}, 403),
        ("POST", {**OURS, "Origin": "https://evil.example"}, 403),
        ("POST", {**OURS, "Origin": "null"}, 403),
        ("POST", {**OURS, "Origin": "http://dragoman.example"}, 403),
        ("POST", {**OURS, "Origin": "https://127.0.0.1:8470"}, 403),
        ("POST", {**OURS, "Origin": "http://127.0.0.1:9999"}, 403),
        ("POST", OURS, None),  # a platform's webhook, or a command: there is no page behind it
        ("POST", {**OURS, "Sec-Fetch-Site": "same-origin"}, None),
        ("POST", {**OURS, "Sec-Fetch-Site": "none"}, None),
        ("POST", {**OURS, "Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {**OURS, "Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {**OURS, "Sec-Fetch-Site": "nonsense"}, 403),
        ("PUT", {**OURS, "Sec-Fetch-Site": "cross-site"}, 403),
        ("DELETE", {**OURS, "Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {**OURS, "Sec-Fetch-Site": "cross-site"}, None),  # somebody follows a link to us
        ("GET", {**OURS, "Sec-Fetch-Site": "cross-site", "Upgrade": "websocket"}, 403),
        ("GET", {**OURS, "Sec-Fetch-Site": "cross-site", "Upgrade": "WebSocket"}, 403),
    ],
)
def test_unsafe_request_is_refused_before_authentication(
    method: str, headers: Mapping[str, str], status: int | None
) -> None:
    request = make_mocked_request(method, "/", headers=CIMultiDict(headers))
    found = refusal(request, HOSTS, ORIGINS)

    assert (found[0] if found else None) == status


def test_two_hosts_in_one_request_are_judged_by_both() -> None:
    for hosts in (["127.0.0.1:8470", "evil.example"], ["evil.example", "127.0.0.1:8470"]):
        headers = CIMultiDict([("Host", one) for one in hosts])
        assert refusal(make_mocked_request("GET", "/", headers=headers), HOSTS, ORIGINS) is not None


@pytest.mark.parametrize(
    ("address", "port", "hosts", "origins", "link"),
    [
        (
            Address(host="127.0.0.1", port=0),
            81,
            {"127.0.0.1:81", "localhost:81", "[::1]:81"},
            {"http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"},
            "http://127.0.0.1:81",
        ),
        (
            Address(host="0.0.0.0", port=80, allowed_hosts=("Box.lan",)),
            80,
            {"127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.1", "localhost", "[::1]", "box.lan"},
            {
                *("http://127.0.0.1:80", "http://localhost:80", "http://[::1]:80", "http://127.0.0.1"),
                *("http://localhost", "http://[::1]", "http://box.lan", "https://box.lan"),
            },
            "http://127.0.0.1:80",
        ),
        (
            Address(host="127.0.0.1", port=81, public_url="https://Chat.example.org/"),
            81,
            {"127.0.0.1:81", "localhost:81", "[::1]:81", "chat.example.org"},
            {
                *("http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81", "http://chat.example.org"),
                "https://chat.example.org",
            },
            "https://Chat.example.org",
        ),
    ],
)
def test_names_of_the_server(address: Address, port: int, hosts: set[str], origins: set[str], link: str) -> None:
    assert address.hosts(port) == hosts
    assert address.origins(port) == origins
    assert address.link(port) == link


@pytest.mark.parametrize(
    ("remote", "forwarded", "proxies", "source"),
    [
        ("9.9.9.9", "", [], "9.9.9.9"),
        ("9.9.9.9", "127.0.0.1", [], "9.9.9.9"),
        ("127.0.0.1", "1.2.3.4", [], "127.0.0.1"),  # loopback is no proxy by itself
        ("10.0.0.1", "1.2.3.4", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", ["10.0.0.0/8"], "1.2.3.4"),  # what the sender wrote itself is not believed
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", " , 1.2.3.4 ,", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", "1.2.3.4, nonsense", ["10.0.0.0/8"], "nonsense"),
        ("10.0.0.1", "", ["10.0.0.0/8"], "10.0.0.1"),
        ("::1", "1.2.3.4", ["::1/128"], "1.2.3.4"),
        ("", "1.2.3.4", ["10.0.0.0/8"], ""),
    ],
)
def test_source_address_of_a_request(remote: str, forwarded: str, proxies: list[str], source: str) -> None:
    """c3: only a configured proxy may forward an address, and only the one it saw."""
    assert source_of(remote, forwarded, proxies) == source


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:84701",
        "http://127.0.0.1:8470.evil.example",
        "https://dragoman.example.evil.example",
        "https://dragoman.example@evil.example",
        "https://dragoman.example/",
        "https://evil-dragoman.example",
    ],
)
def test_an_address_that_only_looks_like_ours_may_do_nothing(method: str, origin: str) -> None:
    headers = CIMultiDict({"Host": "dragoman.example", "Origin": origin})
    found = refusal(make_mocked_request(method, "/", headers=headers), HOSTS, ORIGINS)

    assert found is not None
    assert found[0] == 403


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("localhost", "localhost")],
)
def test_loopback_address_is_in_the_link_and_the_allowed_names(host: str, name: str) -> None:
    address = Address(host=host, port=8470)

    assert address.link(8470) == f"http://{name}:8470"
    assert f"{name}:8470" in address.hosts(8470)
    assert f"http://{name}:8470" in address.origins(8470)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "box.lan", "[::2]"])
def test_another_address_is_answered_only_when_it_is_allowed(host: str) -> None:
    address = Address(host=host, port=8470)

    assert address.link(8470) == "http://127.0.0.1:8470"
    assert address.hosts(8470) == Address(host="127.0.0.1", port=8470).hosts(8470)
