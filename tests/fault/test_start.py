"""Failing starts: for every fault of the folder or the configuration the daemon names a cure and exits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fault.rig import visiting
from tests.support.daemon import Daemon, running
from tests.support.places import read_only, small_disk, with_mounts, without_bubblewrap
from tests.support.platform import FakePlatform


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """One that was not started."""
    found = Daemon(folder=tmp_path, warm=True)
    try:
        yield found
    finally:
        await found.kill()


async def refuses(daemon: Daemon, *wanted: str, env: dict[str, str] | None = None) -> str:
    """Start it: it must leave by itself, not with 0, with words that contain the cure, and no traceback."""
    await daemon.start(env, ready=False)
    code = await daemon.died()
    text = (daemon.folder / f"log-{daemon.lives:02}.txt").read_text()
    assert code not in (0, None)
    assert code > 0
    assert "Traceback" not in text
    assert "Exception" not in text
    for one in wanted:
        assert one in text, text
    return text


# --- somebody else is there ---------------------------------------------------------------------


async def test_the_port_is_in_use(tmp_path: Path, daemon: Daemon) -> None:
    """The other one goes on; this one names the key."""
    (tmp_path / "first").mkdir()
    async with running(tmp_path / "first") as first:
        daemon.port = first.port
        await refuses(daemon, f"127.0.0.1:{first.port}", "[http] port")
        await first.until_ready(2)


async def test_a_second_daemon_on_the_same_state(daemon: Daemon, tmp_path: Path) -> None:
    """Refused while the first lives, welcome when it was killed."""
    await daemon.start()
    (tmp_path / "second").mkdir()
    config = f'[store]\nurl = "sqlite://{daemon.state}/dragoman.db"\n'
    second = Daemon(folder=tmp_path / "second", config=config, warm=True)
    text = await refuses(second, "in use by process", "--state")
    assert daemon.process is not None
    assert f"process {daemon.process.pid}." in text
    await daemon.kill()
    await second.start()
    await second.kill()


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_the_very_same_command_again(daemon: Daemon) -> None:
    """The same folder and the same configuration: the store is what tells."""
    await daemon.start()
    first = daemon.process
    assert first is not None
    try:
        await refuses(daemon, "--state")
        assert first.returncode is None
    finally:
        first.kill()
        await first.wait()


# --- a store that cannot be used ----------------------------------------------------------------


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_a_newer_store(daemon: Daemon) -> None:
    """Nothing is changed in it."""
    await daemon.start()
    assert await daemon.stop() == 0
    path = daemon.state / "dragoman.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")
    before = path.read_bytes()
    await refuses(daemon, "schema 999", "Upgrade Dragoman")
    assert path.read_bytes() == before


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_another_programs_database(daemon: Daemon) -> None:
    """Refused untouched."""
    daemon.state.mkdir(mode=0o700)
    path = daemon.state / "dragoman.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE songs (title)")
    before = path.read_bytes()
    await refuses(daemon, "another program", "store.url")
    assert path.read_bytes() == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("content", [b"hello", b"hello" * 10_000])
@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_no_database_at_all(daemon: Daemon, content: bytes) -> None:
    """A file of something else, however short, is kept."""
    daemon.state.mkdir(mode=0o700)
    path = daemon.state / "dragoman.db"
    path.write_bytes(content)
    await refuses(daemon, "no SQLite database", "store.url")
    assert path.read_bytes() == content


async def test_a_damaged_store(daemon: Daemon) -> None:
    """Flipped bytes in every page but the first: refused, and the file is kept."""
    await daemon.start()
    assert await daemon.stop() == 0
    path = daemon.state / "dragoman.db"
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 512):
        content[at] ^= 0xFF
    path.write_bytes(content)
    await refuses(daemon, "damaged", "backup")


# --- a folder that cannot be used ---------------------------------------------------------------


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_the_state_folder_is_a_file(daemon: Daemon) -> None:
    """Also below a file."""
    daemon.state.write_text("in the way")
    await refuses(daemon, str(daemon.state), "--state")
    daemon.config = f'[store]\nurl = "sqlite://{daemon.state}/below/dragoman.db"\n'
    await refuses(daemon, "--state")


async def test_a_read_only_state_folder(daemon: Daemon) -> None:
    """Not even root can write there."""
    daemon.state.mkdir()
    daemon.prefix = read_only(daemon.state)
    await refuses(daemon, "Read-only file system", "--state")


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_a_read_only_store(daemon: Daemon) -> None:
    """The state folder can be written, the store's cannot."""
    elsewhere = daemon.folder / "elsewhere"
    elsewhere.mkdir()
    daemon.config = f'[store]\nurl = "sqlite://{elsewhere}/dragoman.db"\n'
    daemon.prefix = read_only(elsewhere)
    await refuses(daemon, "Read-only file system", "may write")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("left_kib", [64, 4, 0])
async def test_a_full_disk(daemon: Daemon, left_kib: int) -> None:
    """Too little to begin with, or not one byte; with room again the same command works."""
    async with small_disk(daemon.state) as disk:
        daemon.prefix = disk.enter
        disk.fill(left_kib)
        await refuses(daemon, "ree space")
        if not left_kib:
            _, text = await daemon.run_command("check")
            assert "cannot be used: No space left on device.\n         Free space on its disk" in text
        disk.free()
        await daemon.start()
        await daemon.kill()


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_no_room_for_the_key(daemon: Daemon) -> None:
    """The secret of the buttons cannot be written: something stands in its way."""
    daemon.state.mkdir(mode=0o700)
    (daemon.state / "state.new").symlink_to("nowhere")
    await refuses(daemon, "state.key cannot be made", "--state")


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_no_room_for_a_socket(daemon: Daemon) -> None:
    """Something that is no socket stands where the control socket would be."""
    daemon.state.mkdir(mode=0o700)
    (daemon.state / "control.sock").write_text("in the way")
    await refuses(daemon, "control.sock", "Move it away")


async def test_log_names_configuration_and_state_folder(daemon: Daemon) -> None:
    """As the commands say that find no daemon. Started as people start it."""
    daemon.warm = False
    await daemon.start()
    await daemon.kill()
    first = (daemon.folder / f"log-{daemon.lives:02}.txt").read_text().splitlines()[0]
    assert f'"state": "{daemon.state}"' in first
    assert f'"event": "read {daemon.folder}' in first


# --- a configuration that cannot be used --------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("= 3\n", ["TOML", "line"]),
        ("[model]\nnaem = 'x'\n", ["naem", "name"]),
        ("[tools.shell]\ntimeout = 'soon'\n", ["timeout", '"90s"']),
        ("[model]\nname = 'openai:x'\napi_key = 'file:/no/such/file'\n", ["/no/such/file", "api_key"]),
        ("[model]\nname = 'openai:x'\napi_key = 'sk-verysecretverysecret'\n", ["api_key", "env:"]),
        ("[channels.test]\nmodule = 'no.such'\n", ["no.such", "module"]),
    ],
)
@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_a_mistake_in_the_configuration(daemon: Daemon, config: str, wanted: list[str]) -> None:
    """One of each kind; the words of many more are judged in `tests/unit/config/test_mistakes.py`."""
    daemon.config = config
    text = await refuses(daemon, *wanted)
    assert "sk-verysecret" not in text


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_a_mistake_in_the_environment(daemon: Daemon) -> None:
    """The variable is named."""
    await refuses(daemon, "DRAGOMAN_HTTP__PORT", "port", env={"DRAGOMAN_HTTP__PORT": "eighty"})


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_an_address_that_is_not_ours(daemon: Daemon) -> None:
    """Nobody can listen there."""
    env = {"DRAGOMAN_HTTP__HOST": "192.0.2.1", "DRAGOMAN_HTTP__PUBLIC_URL": "https://chat.example.org"}
    await refuses(daemon, "Cannot listen on 192.0.2.1", "[http]", env=env)


# --- no bubblewrap ------------------------------------------------------------------------------

PEOPLE = """
[owners]
ann = ["test:1001"]
[people]
allow = ["test:2002"]
[tools.shell]
permission = "always"
[channels.test]
module = "tests.support.channel"
port = {port}
"""


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_without_bubblewrap_main_runs_on_the_host(daemon: Daemon) -> None:
    """The card says so, in words, before anybody presses."""
    daemon.prefix = without_bubblewrap()
    await daemon.start()
    async with visiting(daemon, "owner") as page:
        await page.say("/shell echo on the host")
        asked = await page.row("approval", state="open")
        assert "No sandbox" in asked["note"]
        assert "host" in dict(asked["facts"])["Sandbox"]
        await page.press(page.handles[asked["id"], "once"])
        step = await page.row("step", kind="tool", state="finished")
        assert (step["result"]["status"], step["result"]["text"]) == ("ok", "on the host\n")


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_without_bubblewrap_nobody_else_has_a_shell(daemon: Daemon) -> None:
    """Another person's chat: the tool is not offered, and a call is refused as one that nobody has; nothing runs."""
    async with FakePlatform().serve() as platform:
        daemon.prefix = without_bubblewrap()
        daemon.config = PEOPLE.format(port=platform.port)
        await daemon.start()
        await platform.say("1001", "/status")
        await platform.see("d1001", "reply")
        await platform.say("2002", "/tools")
        assert "shell" not in (await platform.see("d2002", "reply")).text
        await platform.say("2002", "/shell echo x > ran")
        await platform.see("d2002", "reply", "There is no command `/shell`")
        assert platform.in_chat("d1001", "card") == []
        assert list(daemon.state.rglob("ran")) == []


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_without_bubblewrap_basic_is_refused(daemon: Daemon) -> None:
    """An owner who wants the sandbox never gets the host instead."""
    daemon.prefix = without_bubblewrap()
    daemon.config = '[tools.shell]\nsandbox = "basic"\n'
    await daemon.start()
    async with visiting(daemon, "owner") as page:
        await page.say("/shell echo x > ran")
        step = await page.row("step", kind="tool", state="finished")
        assert (step["result"]["status"], step["result"]["code"]) == ("denied", "sandbox_missing")
        assert "apt install bubblewrap" in json.dumps(step["result"])
        assert page.of("approval") == []
    assert list(daemon.state.rglob("ran")) == []


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_check_names_the_missing_sandbox(daemon: Daemon) -> None:
    """`dragoman check` names the missing parts before anybody needs them."""
    daemon.prefix = without_bubblewrap()
    daemon.config = '[tools.shell]\nsandbox = "basic"\n'
    code, text = await daemon.run_command("check")
    assert code == 1
    assert "bubblewrap" in text
    assert "Traceback" not in text


@pytest.mark.whole("a start of seconds; a damaged store, a taken port and a full disk stay")
async def test_without_any_namespace(daemon: Daemon) -> None:
    """Neither bubblewrap nor `unshare`: the owner's commands still end with all that they started."""
    unshare = "mount --bind /dev/null /usr/bin/unshare"
    daemon.prefix = (*without_bubblewrap(), *with_mounts(unshare))
    await daemon.start()
    async with visiting(daemon, "owner") as page:
        await page.say("/shell setsid sleep 98765 & echo done")
        asked = await page.row("approval", state="open")
        await page.press(page.handles[asked["id"], "once"])
        step = await page.row("step", kind="tool", state="finished")
        assert (step["result"]["status"], step["result"]["text"]) == ("ok", "done\n")
