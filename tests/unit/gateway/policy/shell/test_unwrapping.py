"""Wrappers: the command that runs in the end, and the readings that rules are compared with."""

from __future__ import annotations

import pytest

from gateway.policy.shell import ScriptPart, parse
from gateway.policy.shell.unwrapping import CHARS_AT_MOST, WORDS_AT_MOST, unwrap


def only(script: str) -> ScriptPart:
    return parse(script).parts[0]


@pytest.mark.parametrize(
    ("script", "words", "known"),
    [
        ("timeout 5 make all", "make all", True),
        ("timeout -k 1 -s KILL 5 make", "make", True),
        ("timeout -k1 5 make", "make", True),
        ("timeout --signal KILL 5 make", "make", True),
        ("timeout --signal=KILL 5 make", "make", True),
        ("timeout -v 5 make", "make", True),
        ("timeout -- 5 make", "make", True),
        ("timeout -x 5 make", "timeout -x 5 make", False),
        ("timeout --odd 5 make", "timeout --odd 5 make", False),
        ("nice make", "make", True),
        ("nice -n 5 make", "make", True),
        ("nice -5 make", "make", True),
        ("nice --5 make", "make", True),
        ("nice --adjustment=5 make", "make", True),
        ("time -p make", "make", True),
        ("command make", "make", True),
        ("command -p make", "make", True),
        ("command -v make", "command -v make", True),
        ("command -V make", "command -V make", True),
        ("stdbuf -- make", "make", True),
        ("sudo -- A=1 B=2 make", "make", False),
        ("timeout --foreground 5 make", "make", True),
        ("nice -n 5 -- make", "make", True),
        ("stdbuf -oL -e 0 make", "make", True),
        ("timeout 5 nice make", "make", True),
        ("env make", "make", False),
        ("env -u A B=1 C=2 make", "make", False),
        ("env -i - make", "- make", False),
        ("sudo -u ann -E A=1 make", "make", False),
        ("xargs -0 -n 1 make", "make", False),
        ("xargs", "xargs", False),
        ("timeout", "timeout", True),
        ("timeout 5", "timeout 5", True),
        ("nohup make", "make", False),
        ("flock a make", "make", False),
        ("/usr/bin/timeout 5 /usr/bin/make", "make", True),
        ("timeout $X make", "make", False),
    ],
)
def test_the_wrapped_command_is_found(script: str, words: str, known: bool) -> None:
    found = only(script)
    assert " ".join(found.words) == words
    assert (found.why_ask == "") is known
    assert found.wrapped is (words != script)


@pytest.mark.parametrize(
    ("script", "forms"),
    [
        ("rm x", {"rm x"}),
        ("/bin/rm  'x'", {"/bin/rm x", "rm x", "/bin/rm 'x'", "/bin/rm  'x'"}),
        ("sudo timeout 5 /bin/rm x", {"sudo timeout 5 /bin/rm x", "timeout 5 /bin/rm x", "/bin/rm x", "rm x"}),
        ("find a b -delete", {"find a b -delete", "rm a"}),
        ("find -delete", {"find -delete", "rm ."}),
        ("fdfind a -X rm b", {"fdfind a -X rm b", "rm b"}),
        ("fd a --exec rm b", {"fd a --exec rm b", "rm b"}),
        ("fd a --exec-batch rm b", {"fd a --exec-batch rm b", "rm b"}),
        ("eval rm x", {"eval rm x", "rm x", "x"}),
        ("sudo --odd rm x", {"sudo --odd rm x", "--odd rm x", "rm x", "x"}),
        ("sudo -u $X rm", {"sudo -u $X rm", "-u $X rm", "$X rm", "rm"}),
        ("find . -exec rm -f {} +", {"find . -exec rm -f {} +", "rm -f {}"}),
        (
            "find . -exec sudo rm {} \\;",
            {"find . -exec sudo rm {} ;", "find . -exec sudo rm {} \\;", "sudo rm {}", "rm {}"},
        ),
        ("fd a -x rm", {"fd a -x rm", "rm"}),
        ("find . -exec", {"find . -exec"}),
        ("git bisect run rm x", {"git bisect run rm x", "bisect run rm x", "run rm x", "rm x", "x"}),
        ("git rebase -x 'rm x'", {"git rebase -x rm x", "git rebase -x 'rm x'", "rebase -x rm x", "-x rm x", "rm x"}),
        ("git rm x", {"git rm x"}),
        ("strace -f rm x", {"strace -f rm x", "-f rm x", "rm x", "x"}),
        ("bash a b", {"bash a b", "a b", "b"}),
        ("bash -c 'a b'", {"bash -c a b", "bash -c 'a b'"}),
    ],
)
def test_readings_of_a_command(script: str, forms: set[str]) -> None:
    assert set(only(script).forms) == forms


@pytest.mark.parametrize(
    ("script", "suspects"),
    [
        ("unknown /bin/rm x", {"rm x", "x"}),
        ("python rm x", {"rm x", "x"}),
        ("git rm x", set[str]()),
        ("ls rm x", set[str]()),
    ],
)
def test_an_unknown_program_may_run_its_arguments(script: str, suspects: set[str]) -> None:
    assert set(only(script).suspects) == suspects


@pytest.mark.parametrize(
    ("script", "inside"),
    [
        ("bash -c 'a b'", ["a b"]),
        ("bash -xc 'a; c'", ["a", "c"]),
        ("sh -e -c 'a' b c", ["a"]),
        ("bash -c", []),
        ("bash -c -e", []),
        ("bash -c a b", ["a"]),
        ("bash --rcfile x", []),
        ("bash a -c b", []),
        ("bash --norc -c a", ["a"]),
        ("bash -c -e a", ["a"]),
        ("eval a b", ["a b"]),
        ("eval 'a; b'", ["a", "b"]),
        ("flock x -c 'a b'", ["a b"]),
        ("bash +x -c a", ["a"]),
        ("bash -c +x a", ["a"]),
        ("sudo bash -c 'a'", ["a"]),
        ("find . -exec sh -c 'a b' \\;", ["a b"]),
    ],
)
def test_scripts_inside_are_parsed(script: str, inside: list[str]) -> None:
    first, *others = parse(script).parts
    assert first.why_ask
    assert [" ".join(part.words) for part in others] == inside


@pytest.mark.parametrize(
    ("script", "expands", "globs"),
    [
        ("a $x *", {1}, {2}),
        ("timeout 5 a $x *", {1}, {2}),
        ("timeout 5 $x *", {0}, {1}),
        ("timeout 5 a* x", set[int](), {0}),
    ],
)
def test_positions_are_those_in_the_inner_command(script: str, expands: set[int], globs: set[int]) -> None:
    assert (only(script).expands, only(script).globs) == (expands, globs)


def test_too_much_is_not_compared() -> None:
    assert unwrap(["foo", *["x"] * WORDS_AT_MOST], frozenset()).too_long
    assert not unwrap(["foo", *["x"] * (WORDS_AT_MOST - 1)], frozenset()).too_long
    many = ["x"] * WORDS_AT_MOST
    for head in (["bash"], ["eval"], ["python"], ["strace"], ["sudo", "--odd"], ["find", "-exec", "foo"]):
        assert unwrap([*head, *many], frozenset()).too_long
    assert unwrap(["nice", "-n", "$X", *many], frozenset({2})).too_long
    assert unwrap(["foo", "x" * CHARS_AT_MOST], frozenset()).too_long
    assert not unwrap(["foo", "x" * (CHARS_AT_MOST - 3)], frozenset()).too_long
    assert unwrap(["nice"] * 10 + ["ls"], frozenset()).too_long
    assert not unwrap(["nice"] * 9 + ["ls"], frozenset()).too_long


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sudo a", "It runs a command with other rights."),
        ("nohup a", "It starts a command that may go on after the call."),
        ("xargs a", "It adds arguments that are known only when it runs."),
        ("env a", "It runs a command in a changed environment."),
        ("timeout --odd a", "The options of timeout are not known, so its command is not either."),
        ("timeout $X a", "The options of timeout are known only when it runs."),
        ("$X a", "The program is known only when it runs."),
        ("bash a", "It runs a script of its own."),
        ("eval a", "It runs its arguments as a script."),
        ("python3 a", "It runs code that is not read here."),
        ("strace a", "It runs other commands in a way that is not read here."),
        ("find . -exec a", "It runs a command for each file that it finds."),
        ("bash -c a", "It runs a script of its own."),
        ("flock -n x -c a", "It writes a lock file."),
        ("find . -delete", "It deletes the files that it finds."),
        ("a b", ""),
        ("git bisect run a", "It runs commands that git is given."),
        ("git submodule foreach a", "It runs commands that git is given."),
        ("git submodule --quiet foreach --recursive a", "It runs commands that git is given."),
        ("git rebase -x a", "It runs commands that git is given."),
        ("git rebase -ix a", "It runs commands that git is given."),
        ("git rebase --exec=a HEAD", "It runs commands that git is given."),
        ("git -C b rebase --exec a", "It runs commands that git is given."),
        ("git difftool -x a", "It runs commands that git is given."),
        ("git difftool --extcmd=a", "It runs commands that git is given."),
        ("git filter-branch --tree-filter a", "It runs commands that git is given."),
        ("git fetch --upload-pack=a", "It runs commands that git is given."),
        ("git fetch --upl a", "It runs commands that git is given."),
        ("git push --receive-pack a", "It runs commands that git is given."),
        ("git push --exec=a", "It runs commands that git is given."),
        ("git clone -u a b", "It runs commands that git is given."),
        ("git grep -Oa b", "It runs commands that git is given."),
        ("git grep --open-files-in-pager=a b", "It runs commands that git is given."),
        ("git archive --exec=a", "It runs commands that git is given."),
        ("git bisect start", ""),
        ("git bisect", ""),
        ("git submodule update", ""),
        ("git submodule status foreach", ""),
        ("git rebase main", ""),
        ("git clean -fdx", ""),
        ("git push -u origin main", ""),
        ("git fetch --unshallow", ""),
        ("git rebase --e", ""),
        ("git log --oneline", ""),
        ("git log --exclude a", ""),
        ("git commit -m -x", ""),
        ("git difftool main", ""),
        ("git", ""),
        ("python3 --version", ""),
        ("python3 -V", ""),
        ("./python3 --version", "It runs code that is not read here."),
        ("python3 --version x", "It runs code that is not read here."),
        ("go version", ""),
    ],
)
def test_reason_to_ask_is_a_sentence(script: str, why: str) -> None:
    assert only(script).why_ask == why
