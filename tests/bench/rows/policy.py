"""Row: decisions about shell commands under 200 rules, and the parsing of one. In this process, by its CPU time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count

from agent_tools import shell
from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.routes import empty_session
from gateway.domain.rules import Rule, Verdict
from gateway.domain.tools import Action, CallScope, NetworkMode, Risk, SandboxMode, ToolPolicy
from gateway.policy.layers import EVERYWHERE
from gateway.policy.permission import decide
from gateway.policy.shell import parse
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.resolution import ResolvedCall, decide_action, resolve_call
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import Bench
from tests.support.clock import FakeClock
from tests.support.makers import route

RULES = 200
ROUNDS = 200
EACH = 20
"""Calls of one round, whose time is divided by their number."""
PIPELINE = "git log --oneline -5 | head"
BUDGET_US = 50.0
CALL_BUDGET_US = 200.0


async def decisions(_bench: Bench) -> list[Figure]:
    """Median microseconds of parsing a pipeline, and of decisions: a reader, a denied call, a call that is asked."""
    number = count()  # in a comment: the parts of a script that was read before are kept
    figures = [_figure("parse a pipeline", lambda: parse(f"{PIPELINE} #{next(number)}"))]
    for what, command, expected in (
        ("a reader", PIPELINE, Allow),
        ("a denied call", "tool17 a b", Deny),
        ("an asked call", "make test", Ask),
    ):
        decided = _decider(command)
        assert isinstance(decided(), expected), command
        figures.append(_figure(f"decide {what}, {RULES} rules", decided))
    taking = _decider("git add main.py", lambda n: f"notes{n}.txt")
    return [*figures, _figure(f"decide git add, {RULES} rules about files", taking), _whole_call()]


def _whole_call() -> Figure:
    """Return what rules add to all that is decided of a call: its tool, arguments, scope and action."""
    took = [_median_us(_call(rules)) for rules in ((), _rules(_usual))]
    return Figure(
        what=f"a decided call, beyond one without rules, {RULES} rules, p50",
        value=took[1] - took[0],
        unit="us",
        floor=took[0],
        budget=CALL_BUDGET_US,
    )


def _call(rules: tuple[Rule, ...]) -> Callable[[], Decision]:
    """Return the resolution and the decision of a call of the shell that is asked about."""
    session = empty_session(route(), FakeClock().now())
    tool = Tool(
        spec=shell.SPEC,
        policy=_policy(rules),
        arguments=ModelArguments(shell.Args),
        run=shell.run,
        call_scope=lambda arguments: shell.scope(arguments, None),
    )
    tools, text = ToolSet([tool], sandboxed=True), json.dumps({"command": "make test"})

    def decided() -> Decision:
        found = resolve_call(tools, session, "shell", lambda _: text, lambda: "/w")
        assert isinstance(found, ResolvedCall)
        dumped = tool.arguments.dump(found.arguments)
        action = Action(tool="shell", arguments=dumped, cwd="/w", sandbox=SandboxMode.BASIC, network=NetworkMode.NONE)
        return decide_action(tools, session, tool, found.call_scope, action, (), askable=True)

    assert isinstance(decided(), Ask)
    return decided


def _usual(n: int) -> str:
    """Return a pattern of the `n`-th rule: every tenth begins with a wildcard."""
    return f"tool{n} *" if n % 10 else f"*x{n}*y"


def _rules(pattern: Callable[[int], str]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            tool="shell",
            pattern=pattern(n),
            decision=list(Verdict)[n % 3],
            kinds=EVERYWHERE,
            where=f"rules[{n}]",
        )
        for n in range(RULES)
    )


def _policy(rules: tuple[Rule, ...]) -> ToolPolicy:
    spec = shell.SPEC
    return ToolPolicy(
        availability=spec.availability, approval={}, timeout_s=30, actions={}, sandbox=spec.sandbox, rules=rules
    )


def _decider(command: str, pattern: Callable[[int], str] = _usual) -> Callable[[], Decision]:
    """Return the decision about a command in main."""
    session, policy = empty_session(route(), FakeClock().now()), _policy(_rules(pattern))
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w")
    return lambda: decide(shell.SPEC, policy, session, scope, askable=True)


def _figure(what: str, done: Callable[[], object]) -> Figure:
    return Figure(what=f"{what}, p50", value=_median_us(done), unit="us", budget=BUDGET_US)


def _median_us(done: Callable[[], object]) -> float:
    done()
    rounds: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(EACH):
            done()
        rounds.append((time.process_time_ns() - began) / EACH / 1_000)
    return measure.p50(rounds)
