"""Corpus of commands: no hostile one runs unasked in main, and few that only read are asked about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import CallScope, Risk
from gateway.policy.permission import decide
from gateway.policy.shell import parse, part_verdicts, rule_for_always
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session

DECISIONS: dict[str, type[Decision]] = {"allow": Allow, "ask": Ask, "deny": Deny}
CHARACTER = re.compile(r"<U\+([0-9A-F]{4,5})>")


def corpus(name: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a file with its decision."""
    decision = ""
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            decision = line.rpartition(" -> ")[2]
        elif decision:
            text = line.replace("⏎", "\n").replace("␉", "\t")
            yield CHARACTER.sub(lambda found: chr(int(found[1], 16)), text), decision


HOSTILE = list(corpus("hostile.txt"))
HONEST = list(corpus("honest.txt"))


def decided(command: str) -> Decision:
    """Decide a command in main, without any rule."""
    call_scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
    return decide(SPEC, POLICY, session(), call_scope, askable=True)


def wrong(commands: list[tuple[str, str]]) -> list[str]:
    """Return the commands whose decision is another one."""
    return [command for command, expected in commands if not isinstance(decided(command), DECISIONS[expected])]


def test_no_hostile_command_runs_unasked() -> None:
    assert len(HOSTILE) >= 300
    assert [command for command, _ in HOSTILE if isinstance(decided(command), Allow)] == []
    assert wrong(HOSTILE) == []


def test_few_readers_are_asked_about() -> None:
    asked = [command for command, _ in HONEST if not isinstance(decided(command), Allow)]
    assert len(HONEST) >= 150
    assert len(asked) <= len(HONEST) // 10
    assert wrong(HONEST) == []


def test_command_allowed_unasked_has_no_network() -> None:
    found = [decided(command) for command, expected in HONEST if expected == "allow"]
    assert all(isinstance(one, Allow) and one.no_network for one in found)


@pytest.mark.parametrize("kind", ["dm", "non-main"])
def test_readers_are_asked_about_outside_main(kind: str) -> None:
    there = session(SessionKind(kind))
    scopes = [CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",)) for command, _ in HONEST]
    assert {type(decide(SPEC, POLICY, there, one, askable=True)) for one in scopes} == {Ask}


def test_every_part_has_a_line_and_no_hostile_one_reads_only() -> None:
    for command, _ in [*HOSTILE, *HONEST]:
        lines = part_verdicts(parse(command))
        assert 1 <= len(lines) <= 8
    hostile = [one for one, _ in HOSTILE if {verdict for _, verdict in part_verdicts(parse(one))} == {"reads only"}]
    assert hostile == []


def test_always_remembers_the_exact_text_or_nothing() -> None:
    for command, _ in [*HOSTILE, *HONEST]:
        assert rule_for_always(parse(command)) in (None, (command.strip(),))
