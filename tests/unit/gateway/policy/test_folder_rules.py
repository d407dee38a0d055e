"""Rules about files in folders, and commands that name such a folder."""

from __future__ import annotations

import pytest

from gateway.domain.rules import Verdict
from gateway.policy.rules import evaluate
from gateway.policy.shell import WorkingFolder
from gateway.policy.shell.git_options import subcommand_of
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
    found = evaluate([rule("*", ALLOW), *denied], [f"command:{command}"], "main", WorkingFolder(workspace="/w/ann"))
    assert found is not None
    assert found.decision is expected


@pytest.mark.parametrize(
    "command", ["grep -n x secret*", "grep -rn x deep/*", "wc -l de?p/* README.md", "grep x [s]ecrets", "cp -r dee? x"]
)
def test_reader_whose_wildcard_names_a_denied_folder(command: str) -> None:
    denied = [rule(f"{folder}/*", DENY) for folder in ("secrets", "deep/keys")]
    found = evaluate(denied, [f"command:{command}"], "main", WorkingFolder(workspace="/w/ann"))
    assert found is not None
    assert found.decision is ASK


def test_later_rule_allows_a_folder_again() -> None:
    rules = [rule("*", ALLOW), rule("secrets/*", DENY), rule("cat secrets/*", ALLOW), rule("cp -r secrets x", ALLOW)]
    assert verdict(rules, "command:cp -r secrets x") is ALLOW
    assert verdict(rules, "command:cp -r secrets y") is DENY


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rg x", ASK),
        ("rg -A 3 x", ASK),
        ("rg -e x", ASK),
        ("rg -tpy --files", ASK),
        ("rg --type py x", ASK),
        ("rg -n x src", ALLOW),
        ("rg -nA 3 x", ASK),
        ("rg -A3 x src", ALLOW),
        ("rg --regexp=x src", ALLOW),
        ("rg --regexp=x", ASK),
        ("rg --no-heading x src", ALLOW),
        ("rg -A 3 x src", ALLOW),
        ("rg --type py x src", ALLOW),
        ("rg -e x src", ALLOW),
        ("grep -rn TODO", ASK),
        ("grep -R -m 1 TODO", ASK),
        ("grep --recursive TODO", ASK),
        ("grep -d recurse TODO", ASK),
        ("grep -r --include='*.py' TODO", ASK),
        ("grep -rn TODO src", ALLOW),
        ("grep -rn -- -x src", ALLOW),
        ("grep x README.md", ALLOW),
        ("grep -c x", ALLOW),
        ("rgrep TODO", ASK),
        ("ag TODO", ASK),
        ("fd x", ASK),
        ("fd -e py x", ASK),
        ("fd x src", ALLOW),
        ("ls -R", ASK),
        ("ls -la --recursive", ASK),
        ("ls -R .", ASK),
        ("ls -R src", ALLOW),
        ("ls -la", ALLOW),
        ("tree -L 3", ASK),
        ("tree src", ALLOW),
        ("du -sh", ALLOW),
        ("du -ah", ASK),
        ("find -name x", ASK),
        ("find", ASK),
        ("find -L ( -name x )", ASK),
        ("find src -name x", ALLOW),
        ("find -H src -name x", ALLOW),
        ("find -L src", ALLOW),
        ("find -P", ASK),
        ("find -P src", ALLOW),
        ("find Xsrc", ALLOW),
        ("git blame .", ASK),
        ("git blame README.md", ALLOW),
        ("git -C . grep -n x", ASK),
        ("git grep -n x src/main.py", ALLOW),
        ("git grep x", ASK),
        ("git grep -e x", ASK),
        ("git grep x src/main.py", ALLOW),
        ("git --no-pager grep x", ASK),
        ("git archive HEAD", ASK),
        ("git diff", ASK),
        ("git log -p", ASK),
        ("git log --oneline", ALLOW),
        ("git diff --stat .", ALLOW),
        ("git diff main.py", ALLOW),
        ("timeout 5 rg x", ASK),
        ("diff -r . other", ASK),
        ("diff -r other more", ALLOW),
    ],
)
def test_command_that_walks_its_folder_without_naming_it(command: str, expected: Verdict) -> None:
    """As one that names it: `rg x` reads as much as `rg x .` does."""
    rules = [rule("*", ALLOW), rule("secrets/*", DENY)]
    found = evaluate(rules, [f"command:{command}"], "main", WorkingFolder(workspace="/w/ann"))
    assert found is not None
    assert found.decision is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("grep -fpw x", DENY),
        ("grep -nfpw x", DENY),
        ("sort -opw", DENY),
        ("sort --output=pw", DENY),
        ("wget -Opw https://a.example", DENY),
        ("git grep -fpw", DENY),
        ("git diff -Opw", DENY),
        ("ls -la", ALLOW),
        ("ls", ALLOW),
        ("pwd -P", ALLOW),
        ("wc -l", ALLOW),
        ("wc --files0-from=pw", DENY),
    ],
)
@pytest.mark.parametrize("goes", [True, False])
def test_option_with_a_file_of_a_denied_folder(command: str, expected: Verdict, goes: bool) -> None:
    text, place = (f"cd src && {command}", WorkingFolder()) if goes else (command, WorkingFolder(folder="src"))
    rules = [rule("*", ALLOW), rule("src/*", DENY), rule("cd src", ALLOW)]
    found = evaluate(rules, [f"command:{text}"], "main", place)
    assert found is not None
    assert found.decision is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("curl https://*", ALLOW),
        ("rm -rf src/*", ALLOW),
        ("git push -f origin/*", ALLOW),
        ("test data/*", ASK),
        ("test data\\*", ASK),
        ("/etc/*", ALLOW),
        ("/w/ann/secrets/*", ASK),
        ("../other/*", ALLOW),
        ("*/keys", ASK),
    ],
)
def test_rule_about_a_command_names_no_folder(pattern: str, expected: Verdict) -> None:
    found = evaluate(
        [rule("*", ALLOW), rule(pattern, DENY)], ["command:rg x"], "main", WorkingFolder(workspace="/w/ann")
    )
    assert found is not None
    assert found.decision is expected


def test_absolute_folder_is_elsewhere_when_no_workspace_is_known() -> None:
    assert verdict([rule("*", ALLOW), rule("/etc/*", DENY)], "command:rg x") is ALLOW


def test_path_without_a_dot_is_compared_with_rules() -> None:
    rules = [rule("*", ALLOW), rule("deep/keys", DENY)]
    assert verdict(rules, "command:wc -l deep/keys") is DENY
    assert verdict(rules, "command:wc -l deep/keys2") is ALLOW


@pytest.mark.parametrize(
    ("args", "rest"),
    [
        ("log -p", "log -p"),
        ("--no-pager log", "log"),
        ("-p -c log", ""),
        ("-c a.b=c grep x", "grep x"),
        ("-C -c log x", "log x"),
        ("--git-dir x --config-env a=B log", "log"),
        ("--git-dir=x log", "log"),
        ("-p log -c", "log -c"),
        ("--bare -c a=b", ""),
        ("--exec-path", ""),
        ("", ""),
    ],
)
def test_subcommand_of_git_follows_its_options(args: str, rest: str) -> None:
    assert list(subcommand_of(args.split())) == rest.split()


def test_locked_folder_stands_above_a_later_rule_that_asks() -> None:
    rules = [rule("secrets/*", DENY, locked=True), rule("cp *", ASK)]
    assert verdict(rules, "command:cp -r secrets x") is DENY
    assert verdict(rules, "command:cp -r other x") is ASK
