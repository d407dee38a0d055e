"""Commands that only read: where their paths lie, which wildcards they may have, and what they are told."""

from __future__ import annotations

import pytest

from gateway.policy.shell import WorkingFolder, parse, read_only, readers
from gateway.policy.shell.places import is_secret, leaves, may_be_secret, overlap, paths_in, resolved

HERE = WorkingFolder(workspace="/w/ann", folder="src")


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ("cat /w/ann/a", True),
        ("cat /w/ann/src/../a", True),
        ("ls /w/ann", True),
        ("cat ../a", True),
        ("cat ../../a", False),
        ("cat /w/bob/a", False),
        ("cat /w/ann2/a", False),
        ("cat /w/ann/../bob/a", False),
        ("cd .. && cat a", True),
        ("cd ../.. && cat a", False),
        ("cd /w/ann/docs && cat ../a", True),
        ("cat < ../a", True),
        ("cat < ../../a", False),
        ("ls .. > /dev/null", True),
    ],
)
def test_paths_are_followed_from_where_a_script_starts(script: str, reads: bool) -> None:
    assert read_only(parse(script), HERE) is reads


def test_each_part_is_judged() -> None:
    assert readers("ls; rm x; X=1; cat < a") == (True, False, True, True, True)
    assert readers("ls; $X; ls") == (False, False, False), "a script that cannot be known has no readers"
    assert readers("ls > a; f() { ls; }") == (True, False, False, True)
    assert readers("ls 'x") == (False,)
    assert readers("") == ()


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ("ls *", True),
        ("cat *.py", True),
        ("cat a/*.md b/?.txt", True),
        (f"cat {'a' * 251}*.py", True),
        (f"cat {'a' * 252}*.py", False),
        ("sort X*.csv", True),
        ("git log '--format=%h [%an]'", True),
        ("rg -g '*.py' x", True),
        ("rg -g '!*.py' x", True),
        ("rg --glob '*.py' x", True),
        ("rg --glob='*.py' x", True),
        ("rg --glob='*' x", False),
        ("rg -g .env x", False),
        ("rg x -g", False),
        ("cat *.p?m", False),
        ("cat *.k[e]y", False),
        ("cat .en[v]", False),
        ("cat a/.e*", False),
        ("cat a/*", False),
        ("cat *rsa", False),
        ("head -1 *", False),
        ("sort *.csv", False),
        ("sort data/*.csv", True),
        ("uniq a*", False),
        ("find s*", False),
        ("git log *", False),
        ("git log -- s*", False),
        ("sed -n p *.py", False),
        ("cd s*", False),
        ("l* x", False),
        ("cat < *.py", False),
        ("rg x *.py", False),
        ("rg x src/*.py", True),
        ("date *", False),
        ("printf *", False),
        ("[[ -f *.py ]]", False),
        ("ps *", False),
    ],
)
def test_wildcards_may_hide_options_and_secrets(script: str, reads: bool) -> None:
    assert read_only(parse(script)) is reads


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ("grep -r x", False),
        ("grep -r x .", False),
        ("grep -r x ./", False),
        ("grep -rn x src", True),
        ("grep -nr x src tests", True),
        ("grep -rn x src .", False),
        ("grep --recursive x src", True),
        ("grep --rec x .", False),
        ("grep -r --include='*.py' x", True),
        ("grep -r --include='*.p*' x", False),
        ("grep -r --include=.env x", False),
        ("grep -re x src", True),
        ("grep -r -e x .", False),
        ("grep -r -- x src", True),
        ("grep -r -- -x src", False),
        ("grep -r --color=never x src", True),
        ("grep -r --exclude-dir=. x src", False),
        ("grep --color x < a", True),
        ("git diff --cached --stat", True),
        ("git diff --cached main.py", True),
        ("git diff HEAD main.py", True),
        ("git diff src/app.sh", True),
        ("git diff HEAD src", False),
        ("git log -p --f -- main.py", False),
        ("git log -p --patch -- main.py", True),
        ("git status -s", True),
        ("git status -Bv", False),
        ("git grep --recurse-submodules x main.py", False),
        ("git grep -A 3 x main.py", True),
        ("git grep -e x -e y main.py", True),
        ("git grep x.py -n src", False),
        ("uniq - a", False),
        (f"ls -{'a' * 63}", True),
        (f"ls -{'a' * 64}", False),
        ("sed -n -e p a", True),
        ("sed -n -e", False),
        ("sed -n --expression=p a", True),
        ("sed --expression='s/=/b/' a", True),
        ("sed --expression=w a", False),
        ("sed -n p -", True),
        (f"sed 's/{'a' * 495}/b/' a", True),
        (f"sed 's/{'a' * 496}/b/' a", False),
        ("grep x /a", False),
        ("grep /x a", True),
        ("grep -e /x a", False),
        ("grep -f /x a", False),
        ("grep --file=/x a", False),
        ("grep --regexp=x /a", False),
        ("rg -e a b", True),
        ("diff -r a b", True),
        ("diff -r a .", False),
        ("grep x - < a", True),
        ("cat -", True),
        ("sort --reverse a", True),
        ("sort --o=x a", False),
        ("sort --output a", False),
        ("sort -- a", True),
        ("sort --output=x a", False),
        ("sort --parallel=2 a", True),
        ("dd if=a", False),
        ("ls --color=/x", False),
        ("ls -I/x", False),
        ("cat a=/x", False),
        ("cat a:/x", False),
        ("cat a=b", True),
        ("cat --x=.env", False),
        ("stat -c%n a", True),
    ],
)
def test_words_of_a_reader_are_examined(script: str, reads: bool) -> None:
    assert read_only(parse(script)) is reads


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (".env", True),
        ("a/.env.local", True),
        (".env.example", False),
        ("id_rsa", True),
        ("id_rsa.pub", False),
        (".ssh/known_hosts", True),
        ("a/.aws/x", True),
        ("keys/x.p12", True),
        ("credentials/x", True),
        ("x.p12", True),
        ("CREDENTIALS", True),
        ("credentials.py", False),
        ("environment", False),
        ("a.keys", False),
    ],
)
def test_secrets_are_known_by_name(path: str, secret: bool) -> None:
    assert is_secret(path) is secret
    assert may_be_secret(path) is secret


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a*", "*b", True),
        ("a*", "b*", False),
        ("*a", "*b", False),
        ("a?c", "abc", True),
        ("a?c", "a?d", False),
        ("", "", True),
        ("", "*", True),
        ("*", "", True),
        ("?", "", False),
        ("a*b*c", "a?b?c", True),
        ("*.pem", "*.py", False),
        ("rm *", "* x", True),
        ("**", "a", True),
    ],
)
def test_patterns_overlap_when_a_text_fits_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("a", ["a"]),
        ("-a", []),
        ("-", []),
        ("-ab", ["b"]),
        ("-f/x", ["/x"]),
        ("-nf.env", ["f.env", ".env"]),
        ("-n=a:b", ["=a:b", "a", "b"]),
        (f"-{'a' * 65}", ["a" * n for n in range(64, 0, -1)]),
        (f"-{'a' * 66}", ["a" * n for n in range(65, 1, -1)]),
        ("-nf/x/y", ["f/x/y", "/x/y"]),
        ("--a", []),
        ("--a=b", ["b"]),
        ("--a=b:c", ["b:c", "c"]),
        ("a=b,c", ["a=b,c", "b", "c"]),
        ("HEAD:a", ["HEAD:a", "a"]),
        ("a=", ["a="]),
    ],
)
def test_paths_are_found_in_words(word: str, paths: list[str]) -> None:
    assert list(paths_in(word)) == paths


@pytest.mark.parametrize(
    ("path", "folders", "forms"),
    [
        ("a/./b//c", ("",), ("src/a/b/c",)),
        ("../a", ("",), ("a",)),
        ("../../a", ("",), ("../a",)),
        ("a", ("", "x", "/tmp"), ("src/a", "src/x/a", "/tmp/a")),
        ("/w/ann/a", None, ("a",)),
        ("/w/ann", None, (".",)),
        ("/etc/../x", None, ("/x",)),
        ("~/a", None, ("~/a",)),
        ("a", None, None),
    ],
)
def test_a_path_has_one_form_for_each_folder(path: str, folders: tuple[str, ...] | None, forms: object) -> None:
    assert resolved(path, folders, HERE) == forms


@pytest.mark.parametrize(
    ("path", "folders", "out"),
    [
        ("a", ("",), False),
        ("..", ("",), True),
        ("a/..", ("",), False),
        ("a/../..", ("",), True),
        ("~", ("",), True),
        ("~a", ("",), True),
        ("a~", ("",), False),
        ("/dev/null", ("",), False),
        ("/dev/zero", ("",), True),
        ("a", None, True),
        ("a", ("", "/tmp"), True),
        ("../x", ("", "a"), True),
        ("..a", ("",), False),
    ],
)
def test_a_path_leaves_the_workspace(path: str, folders: tuple[str, ...] | None, out: bool) -> None:
    assert leaves(path, folders, WorkingFolder()) is out
