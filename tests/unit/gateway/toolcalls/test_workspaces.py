"""Workspaces: folders for each session, and a key for the state of tools."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId, TurnId
from gateway.domain.retention import LostFiles
from gateway.errors import DragomanError
from gateway.toolcalls.workspaces import HOME, Workspaces, kept_for


def test_each_session_has_a_private_folder_that_no_id_can_leave(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path)
    ids = ["main:ann", "main-ann", "main:ANN", "chat:../../etc", "/", "..", "a" * 500, "dm:web/page/x", "chat:\x00"]
    folders = [spaces.workspace(SessionId(one)) for one in ids]

    assert len(set(folders)) == len(ids)
    for folder in folders:
        assert folder.parent == tmp_path / "workspaces"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(folder.name) < 64
    assert spaces.workspace(SessionId("main:ann")) == folders[0]
    assert not spaces.outputs(SessionId("main:ann")).exists()


def test_a_place_has_one_id_for_all_that_share_it(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    assert Workspaces(here).home() == Workspaces(here).home() != Workspaces(elsewhere).home()
    assert [entry.name for entry in (here / "workspaces").iterdir()] == [HOME]


def test_workspace_set_aside_is_removed_after_its_time(tmp_path: Path) -> None:
    """The time begins when it is set aside, however old its files are; nothing with another name goes."""
    spaces, began = Workspaces(tmp_path), datetime.now(UTC) - timedelta(seconds=1)
    sessions = [SessionId("main:ann"), SessionId("chat:x-before-0123abcd")]
    for session in sessions:
        (spaces.workspace(session) / "report.txt").write_text("old")
        os.utime(spaces.workspace(session), (1, 1))
    aside = spaces.set_aside(sessions[0])
    assert aside is not None
    (link := aside.with_name(f"{aside.name[:-8]}{int(aside.name[-8:], 16) ^ 1:08x}")).symlink_to(tmp_path)
    (other := aside.with_name("mine-before-0123abcd")).mkdir()
    assert (spaces.remove_set_aside(began), aside.exists()) == (0, True)
    assert (spaces.remove_set_aside(datetime.now(UTC) + timedelta(days=1)), aside.exists()) == (1, False)
    assert link.is_symlink()
    assert other.is_dir()
    assert (spaces.workspace(sessions[1]) / "report.txt").exists()
    assert Workspaces(tmp_path / "nowhere").remove_set_aside(began) == 0


def test_a_workspace_of_before_is_set_aside_whole(tmp_path: Path) -> None:
    """The next one is empty; one that is not there needs no other name."""
    spaces, session = Workspaces(tmp_path), SessionId("main:ann")
    assert spaces.set_aside(session) is None
    for text in ("first", "second"):
        folder = spaces.workspace(session)
        assert list(folder.iterdir()) == []
        (folder / "notes").write_text(text)
        aside = spaces.set_aside(session)
        assert aside is not None
        assert (aside.parent, (aside / "notes").read_text()) == (folder.parent, text)
    (tmp_path / "workspaces" / folder.name).write_text("in the way")
    assert spaces.set_aside(session) is not None


@pytest.mark.parametrize("stands", ["", "not an id", "0123456789abcdef0", "link"])
def test_malformed_place_id_is_refused(tmp_path: Path, stands: str) -> None:
    """Also a link to a good one, which a tool on the host may have made."""
    file = tmp_path / "workspaces" / HOME
    file.parent.mkdir()
    if stands == "link":
        (tmp_path / "id").write_text("0123456789abcdef")
        file.symlink_to(tmp_path / "id")
    else:
        file.write_text(stands)
    with pytest.raises(DragomanError, match="Remove what stands there"):
        Workspaces(tmp_path).home()


@pytest.mark.parametrize("name", ["workspaces", "outputs"])
def test_a_file_in_place_of_a_folder_is_reported(tmp_path: Path, name: str) -> None:
    spaces = Workspaces(tmp_path)
    spaces.look()
    assert not list(tmp_path.iterdir())
    (tmp_path / name).mkdir()
    spaces.look()
    (tmp_path / name).rmdir()

    (tmp_path / name).write_text("in the way")
    with pytest.raises(DragomanError, match=f"{name} is not a folder") as found:
        spaces.look()
    assert found.value.cure == "Remove what stands there."


def test_a_kept_file_is_found_by_its_name(tmp_path: Path) -> None:
    spaces, session = Workspaces(tmp_path), SessionId("main:ann")
    folder = spaces.outputs(session)
    folder.mkdir(parents=True)
    (folder / "t1-2.txt").write_text("all of it")

    assert spaces.kept(session, "t1-2.txt") == folder / "t1-2.txt"
    assert spaces.kept(SessionId("main:bob"), "t1-2.txt") is None


@pytest.mark.parametrize("name", ["", ".", "..", "gone.txt", "link.txt", "below", "below/inner", "../secret", "nul\0"])
def test_irregular_output_file_counts_as_absent(tmp_path: Path, name: str) -> None:
    spaces, session = Workspaces(tmp_path), SessionId("main:ann")
    folder = spaces.outputs(session)
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "inner").write_text("inner")
    (folder.parent / "secret").write_text("secret")
    (folder / "link.txt").symlink_to(folder.parent / "secret")

    assert spaces.kept(session, name) is None
    assert spaces.kept(session, str(folder / name)) is None


def test_each_session_and_history_has_its_own_folder_name() -> None:
    sessions = [
        "main:ann",
        "main-ann",
        "main:anñ",
        "chat:../../etc",
        "child:t1.2",
        "child:t1.3",
        "a" * 500,
        "a" * 501,
        "",
    ]
    names = [kept_for(SessionId(one), epoch) for one in sessions for epoch in (0, 1, 11)]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in names)
    assert kept_for(SessionId("main:ann"), 3) == kept_for(SessionId("main:ann"), 3)
    assert kept_for(SessionId("main:ann"), 3).startswith("main-ann-3-")


def test_a_link_in_place_of_an_inbox_is_not_followed(tmp_path: Path) -> None:
    """Nor a path of a row that leads out of it."""
    spaces, main = Workspaces(tmp_path), SessionId("main:ann")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.png").write_text("mine")
    (spaces.workspace(main) / "inbox").symlink_to(outside)
    lost = LostFiles(turn=TurnId("t1"), session=main, works_in=main, inbox=("inbox/a.png", "inbox/../x", "y"))
    (spaces.workspace(main) / "x").write_text("mine")
    assert spaces.remove_files([lost]) == {TurnId("t1")}
    assert (outside / "a.png").exists()
    assert (spaces.workspace(main) / "x").exists()


def test_a_disk_of_all_nodes_must_be_mounted(tmp_path: Path) -> None:
    """No folder is made in its place, and no sandbox shows it."""
    spaces = Workspaces(tmp_path / "state", disk := tmp_path / "disk")
    with pytest.raises(DragomanError, match=r"disk is not there\. Mount the disk of all nodes there\."):
        spaces.look()
    disk.mkdir()
    spaces.look()
    assert spaces.workspace(SessionId("main:ann")).is_relative_to(disk)
    assert spaces.hidden == (tmp_path / "state", disk)
