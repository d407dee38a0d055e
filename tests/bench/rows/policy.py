"""Row: decisions about shell commands under 200 rules, and the parsing of one. In this process, by its CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from agent_tools import shell
from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.routes import empty_session
from gateway.domain.rules import Rule, Verdict
from gateway.domain.tools import CallScope, Risk, ToolPolicy
from gateway.policy.layers import EVERYWHERE
from gateway.policy.permission import decide
from gateway.policy.shell import parse
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
    return [*figures, _figure(f"decide git add, {RULES} rules about files", taking)]


def _decider(
    command: str, pattern: Callable[[int], str] = lambda n: f"tool{n} *" if n % 10 else f"*x{n}*y"
) -> Callable[[], Decision]:
    """Return the decision about a command in main, under rules of which every tenth begins with a wildcard."""
    spec, session = shell.SPEC, empty_session(route(), FakeClock().now())
    rules = tuple(
        Rule(
            tool="shell",
            pattern=pattern(n),
            decision=list(Verdict)[n % 3],
            kinds=EVERYWHERE,
            where=f"rules[{n}]",
        )
        for n in range(RULES)
    )
    policy = ToolPolicy(
        availability=spec.availability, approval={}, timeout_s=30, actions={}, sandbox=spec.sandbox, rules=rules
    )
    scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w")
    return lambda: decide(spec, policy, session, scope, askable=True)


def _figure(what: str, done: Callable[[], object]) -> Figure:
    done()
    rounds: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(EACH):
            done()
        rounds.append((time.process_time_ns() - began) / EACH / 1_000)
    return Figure(what=f"{what}, p50", value=measure.p50(rounds), unit="us", budget=BUDGET_US)
