"""Tools of files, searches, the shell and the web, as the table of requirements has them."""

from __future__ import annotations

import pytest

from config.plugins import tool_specs
from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.sessions import SessionKind
from gateway.domain.tool_groups import GROUPS
from gateway.domain.tools import Availability, CallScope, Risk, ToolPolicy
from gateway.policy.permission import decide
from tests.unit.gateway.policy.test_permission import session

ALWAYS, MAIN = Availability.ALWAYS, Availability.MAIN
DECISIONS: dict[str, type[Decision]] = {"A": Allow, "K": Ask, "D": Deny}
SPECS = tool_specs()
KINDS = (SessionKind.MAIN, SessionKind.DM, SessionKind.NON_MAIN)

ROWS = (
    ("read", ALWAYS, Risk.READ, "AAA", 30, None),
    ("list", ALWAYS, Risk.READ, "AAA", 30, None),
    ("glob", ALWAYS, Risk.READ, "AAA", 30, None),
    ("grep", ALWAYS, Risk.READ, "AAA", 30, None),
    ("write", ALWAYS, Risk.WRITE, "KKK", 30, None),
    ("edit", ALWAYS, Risk.WRITE, "KKK", 30, None),
    ("multiedit", ALWAYS, Risk.WRITE, "KKK", 30, None),
    ("apply_patch", ALWAYS, Risk.WRITE, "KKK", 30, None),
    ("shell", MAIN, Risk.EXECUTE, "KDD", 120, 600),
    ("shell_poll", MAIN, Risk.READ, "ADD", 30, None),
    ("shell_kill", MAIN, Risk.NONE, "ADD", 30, None),
    ("browser", MAIN, Risk.NETWORK, "KDD", 60, 300),
    ("webfetch", ALWAYS, Risk.NETWORK, "KKK", 30, 120),
    ("websearch", ALWAYS, Risk.NETWORK, "AKK", 25, None),
    ("codesearch", MAIN, Risk.NETWORK, "KDD", 30, None),
    ("ask_user", ALWAYS, Risk.NONE, "AAA", 30, None),
    ("todo_write", ALWAYS, Risk.NONE, "AAA", 30, None),
    ("todo_read", ALWAYS, Risk.NONE, "AAA", 30, None),
    ("sessions_list", ALWAYS, Risk.NONE, "AAA", 30, None),
)
"""Name, availability, risk; main, dm and non-main: A allowed, K asked, D not there; timeout and its most in seconds."""


@pytest.mark.parametrize(("name", "availability", "risk", "decisions", "timeout_s", "most_s"), ROWS)
def test_tool_has_the_defaults_of_the_catalogue(
    name: str, availability: Availability, risk: Risk, decisions: str, timeout_s: float, most_s: float | None
) -> None:
    spec = SPECS[name]
    assert (spec.availability, spec.risk) == (availability, risk)
    assert (spec.timeout_s, spec.max_timeout_s) == (timeout_s, most_s)
    policy = ToolPolicy(
        availability=spec.availability, approval={}, timeout_s=spec.timeout_s, actions={}, sandbox=spec.sandbox
    )
    for kind, expected in zip(KINDS, decisions, strict=True):
        found = decide(spec, policy, session(kind), CallScope(risk=spec.risk), askable=True)
        assert isinstance(found, DECISIONS[expected]), kind
        if isinstance(found, Deny):
            assert found.reason is DenyReason.ONLY_IN_MAIN


def test_groups_have_every_tool_of_their_kind() -> None:
    """D28: a rule about `group:edit` or `group:network` leaves none out."""
    changing = {name for name, spec in SPECS.items() if spec.risk is Risk.WRITE}
    assert changing == GROUPS["edit"].tools
    assert {"webfetch", "websearch", "codesearch"} <= GROUPS["network"].tools
    assert {"glob", "grep", "list"} == GROUPS["search"].tools
