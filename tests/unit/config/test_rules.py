"""Reader of `[[rules]]`: what is valid, what is told, and which tools a rule is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
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
        locked=True, where="rules[0]",
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
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert told in f"{caught.value.message} {caught.value.cure}"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (GIT + GIT.replace("git *", "*").replace("allow", "ask"), "rules[0] has no effect: rules[1] matches all"),
        (GIT + GIT, "rules[0] has no effect: rules[1] matches all"),
        (GIT.replace("git *", "*"), "rules[0] allows every plain command of the shell without asking anyone"),
        (GIT.replace("git *", "*").replace('"shell"', '"*"'), "rules[0] allows every tool without asking anyone"),
    ],
)
def test_rules_without_effect_and_wide_ones_are_warned_of(tmp_path: Path, text: str, warning: str) -> None:
    assert any(warning in line for line in read(tmp_path, text).warnings)


def test_a_deny_below_a_wide_allow_of_the_shell_keeps_its_effect(tmp_path: Path) -> None:
    text = GIT.replace("allow", "deny") + GIT.replace("git *", "*")
    assert not any("no effect" in line for line in read(tmp_path, text).warnings)
