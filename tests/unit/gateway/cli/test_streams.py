"""Commands whose input or output is closed, full, or of another encoding: words, never a traceback."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from gateway.server.control_wire import socket_path
from tests.support.patience import PATIENCE_S
from tests.unit.gateway.cli.test_cli import Daemon, Done

NOT_WRITTEN = "Error: Standard output cannot be written: No space left on device.\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


async def shell(state: Path, line: str, **environ: str) -> Done:
    """Run a shell line in which DRAGOMAN is the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "XDG_", "LC_"))}
    command = line.replace("DRAGOMAN", f"{shlex.quote(sys.executable)} -m gateway")
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command,
        env={**kept, "HOME": str(state.parent), "DRAGOMAN_STATE": str(state), "DRAGOMAN_HTTP__PORT": "0", **environ},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    done = Done(code=process.returncode, out=out.decode(errors="replace"), err=err.decode(errors="replace"))
    assert "Traceback" not in done.err, done.err
    return done


@pytest.mark.sampled(1)
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&- <&-"])
async def test_the_daemon_runs_with_closed_streams(state: Path, tmp_path: Path, closed: str) -> None:
    """No file gets their descriptors: a write to descriptor 2 would go into it."""
    ready = f"while ! [ -S {shlex.quote(str(socket_path(state)))} ]; do sleep 0.02; done"
    held = tmp_path / "held"
    look = f"ls -l /proc/$!/fd > {shlex.quote(str(held))}"
    done = await shell(state, f"DRAGOMAN run {closed} & {ready}; {look}; kill $!; wait $!")
    assert done.code == 0, done.err
    where = dict(line.split(" -> ") for line in re.findall(r"(\d+ -> .+)", held.read_text()))
    for number, name in enumerate(("<&-", ">&-", "2>&-")):
        assert where[str(number)] == "/dev/null" or f" {name} " not in f" {closed} "


@pytest.mark.parametrize("words", ["--help", pytest.param("check", marks=pytest.mark.whole("the help stays"))])
async def test_a_full_disk_under_the_output_is_reported(state: Path, words: str) -> None:
    done = await shell(state, f"DRAGOMAN {words} > /dev/full")
    assert (done.code, done.err) == (1, NOT_WRITTEN)


async def test_unprintable_answer_of_a_sent_message_says_it_was_sent(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        done = await shell(state, "DRAGOMAN send hello > /dev/full")
    sent = "It was sent: do not send it again. Its answer cannot be printed.\n"
    assert (done.code, done.err) == (1, sent + NOT_WRITTEN)
    assert [name for name, _ in daemon.asked] == ["send"]


@pytest.mark.whole("starts a process; a full disk under the output stays")
async def test_closed_reader_gets_no_error(state: Path) -> None:
    done = await shell(state, "DRAGOMAN check | head -c 5")
    assert (done.out, done.err) == ("confi", "")


@pytest.mark.whole("starts a process; a full disk under the output stays")
async def test_unencodable_character_is_escaped_in_output(state: Path) -> None:
    line = "DRAGOMAN --state \"$(printf '/nowhere/\\342\\200\\246\\377')\" check"
    done = await shell(state, line, PYTHONIOENCODING="iso-8859-1:strict", PYTHONUTF8="1")
    assert "/nowhere/\\u2026\\udcff" in done.out


async def test_input_that_is_no_text_is_sent_as_far_as_it_is(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        done = await shell(state, "printf 'say \\377 it' | DRAGOMAN send -", PYTHONUTF8="1")
    assert (done.code, done.out) == (0, "Sent.\n")
    ((_, args),) = daemon.asked
    assert args["text"] == "say \ufffd it"


async def test_closed_input_is_wrong_usage(state: Path) -> None:
    done = await shell(state, "DRAGOMAN send - <&-")
    assert done.code == 2
    assert "Standard input is closed" in done.err
