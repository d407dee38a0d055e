"""Rules in the life of a call: it runs, is refused, or is asked about, and a newer rule holds for an old approval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.domain.audit import StartBasis
from gateway.domain.rules import Rule, Verdict
from gateway.domain.tools import CallScope, ResultStatus, Risk
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FakeTool, Text
from tests.support.makers import BOB


def shell(fake: FakeTool, *rules: tuple[str, Verdict]) -> Tool:
    made = fake.tool()

    def scope(args: Text) -> CallScope:
        return CallScope(risk=Risk.EXECUTE, subjects=(f"command:{args.text}",))

    written = tuple(
        Rule(tool="shell", pattern=pattern, decision=decision, kinds=frozenset({"main"}), where=f"rules[{n}]")
        for n, (pattern, decision) in enumerate(rules)
    )
    return replace(made, call_scope=scope, policy=replace(made.policy, rules=written))


def fake() -> FakeTool:
    return FakeTool(name="shell", risk=Risk.EXECUTE)


async def test_rules_decide_the_calls_of_an_answer_one_by_one(tmp_path: Path) -> None:
    tool = fake()
    engine = Engine(tmp_path, [shell(tool, ("git *", Verdict.ALLOW), ("git push *", Verdict.DENY))])
    lease = await engine.planned("shell:git status", "shell:git push", "shell:make", "shell:git status; rm x")

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [ResultStatus.OK, ResultStatus.DENIED, None, None]
    assert tool.calls == ["git status"]
    assert [wait.n for wait in await engine.waits(lease.turn)] == [3, 4]
    refused = await engine.result(lease.turn, 2)
    assert (refused.code, "rules[1]" in refused.hint) == ("configured", True)
    (row,) = await engine.store.audit_rows(0, 10)
    assert (row.n, row.basis, row.rule) == (1, StartBasis.RULE, "rules[0]")


async def test_an_allow_of_main_does_not_hold_in_a_group(tmp_path: Path) -> None:
    tool = fake()
    engine = Engine(tmp_path, [shell(tool, ("git *", Verdict.ALLOW))])
    lease = await engine.planned("shell:git status", who=BOB, where=GROUP)

    await engine.settle(lease)
    assert tool.calls == []


async def test_a_deny_that_is_newer_than_the_approval_holds(tmp_path: Path) -> None:
    tool = fake()
    engine = Engine(tmp_path, [shell(tool)])
    lease = await engine.planned("shell:rm x")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    later = Engine(tmp_path, [shell(tool, ("rm *", Verdict.DENY))], store=engine.store)

    assert await later.settle(lease)
    assert (await later.result(lease.turn, 1)).status is ResultStatus.DENIED
    assert tool.calls == []
