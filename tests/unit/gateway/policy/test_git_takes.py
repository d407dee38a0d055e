"""Commands of `git` that take files along without naming them, beside rules that deny or ask about files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask, Deny
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.tools import CallScope, Risk
from gateway.policy.permission import decide
from gateway.policy.rules import evaluate
from gateway.policy.shell import WorkingFolder
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session
from tests.unit.gateway.policy.test_rules import ALLOW, ASK, DENY, rule

PLACE = WorkingFolder(workspace="/w/ann")


def verdict(rules: Sequence[Rule], command: str, place: WorkingFolder = PLACE) -> Verdict | None:
    found = evaluate(rules, [f"command:{command}"], "main", place)
    return None if found is None else found.decision


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git add .", ASK),
        ("git add ./", ASK),
        ("git add /w/ann", ASK),
        ("git add -A", ASK),
        ("git add --all", ASK),
        ("git add -u", ASK),
        ("git add -p", ASK),
        ("git --no-pager add -A", ASK),
        ("git stage -A", ASK),
        ("git add src", ASK),
        ("git add src/", ASK),
        ("git add '*'", ASK),
        ("git add 'sr*'", ASK),
        ("git add 's[r]c/*'", ASK),
        ("git add '\\src'", ASK),
        ("git add ':(top)src/main.py'", ASK),
        ("git add conf.d", ASK),
        ("git add src/main.py .", ASK),
        ("git add src main.py", ASK),
        ("git add 's\\rc/a.py'", ASK),
        ("git -C lib add main.py", ASK),
        ("git --git-dir=x add main.py", ASK),
        ("git add --pathspec-from-file=names.txt", ASK),
        ("git add --pathspec-from-file names.txt main.py", ASK),
        ("cd src && git add .", ASK),
        ("git add main.py", ALLOW),
        ("git add src/main.py README.md", ALLOW),
        ("git add -A main.py", ALLOW),
        ("git add -- main.py", ALLOW),
        ("git add Makefile LICENSE", ALLOW),
        ("git add .gitignore", ALLOW),
        ("git add '*.py'", ALLOW),
        ("git add --chmod=+x run.sh", ALLOW),
        ("git add --chmod +x run.sh", ALLOW),
        ("git commit -am x", ASK),
        ("git commit -a -m x", ASK),
        ("git commit --all -m x", ASK),
        ("git commit -qam x", ASK),
        ("git commit -p", ASK),
        ("git commit --interactive", ASK),
        ("git commit -m x src", ASK),
        ("git commit -i -m x -- src", ASK),
        ("git commit --amend -a --no-edit", ASK),
        ("git commit --pathspec-from-file=names.txt", ASK),
        ("git commit -m x", ALLOW),
        ("git commit -ma", ALLOW),
        ("git commit -m a -m src", ALLOW),
        ("git commit --message a", ALLOW),
        ("git commit --message=all", ALLOW),
        ("git commit --amend --no-edit", ALLOW),
        ("git commit --author=a --fixup HEAD", ALLOW),
        ("git commit -C HEAD", ALLOW),
        ("git commit -m x -- -a.py", ALLOW),
        ("git commit -Sa -m x", ALLOW),
        ("git commit -m x main.py", ALLOW),
        ("git stash", ASK),
        ("git stash -u", ASK),
        ("git stash push", ASK),
        ("git stash push -m x", ASK),
        ("git stash save main.py", ASK),
        ("git stash create", ASK),
        ("git stash push -m x src", ASK),
        ("git stash push -m x main.py", ALLOW),
        ("git stash -- main.py", ALLOW),
        ("git stash pop", ALLOW),
        ("git stash list", ALLOW),
        ("git stash drop", ALLOW),
        ("git push", ASK),
        ("git push origin main", ASK),
        ("git -C lib push", ASK),
        ("git send-pack x", ASK),
        ("git lfs push origin main", ASK),
        ("git lfs ls-files", ALLOW),
        ("git subtree push --prefix=x origin main", ASK),
        ("git bundle create x --all", ASK),
        ("git bundle verify x", ALLOW),
        ("git format-patch HEAD~3", ASK),
        ("git send-email HEAD~3", ASK),
        ("git fast-export --all", ASK),
        ("git archive HEAD", ASK),
        ("git worktree add lib HEAD", ASK),
        ("git worktree list", ALLOW),
        ("git clone . lib", ASK),
        ("git clone git@a.example:x lib", ALLOW),
        ("git clone git@a.example:x", ALLOW),
        ("git clone -q git@a.example:x", ALLOW),
        ("git clone", ALLOW),
        ("git checkout-index -a --prefix=lib/", ASK),
        ("git update-index --add main.py", ALLOW),
        ("git update-index --stdin", ASK),
        ("git update-index --ag", ASK),
        ("git diff", ASK),
        ("git diff main.py", ALLOW),
        ("git log -p", ASK),
        ("git log", ALLOW),
        ("git grep x", ASK),
        ("git grep x main.py", ALLOW),
        ("git status", ALLOW),
        ("git pull", ALLOW),
        ("git", ALLOW),
        ("git -C lib", ALLOW),
        ("git -C lib status", ALLOW),
        ("timeout 5 git add .", ASK),
        ("make", ALLOW),
        ("make push", ALLOW),
        ("git add main.py && git push", ASK),
    ],
)
def test_git_that_takes_a_denied_file_along_asks(command: str, expected: Verdict) -> None:
    """A file that must not be read would leave with the index or the remote."""
    assert verdict([rule("*", ALLOW), rule("*.env", DENY)], command) is expected
    assert verdict([rule("*", ALLOW), rule("*.env", DENY, locked=True)], command) is expected
    assert verdict([rule("*", ALLOW)], command) is ALLOW


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("secrets/*", "git add .", ASK),
        ("secrets/*", "git add src", ALLOW),
        ("secrets/*", "git add secrets", DENY),
        ("secrets/*", "git add secrets/x", DENY),
        ("secrets/*", "git add '*.py'", ASK),
        ("secrets/*", "git add 'src/*.py'", ALLOW),
        ("secrets/*", "cd src && git add .", ASK),  # where && leaves it when there is no such folder
        ("secrets/*", "cd src && git add ..", ASK),
        ("secrets/*", "cd src && git add -A", ASK),
        ("secrets/*", "cd $x && git add main.py", ASK),
        ("secrets/*", "git push", ASK),
        ("src/keys/*", "git add src", ASK),
        ("src/keys/*", "git add lib", ALLOW),
        ("src\\keys\\*", "git add src", ASK),
        ("/w/ann/secrets/*", "git add .", ASK),
        ("/w/ann/src/keys/*", "git add src", ASK),
        ("/w/ann/src/keys/*", "git add lib", ALLOW),
        ("*/keys", "git add src", ASK),
        ("test data/*", "git add -A", ASK),
        ("/etc/*", "git add .", ALLOW),
        ("../other/*", "git add .", ALLOW),
        (".env", "git add .", ASK),
        (".env", "git add src", ALLOW),
        ("*.pem", "git commit -am x", ASK),
        ("*.sqlite", "git add .", ASK),
        ("id_rsa*", "git add .", ASK),
        ("*credentials", "git add .", ASK),
        ("rm *", "git add .", ALLOW),
        ("make", "git add .", ALLOW),
        ("npm*", "git add .", ALLOW),
        ("* > /etc/*", "git add .", ALLOW),
        ("* | sh", "git add .", ALLOW),
        ("curl https://*", "git push", ALLOW),
        ("rm -rf src/*", "git add .", ALLOW),
        ("cat .env", "git add .", ALLOW),
    ],
)
def test_rule_about_files_holds_for_what_git_takes(pattern: str, command: str, expected: Verdict) -> None:
    assert verdict([rule("*", ALLOW), rule(pattern, DENY)], command) is expected


def test_files_that_are_asked_about_are_asked_about_in_git() -> None:
    assert verdict([rule("*", ALLOW), rule("*.env", ASK)], "git add -A") is ASK


def test_rule_for_everything_names_no_file() -> None:
    for decision in (DENY, ASK):
        assert verdict([rule("*", decision), rule("git *", ALLOW)], "git add -A") is ALLOW


@pytest.mark.parametrize(("allowed", "expected"), [("*", ASK), ("git *", ASK), ("git add .", ALLOW)])
@pytest.mark.parametrize("layer", [Layer.CONFIGURATION, Layer.GRANT])
def test_only_the_exact_command_lifts_the_question(allowed: str, expected: Verdict, layer: Layer) -> None:
    rules = [rule("*", ALLOW), rule("*.env", DENY), replace(rule(allowed, ALLOW), layer=layer)]
    assert verdict(rules, "git add .") is expected


def test_folder_is_elsewhere_when_no_workspace_is_known() -> None:
    assert verdict([rule("*", ALLOW), rule("/etc/*.env", DENY)], "git add .", WorkingFolder()) is ALLOW


@pytest.mark.parametrize(
    ("denied", "command", "text"),
    [
        (("*.env",), "git add .", "git may take along or show files that fit '*.env'"),
        (("*.env", "keys/*"), "ls && git push", "git may take along or show files that fit 'keys/*', '*.env'"),
        (("a/*", "b/*", "c/*", "d/*"), "git push", "git may take along or show files that fit 'd/*', 'c/*', 'b/*', …"),
        (("a/*", "b/*", "c/*"), "git push", "git may take along or show files that fit 'c/*', 'b/*', 'a/*'"),
        (("keys/*",), "git add src; git stash", "git may take along or show files that fit 'keys/*'"),
    ],
)
def test_question_names_the_files_that_git_may_take(denied: tuple[str, ...], command: str, text: str) -> None:
    rules = (rule("*", ALLOW), *(rule(one, DENY) for one in denied))
    call_scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
    found = decide(SPEC, replace(POLICY, rules=rules), session(), call_scope, askable=True)
    assert isinstance(found, Ask)
    assert found.because == text
    assert found.rule == replace(rules[-1], decision=ASK)
    assert found.warning == f"{text[0].upper()}{text[1:]}."


def test_other_question_names_no_files() -> None:
    rules = (rule("*", ALLOW), rule("*.env", DENY), rule("git status *", ASK))
    for command, expected in (("git status", Ask), ("git log", Allow), ("cat .env", Deny)):
        call_scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
        found = decide(SPEC, replace(POLICY, rules=rules), session(), call_scope, askable=True)
        assert isinstance(found, expected)
        if isinstance(found, Ask):
            assert (found.because, found.warning) == ("execute needs an approval", "")
