"""Hosts that no egress proxy permits: refused before a person is asked, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agent_tools.browser import Args, scope
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.decisions import Deny
from gateway.domain.tools import CallScope, Risk
from gateway.egress import vet_call_scope
from gateway.policy.permission import refused

ADDABLE, NEVER = "the owner can add it: [tools.browser] hosts = [", "Nobody can allow that address"
JUDGED: dict[str, tuple[str, str]] = {
    "http://127.0.0.1/": ("loopback", ADDABLE),
    "http://127.8.9.1/": ("loopback", ADDABLE),
    "http://10.0.0.5/": ("a private network", ADDABLE),
    "http://172.31.0.1/": ("a private network", ADDABLE),
    "https://192.168.1.1/admin": ("a private network", ADDABLE),
    "http://100.64.0.1/": ("a carrier's shared network", ADDABLE),
    "http://0.0.0.0/": ("unspecified", NEVER),
    "http://169.254.169.254/latest/meta-data/": ("link-local", NEVER),
    "http://168.63.129.16/": ("a cloud's services", NEVER),
    "http://100.100.100.200/": ("a cloud's services", NEVER),
    "http://224.0.0.1/": ("multicast", NEVER),
    "http://[::1]/": ("loopback", ADDABLE),
    "http://[::]/": ("unspecified", NEVER),
    "http://[fd00::1]/": ("a private network", ADDABLE),
    "http://[fd00:ec2::254]/": ("a cloud's services", NEVER),
    "http://[fe80::1]/": ("link-local", NEVER),
    "http://[::ffff:7f00:1]/": ("loopback", ADDABLE),
    "http://[::ffff:a9fe:a9fe]/": ("link-local", NEVER),
    "http://[64:ff9b::7f00:1]/": ("NAT64", NEVER),
    "http://[2002:7f00:1::]/": ("6to4", NEVER),
    "http://localhost/": ("a name of local networks", ADDABLE),
    "http://LOCALHOST:80/": ("a name of local networks", ADDABLE),
    "http://a.localhost/": ("a name of local networks", ADDABLE),
    "http://printer.local/": ("a name of local networks", ADDABLE),
    "http://metadata.google.internal/": ("a name of local networks", ADDABLE),
    "http://router/": ("a name of local networks", ADDABLE),
    "http://nas.home.arpa/": ("a name of local networks", ADDABLE),
    "https://example.org:8443/": ("Port 8443 is not open", ADDABLE),
}
OTHER_SPELLINGS = [
    "http://0x7f000001/", "http://0x7f.0.0.1/", "http://2130706433/", "http://127.1/", "http://0177.0.0.1/",
    "http://127.0.0.1./", "http://localhost./", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/",
    "http://[::1%25lo]/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://me@127.0.0.1/",
]  # fmt: skip


def judged(action: str, url: str, *hosts: str, **more: Any) -> Deny | None:
    args = Args.model_validate({"action": action, "url": url, **more})
    return refused(vet_call_scope(scope(args, BrowserSettings(hosts=hosts))))


@pytest.mark.parametrize("more", [{}, {"path": "GNUmakefile"}], ids=["usual", "write"])
@pytest.mark.parametrize("action", ["open", "download"])
@pytest.mark.parametrize("url", JUDGED)
def test_a_host_that_no_gate_opens_is_refused(url: str, action: str, more: dict[str, str]) -> None:
    why, cure = JUDGED[url]
    found = judged(action, url, **more)
    assert found is not None
    assert why in found.hint
    assert cure in found.hint


@pytest.mark.parametrize("url", OTHER_SPELLINGS)
def test_another_spelling_of_an_address_is_no_argument(url: str) -> None:
    with pytest.raises(ValidationError, match=r"form|dot|characters|not an IPv6 address|user name"):
        Args(action="open", url=url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org/", ""),
        ("http://8.8.8.8/", ""),
        ("http://[2606:4700::1111]/", ""),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
        ("http://10.0.0.5/", "10.0.0.5"),
        ("http://wiki.local/", "*.local"),
        ("http://localhost:3000/", "localhost:3000"),
        ("http://[::1]/", "[::1]"),
        ("https://example.org:8443/", "example.org:8443"),
    ],
)
def test_a_host_that_a_gate_may_open_is_asked_about(url: str, host: str) -> None:
    assert judged("open", url, *filter(None, [host])) is None


def test_a_permitted_host_opens_no_other_port() -> None:
    assert judged("open", "http://10.0.0.5:22/", "10.0.0.5") is not None


def test_a_refusal_of_the_tool_stays() -> None:
    said = CallScope(risk=Risk.EXECUTE, refused="never")
    assert vet_call_scope(said) is said
