"""Which points of the journal a call passes, and what of it is counted."""

from __future__ import annotations

from pathlib import Path

from gateway.model.tools import Risk
from tests.support.engine import Engine
from tests.support.fakes import FakeTool

OF_CALLS = ("J8", "WAITS", "J11", "J12", "J13", "J14")


async def test_a_call_passes_its_points_in_order(tmp_path: Path) -> None:
    """Deaths are tried at these points: one that is not passed would be a test of nothing."""
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE)])
    engine.points.armed = {"J1": ("raise", 1_000)}  # only what is armed is counted
    lease = await engine.planned("shell:ls")
    assert not await engine.settle(lease)
    assert [name for name in engine.points.passed if name in OF_CALLS] == ["J8", "WAITS"]

    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    assert await engine.settle(lease)
    assert [name for name in engine.points.passed if name in OF_CALLS] == [*OF_CALLS]
    assert {engine.points.passed[name] for name in OF_CALLS} == {1}


async def test_every_decision_is_counted_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="shell", risk=Risk.EXECUTE), FakeTool(name="read", risk=Risk.READ)])
    lease = await engine.planned("shell:a", "shell:b", "read", "nosuch")
    assert not await engine.settle(lease)
    assert not await engine.settle(lease)

    counts = {
        (decision, reason): engine.meters.registry.get_sample_value(
            "dragoman_decisions_total", {"decision": decision, "reason": reason}
        )
        for decision, reason in [("ask", ""), ("allow", ""), ("deny", "unknown_tool")]
    }
    assert counts == {("ask", ""): 2, ("allow", ""): 1, ("deny", "unknown_tool"): 1}
