"""Reader of expected decisions: what is valid, and what a malformed file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.rule_cases import RuleCase, read_cases
from gateway.domain.sessions import SessionKind
from gateway.errors import ConfigError

ONE = '[[case]]\ntool = "shell"\ndecision = "ask"\n'


def read(tmp_path: Path, text: str) -> tuple[RuleCase, ...]:
    file = tmp_path / "cases.toml"
    file.write_text(text)
    return read_cases(file)


def test_a_case_has_its_place_and_defaults(tmp_path: Path) -> None:
    more = 'text = "git push"\nkind = "dm"\npreset = "plan"\nbecause = "rules[1]"\n'
    first, second = read(tmp_path, f"\n{ONE}{ONE}{more}")
    assert first == RuleCase(
        where="cases.toml:2 (case[0])", tool="shell", text="", decision="ask", kind=SessionKind.MAIN, preset="",
        session="", because="",
    )  # fmt: skip
    assert (second.where, second.text, second.kind) == ("cases.toml:5 (case[1])", "git push", SessionKind.DM)
    assert (second.preset, second.because) == ("plan", "rules[1]")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "case: there are no cases. Write [[case]]"),
        ("case = 5", "there are no cases"),
        ("[case]\ntool = 'shell'\n", "there are no cases"),
        ("[[case]\n", "is not TOML: line 1"),
        ('[[case]]\ntool = "shell"\n', "cases.toml:1: case[0].decision: it is missing. Add"),
        (ONE + '[[case]]\ndecision = "ask"\n', "cases.toml:4: case[1].tool: it is missing"),
        (ONE.replace("ask", "maybe"), "cases.toml:1: case[0].decision: it is none of the choices. Write one of"),
        (ONE + 'kind = "group"\n', "case[0].kind: it is none of the choices"),
        (ONE + 'pattern = "x"\n', "case[0].pattern: unknown key"),
        (ONE + "text = 5\n", "case[0].text: it is not text. Write it in quotes"),
        (ONE + "[more]\n", "more: unknown key"),
        (ONE + 'session = "main:ann"\nkind = "dm"\n', "case[0].session: a session has its own kind and preset"),
    ],
)
def test_a_malformed_file_is_reported_with_line_and_cure(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert told in f"{caught.value.message} {caught.value.cure}"
    assert caught.value.cure


def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_cases(tmp_path / "nothing.toml")
