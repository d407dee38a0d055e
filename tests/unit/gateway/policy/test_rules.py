"""Rules over subjects: order, locked denies, wildcards, and the parts of a shell command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.decisions import Allow, Ask, Deny, DenyReason
from gateway.domain.ids import GrantId
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import CallScope, Risk
from gateway.policy.permission import decide, placed, withheld
from gateway.policy.rules import (
    BLURRED_AT_MOST,
    denied_outright,
    evaluate,
    only_reads,
    some_part_reads,
    written_outside,
)
from gateway.policy.shell import WorkingFolder
from tests.unit.gateway.policy.test_permission import HERE, POLICY, SPEC, scoped, session

EVERYWHERE = frozenset(kind.value for kind in SessionKind)
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def rule(pattern: str, decision: Verdict, *, locked: bool = False, kinds: frozenset[str] = EVERYWHERE) -> Rule:
    return Rule(tool="shell", pattern=pattern, decision=decision, kinds=kinds, locked=locked, where="rules[0]")


def verdict(rules: Sequence[Rule], *subjects: str, kind: str = "main") -> Verdict | None:
    found = evaluate(rules, subjects, kind)
    return None if found is None else found.decision


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("*", "anything/at all", True),
        ("a.txt", "a.txt", True),
        ("a.txt", "b/a.txt", False),
        ("a.txt", "aXtxt", False),
        ("*.env", "a/b/.env", True),
        ("*.env", ".environment", False),
        ("src/*", "src/deep/er.py", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("A.txt", "a.txt", False),
        ("src\\*", "src/x", True),
        ("src\\x", "src/x", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("notes *", "notes", True),
        ("notes *", "notesbook", False),
        ("*\n*", "a\nb", True),
    ],
)
def test_wildcards_are_anchored_and_cross_folders(pattern: str, text: str, matches: bool) -> None:
    assert (verdict([rule(pattern, DENY)], f"path:{text}") is DENY) is matches


@pytest.mark.parametrize(
    ("rules", "subjects", "expected"),
    [
        ([], ["path:a"], None),
        ([rule("*", ALLOW)], ["path:a"], ALLOW),
        ([rule("*", ALLOW), rule("*.md", DENY)], ["path:a.md"], DENY),
        ([rule("*.md", DENY), rule("*", ALLOW)], ["path:a.md"], ALLOW),
        ([rule("*.md", DENY, locked=True), rule("*", ALLOW)], ["path:a.md"], DENY),
        ([rule("*", ALLOW), rule("*.md", DENY)], ["path:b", "path:a.md"], DENY),
        ([rule("*", ALLOW), rule("*.md", ASK)], ["path:b", "path:a.md"], ASK),
        ([rule("*.md", ASK), rule("*.txt", DENY)], ["path:a.md", "path:a.txt"], DENY),
        ([rule("*.md", ALLOW)], ["path:a.md", "path:b"], None),
        ([rule("*.md", ALLOW)], ["path:b", "path:a.md"], None),
        ([rule("src/*", ALLOW)], ["path:src\\x"], ALLOW),
        ([rule("example.org:8080", ALLOW)], ["host:example.org:8080"], ALLOW),
        ([rule("rm -rf *", DENY)], ["command:sudo /bin/rm -rf x"], DENY),
        ([rule("rm -rf x", DENY)], ["command:/bin/rm -r x"], None),
        ([rule("*.md", ALLOW)], ["path:a.md", "path:b.md"], ALLOW),
        ([rule("*.md", ALLOW)], [], None),
        ([rule("**", ALLOW)], [], None),
        ([rule("*", ALLOW), rule("*", DENY)], [], DENY),
        ([rule("*", DENY), rule("*", ALLOW)], [], ALLOW),
        ([rule("a.md", DENY), rule("a.md", ASK)], ["path:a.md"], ASK),
        ([rule("rm *", DENY), rule("sudo *", ASK)], ["command:sudo rm x"], ASK),
        ([rule("sudo *", ASK), rule("rm *", DENY)], ["command:sudo rm x"], DENY),
        ([rule("sudo *", DENY), rule("sudo make", ALLOW)], ["command:sudo make"], ALLOW),
        ([rule("rm *", DENY), rule("x *", ALLOW), rule("x rm y", ALLOW)], ["command:x rm y"], ALLOW),
        ([rule("rm *", ASK), rule("x *", DENY)], ["command:x rm y"], DENY),
        ([rule("a/*", DENY, locked=True), rule("rm *", DENY)], ["command:cat $f; rm x"], DENY),
        ([rule("# a", ALLOW)], ["command:# a"], ALLOW),
        ([rule("# a", ALLOW)], ["command:# b"], None),
        ([rule("*", DENY)], [], DENY),
        ([rule("*", ALLOW)], [], ALLOW),
        ([rule("*", ALLOW, kinds=frozenset({"dm"}))], ["path:a"], None),
        ([rule("*", DENY, locked=True, kinds=frozenset({"dm"}))], ["path:a"], None),
        ([rule("example.org", ALLOW)], ["host:example.org"], ALLOW),
        ([rule("example.org", ALLOW)], ["host:example.org:8080"], None),
    ],
)
def test_the_last_match_decides_and_one_deny_is_enough(
    rules: list[Rule], subjects: list[str], expected: Verdict | None
) -> None:
    assert verdict(rules, *subjects) is expected


@pytest.mark.parametrize(
    "command",
    [
        "rm x", "rm -rf x", "FOO=1 rm -rf x", "env rm x", "command rm x", "sudo rm x", "timeout 5 rm x", "xargs rm",
        'bash -c "rm x"', "\\rm x", "/bin/rm x", 'r""m x', "r'm' x", "ls; rm x", "ls && rm x", "ls | xargs rm",
        "(rm x)", "if true; then rm a; fi", "! rm a", "echo $(rm x)", "echo `rm x`", "a\nrm x", "{ rm x; }",
        "rm\tx", "r\\m x",
        "nohup sudo -u root /usr/bin/rm x &", "cat <(rm x)", "x" * 300_000 + " rm x", " a" * 5_000,
    ],
)  # fmt: skip
def test_a_deny_sees_through_wrappers_quotes_and_lists(command: str) -> None:
    assert verdict([rule("*", ALLOW), rule("rm *", DENY)], f"command:{command}") is DENY


@pytest.mark.parametrize("command", ["ls", "git status", "echo firm", "rmdir x", "cat rm.txt"])
def test_a_deny_leaves_other_commands_alone(command: str) -> None:
    assert verdict([rule("rm *", DENY)], f"command:{command}") is None


@pytest.mark.parametrize(
    "command",
    [
        "git status", "git status -s", "git  status", "git status --porcelain=v2 a/b", "git status 'a b'",
        'git status "a"', "git status \\a", "git status #x", "git status && git status a", "git status | head -5",
        "git status &",
        "git status > /dev/null 2>&1", "(git status)", "timeout 5 git status", "/usr/bin/git status", "! git status",
        "if git status; then git status a; fi", "cd a && git status", "git status < a", "X=1; git status",
        "git status !x",
    ],
)  # fmt: skip
def test_an_allowed_pattern_covers_parts_and_readers(command: str) -> None:
    assert verdict([rule("git status *", ALLOW)], f"command:{command}") is ALLOW


@pytest.mark.parametrize("kind", ["dm", "non-main"])
def test_readers_need_a_rule_of_their_own_outside_main(kind: str) -> None:
    rules = [rule("git status *", ALLOW)]
    assert verdict(rules, "command:git status | head -5", kind=kind) is None
    assert verdict([*rules, rule("head *", ALLOW)], "command:git status | head -5", kind=kind) is ALLOW


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("cp *", "cp a b", ALLOW),
        ("cp *", "cp a ../b", None),
        ("cp *", "cp a /tmp/b", None),
        ("cp *", "cp .env b", None),
        ("cp * ../shared/*", "cp a ../shared/b", ALLOW),
        ("cp * ../shared/*", "cp a ../other/b", None),
        ("cp * ../shared/*", "cp a ../shared/../b", None),
        ("cat .env*", "cat .env.local", ALLOW),
        ("cat /etc/*", "cat /etc/hosts", ALLOW),
        ("cat /etc/*", "cat /etc/../root/x", None),
        ("tar --file=/srv/* x", "tar --file=/srv/a x", None),
        ("./run test *", "./run test a", ALLOW),
        ("run test *", "./run test a", None),
        ("out/*", "echo hi > out/a", ALLOW),
        ("> out/*", "echo hi > out/a", ALLOW),
        ("> out/*", "echo hi > other/a", None),
        ("echo *", "echo hi > out/a", None),
        ("*", "echo hi > out/a", ALLOW),
        ("*", "echo hi > /tmp/a", None),
        ("> /tmp/*", "echo hi > /tmp/a", ALLOW),
        ("PATH=x make", "PATH=x make", ALLOW),
        ("*", "PATH=x make", None),
        ("*", "f() { make; }; f", None),
        ("*", "cd -; make a", None),
        ("make *", "make -c x", ALLOW),
        ("cp * ..\\shared\\*", "cp a ../shared/b", ALLOW),
        ("cat /*", "cat /etc/hosts", None),
        ("cat /e*", "cat /etc/hosts", ALLOW),
        ("f() { make; }; f", "f() { make; }; f", ALLOW),
    ],
)
def test_a_wildcard_allows_no_path_that_it_does_not_name(pattern: str, command: str, expected: Verdict | None) -> None:
    assert verdict([rule(pattern, ALLOW)], f"command:{command}") is expected


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("secrets/*", "cat secrets/x", DENY),
        ("secrets/*", "cat ./secrets//x", DENY),
        ("secrets/*", "cat < secrets/x", DENY),
        ("secrets/*", "echo x > secrets/x", DENY),
        ("secrets/*", "dd if=secrets/x", DENY),
        ("secrets/*", "cat secret?/x", ASK),
        ("secrets/*", "cat $f", ASK),
        ("secrets/*", "cat secret[s]/x", ASK),
        ("secrets/*", "make *.c", None),
        ("secrets/*", f"make *.c {'a' * (BLURRED_AT_MOST - 9)}", None),
        ("secrets/*", f"make *.c {'a' * (BLURRED_AT_MOST - 8)}", ASK),
        ("secrets\\*", "cat secret?/x", ASK),
        ("notes.md", "cat notes.md", DENY),
        ("git push *", "git p?sh x", ASK),
        ("X=rm", "X=$Y", ASK),
        ("X=rm", "X=(a b)", ASK),
        ("rm *", "r?", ASK),
        ("/etc/*", "cat /usr/../etc/hosts", DENY),
        ("* | sh", "make | sh", DENY),
        ("rm *", "unknown rm x", ASK),
        ("rm *", "git rm x", None),
        ("rm *", "echo rm x", None),
    ],
)
def test_a_deny_sees_the_paths_of_a_command(pattern: str, command: str, expected: Verdict | None) -> None:
    assert verdict([rule(pattern, DENY)], f"command:{command}") is expected


@pytest.mark.parametrize("subject", ["path:a.md", "command:make a.md", "host:a.md", ""])
@pytest.mark.parametrize(
    ("decision", "expected"), [(ALLOW, "rules[0]"), (ASK, "grant"), (DENY, "rules[0]"), (None, "grant")]
)
def test_a_grant_lifts_an_ask_of_any_subject(subject: str, decision: Verdict | None, expected: str) -> None:
    grant = replace(rule("*", ALLOW), layer=Layer.GRANT, where="grant")
    rules = [grant] if decision is None else [rule("*", decision), grant]
    found = evaluate(rules, [subject] if subject else [], "main")
    assert found is not None
    assert found.where == expected


def test_a_grant_of_the_whole_text_covers_all_of_it() -> None:
    grant = replace(rule("sudo make; ls $x", ALLOW), layer=Layer.GRANT, where="grant")
    assert verdict([rule("* | sh", DENY), grant], "command:sudo make; ls $x") is ALLOW
    assert verdict([rule("sudo *", ASK), grant], "command:sudo make; ls $x") is ALLOW
    assert verdict([rule("sudo *", DENY), grant], "command:sudo make; ls $x") is DENY
    assert verdict([grant], "command:sudo make; ls $y") is None
    for text, expected in (("# a", ALLOW), ("# b", None)):
        assert verdict([replace(grant, pattern="# a")], f"command:{text}") is expected


def test_the_last_rule_that_allows_is_the_one_that_decides() -> None:
    rules = [replace(rule(pattern, ALLOW), where=pattern) for pattern in ("git push *", "git *", "git push x")]
    for at, command in enumerate(("git push y", "git push y", "git push x")):
        found = evaluate([*rules[: at + 1]], [f"command:{command}"], "main")
        assert found is rules[at]
        found = evaluate([*rules[at::-1]], [f"command:{command}"], "main")
        assert found is rules[0]


def test_rules_between_the_same_ends_are_compared() -> None:
    first, last = rule("a", ALLOW), rule("b", ALLOW)
    for decision in (ALLOW, ASK, DENY):
        assert verdict([first, rule("x", decision), last], "path:x") is decision


SRC = WorkingFolder(workspace="/w/ann", folder="src")


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        (["command:ls"], True),
        (["command:cat ../a"], True),
        (["command:cat ../../a"], False),
        (["command:ls", "command:rm x"], False),
        (["command:ls", "path:a"], False),
        (["command:"], False),
        ([], False),
    ],
)
def test_a_call_only_reads_when_all_of_its_commands_do(subjects: list[str], expected: bool) -> None:
    scope = CallScope(risk=Risk.EXECUTE, subjects=tuple(subjects), workspace=SRC.workspace, folder=SRC.folder)
    assert only_reads(scope) is expected


def test_parts_read_from_the_folder_in_which_a_call_starts() -> None:
    make, command = rule("make *", ALLOW), "command:make && cat ../a"
    scope = CallScope(risk=Risk.EXECUTE, subjects=(command,), workspace=SRC.workspace, folder=SRC.folder)
    assert evaluate([make], [command], "main", SRC) is make
    assert some_part_reads(scope, make)
    assert not some_part_reads(replace(scope, subjects=("command:make && cat ../../a",)), make)


def test_a_write_outside_is_found_beside_other_subjects() -> None:
    assert written_outside([], ["path:a", "command:ls > /etc/x"], "main") == "/etc/x"


def test_a_later_allow_of_each_part_lifts_a_deny_of_all() -> None:
    rules = [rule("*", DENY), rule("git *", ALLOW), rule("make *", ALLOW)]
    assert verdict(rules, "command:git push && make all") is ALLOW
    assert verdict(rules, "command:git push && npm test") is DENY
    assert verdict([*rules, rule("git push && *", ASK)], "command:git push && make all") is ASK


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm x", "git status && make", "git status | sh", "git status > /tmp/x", "git status $(rm x)",
        "git status `rm x`", "git status\nrm x", "git status > x", "git status *", "git status ~/x", "./git status",
        "git status {a,b}", "git status \u202ex", "A=1 git status", "git statusx", "xgit status", "git status\x00x",
        "git status [ab]", "git status <.env", "git status ../x", "git status /etc", "git status .env",
        "sudo git status", "git status <<x\nx", "f() { git status; }", "git status 'a", "git status \u0430a",
        "git status <(rm x)",
    ],
)  # fmt: skip
def test_an_allowed_pattern_covers_nothing_else(command: str) -> None:
    assert verdict([rule("git status *", ALLOW)], f"command:{command}") is None


@pytest.mark.parametrize(
    "command",
    ["sudo ls", "/usr/bin/env ls", "bash x.sh", "python3.11 x.py", "xargs rm", "find . -delete", "nohup ls", ". x"],
)
def test_a_wildcard_never_allows_a_program_that_runs_others(command: str) -> None:
    assert verdict([rule("*", ALLOW)], f"command:{command}") is None
    assert verdict([rule(command, ALLOW)], f"command:{command}") is ALLOW, "the exact text is what was written"


RULES = st.lists(
    st.builds(
        rule,
        st.sampled_from(["*", "a*", "*.md", "git *", "rm *", "?"]),
        st.sampled_from(list(Verdict)),
        locked=st.just(False),
    ),
    max_size=6,
)
SUBJECTS = st.lists(
    st.sampled_from(["path:a", "path:b.md", "host:a", "command:git log", "command:rm x; ls", "command:ls"]), max_size=3
)


@given(RULES, SUBJECTS, st.sampled_from(["*", "a*", "rm *", "ls"]), st.booleans(), st.integers(0, 6))
def test_one_more_deny_never_allows_more(
    rules: list[Rule], subjects: list[str], pattern: str, locked: bool, at: int
) -> None:
    with_it = [*rules[:at], rule(pattern, DENY, locked=locked), *rules[at:]]

    before, after = verdict(rules, *subjects), verdict(with_it, *subjects)
    assert after is not ALLOW or before is ALLOW


@given(RULES, st.sampled_from(list(SessionKind)))
def test_a_tool_is_hidden_only_when_no_call_of_it_can_run(rules: list[Rule], kind: SessionKind) -> None:
    if denied_outright(rules, kind.value) is not None:
        for subject in ("path:a", "path:b.md", "host:x", "command:ls", "command:git log"):
            assert verdict(rules, subject, kind=kind.value) is DENY


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ([rule("*", DENY)], True),
        ([rule("*", DENY), rule("*.md", ALLOW)], False),
        ([rule("*", DENY), rule("*.md", ASK)], False),
        ([rule("*.md", ALLOW), rule("*", DENY)], True),
        ([rule("*", DENY), rule("*.md", DENY)], True),
        ([rule("*", DENY, locked=True), rule("*", ALLOW)], True),
        ([rule("*.md", DENY)], False),
        ([rule("*", DENY, kinds=frozenset({"dm"}))], False),
        ([rule("*", DENY), replace(rule("*", ALLOW), layer=Layer.GRANT)], True),
        ([], False),
    ],
)
def test_a_narrower_allow_keeps_a_tool_visible(rules: list[Rule], hidden: bool) -> None:
    assert (denied_outright(rules, "main") is not None) is hidden
    assert (withheld(SPEC, replace(POLICY, rules=tuple(rules)), session()) is not None) is hidden


@pytest.mark.parametrize(
    ("decision", "permitted", "askable", "expected"),
    [
        (ALLOW, (), False, Allow(because="rules[0] allows 'x*'")),
        (ASK, (), True, Ask(because="network needs an approval")),
        (ASK, (HERE,), True, Allow(because="grant g1 allows it", grant=GrantId("g1"))),
        (DENY, (HERE,), True, None),
    ],
)
def test_a_rule_precedes_the_default_and_a_deny_a_scope(
    decision: Verdict, permitted: tuple[str, ...], askable: bool, expected: Allow | Ask | None
) -> None:
    policy = replace(POLICY, rules=(rule("x*", decision),))
    call_scope = CallScope(risk=Risk.NETWORK, scope=HERE, subjects=("path:xyz",))
    found = decide(SPEC, policy, session(), call_scope, askable=askable, grant=scoped(permitted, call_scope))

    if expected is not None:
        assert found == expected
    else:
        assert isinstance(found, Deny)
        assert (found.reason, "rules[0]" in found.hint) == (DenyReason.CONFIGURED, True)


def test_an_ask_rule_holds_for_a_harmless_call() -> None:
    policy = replace(POLICY, rules=(rule("secret*", ASK),))
    found = decide(SPEC, policy, session(), CallScope(risk=Risk.READ, subjects=("path:secrets",)), askable=True)
    assert isinstance(found, Ask)


@pytest.mark.parametrize("command", ["r$@m x", "r${z}m x", "/bin/r? x", "{rm,x}", "`cat f` x", "r[m] x"])
def test_an_expansion_that_may_hide_a_command_is_asked_about(command: str) -> None:
    assert verdict([rule("rm *", DENY)], f"command:{command}") is ASK
    assert verdict([rule("git *", ALLOW)], f"command:{command}") is None


def test_a_command_on_two_lines_is_one() -> None:
    assert verdict([rule("rm *", DENY)], "command:r\\\nm x") is DENY


@pytest.mark.parametrize("text", ["a" * 60_000, "foo" * 20_000])
def test_a_long_text_is_compared_in_linear_time(text: str) -> None:
    """A pattern that goes back over its text took seconds for 3,000 characters, in the event loop."""
    began = time.process_time()
    assert verdict([rule("*a*a*a*b", DENY), rule("*foo*foo*bar*", DENY)], f"path:{text}") is None
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("written", "found"),
    [("/w/ann/.env", ".env"), ("./secrets//x", "secrets/x"), ("a/../secrets/x", "secrets/x"), ("/etc/x", "/etc/x")],
)
def test_a_path_has_one_form_before_rules_see_it(written: str, found: str) -> None:
    assert placed(CallScope(risk=Risk.READ, subjects=(f"path:{written}", "host:a")), "/w/ann").subjects == (
        f"path:{found}",
        "host:a",
    )


@pytest.mark.parametrize(
    "command",
    [
        "cd secrets && cat pw",
        "cd secrets; cat -- pw",
        "(cd secrets; cat pw)",
        "cat secrets/pw",
        "cat secret[s]/pw",
        "cat secret[[:alpha:]]/pw",
        "cat secret[]s]/pw",
        "cat -n secret[^]]/pw",
        "cd secrets; X=./pw",
        "cd secrets; make > pw",
    ],
)
def test_a_deny_on_a_folder_holds_for_each_way_to_name_it(command: str) -> None:
    rules = [rule("*", ALLOW), rule("secrets/*", DENY, locked=True)]
    assert verdict(rules, f"command:{command}") in (DENY, ASK)
    assert verdict([rule("secrets/*", DENY, locked=True)], f"command:{command}") in (DENY, ASK)


def test_a_deny_on_a_folder_holds_where_a_call_starts_in_it() -> None:
    place, denied = WorkingFolder(workspace="/w/ann", folder="secrets"), rule("secrets/*", DENY, locked=True)
    for command, expected in (("cat pw", DENY), ("ls -la", ALLOW), ("cat ../pw", ALLOW)):
        found = evaluate([rule("*", ALLOW), denied], [f"command:{command}"], "main", place)
        assert found is not None
        assert found.decision is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git -c alias.x=!sh log", None),
        ("git -C src -c core.pager=x log", None),
        ("git --config-env=core.pager=X log", None),
        ("git --no-pager --config-env core.pager=X log", None),
        ("git --exec-path=. log", None),
        ("timeout 5 git -c core.pager=x log", None),
        ("git commit -c HEAD", ALLOW),
        ("git -C", ALLOW),
        ("git switch -c new", ALLOW),
    ],
)
def test_no_wildcard_covers_settings_of_git(command: str, expected: Verdict | None) -> None:
    assert verdict([rule("git *", ALLOW)], f"command:{command}") is expected
    assert verdict([rule("*", ALLOW)], f"command:{command}") is expected


def test_settings_of_git_are_allowed_by_their_exact_text() -> None:
    text = "git -c color.ui=never log"
    assert verdict([rule(text, ALLOW)], f"command:{text}") is ALLOW
