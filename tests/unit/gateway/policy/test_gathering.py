"""Commands that read or copy whole folders, beside rules that deny or ask about files in any folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.decisions import Allow, Ask
from gateway.domain.rules import Verdict
from gateway.domain.tools import CallScope, Risk
from gateway.policy.permission import decide
from gateway.policy.rules import evaluate
from gateway.policy.shell import WorkingFolder
from tests.unit.gateway.policy.shell.test_corpus import HONEST
from tests.unit.gateway.policy.test_permission import POLICY, SPEC, session
from tests.unit.gateway.policy.test_rules import ALLOW, ASK, DENY, rule


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rg x", ASK),
        ("rg -n x src", ASK),
        ("cd src && rg x", ASK),
        ("cd $x && rg x", ASK),
        ("rg x main.py", ALLOW),
        ("rg -g '*.py' x", ALLOW),
        ("rg -g '*.p*' x", ASK),
        ("rg -g '!*.py' x", ASK),
        ("rg -g '*.{py,pem}' x", ASK),
        ("rg --glob='*.py' x src", ALLOW),
        ("rg -t py x", ALLOW),
        ("rg -tpy x src", ALLOW),
        ("rg -nt rust x", ALLOW),
        ("rg --type=go --type ts x src", ALLOW),
        ("rg -t py -g '*.rs' x", ALLOW),
        ("rg -t pem x", ASK),
        ("rg -t py -t all x", ASK),
        ("rg -t py -g '*.p*' x", ASK),
        ("rg -t py --iglob='*.PEM' x", ASK),
        ("rg -g '*.py' -ng'*.p*' x", ASK),
        ("rg -g '*.py' -n -g '*.p*' x", ASK),
        ("rg --type-add 'py:*.p*' -t py x", ASK),
        ("rg -T js x", ASK),
        ("rg x -g", ASK),
        ("rg x --glob", ASK),
        ("rg -e -t py src", ASK),
        ("rg -e -g main.py src", ASK),
        ("rg -- -g main.py src", ASK),
        ("rg x -- -g main.py", ASK),
        ("rg -et src main.py", ASK),
        ("rg --files", ALLOW),
        ("grep -r x .", ASK),
        ("grep -rn x src", ASK),
        ("grep -r --include='*.py' x src", ALLOW),
        ("grep -r --include '*.py' x src", ALLOW),
        ("grep -r --include='*.py' --inc='*.p*' x src", ASK),
        ("grep -r --include='*.py' --include '*.p*' x src", ASK),
        ("grep -r -e --include=main.py src", ASK),
        ("grep -ret src main.py", ASK),
        ("grep -r x ..", ASK),
        ("grep -r x /etc", ASK),
        ("grep -r x main.py", ALLOW),
        ("grep x main.py", ALLOW),
        ("timeout 5 grep -r x src", ASK),
        ("ag x", ASK),
        ("tar c .", ASK),
        ("tar czf x.tgz src", ASK),
        ("tar -czf x.tgz src", ASK),
        ("tar --create -f x.tgz src", ASK),
        ("tar -C lib -cf x.tar main.py", ASK),
        ("tar -cf x.tar -T names.txt", ASK),
        ("tar cf x.tar main.py", ALLOW),
        ("tar xzf x.tgz", ALLOW),
        ("tar tf x.tar", ALLOW),
        ("zip -r x.zip src", ASK),
        ("zip x.zip main.py", ALLOW),
        ("7z a x.7z src", ASK),
        ("rar a x.rar .", ASK),
        ("jar cf x.jar src", ASK),
        ("jar tf x.jar", ALLOW),
        ("mksquashfs src x.img", ASK),
        ("rclone copy src a:x", ASK),
        ("cp -r . x", ASK),
        ("cp -r src x", ASK),
        ("cp -a src x", ASK),
        ("cp --recursive src x", ASK),
        ("cp -rt x src", ASK),
        ("cp src x", ALLOW),
        ("cp main.py x", ALLOW),
        ("cp -r main.py x", ALLOW),
        ("rsync -a src/ x", ASK),
        ("scp -r src a.example:x", ASK),
        ("rg --maxdepth 3 x main.py", ALLOW),
        ("rg --maxdepth 3 main.py", ASK),
        ("rg --unknown 3 main.py", ASK),
        ("grep -r --group-separator main.py x", ASK),
        ("grep -r --group-separator=- x main.py", ALLOW),
        ("grep -r --unknown main.py x", ASK),
        ("grep -r x --regexp", ASK),
        ("grep -r x -e", ASK),
        ("grep -rniw x main.py", ALLOW),
        ("grep -rnie x main.py", ALLOW),
        ("ag --ignore main.py x", ASK),
        ("ack --type py main.py", ASK),
        ("git grep x", ASK),
        ("git grep -n x -- src", ASK),
        ("git grep x -- '*.py' main.py", ALLOW),
        ("git grep x main.py", ALLOW),
        ("git grep --max-depth 3 main.py", ASK),
        ("git -C src grep x main.py", ASK),
        ("diff -r src old", ASK),
        ("diff src old", ASK),
        ("diff main.py old.py", ALLOW),
        ("find . | cpio -o", ASK),
        ("cpio -i x", ALLOW),
        ("pax -w .", ASK),
        ("pax -wf x.pax src", ASK),
        ("find . -name x", ALLOW),
        ("ls -R", ALLOW),
        ("tree", ALLOW),
        ("make", ALLOW),
    ],
)
def test_command_that_reads_whole_folders_asks(command: str, expected: Verdict) -> None:
    """A file that must not be read would be printed, or leave under another name (I02)."""
    for locked in (False, True):
        rules = [rule("*", ALLOW), rule("*.pem", DENY, locked=locked)]
        found = evaluate(rules, [f"command:{command}"], "main", WorkingFolder(workspace="/w/ann"))
        assert found is not None
        assert found.decision is expected


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("notes.txt", "rg x", ASK),
        ("notes.txt", "rg x src", ALLOW),
        ("notes.txt", "cp -r . x", ASK),
        ("*/notes.txt", "cp -r src x", ASK),
        ("/etc/*.pem", "rg x", ALLOW),
        ("make *", "rg x", ALLOW),
    ],
)
def test_rule_about_files_holds_for_what_is_gathered(pattern: str, command: str, expected: Verdict) -> None:
    found = evaluate(
        [rule("*", ALLOW), rule(pattern, DENY)], [f"command:{command}"], "main", WorkingFolder(workspace="/w/ann")
    )
    assert found is not None
    assert found.decision is expected


def test_question_names_the_program_and_the_files() -> None:
    call_scope = CallScope(risk=Risk.EXECUTE, subjects=("command:rg x",), workspace="/w/ann")
    policy = replace(POLICY, rules=(rule("*", ALLOW), rule("*.pem", DENY)))
    found = decide(SPEC, policy, session(), call_scope, askable=True)
    assert isinstance(found, Ask)
    assert found.warning == "Rg may take along or show files that fit '*.pem'."


@pytest.mark.parametrize("denied", [("*.pem",), ("*.pem", "secrets/*"), ("notes.txt",)])
def test_few_readers_are_asked_about_beside_such_rules(denied: tuple[str, ...]) -> None:
    policy = replace(POLICY, rules=tuple(rule(one, DENY) for one in denied))
    asked = list[str]()
    for command, expected in HONEST:
        call_scope = CallScope(risk=Risk.EXECUTE, subjects=(f"command:{command}",), workspace="/w/ann")
        if expected == "allow" and not isinstance(decide(SPEC, policy, session(), call_scope, askable=True), Allow):
            asked.append(command)
    assert len(asked) <= len(HONEST) // 10, asked
