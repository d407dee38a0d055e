"""Fixtures: sandbox sessions with each holder, or with bubblewrap alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.tools import SandboxMode
from gateway.sandbox import Containment, probe
from tests.unit.gateway.sandbox.session_rig import WAYS, Bench


@pytest.fixture(scope="module")
def machine() -> Containment:
    return asyncio.run(probe())


@pytest.fixture(params=WAYS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, machine: Containment) -> Bench:
    mode, missing = WAYS[request.param]
    return Bench(tmp_path, mode, replace(machine, **missing))


@pytest.fixture
def basic(tmp_path: Path, machine: Containment) -> Bench:
    return Bench(tmp_path, SandboxMode.BASIC, machine)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server
