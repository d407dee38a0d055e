"""Sandbox sessions with each holder: environment, files and network of the program."""

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
from gateway.sandbox import Containment, ProcessLimits, session_limits
from tests.unit.gateway.sandbox.session_rig import ASKS, Bench, ask, printed, started

pytestmark = pytest.mark.sampled(2)  # the other holders stay in `test_sandbox.py`

# --- the program's environment --------------------------------------------------------------------


async def test_the_environment_is_constructed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TELEGRAM_TOKEN", "PYTHONSTARTUP", "BASH_ENV", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "NODE_OPTIONS"):
        monkeypatch.setenv(name, "/nowhere/canary")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    async with bench.session() as session:
        found = json.loads(await printed(session, "import os, json; print(json.dumps(dict(os.environ)))"))
        home = str(session.folder / "home")
    assert set(found) - {"PWD", "OLDPWD", "LC_CTYPE"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ"}
    assert (found["HOME"], found["TZ"]) == (home, "Asia/Tokyo")
    assert "canary" not in str(found)


async def test_temporary_folder_leaves_room_for_a_socket_address(bench: Bench) -> None:
    bench.parent = bench.parent / ("long" * 30)
    bench.parent.mkdir()
    script = """import os, socket, tempfile
path = os.path.join(tempfile.mkdtemp(), "a-name-as-long-as-a-browser-makes")
socket.socket(socket.AF_UNIX).bind(path); print(os.environ["TMPDIR"])"""
    async with bench.session() as session:
        tmp = (await printed(session, script)).strip()
    assert tmp == "/tmp" or not os.path.exists(tmp)  # noqa: ASYNC240 - one look, after all is over


async def test_arguments_descriptors_and_exit_code_are_passed_on(bench: Bench) -> None:
    script = "import os, sys; os.write(4, os.read(3, 9).upper()); print(sys.argv[1:]); os.listdir('/proc/self/fd'); " \
             "print(len(os.listdir('/proc/self/fd'))); sys.exit(7)"  # fmt: skip
    arguments = ["", "with space", "'$HOME'", "ünï", "\n"]
    (given, give), (take, taken) = os.pipe(), os.pipe()
    os.write(give, b"question")
    async with bench.session() as session:
        argv = ["/bin/bash", "-c", f'exec "$@" 3<&{given} 4>&{taken} {given}<&- {taken}>&-', "bash",
                str(session.launcher), "-c", script, *arguments]  # fmt: skip
        process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, pass_fds=(given, taken))
        out, _ = await process.communicate()
    os.close(taken)
    assert os.read(take, 100) == b"QUESTION"
    assert os.read(take, 100) == b"", "nobody else may hold it, or its end would never be seen"
    for fd in (given, give, take):
        os.close(fd)
    assert process.returncode == 7
    assert out.decode().splitlines() == [str(arguments), "6"]  # five, and the folder that is listed


async def test_folder_is_visible_on_both_sides_and_removed_at_the_end(bench: Bench) -> None:
    async with bench.session() as session:
        folder, launcher = session.folder, session.launcher
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "asked").write_text("here")
        script = """import os, sys
os.chdir(sys.argv[1]); text = open("asked").read(); os.mkdir("deep"); open("deep/answer", "w").write(text * 2)
os.chmod("deep", 0)"""
        await printed(session, script, str(folder))
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


async def test_basic_hides_home_and_state_and_is_otherwise_read_only(
    basic: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    async with basic.session() as session:
        seen = json.loads(await printed(session, TRIES, str(basic.state / "secret"), str(home), str(session.folder)))
        assert not (session.folder.parent / "canary").exists()
    assert seen.pop("beside") == ["shared"]
    assert {name for name, can in seen.items() if can} - {"write-beside"} == {"memory", "tmp"}


async def test_limits_of_programs_hold_in_a_session(bench: Bench) -> None:
    settings = ProcessLimits(memory_bytes=3 * 2**30, file_bytes=5 * 2**30, tmp_bytes=2**20)
    script = "import resource as r; print(r.getrlimit(r.RLIMIT_DATA)[0], r.getrlimit(r.RLIMIT_FSIZE)[0])"
    async with bench.session(limits=session_limits(settings)) as session:
        assert await printed(session, script) == f"{3 * 2**30} {5 * 2**30}\n"


@pytest.mark.parametrize(("memory", "expected"), [(256 * 2**20, 2**30), (3 * 2**30, 3 * 2**30), (None, None)])
def test_browser_gets_the_memory_and_files_that_it_needs(memory: int | None, expected: int | None) -> None:
    small = session_limits(ProcessLimits(memory_bytes=memory, file_bytes=2**20, tmp_bytes=2**20))
    large = session_limits(ProcessLimits(memory_bytes=memory, file_bytes=None, tmp_bytes=5 * 2**30))
    assert (small.memory_bytes, small.file_bytes, small.tmp_bytes) == (expected, 256 * 2**20, 2 * 2**30)
    assert (large.memory_bytes, large.file_bytes, large.tmp_bytes) == (expected, None, 5 * 2**30)


# --- the network ----------------------------------------------------------------------------------


async def test_egress_proxy_is_the_only_way_out(basic: Bench, listener: socket.socket) -> None:
    async with basic.session() as session, started(session, ASKS) as process, session.egress_proxy() as proxy:
        direct = f"127.0.0.1:{listener.getsockname()[1]}"
        assert await ask(process, "read", direct) == "no: Connection refused"
        assert await ask(process, "read", "192.0.2.1:80") == "no: Network is unreachable"
        assert await ask(process, "read", proxy.address) == "way-0"
    with pytest.raises(BlockingIOError):
        listener.accept()


async def test_each_egress_proxy_has_its_own_address(bench: Bench) -> None:
    async with bench.session() as session, AsyncExitStack() as stack:
        opening = [asyncio.create_task(stack.enter_async_context(session.egress_proxy())) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not bench.ways, "nothing to serve before the program runs"
        async with started(session, ASKS) as process:
            proxies = [await one for one in opening]
            assert [await ask(process, "read", proxy.address) for proxy in proxies] == ["way-0", "way-1"]
            with pytest.raises(DragomanError, match=r"All 2 egress proxies are in use. Close"):
                await stack.enter_async_context(session.egress_proxy())


async def test_egress_proxy_drops_connections_of_its_previous_user(bench: Bench) -> None:
    async with bench.session(proxies=1) as session, started(session, ASKS) as process:
        async with session.egress_proxy() as proxy:
            address = proxy.address
        for _ in range(3):
            assert await ask(process, "leave", address) == "connected"
        async with session.egress_proxy() as proxy:
            assert proxy.address == address
            await asyncio.sleep(0.05)
            assert bench.ways[1].met == 0
            assert await ask(process, "read", address) == "way-1"
            assert bench.ways[1].met == 1


async def test_egress_proxy_is_free_again_when_serving_fails(basic: Bench) -> None:
    @asynccontextmanager
    async def broken(sock: socket.socket, address: str) -> AsyncGenerator[EgressProxy]:
        sock.close()
        raise ConnectionError(address)
        yield

    async with basic.session(proxies=1, serve=broken) as session, started(session, ASKS):
        for _ in range(2):
            with pytest.raises(ConnectionError, match=r"http://127.0.0.1:"):
                async with session.egress_proxy():
                    pytest.fail("it was served")


# --- failed starts --------------------------------------------------------------------------------


async def test_egress_proxy_times_out_without_a_program(bench: Bench) -> None:
    async with bench.session(start_s=0.1) as session:
        with pytest.raises(SandboxMissing, match="did not start within"):
            async with session.egress_proxy():
                pytest.fail("there is no program")


async def test_failed_sandbox_reports_the_reason_to_both_sides(basic: Bench) -> None:
    async with basic.session() as session:
        shutil.rmtree(session.folder)
        async with started(session, "print('ran')") as process:
            out, err = await process.communicate()
            with pytest.raises(SandboxMissing, match=r"did not start: bwrap: .*shared"):
                async with session.egress_proxy():
                    pytest.fail("there is no program")
    assert (process.returncode, out) == (1, b"")
    assert b"did not start: bwrap" in err


async def test_ended_program_has_no_egress_proxies(bench: Bench) -> None:
    async with bench.session() as session:
        await printed(session, "pass")
        with pytest.raises(SandboxMissing, match="has ended"):
            async with session.egress_proxy():
                pytest.fail("there is no program")


async def test_program_runs_once(bench: Bench) -> None:
    async with bench.session() as session:
        assert await printed(session, "print('ran')") == "ran\n"
        async with started(session, "print('again')") as process:
            out, err = await process.communicate()
    assert (process.returncode, out) == (126, b"")
    assert b"the daemon accepts no start here" in err


async def test_basic_never_falls_back_to_the_host(basic: Bench) -> None:
    nothing = Containment(can_bwrap=False, can_pid_namespace=False, why_no_bwrap="bubblewrap is not installed")
    with pytest.raises(SandboxMissing, match="bubblewrap is not installed"):
        async with basic.session(containment=nothing):
            pytest.fail("it was made")


async def test_home_and_state_cannot_be_shown(basic: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "cache" / "browser").mkdir(parents=True)
    (home / "cache" / "other").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    for path in (home / "program", home / "cache" / "browser" / "program"):
        path.write_text(f"#!/bin/sh\ncat {home}/cache/other 2>/dev/null; ls {home}/cache\n")
        path.chmod(0o700)
    with pytest.raises(BadRequest, match=r"home cannot be shown in the sandbox.*folder of its own"):
        async with basic.session(home / "program"):
            pytest.fail("it was made")
    with pytest.raises(BadRequest, match="state cannot be shown"):
        async with basic.session(readable=[basic.state]):
            pytest.fail("it was made")
    with pytest.raises(NotFound, match="no program"):
        async with basic.session(home / "nothing"):
            pytest.fail("it was made")
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(BadRequest, match="link cannot be shown"):
        async with basic.session(readable=[tmp_path / "link"]):
            pytest.fail("it was made")
    async with basic.session(home / "cache" / "browser" / "program") as session:
        assert await printed(session, "") == "browser\n"


async def test_readable_path_keeps_its_name_when_it_is_a_link(basic: Bench, tmp_path: Path) -> None:
    """On NixOS settings are links, and a program opens them by the link's name."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "fonts").write_text("serif")
    (tmp_path / "etc").symlink_to(tmp_path / "store")
    reads = "import os, sys; print([os.path.exists(path) for path in sys.argv[1:]])"
    asked = [str(tmp_path / "etc" / "fonts"), str(tmp_path / "store" / "fonts"), "/etc/fonts"]
    async with basic.session(readable=[tmp_path / "etc", tmp_path / "nothing"]) as session:
        assert await printed(session, reads, *asked) == "[True, False, False]\n"
