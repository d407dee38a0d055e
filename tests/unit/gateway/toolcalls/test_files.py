"""Files of a workspace: paths, links, limits, and atomic replacement."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.errors import BadRequest, NotFound, TooLarge
from gateway.toolcalls.files import WorkspaceFiles

PATHS_ELSEWHERE = ["", "..", "a/../../b", "/", "/etc/passwd", ".", "a/", "a\0b"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "b.txt").write_bytes(b"words")
    (tmp_path / "secret").write_bytes(b"secret words")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    return folder


@pytest.fixture
def files(workspace: Path) -> WorkspaceFiles:
    return WorkspaceFiles(workspace)


@pytest.mark.parametrize("path", PATHS_ELSEWHERE)
async def test_a_path_outside_the_workspace_is_refused(files: WorkspaceFiles, path: str) -> None:
    for method in (files.read(path, 100), files.create(path, b""), files.replace(path, b"")):
        with pytest.raises(BadRequest):
            await method


@pytest.mark.parametrize("path", ["a/b.txt", "./a//b.txt", "{root}/a/b.txt"])
async def test_read_returns_the_content(files: WorkspaceFiles, path: str) -> None:
    assert await files.read(path.format(root=files.root), 5) == b"words"
    with pytest.raises(TooLarge, match="larger than 4 bytes"):
        await files.read(path.format(root=files.root), 4)


@pytest.mark.parametrize("path", ["a", "a/", "./a", "{root}/a/"])
async def test_folder_is_listed_by_any_of_its_names(files: WorkspaceFiles, path: str) -> None:
    found, left = await files.entries(path.format(root=files.root), 9)
    assert ([one.path for one in found], left) == (["a/b.txt"], 0)


@pytest.mark.parametrize("path", [".", "./", "{root}"])
async def test_workspace_is_listed_in_order_without_links(files: WorkspaceFiles, path: str) -> None:
    for name in ("z", "c"):
        (files.root / name).touch()
    found, left = await files.entries(path.format(root=files.root), 9)
    assert (sorted(one.path for one in found), left) == (["a", "a/b.txt", "c", "z"], 0)
    assert [one.path for one in found if "/" not in one.path] == ["a", "c", "z"]


@pytest.mark.parametrize("path", ["link", "linked/secret", "a", "fifo"])
async def test_links_and_special_files_are_not_opened(files: WorkspaceFiles, tmp_path: Path, path: str) -> None:
    for method in (files.read(path, 100), files.create(path, b"new")):
        with pytest.raises(BadRequest):
            await method
    assert (tmp_path / "secret").read_bytes() == b"secret words"


async def test_a_missing_file_is_not_found(files: WorkspaceFiles) -> None:
    with pytest.raises(NotFound, match="no file `a/none`"):
        await files.read("a/none", 100)


async def test_create_writes_a_new_file_only(files: WorkspaceFiles) -> None:
    assert (await files.create("new/deep/c.txt", b"new")).read_bytes() == b"new"
    with pytest.raises(BadRequest, match="exists already"):
        await files.create("a/b.txt", b"other")
    assert (files.root / "a" / "b.txt").read_bytes() == b"words"


async def test_replace_keeps_the_permissions_and_leaves_nothing(files: WorkspaceFiles) -> None:
    (files.root / "a" / "b.txt").chmod(0o755)
    await files.replace("a/b.txt", b"other")
    await files.replace("a/c.txt", b"new")

    assert [(one.name, one.read_bytes()) for one in sorted((files.root / "a").iterdir())] == [
        ("b.txt", b"other"),
        ("c.txt", b"new"),
    ]
    assert stat.S_IMODE((files.root / "a" / "b.txt").stat().st_mode) == 0o755


async def test_replace_of_a_link_leaves_its_target(files: WorkspaceFiles, tmp_path: Path) -> None:
    await files.replace("link", b"new")

    assert (tmp_path / "secret").read_bytes() == b"secret words"
    assert not (files.root / "link").is_symlink()
    with pytest.raises(BadRequest, match="Links are not followed"):
        await files.replace("linked/secret", b"new")
    with pytest.raises(BadRequest):
        await files.replace("a", b"new")
    assert not [one for one in files.root.iterdir() if one.name.startswith(".a.")]


@pytest.mark.parametrize("path", ["inbox", "inbox/a", "./inbox/a", "{root}/inbox/a", "{root}//./inbox"])
async def test_the_inbox_is_reserved_for_attachments(files: WorkspaceFiles, path: str) -> None:
    named = path.format(root=files.root)
    assert files.parts(named)[0] == "inbox"
    for method in (files.create(named, b""), files.replace(named, b""), files.take_in(files.root / "a", named, 9)):
        with pytest.raises(BadRequest, match="reserved"):
            await method


async def test_files_are_copied_between_the_workspace_and_a_tool(files: WorkspaceFiles, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    handed = await files.hand_over("a/b.txt", folder, 100)
    assert (handed.read_bytes(), handed.name, handed.is_relative_to(folder)) == (b"words", "b.txt", True)
    assert (await files.take_in(handed, "got/it.txt", 100)).read_bytes() == b"words"
    assert (await files.take_in(handed, "got/all.txt", 5)).read_bytes() == b"words"


async def test_a_tools_folder_is_not_trusted_either(files: WorkspaceFiles, tmp_path: Path) -> None:
    """A page may have taken over the browser, and put a link where its download should be."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "guid").symlink_to(tmp_path / "secret")
    (folder / "large").write_bytes(b"x" * 1001)
    with pytest.raises(BadRequest):
        await files.take_in(folder / "guid", "got.txt", 1000)
    with pytest.raises(TooLarge):
        await files.take_in(folder / "large", "got.txt", 1000)
    assert not (files.root / "got.txt").exists()
