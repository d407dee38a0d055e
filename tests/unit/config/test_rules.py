"""Reader of `[[rules]]`: what is valid, what is told, and which tools a rule is for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.domain.patterns import covers, fits
from gateway.domain.rules import Rule, Verdict
from gateway.errors import ConfigError

GIT = '[[rules]]\ntool = "shell"\npattern = "git *"\ndecision = "allow"\n'


def read(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load(file, tmp_path / "state", {"HOME": str(tmp_path)}, tool_specs())


def test_rules_keep_their_order_and_are_for_their_tools(tmp_path: Path) -> None:
    every = '[[rules]]\ntool = "builtin:*"\npattern = "*.env"\ndecision = "deny"\nlocked = true\n'
    loaded = read(tmp_path, every + GIT)

    env, git = loaded.tools["shell"].rules
    assert env == Rule(
        tool="builtin:*", pattern="*.env", decision=Verdict.DENY, kinds=frozenset({"main", "dm", "non-main"}),
        locked=True, where="config.toml:1 (rules[0])",
    )  # fmt: skip
    assert (git.pattern, git.decision, git.kinds) == ("git *", Verdict.ALLOW, {"main"})
    assert loaded.tools["browser"].rules == (env,)
    assert loaded.warnings == ()


def test_an_allow_holds_elsewhere_only_when_it_says_so(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, GIT + 'kinds = ["dm", "non-main"]\n').tools["shell"].rules
    assert rule.kinds == {"dm", "non-main"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[rules]\ntool = "shell"\n', "rules: it is not a list of tables. Write [[rules]]"),
        ('[[rules]]\ntool = "shel"\npattern = "*"\ndecision = "deny"\n', "rules[0].tool: there is no tool 'shel'"),
        ('[[rules]]\ntool = "acme:*"\npattern = "*"\ndecision = "deny"\n', "there is no tool 'acme:*'"),
        ('[[rules]]\ntool = "shell"\npattern = ""\ndecision = "deny"\n', "rules[0].pattern"),
        ('[[rules]]\ntool = "shell"\npattern = "  "\ndecision = "deny"\n', 'it is blank. Write "*" for any call'),
        ('[[rules]]\ntool = "shell"\ndecision = "deny"\n', "rules[0].pattern"),
        ('[[rules]]\ntool = "shell"\npattern = "*"\n', "rules[0].decision"),
        ('[[rules]]\ntool = "shell"\npattern = "*"\ndecision = "maybe"\n', "rules[0].decision"),
        (GIT + "locked = true\n", "only a deny can be locked"),
        (GIT + "kinds = []\n", "it is empty, so the rule never holds"),
        (GIT + 'kinds = ["group"]\n', "rules[0].kinds"),
        (GIT + "colour = 1\n", "colour"),
        (GIT * 501, "there are 501 rules"),
    ],
)
def test_mistakes_are_reported_with_their_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    line = "config.toml:1: " if "there are" not in told and "list of tables" not in told else "config.toml: "
    assert line in caught.value.message
    assert told in f"{caught.value.message} {caught.value.cure}"


def rules(*lines: str) -> str:
    """Return a file of rules, each written `TOOL PATTERN DECISION more keys`, with `_` for a blank in a pattern."""
    text = ""
    for line in lines:
        tool, pattern, decision, *more = line.split(" ", 3)
        pattern = pattern.replace("_", " ")
        text += f'[[rules]]\ntool = "{tool}"\npattern = "{pattern}"\ndecision = "{decision}"\n{"".join(more)}\n'
    return text


FIRST, SECOND = "config.toml:1 (rules[0])", "config.toml:6 (rules[1])"
COVERED = f"{FIRST} has no effect: {SECOND} matches all that it does, and the last match decides. Remove it, or move it"
LOCKED = f"the locked deny {FIRST} comes first. Remove one of them."


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (("shell git_* allow", "shell * ask"), COVERED),
        (("shell git_* allow", "shell git_* allow"), COVERED),
        (("shell git_push_* allow", "shell git_* deny"), COVERED),
        (("browser example.org deny", "browser *.org ask"), COVERED),
        (("shell git_* ask", "* * deny"), COVERED),
        (("* *.env deny locked = true", "shell *.env allow"), f"{SECOND} has no effect: {LOCKED}"),
        (("* *.env deny locked = true", "shell prod.env deny"), f"{SECOND} has no effect: {LOCKED}"),
        (("* *.env deny locked = true", "* *.env deny locked = true"), f"{SECOND} has no effect: {LOCKED}"),
        (
            ("shell git_* deny kinds = ['main', 'dm']", "shell git_* allow"),
            f"{FIRST} says deny and {SECOND} says allow for the same calls in main, where the later one",
        ),
        (("shell * allow",), f"{FIRST} allows every plain command of the shell without asking anyone; write what"),
        (("* * allow",), f"{FIRST} allows every tool without asking anyone; write what is really needed."),
        (("builtin:* ** allow",), f"{FIRST} allows every call of builtin:* without asking anyone"),
        (("browser * allow",), f"{FIRST} allows every host; name hosts whole"),
        (("browser *.com allow",), f"{FIRST} allows every host that ends in .com; name hosts whole"),
        (("browser *com allow",), f'{FIRST} allows every host that ends in com; name hosts whole: "example.org"'),
        (("browser Example.ORG deny",), f'{FIRST} matches no host: hosts are in lower case. Write "example.org"'),
        (("browser https://example.org/* deny",), f"{FIRST} has no effect: paths have no `//`, and hosts no scheme."),
        (
            ("browser /etc/passwd deny",),
            f'{FIRST} has no effect: paths are relative to the workspace. Write "etc/',
        ),
        (
            ("browser ../secret/x deny",),
            f"{FIRST} has no effect: paths have no `..`. Write the path from the workspace",
        ),
        (("browser ./secret deny",), f'{FIRST} has no effect: paths begin without `./`. Write "secret".'),
        (("sessions_list x deny",), f"{FIRST} has no effect: a call of sessions_list touches nothing that a pattern"),
    ],
)
def test_rules_that_are_likely_mistakes_are_warned_of(tmp_path: Path, lines: tuple[str, ...], warning: str) -> None:
    (told,) = read(tmp_path, rules(*lines)).warnings
    assert told.startswith(warning)


@pytest.mark.parametrize(
    "lines",
    [
        ("shell git_* allow", "shell git_push_* deny"),
        (
            "shell git_* deny kinds = ['main']",
            "shell git_* allow kinds = ['dm']",
            "shell git_log_* ask kinds = ['main']",
        ),
        ("shell git_* deny", "shell * allow kinds = ['dm']", "* *.env deny locked = true"),
        ("shell /usr/bin/* ask", "* /etc/* deny", "* ../* deny", "* README.md ask", "browser README/x.md ask"),
        ("shell ?x ask", "shell *x ask kinds = ['dm']"),
        ("browser example.org allow", "browser *.example.org allow", "browser *.com deny", "browser [::1]:8080 deny"),
        ("sessions_list * deny", "* * deny kinds = ['non-main']"),
        ("* *.env deny locked = true", "* *env deny locked = true"),
    ],
)
def test_rules_that_decide_something_are_not_warned_of(tmp_path: Path, lines: tuple[str, ...]) -> None:
    told = [line for line in read(tmp_path, rules(*lines)).warnings if "every plain command" not in line]
    assert told == []


@given(st.text("ab*? ", max_size=6), st.text("ab*? ", max_size=6), st.text("ab ", max_size=6))
@example(wide="??", narrow="*", text="")
def test_a_covering_pattern_fits_every_text_of_the_other(wide: str, narrow: str, text: str) -> None:
    assert not covers(wide, narrow) or not fits(narrow, text) or fits(wide, text)


def test_many_rules_are_checked_quickly(tmp_path: Path) -> None:
    started = time.monotonic()
    loaded = read(tmp_path, rules(*(f"shell *a{n}*b{n}_* ask" for n in range(500))))
    assert time.monotonic() - started < 10, "half a second by itself"
    assert loaded.warnings == ()


def test_a_deny_below_a_wide_allow_of_the_shell_keeps_its_effect(tmp_path: Path) -> None:
    text = GIT.replace("allow", "deny") + GIT.replace("git *", "*")
    assert not any("no effect" in line for line in read(tmp_path, text).warnings)
