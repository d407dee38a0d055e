"""Opening beneath a folder, against links and other obstacles of a tool."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.system.safe_open import ENTRIES_AT_MOST, create_beneath, open_beneath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with files, links and other obstacles."""
    root = tmp_path / "root"
    (root / "inbox" / "deep").mkdir(parents=True)
    (root / "top.txt").write_text("top")
    (root / "inbox" / "deep" / "low.txt").write_text("low")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(root / "top.txt")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "linked").symlink_to(root / "inbox")
    os.mkfifo(root / "pipe")
    return root


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("parts", "said"), [(("top.txt",), "top"), (("inbox", "deep", "low.txt"), "low")])
def test_open_beneath_opens_a_file(root: Path, parts: tuple[str, ...], said: str) -> None:
    before = open_files()
    with os.fdopen(open_beneath(root, parts)) as file:
        assert file.read() == said
    assert open_files() == before


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (("gone.txt",), "No such file"),
        (("gone", "low.txt"), "No such file"),
        (("link.txt",), "symbolic links"),
        (("out.txt",), "symbolic links"),
        (("linked", "deep", "low.txt"), "Not a directory"),
        (("inbox",), "not a regular file"),
        (("inbox", "deep"), "not a regular file"),
        (("pipe",), "not a regular file"),
        (("top.txt", "low.txt"), "Not a directory"),
    ],
)
def test_open_beneath_refuses_links_and_non_files(root: Path, parts: tuple[str, ...], why: str) -> None:
    before = open_files()
    with pytest.raises(OSError, match=why):
        open_beneath(root, parts)
    assert open_files() == before


@pytest.mark.parametrize(
    "parts", [(), ("",), (".",), ("..", "secret.txt"), ("inbox", "..", "top.txt"), ("inbox/deep/low.txt",), ("a\x00b",)]
)
def test_open_beneath_refuses_invalid_names(root: Path, parts: tuple[str, ...]) -> None:
    before = open_files()
    with pytest.raises(ValueError, match=r"names of a file|null (byte|character)"):
        open_beneath(root, parts)
    assert open_files() == before


# --- creating -----------------------------------------------------------------------------------


def created(root: Path, *parts: str, newest: int = 3) -> Path:
    fd = create_beneath(root, parts, newest=newest)
    os.write(fd, b"new")
    os.close(fd)
    return root.joinpath(*parts)


def test_create_beneath_makes_private_files_and_folders(tmp_path: Path) -> None:
    path = created(tmp_path, "a", "b", "c.txt")

    assert path.read_bytes() == b"new"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]


@pytest.mark.parametrize("how", ["link", "hard link", "file"])
def test_create_beneath_replaces_an_existing_file(tmp_path: Path, how: str) -> None:
    victim, root = tmp_path / "victim", tmp_path / "root"
    (root / "a").mkdir(parents=True)
    victim.write_text("safe")
    match how:
        case "link":
            (root / "a" / "x").symlink_to(victim)
        case "hard link":
            (root / "a" / "x").hardlink_to(victim)
        case _:
            (root / "a" / "x").write_text("old and longer")

    assert created(root, "a", "x").read_bytes() == b"new"
    assert victim.read_text() == "safe"


@pytest.mark.parametrize("depth", [0, 1])
def test_create_beneath_follows_no_link(tmp_path: Path, depth: int) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    root.mkdir()
    (outside / "b").mkdir(parents=True)
    if depth:
        (root / "a").mkdir()
    (root / "a" / "b" if depth else root / "a").symlink_to(outside)

    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        create_beneath(root, ["a", "b", "x"], newest=3)
    assert os.listdir(outside) == ["b"]


@pytest.mark.parametrize("parts", [[], [""], [".."], ["a", ".."], ["a/b"], ["a", "/etc"]])
def test_create_beneath_refuses_invalid_names(tmp_path: Path, parts: list[str]) -> None:
    with pytest.raises(ValueError, match="not the names of a file"):
        create_beneath(tmp_path, parts, newest=3)
    assert os.listdir(tmp_path) == []


def test_create_beneath_keeps_the_newest_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "folder").mkdir(parents=True)
    for n in range(5):
        os.utime(created(tmp_path, "a", f"{n}.txt"), (n, n))

    assert sorted(os.listdir(tmp_path / "a")) == ["2.txt", "3.txt", "4.txt", "folder"]


def test_create_beneath_keeps_files_up_to_a_size(tmp_path: Path) -> None:
    for n, size in enumerate((1, 5, 4)):
        (tmp_path / f"{n}.txt").write_bytes(bytes(size))
        os.utime(tmp_path / f"{n}.txt", (n, n))
    os.close(create_beneath(tmp_path, ["new"], newest=9, kept_bytes=9))

    assert sorted(os.listdir(tmp_path)) == ["1.txt", "2.txt", "new"]


def test_create_beneath_refuses_a_crowded_folder(tmp_path: Path) -> None:
    for n in range(ENTRIES_AT_MOST + 1):
        (tmp_path / f"{n}").touch()

    with pytest.raises(OSError, match="too many files"):
        create_beneath(tmp_path, ["x"], newest=3)
    assert len(os.listdir(tmp_path)) == ENTRIES_AT_MOST + 1
