"""The action on the card is the action that runs, including defaults that the model left out."""

from __future__ import annotations

from pathlib import Path

from gateway.domain.tools import Effect, ResultStatus, Risk, ToolResult
from gateway.ports import ToolContext
from tests.support.engine import Engine
from tests.support.fakes import FakeTool, Text, done


class Before(Text):
    mode: str = "careful"


class After(Text):
    mode: str = "wild"


async def test_a_default_that_changed_since_is_not_what_runs(tmp_path: Path) -> None:
    ran: list[str] = []

    async def remember(_ctx: ToolContext, args: Text) -> ToolResult:
        ran.append(args.mode if isinstance(args, Before | After) else "")
        return done("done")

    def engine(arguments: type[Text], known: Engine | None = None) -> Engine:
        shell = FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE, arguments=arguments, body=remember)
        return Engine(tmp_path, [shell], store=known.store if known else None)

    before = engine(Before)
    lease = await before.planned("shell:ls")
    await before.settle(lease)
    (wait,) = await before.waits(lease.turn)
    assert wait.approval is not None
    assert 'mode = "careful"' in wait.approval.rendered
    await before.press(wait.id)

    after = engine(After, before)
    assert await after.settle(lease)
    assert (await after.result(lease.turn, 1)).status is ResultStatus.OK
    assert ran == ["careful"]
