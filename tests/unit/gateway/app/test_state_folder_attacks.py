from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app.state import open_state, state_key
from gateway.errors import StartError


def test_a_link_that_somebody_prepared_is_not_written_through(tmp_path: Path) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    state.mkdir(mode=0o700)
    victim.write_text("precious")
    for name in (".write-probe", "state.new"):
        (state / name).symlink_to(victim)

    open_state(state)

    assert victim.read_text() == "precious"


def test_the_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)

    with pytest.raises(StartError, match="belongs to another user") as refused:
        open_state(tmp_path)

    assert f"chown -R {other}" in refused.value.cure


def shared(folder: Path, mode: int, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize(("mode", "names"), [(0o1777, ()), (0o1777, ("state.key",)), (0o755, ("home", "etc"))])
def test_a_folder_that_people_share_is_not_closed_to_them(tmp_path: Path, mode: int, names: tuple[str, ...]) -> None:
    folder = shared(tmp_path / "shared", mode, *names)

    with pytest.raises(StartError, match="open to other users, and something else is kept in it") as refused:
        open_state(folder)

    assert "--state" in refused.value.cure
    assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.parametrize("names", [(), ("lost+found",), ("state.key", "workspaces"), ("dragoman.db",)])
def test_own_or_empty_state_folder_is_closed(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = shared(tmp_path / "ours", 0o755, *names)

    open_state(folder)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_key_that_cannot_be_read_is_reported_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "state.key").symlink_to("state.key")

    with pytest.raises(StartError, match=r"state\.key cannot be read") as refused:
        state_key(tmp_path)

    assert f"chown -R {os.geteuid()} {tmp_path}" in refused.value.cure


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_key_that_is_no_file_is_reported_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nobody ever writes into the pipe."""
    make(tmp_path / "state.key")

    with pytest.raises(StartError, match=r"state\.key is not a file") as refused:
        state_key(tmp_path)

    assert "Move it away" in refused.value.cure


def test_a_new_key_beside_an_old_store_is_reported_once(tmp_path: Path) -> None:
    with capture_logs() as told:
        state_key(tmp_path)
        state_key(tmp_path, known=True)
    assert told == []

    (tmp_path / "state.key").unlink()
    with capture_logs() as told:
        assert state_key(tmp_path, known=True) == state_key(tmp_path, known=True)
    (line,) = told
    assert line["log_level"] == "warning"
    assert line["event"] == "made a new key for an existing store: its open cards cannot be pressed"


@pytest.mark.parametrize(("name", "what"), [("file", "not a folder"), ("link", "a link that leads nowhere")])
def test_obstacle_in_place_of_the_state_folder_is_named(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")

    with pytest.raises(StartError, match=f"{name} is {what}") as refused:
        open_state(tmp_path / name)

    assert refused.value.cure == "Correct that, or name another one with --state."


@pytest.mark.parametrize(("number", "cure"), [(errno.ENOSPC, "Free space"), (errno.EROFS, "Make it writable")])
def test_a_full_disk_has_a_cure_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, cure: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StartError, match=os.strerror(number)) as refused:
        open_state(tmp_path)

    assert refused.value.cure.startswith(cure)


def test_a_new_key_has_its_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a power cut would leave a state folder whose buttons and sign-ins nobody can check."""
    fsync, flushed = os.fsync, list[tuple[str, bool]]()

    def note(fd: int) -> None:
        flushed.append((os.readlink(f"/proc/self/fd/{fd}"), (tmp_path / "state.key").exists()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    state_key(tmp_path)
    assert flushed[-2:] == [(str(tmp_path / "state.new"), False), (str(tmp_path), True)]
