"""A program that outlives calls, in every way that it can be held: what it is given, and what reaches it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import BadRequest, DragomanError, NotFound, SandboxMissing
from gateway.ports import EgressProxy
from gateway.sandbox import Containment
from tests.unit.gateway.sandbox.session_rig import ASKS, Bench, ask, printed, started

# --- what the program is given --------------------------------------------------------------------


async def test_the_environment_is_constructed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TELEGRAM_TOKEN", "PYTHONSTARTUP", "BASH_ENV", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "NODE_OPTIONS"):
        monkeypatch.setenv(name, "/nowhere/canary")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    async with bench.enclosed() as enclosure:
        found = json.loads(await printed(enclosure, "import os, json; print(json.dumps(dict(os.environ)))"))
        home = str(enclosure.folder / "home")
    assert set(found) - {"PWD", "OLDPWD", "LC_CTYPE"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ"}
    assert (found["HOME"], found["TZ"]) == (home, "Asia/Tokyo")
    assert "canary" not in str(found)


async def test_the_temporary_folder_leaves_room_for_the_address_of_a_socket(bench: Bench) -> None:
    bench.parent = bench.parent / ("long" * 30)
    bench.parent.mkdir()
    script = """import os, socket, tempfile
path = os.path.join(tempfile.mkdtemp(), "a-name-as-long-as-a-browser-makes")
socket.socket(socket.AF_UNIX).bind(path); print(os.environ["TMPDIR"])"""
    async with bench.enclosed() as enclosure:
        tmp = (await printed(enclosure, script)).strip()
    assert tmp == "/tmp" or not os.path.exists(tmp)  # noqa: ASYNC240 - one look, after all is over


async def test_arguments_descriptors_and_the_exit_code_are_passed_on(bench: Bench) -> None:
    script = "import os, sys; os.write(4, os.read(3, 9).upper()); print(sys.argv[1:]); os.listdir('/proc/self/fd'); " \
             "print(len(os.listdir('/proc/self/fd'))); sys.exit(7)"  # fmt: skip
    arguments = ["", "with space", "'$HOME'", "ünï", "\n"]
    (given, give), (take, taken) = os.pipe(), os.pipe()
    os.write(give, b"question")
    async with bench.enclosed() as enclosure:
        argv = ["/bin/bash", "-c", f'exec "$@" 3<&{given} 4>&{taken} {given}<&- {taken}>&-', "bash",
                str(enclosure.launcher), "-c", script, *arguments]  # fmt: skip
        process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, pass_fds=(given, taken))
        out, _ = await process.communicate()
    os.close(taken)
    assert os.read(take, 100) == b"QUESTION"
    assert os.read(take, 100) == b"", "nobody else may hold it, or its end would never be seen"
    for fd in (given, give, take):
        os.close(fd)
    assert process.returncode == 7
    assert out.decode().splitlines() == [str(arguments), "6"]  # five, and the folder that is listed


async def test_the_folder_is_there_on_both_sides_and_gone_at_the_end(bench: Bench) -> None:
    async with bench.enclosed() as enclosure:
        folder, launcher = enclosure.folder, enclosure.launcher
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "asked").write_text("here")
        script = """import os, sys
os.chdir(sys.argv[1]); text = open("asked").read(); os.mkdir("deep"); open("deep/answer", "w").write(text * 2)
os.chmod("deep", 0)"""
        await printed(enclosure, script, str(folder))
        os.chmod(folder / "deep", 0o700)
        assert (folder / "deep" / "answer").read_text() == "herehere"
        os.chmod(folder / "deep", 0)
    assert not launcher.exists()
    assert list(bench.parent.iterdir()) == []


TRIES = """
import json, os, sys
def can(do, *arguments):
    try: do(*arguments)
    except OSError: return False
    return True
secret, home, folder = sys.argv[1:]
print(json.dumps({
    "secret": can(open, secret), "runtime": can(os.listdir, "/run"), "services": can(os.listdir, "/var/lib"),
    "beside": os.listdir(os.path.dirname(folder)), "home": can(open, home + "/.profile"),
    "write-system": can(open, "/usr/canary", "w"), "write-etc": can(open, "/etc/canary", "w"),
    "write-beside": can(open, os.path.dirname(folder) + "/canary", "w"), "fonts": os.path.isdir("/etc/fonts"),
    "memory": can(open, "/dev/shm/x", "w"), "tmp": can(open, "/tmp/x", "w"), "root": os.geteuid() == 0,
}))
"""


async def test_basic_shows_neither_home_nor_state_and_writes_nowhere_else(
    basic: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    async with basic.enclosed() as enclosure:
        seen = json.loads(
            await printed(enclosure, TRIES, str(basic.state / "secret"), str(home), str(enclosure.folder))
        )
        assert not (enclosure.folder.parent / "canary").exists()
    assert seen.pop("beside") == ["shared"]
    assert {name for name, can in seen.items() if can} - {"write-beside"} == {"memory", "tmp"}


# --- the network ----------------------------------------------------------------------------------


async def test_a_gate_is_the_only_way_out(basic: Bench, listener: socket.socket) -> None:
    async with basic.enclosed() as enclosure, started(enclosure, ASKS) as process, enclosure.gate() as gate:
        direct = f"127.0.0.1:{listener.getsockname()[1]}"
        assert await ask(process, "read", direct) == "no: Connection refused"
        assert await ask(process, "read", "192.0.2.1:80") == "no: Network is unreachable"
        assert await ask(process, "read", gate.address) == "way-0"
    with pytest.raises(BlockingIOError):
        listener.accept()


async def test_each_gate_has_an_address_of_its_own(bench: Bench) -> None:
    async with bench.enclosed() as enclosure, AsyncExitStack() as stack:
        opening = [asyncio.create_task(stack.enter_async_context(enclosure.gate())) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not bench.ways, "nothing to serve before the program runs"
        async with started(enclosure, ASKS) as process:
            gates = [await one for one in opening]
            assert [await ask(process, "read", gate.address) for gate in gates] == ["way-0", "way-1"]
            with pytest.raises(DragomanError, match=r"All 2 ways out are in use. Close"):
                await stack.enter_async_context(enclosure.gate())


async def test_a_gate_forgets_whom_it_was_for(bench: Bench) -> None:
    async with bench.enclosed(gates=1) as enclosure, started(enclosure, ASKS) as process:
        async with enclosure.gate() as gate:
            address = gate.address
        for _ in range(3):
            assert await ask(process, "leave", address) == "connected"
        async with enclosure.gate() as gate:
            assert gate.address == address
            await asyncio.sleep(0.05)
            assert bench.ways[1].met == 0
            assert await ask(process, "read", address) == "way-1"
            assert bench.ways[1].met == 1


async def test_a_gate_that_cannot_be_served_is_free_again(basic: Bench) -> None:
    @asynccontextmanager
    async def broken(sock: socket.socket, address: str) -> AsyncGenerator[EgressProxy]:
        sock.close()
        raise ConnectionError(address)
        yield

    async with basic.enclosed(gates=1, serve=broken) as enclosure, started(enclosure, ASKS):
        for _ in range(2):
            with pytest.raises(ConnectionError, match=r"http://127.0.0.1:"):
                async with enclosure.gate():
                    pytest.fail("it was served")


# --- what does not start --------------------------------------------------------------------------


async def test_a_gate_does_not_wait_for_ever(bench: Bench) -> None:
    async with bench.enclosed(start_s=0.1) as enclosure:
        with pytest.raises(SandboxMissing, match="did not start within"):
            async with enclosure.gate():
                pytest.fail("there is no program")


async def test_a_sandbox_that_cannot_be_made_says_why_to_both(basic: Bench) -> None:
    async with basic.enclosed() as enclosure:
        shutil.rmtree(enclosure.folder)
        async with started(enclosure, "print('ran')") as process:
            out, err = await process.communicate()
            with pytest.raises(SandboxMissing, match=r"did not start: bwrap: .*shared"):
                async with enclosure.gate():
                    pytest.fail("there is no program")
    assert (process.returncode, out) == (1, b"")
    assert b"did not start: bwrap" in err


async def test_a_program_that_ended_has_no_gates(bench: Bench) -> None:
    async with bench.enclosed() as enclosure:
        await printed(enclosure, "pass")
        with pytest.raises(SandboxMissing, match="has ended"):
            async with enclosure.gate():
                pytest.fail("there is no program")


async def test_it_runs_once(bench: Bench) -> None:
    async with bench.enclosed() as enclosure:
        assert await printed(enclosure, "print('ran')") == "ran\n"
        async with started(enclosure, "print('again')") as process:
            out, err = await process.communicate()
    assert (process.returncode, out) == (126, b"")
    assert b"the daemon takes no start here" in err


async def test_basic_is_never_the_host_instead(basic: Bench) -> None:
    nothing = Containment(can_bwrap=False, can_pid_namespace=False, why_no_bwrap="bubblewrap is not installed")
    with pytest.raises(SandboxMissing, match="bubblewrap is not installed"):
        async with basic.enclosed(containment=nothing):
            pytest.fail("it was made")


async def test_what_may_be_shown_is_not_the_home_and_not_the_state(
    basic: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "cache" / "browser").mkdir(parents=True)
    (home / "cache" / "other").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    for path in (home / "program", home / "cache" / "browser" / "program"):
        path.write_text(f"#!/bin/sh\ncat {home}/cache/other 2>/dev/null; ls {home}/cache\n")
        path.chmod(0o700)
    with pytest.raises(BadRequest, match=r"home cannot be shown in the sandbox.*folder of its own"):
        async with basic.enclosed(home / "program"):
            pytest.fail("it was made")
    with pytest.raises(BadRequest, match="state cannot be shown"):
        async with basic.enclosed(readable=[basic.state]):
            pytest.fail("it was made")
    with pytest.raises(NotFound, match="no program"):
        async with basic.enclosed(home / "nothing"):
            pytest.fail("it was made")
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(BadRequest, match="link cannot be shown"):
        async with basic.enclosed(readable=[tmp_path / "link"]):
            pytest.fail("it was made")
    async with basic.enclosed(home / "cache" / "browser" / "program") as enclosure:
        assert await printed(enclosure, "") == "browser\n"


async def test_what_a_program_must_read_is_shown_by_the_name_that_it_asks_for(basic: Bench, tmp_path: Path) -> None:
    """Where settings are links, as on NixOS, a program knows them by the link's name."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "fonts").write_text("serif")
    (tmp_path / "etc").symlink_to(tmp_path / "store")
    reads = "import os, sys; print([os.path.exists(path) for path in sys.argv[1:]])"
    asked = [str(tmp_path / "etc" / "fonts"), str(tmp_path / "store" / "fonts"), "/etc/fonts"]
    async with basic.enclosed(readable=[tmp_path / "etc", tmp_path / "nothing"]) as enclosure:
        assert await printed(enclosure, reads, *asked) == "[True, False, False]\n"
