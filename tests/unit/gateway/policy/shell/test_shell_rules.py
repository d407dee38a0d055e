"""Properties of rules over scripts: quotes, wrappers and lists hide no denied command, and a deny never allows more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.rules import Rule, Verdict
from gateway.policy.layers import EVERYWHERE
from gateway.policy.rules import evaluate
from gateway.policy.shell.places import overlap
from gateway.policy.shell.programs import RUNNERS, WRAPPERS

NO_RM = Rule(tool="shell", pattern="rm *", decision=Verdict.DENY, kinds=EVERYWHERE, where="rules[0]")


def rule(pattern: str, decision: Verdict) -> Rule:
    return Rule(tool="shell", pattern=pattern, decision=decision, kinds=EVERYWHERE, where="rules[1]")


def verdict(rules: list[Rule], script: str, kind: str = "main") -> Verdict | None:
    found = evaluate(rules, [f"command:{script}"], kind)
    return None if found is None else found.decision


QUOTED = st.sampled_from(
    ["rm", "\\rm", "r''m", 'r""m', "'rm'", '"rm"', "r\\m", "/bin/rm", "/usr/bin/rm", "./rm", "'/bin'/rm"]
)
WRAPPED = st.sampled_from(
    [
        "env {}", "env A=1 {}", "env -i {}", "command {}", "sudo {}", "sudo -u root {}", "sudo A=1 {}", "timeout 5 {}",
        "timeout -s KILL 5 {}", "timeout --foreground 5 {}", "nice {}", "nice -n 5 {}", "nice -5 {}", "nohup {}",
        "setsid {}", "setsid -w {}", "stdbuf -oL {}", "exec {}", "exec -a x {}", "builtin {}", "xargs {}",
        "xargs -n1 {}", "xargs -I{{}} {}", "busybox {}", "flock x {}", "watch {}", "watch -n 1 {}", "chroot / {}",
        "doas {}", "strace {}", "ionice -c 3 {}", "taskset 1 {}", "unshare {}", "parallel {}", "ssh host {}",
        "docker run x {}", "nsenter -t 1 {}", "find . -exec {} \\;", "fd . -x {}",
    ]
)  # fmt: skip
AROUND = st.sampled_from(
    [
        "{}", "A=1 {}", "A='x y' B=2 {}", "time {}", "ls; {}", "ls && {}", "ls || {}", "ls | {}", "ls & {}", "({})",
        "{{ {}; }}", "! {}", "if {}; then ls; fi", "if ls; then {}; fi", "while {}; do ls; done", "{} > out", "{} &",
        "for i in 1; do {}; done", "case a in a) {};; esac", "f() {{ {}; }}", "echo $({})", "echo `{}`",
        'echo "$({})"', "cat <({})", "x=$({})", "ls\n{}", "ls # x\n{}", "coproc {}", "cat <<E\n$({})\nE",
    ]
)  # fmt: skip


@given(QUOTED, st.lists(WRAPPED, max_size=3), AROUND)
def test_a_wrapped_deny_stays_denied(program: str, wrappers: list[str], around: str) -> None:
    script = f"{program} x"
    for wrapper in [*wrappers, around]:
        script = wrapper.format(script)
    assert verdict([rule("*", Verdict.ALLOW), NO_RM], script) is Verdict.DENY


def test_an_unknown_wrapper_of_a_deny_is_asked_about() -> None:
    assert verdict([rule("*", Verdict.ALLOW), NO_RM], "unknown --x rm x") is Verdict.ASK
    assert verdict([rule("*", Verdict.ALLOW), NO_RM], "unknown --x mr x") is Verdict.ALLOW


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git bisect run rm x", Verdict.DENY),
        ("git submodule foreach 'rm x'", Verdict.DENY),
        ("git rebase -x 'rm x' HEAD~2", Verdict.DENY),
        ("git filter-branch --tree-filter 'rm x'", Verdict.DENY),
        ("git rebase --exec='rm x' HEAD~2", Verdict.DENY),
        ("git rebase --exec='rm x' --exec=ls HEAD~2", Verdict.DENY),
        ("git rebase -i --exec='rm x' HEAD~2", Verdict.DENY),
        ("git rebase --autostash --exec='rm x' HEAD~2", Verdict.DENY),
        ("git rebase -ix'ls; rm x' HEAD~2", Verdict.DENY),
        ("git fetch --upload-pack='rm x' .", Verdict.DENY),
        ("git rebase -x make HEAD~2", None),
        ("git rm x", Verdict.ALLOW),
    ],
)
def test_command_that_git_runs_is_compared(script: str, expected: Verdict | None) -> None:
    """A wide allow covers none of them: what runs besides is not known."""
    assert verdict([rule("*", Verdict.ALLOW), NO_RM], script) is expected


@pytest.mark.parametrize("program", sorted({*WRAPPERS, *RUNNERS}))
def test_every_known_runner_is_seen_through(program: str) -> None:
    operands = "x " * (WRAPPERS[program].skip if program in WRAPPERS else 0)
    assert verdict([NO_RM], f"{program} {operands}rm x") is Verdict.DENY
    assert verdict([NO_RM], f"{program} --odd -Z {operands}rm x") is Verdict.DENY


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "/bin/bash"])
@pytest.mark.parametrize("script", ["rm x", "ls; rm x", "bash -c 'rm x'", "echo $(rm x)", "env rm x"])
def test_script_of_a_shell_is_read(shell: str, script: str) -> None:
    quoted = script.replace("'", "'\\''")
    for options in ("-c", "-lc", "-e -c", "-xec"):
        assert verdict([NO_RM], f"{shell} {options} '{quoted}'") is Verdict.DENY


SCRIPTS = st.sampled_from(
    [
        "ls",
        "git push",
        "git push && rm x",
        "ls > out",
        "cat $x",
        "make; npm test",
        "X=1 make",
        "f() { ls; }",
        "ls 'x",
        "env ls",
    ]
)
RULES = st.lists(
    st.builds(
        rule,
        st.sampled_from(["*", "git *", "rm *", "ls", "ls *", "* > *", "out", "make *"]),
        st.sampled_from(list(Verdict)),
    ),
    max_size=5,
)


@given(
    RULES, SCRIPTS, st.sampled_from(["*", "git *", "rm *", "out"]), st.integers(0, 5), st.sampled_from(["main", "dm"])
)
def test_one_more_deny_never_allows_more_of_a_script(
    rules: list[Rule], script: str, pattern: str, at: int, kind: str
) -> None:
    with_it = [*rules[:at], rule(pattern, Verdict.DENY), *rules[at:]]
    before, after = verdict(rules, script, kind), verdict(with_it, script, kind)
    assert not (after is Verdict.ALLOW and before is not Verdict.ALLOW)
    assert not (before is Verdict.DENY and after is not Verdict.DENY)


@given(RULES, SCRIPTS)
def test_a_script_is_allowed_only_when_each_part_is(rules: list[Rule], script: str) -> None:
    if verdict(rules, f"{script}; npm publish", "dm") is Verdict.ALLOW:
        assert verdict(rules, script, "dm") is Verdict.ALLOW
        assert verdict(rules, "npm publish", "dm") is Verdict.ALLOW


PATTERNS = st.text(st.sampled_from("ab*?"), max_size=6)


@given(PATTERNS, PATTERNS)
def test_overlap_is_found_in_both_directions(one: str, other: str) -> None:
    assert overlap(one, other) is overlap(other, one)


@given(PATTERNS, st.text(st.sampled_from("ab"), max_size=6))
def test_overlap_with_a_plain_text_is_a_match(pattern: str, text: str) -> None:
    found = evaluate([rule(pattern, Verdict.DENY)], [f"path:{text}"], "main") if pattern and text else None
    if pattern and text:
        assert overlap(pattern, text) is (found is not None)


def test_an_unreadable_script_is_denied_where_anything_is() -> None:
    script = "x" * 70_000
    assert verdict([rule("*", Verdict.ALLOW)], script) is None
    assert verdict([rule("*", Verdict.ALLOW), NO_RM], script) is Verdict.DENY
    assert verdict([rule("npm *", Verdict.ASK)], script) is Verdict.ASK
    assert verdict([NO_RM, rule("npm *", Verdict.ASK)], script) is Verdict.DENY
