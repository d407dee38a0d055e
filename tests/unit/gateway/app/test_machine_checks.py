"""`dragoman check` on the state folder, the store's folder and the port; `cli/test_cli.py` has the rest."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.app.machine_checks import CheckResult, Level, look
from gateway.errors import BadRequest
from gateway.server.control_server import ControlServer
from gateway.server.control_wire import socket_path
from tests.support.fakes import in_background


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def found(state: Path, *, store: str = "", port: int = 0, contained: Sequence[str] = ()) -> list[CheckResult]:
    url = f"sqlite://{store or state / 'dragoman.db'}"
    return list(look(state=state, store_url=url, host="127.0.0.1", port=port, contained=contained))


def says(findings: list[CheckResult], words: str) -> CheckResult:
    (one,) = [one for one in findings if words in one.what]
    return one


# --- the state folder -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("file", "The state folder {} is not a folder."),
        ("link", "The state folder {} is a link that leads nowhere."),
        ("circle", "The state folder {} is a link that leads nowhere."),
        ("file/below", "The state folder {} cannot be made in"),
        ("link/below", "The state folder {} cannot be made in"),
    ],
)
def test_obstacle_in_place_of_the_state_folder_is_a_problem(tmp_path: Path, place: str, what: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    one = says(found(tmp_path / place), what.format(tmp_path / place))
    assert one.level is Level.PROBLEM
    assert "correct that" in one.cure.lower()
    assert "--state" in one.cure


def test_state_folder_that_can_be_made_is_no_problem(tmp_path: Path) -> None:
    assert says(found(tmp_path / "a" / "b"), "made at the first start").level is Level.OK
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("number", "cure"), [(errno.ENOSPC, "Free space on its disk"), (errno.EROFS, "Make it writable")]
)
def test_why_nothing_can_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path, number: int, cure: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "other").mkdir()
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    findings = found(state, store=str(tmp_path / "other" / "x.db"))
    one = says(findings, f"The state folder {state} cannot be used: {os.strerror(number)}.")
    assert (one.level, one.cure) == (Level.PROBLEM, f"{cure}{one.cure.removeprefix(cure)}")
    one = says(findings, f"Nothing can be written into the store's folder {tmp_path}/other: {os.strerror(number)}.")
    assert one.level is Level.PROBLEM
    assert one.cure.startswith("Free" if number == errno.ENOSPC else "Make it a folder")


def test_unlistable_state_folder_is_a_problem(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    """Relevant for a folder open to others: its file names decide whether it may be closed."""

    listed = os.scandir

    def refuse(place: Any) -> Any:
        if place == state:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(place)

    state.chmod(0o711)
    monkeypatch.setattr(os, "scandir", refuse)
    one = says(found(state), f"The state folder {state} cannot be used: Permission denied.")
    assert one.level is Level.PROBLEM
    assert "Make it writable" in one.cure


# --- the store's folder ---------------------------------------------------------------------


def test_store_folder_made_at_the_start_is_no_problem(state: Path, tmp_path: Path) -> None:
    one = says(found(state, store=str(tmp_path / "a" / "b" / "x.db")), f"store's folder {tmp_path}/a/b")
    assert (one.level, one.what) == (Level.OK, f"store's folder {tmp_path}/a/b (made at the first start)")
    (tmp_path / "link.db").symlink_to(tmp_path / "c" / "x.db")
    assert says(found(state, store=str(tmp_path / "link.db")), f"{tmp_path}/c (made").level is Level.OK
    assert not (tmp_path / "a").exists()


def test_impossible_store_folder_is_a_problem(state: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = says(found(state, store=str(tmp_path / "file" / "x.db")), "store's folder")
    assert one.what == f"Nothing can be written into the store's folder {tmp_path}/file: Not a directory."
    one = says(found(state, store=str(tmp_path / "file" / "below" / "x.db")), "store's folder")
    assert one.what == f"The store's folder {tmp_path}/file/below cannot be made in {tmp_path}/file."
    assert one.cure == f"{tmp_path}/file is not a folder: correct that, or change store.url."
    assert one.level is Level.PROBLEM


# --- the port -------------------------------------------------------------------------------

Command = Callable[[Mapping[str, Any]], Awaitable[Any]]


async def of_a_port_that_is_taken(
    state: Path, commands: Callable[[int], Mapping[str, Command]]
) -> tuple[int, CheckResult]:
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with in_background(ControlServer(socket_path(state), commands(port)).run(ready)):
            await ready.wait()
            findings = await asyncio.to_thread(
                lambda: [one for one in found(state, port=port) if str(port) in one.what]
            )
    (one,) = findings
    return port, one


def daemon_on(port: int) -> Mapping[str, Command]:
    async def answer(_: Mapping[str, Any]) -> Any:
        if not port:
            raise BadRequest("Not now.", cure="Ask later.")
        return {"port": port}

    return {"port": answer}


async def test_a_port_that_our_daemon_has_is_no_problem(state: Path) -> None:
    port, one = await of_a_port_that_is_taken(state, daemon_on)
    assert one.level is Level.OK
    assert one.what == f"127.0.0.1:{port} is taken, and the daemon of this state folder runs"


async def test_port_of_another_program_is_a_problem_while_ours_runs(state: Path) -> None:
    port, one = await of_a_port_that_is_taken(state, lambda _: daemon_on(12))
    assert one.level is Level.PROBLEM
    assert one.what == (f"Another program has taken 127.0.0.1:{port}. The daemon of this state folder runs on port 12.")


@pytest.mark.parametrize("commands", [{}, daemon_on(0)], ids=["of an earlier version", "that refuses"])
async def test_a_daemon_that_does_not_say_its_port_is_believed(state: Path, commands: Mapping[str, Command]) -> None:
    _, one = await of_a_port_that_is_taken(state, lambda _: commands)
    assert one.level is Level.OK


# --- the sandbox ----------------------------------------------------------------------------


@pytest.mark.parametrize(("contained", "level"), [((), Level.NOTE), (("shell",), Level.PROBLEM)])
def test_check_blames_temporary_folder_when_none_is_writable(
    monkeypatch: pytest.MonkeyPatch, state: Path, contained: Sequence[str], level: Level
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(state / "absent"))
    one = says(found(state, contained=contained), "sandbox")
    assert one.level is level
    assert "no temporary folder can be written: No such file or directory" in one.what
    assert "TMPDIR" in one.cure
    assert "bubblewrap" not in f"{one.what} {one.cure}"
