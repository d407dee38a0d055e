"""Rules about files in folders, and commands that name such a folder."""

from __future__ import annotations

import pytest

from gateway.domain.rules import Verdict
from gateway.policy.rules import evaluate
from gateway.policy.shell import Place
from tests.unit.gateway.policy.test_rules import ALLOW, ASK, DENY, rule, verdict


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cp -r secrets x", DENY),
        ("cp -r ./secrets/ x", DENY),
        ("cp -r a/../secrets x", DENY),
        ("cp -r /w/ann/secrets x", DENY),
        ("tar c secrets", DENY),
        ("tar -Csecrets -c .", DENY),
        ("tar -C secrets -c .", DENY),
        ("zip -r --include=secrets x", DENY),
        ("grep -r . secrets", DENY),
        ("sudo cp -r secrets x", DENY),
        ("mv secrets y", DENY),
        ("ln -s secrets y", DENY),
        ("cd deep && cat keys", DENY),
        ("cp -r deep/keys x", DENY),
        ("cp -r deep x", ASK),
        ("cp -r /w/ann x", ASK),
        ("tar c .", ASK),
        ("cd src && tar c ..", ASK),
        ("find . -name x", ASK),
        ("cp -r other x", ALLOW),
        ("cp -r secrets2 x", ALLOW),
        ("ls .", ALLOW),
        ("git status .", ALLOW),
        ("make", ALLOW),
    ],
)
@pytest.mark.parametrize("locked", [True, False])
def test_command_that_names_a_folder_above_what_is_denied(command: str, expected: Verdict, locked: bool) -> None:
    """As searches and file tools leave out what is denied below a folder, so that no program copies it (I02)."""
    denied = [rule(f"{folder}/*", DENY, locked=locked) for folder in ("secrets", "deep/keys")]
    found = evaluate([rule("*", ALLOW), *denied], [f"command:{command}"], "main", Place(workspace="/w/ann"))
    assert found is not None
    assert found.decision is expected


@pytest.mark.parametrize(
    "command", ["grep -n x secret*", "grep -rn x deep/*", "wc -l de?p/* README.md", "grep x [s]ecrets"]
)
def test_reader_whose_wildcard_names_a_denied_folder(command: str) -> None:
    denied = [rule(f"{folder}/*", DENY) for folder in ("secrets", "deep/keys")]
    found = evaluate(denied, [f"command:{command}"], "main", Place(workspace="/w/ann"))
    assert found is not None
    assert found.decision is ASK


def test_later_rule_allows_a_folder_again() -> None:
    rules = [rule("*", ALLOW), rule("secrets/*", DENY), rule("cat secrets/*", ALLOW), rule("cp -r secrets x", ALLOW)]
    assert verdict(rules, "command:cp -r secrets x") is ALLOW
    assert verdict(rules, "command:cp -r secrets y") is DENY
