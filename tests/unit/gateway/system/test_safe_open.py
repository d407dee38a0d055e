"""Opening beneath a folder, whatever a tool put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.system.safe_open import open_beneath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with files, and with what stands in the way of them."""
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
def test_a_file_beneath_is_opened_for_reading(root: Path, parts: tuple[str, ...], said: str) -> None:
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
def test_what_is_no_file_there_is_not_opened(root: Path, parts: tuple[str, ...], why: str) -> None:
    before = open_files()
    with pytest.raises(OSError, match=why):
        open_beneath(root, parts)
    assert open_files() == before


@pytest.mark.parametrize(
    "parts", [(), ("",), (".",), ("..", "secret.txt"), ("inbox", "..", "top.txt"), ("inbox/deep/low.txt",), ("a\x00b",)]
)
def test_names_that_no_file_has_lead_nowhere(root: Path, parts: tuple[str, ...]) -> None:
    before = open_files()
    with pytest.raises(ValueError, match=r"names of a file|null (byte|character)"):
        open_beneath(root, parts)
    assert open_files() == before
