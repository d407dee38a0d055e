"""Artifact store: accepted and refused files, and their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.domain.tools import KEPT_BYTES, Artifact
from gateway.errors import BadRequest, DragomanError
from gateway.toolcalls.artifacts import ArtifactStore


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "below" / "deep").mkdir(parents=True)
    (folder / "page.pdf").write_bytes(b"%PDF-1")
    (folder / "below" / "deep" / "data").write_bytes(b"data")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "outputs", "t1-2")


def test_artifact_copy_gets_the_same_name_in_a_second_run(
    workspace: Path, artifacts: ArtifactStore, tmp_path: Path
) -> None:
    found = [
        artifacts.file(workspace, workspace / "page.pdf", "The page.PDF", "application/pdf"),
        artifacts.file(workspace, Path("below/deep/data"), "data.tar.gz", "application/gzip"),
        artifacts.file(workspace, Path("page.pdf"), "no ending", "text/plain"),
    ]
    again = ArtifactStore(tmp_path / "outputs", "t1-2").file(
        workspace, Path("page.pdf"), "The page.PDF", "application/pdf"
    )

    assert found[0] == again == Artifact(file="t1-2-f1.pdf", name="The page.PDF", media_type="application/pdf")
    assert [one.file for one in found] == ["t1-2-f1.pdf", "t1-2-f2.gz", "t1-2-f3.bin"]
    assert [(tmp_path / "outputs" / one.file).read_bytes() for one in found] == [b"%PDF-1", b"data", b"%PDF-1"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "outputs").iterdir())
    assert stat.S_IMODE((tmp_path / "outputs").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "media_type", "file", "shown", "known"),
    [
        ("../../etc/passwd", "text/plain", "t1-2-f1.bin", "passwd", "text/plain"),
        ("a\\b\\c.txt", "text/plain", "t1-2-f1.txt", "c.txt", "text/plain"),
        ("a\n\u202eb.p\0df", "x/y\r\nSet-Cookie: a", "t1-2-f1.bin", "a b.p df", "application/octet-stream"),
        ("x" * 500 + ".html", "TEXT", "t1-2-f1.html", "x" * 100, "application/octet-stream"),
        ("", "", "t1-2-f1.bin", "t1-2-f1.bin", "application/octet-stream"),
        ("dots.", "image/svg+xml", "t1-2-f1.bin", "dots.", "image/svg+xml"),
        ("page.p/f", "a/b", "t1-2-f1.bin", "f", "a/b"),
    ],
)
def test_names_and_types_that_a_page_chose_are_only_shown(
    workspace: Path, artifacts: ArtifactStore, name: str, media_type: str, file: str, shown: str, known: str
) -> None:
    found = artifacts.file(workspace, Path("page.pdf"), name, media_type)

    assert found == Artifact(file=file, name=shown, media_type=known)


def _link(workspace: Path) -> Path:
    (workspace / "link").symlink_to(workspace.parent / "secret")
    return Path("link")


def _link_to_folder(workspace: Path) -> Path:
    (workspace / "folder").symlink_to(workspace.parent)
    return Path("folder/secret")


def _link_within(workspace: Path) -> Path:
    (workspace / "inner").symlink_to(workspace / "below")
    return workspace / "inner" / "deep" / "data"


def _pipe(workspace: Path) -> Path:
    os.mkfifo(workspace / "pipe")
    return Path("pipe")


def _nothing(_: Path) -> Path:
    return Path()


@pytest.mark.parametrize("named", [_link, _link_to_folder, _link_within, _pipe, _nothing])
def test_file_rejects_what_a_tool_put_in_its_place(
    workspace: Path, artifacts: ArtifactStore, tmp_path: Path, named: Callable[[Path], Path]
) -> None:
    path = named(workspace)
    with pytest.raises(BadRequest, match="not a regular file in the workspace"):
        artifacts.file(workspace, path, "x.txt", "text/plain")

    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "below/../../secret",
        "below/../page.pdf",
        "",
        "below",
        "missing",
        "page.pdf/more",
        "nul\0",
        "x" * 5000,
        "/etc/passwd",
    ],
)
def test_file_rejects_all_but_regular_workspace_files(
    workspace: Path, artifacts: ArtifactStore, tmp_path: Path, path: str, absolute: bool
) -> None:
    with pytest.raises(BadRequest, match="not a regular file in the workspace"):
        artifacts.file(workspace, workspace / path if absolute else Path(path), "x.txt", "text/plain")

    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(("size", "kept"), [(KEPT_BYTES, True), (KEPT_BYTES + 1, False)])
def test_a_file_that_is_too_large_is_not_kept(
    workspace: Path, artifacts: ArtifactStore, tmp_path: Path, size: int, kept: bool
) -> None:
    with (workspace / "large").open("wb") as file:
        file.truncate(size)
    if kept:
        artifacts.file(workspace, Path("large"), "large.bin", "")
    else:
        with pytest.raises(BadRequest, match="too large"):
            artifacts.file(workspace, Path("large"), "large.bin", "")

    assert [path.stat().st_size for path in (tmp_path / "outputs").iterdir()] == ([size] if kept else [])


def test_copy_does_not_follow_a_link(workspace: Path, artifacts: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "t1-2-f1.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(DragomanError, match="could not be stored"):
        artifacts.file(workspace, Path("page.pdf"), "x", "")

    assert (tmp_path / "secret").read_bytes() == b"secret"
