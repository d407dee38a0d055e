"""Hint in the result of a failed call that could reach nothing."""

from __future__ import annotations

import pytest

from gateway.domain.tools import Action, NetworkMode, SandboxMode
from gateway.toolcalls.processes import network_hint

TROUBLES = (
    "curl: (6) Could not resolve host: example.org",
    "ping: example.org: Temporary failure in name resolution",
    "socket.gaierror: [Errno -2] Name or service not known",
    "bash: connect: Network is unreachable",
    "bash: connect: Connection refused",
    "curl: (7) Failed to connect to example.org port 443",
)


def action(network: NetworkMode | None) -> Action:
    return Action(tool="shell", arguments={}, cwd="/w", sandbox=SandboxMode.BASIC, network=network)


@pytest.mark.parametrize("text", TROUBLES)
def test_trouble_with_a_closed_network_is_explained(text: str) -> None:
    assert network_hint(action(NetworkMode.NONE), text).startswith("It ran without a network.")
    for network in (NetworkMode.HOST, NetworkMode.PUBLIC, None):
        assert network_hint(action(network), text) == ""


@pytest.mark.parametrize("text", ["", "grep: x: No such file or directory", "1 failed, 3 passed"])
def test_other_trouble_is_not(text: str) -> None:
    assert network_hint(action(NetworkMode.NONE), text) == ""
