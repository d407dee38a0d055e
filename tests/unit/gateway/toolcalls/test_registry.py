"""Registry: merging of sources, a source that changes or fails, and the tools that a turn keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.toolcalls.registry import FixedSource, Registry
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import FakeTool


@dataclass
class Server:
    """Source that a test changes, as a server of tools does."""

    name: str = "server"
    tools: Sequence[Tool] = ()
    fails: bool = False
    reads: int = field(default=0)

    def snapshot(self) -> Sequence[Tool]:
        self.reads += 1
        if self.fails:
            raise RuntimeError("the server is gone")
        return self.tools


def tools(*names: str) -> tuple[Tool, ...]:
    return tuple(FakeTool(name=name).tool() for name in names)


def registry(server: Server, *own: str) -> Registry:
    return Registry([FixedSource("own", tools(*own)), server], sandboxed=True)


def names(found: Registry) -> list[str]:
    return list(found.snapshot().specs)


def test_snapshot_has_the_tools_of_all_sources() -> None:
    found = registry(Server(tools=tools("b", "d")), "c", "a")

    assert names(found) == ["a", "b", "c", "d"]


def test_snapshot_stays_the_same_object_until_a_source_changes() -> None:
    server = Server(tools=tools("b"))
    found = registry(server, "a")
    first = found.snapshot()

    assert found.snapshot() is first
    server.tools = tools("b", "c")
    assert (names(found), list(first.specs)) == (["a", "b", "c"], ["a", "b"])
    assert found.snapshot() is not first


def test_a_source_that_fails_keeps_its_last_tools() -> None:
    server = Server(tools=tools("b"))
    found = registry(server, "a")
    before = found.snapshot()
    server.fails = True

    assert found.snapshot() is before


def test_a_tool_whose_name_is_taken_is_left_out_alone() -> None:
    server = Server()
    found = registry(server, "a")
    taken, bad, spare = tools("a", "b", "c")
    server.tools = (taken, replace(bad, spec=replace(bad.spec, name="Not a name")), spare)

    assert names(found) == ["a", "c"]
    kept = found.snapshot().get("a")
    assert kept is not None
    assert kept is not taken


@pytest.mark.parametrize("twice", [("a", "a"), ("A",)])
def test_a_bad_name_at_the_start_is_an_error(twice: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        registry(Server(tools=tools(*twice)))


async def test_a_running_turn_keeps_the_tools_that_it_began_with(tmp_path: Path) -> None:
    late = FakeTool(name="late")
    server = Server()
    engine = Engine(tmp_path, [], sources=[server])
    before = engine.registry.snapshot()
    server.tools = (late.tool(),)
    lease = await engine.planned("late")

    assert await engine.settle(lease, tools=before)
    refused = await engine.result(lease.turn, 1)
    assert (refused.code, late.calls) == ("unknown_tool", [])
    assert engine.registry.snapshot().get("late") is not None
