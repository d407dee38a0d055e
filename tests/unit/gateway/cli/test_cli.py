"""The command `dragoman`, as a person runs it: what it prints, where, and its exit code."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from gateway.cli.terminal import approval, plain, table
from gateway.errors import NotFound
from gateway.server.control_server import ControlServer
from gateway.server.control_wire import socket_path
from tests.support.daemon import ROOT
from tests.support.patience import PATIENCE_S
from tests.support.warm import STEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


async def dragoman(state: Path, *words: str, given: str = "", environ: Mapping[str, str] | None = None) -> Done:
    """Run a command: in a process that has everything imported, unless `environ` says what is imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "XDG_"))}
    env = {**kept, "HOME": str(state.parent), "DRAGOMAN_STATE": str(state), **(environ or {})}
    if "PYTHONPATH" in (environ or {}):
        return await from_cold(words, given, env)
    env["PYTHONPATH"] = str(ROOT)
    with TemporaryFile() as put, TemporaryFile() as out, TemporaryFile() as err:
        put.write(given.encode())
        put.seek(0)
        life = await STEM.fork(words, cwd=ROOT, env=env, log=err.fileno(), out=out.fileno(), given=put.fileno())
        async with asyncio.timeout(PATIENCE_S):
            code = await life.wait()
        texts = [os.pread(one.fileno(), os.fstat(one.fileno()).st_size, 0).decode() for one in (out, err)]
    return Done(code=code, out=texts[0], err=texts[1])


async def from_cold(words: Sequence[str], given: str, env: Mapping[str, str]) -> Done:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *words, env=env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate(given.encode())
    assert process.returncode is not None
    return Done(code=process.returncode, out=out.decode(), err=err.decode())


def in_folder(folder: Path) -> list[str]:
    return os.listdir(folder)


class Daemon:
    """Fake daemon that answers commands and records them."""

    def __init__(self, *, broken: str | None = None) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.broken = broken

    async def link(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("link", args))
        if args["owner"] not in {None, "ann"}:
            raise NotFound(f"There is no owner {args['owner']}.", cure="Known are: ann.")
        return {"url": "http://127.0.0.1:8470/#code=abc", "expires_s": 600}

    async def sessions(self, _: Mapping[str, Any]) -> Any:
        line = {
            "kind": "main",
            "title": "ann",
            "running": 1,
            "queued": 0,
            "waiting": 2,
            "active_at": "2026-01-01T00:00Z",
        }
        return [{"id": "main:ann", **line}, {"id": "dm:x", "kind": "dm", "title": "Eve \x1b[31m\nmain:root"}]

    async def approvals(self, _: Mapping[str, Any]) -> Any:
        rendered = "rm -rf /\n\x1b]0;title\x07"
        times = {"asked_at": "10:00", "expires_at": "11:00"}
        return [{"id": "w1", "session": "main:ann", "tool": "shell", "title": "Run", "rendered": rendered, **times}]

    async def send(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("send", args))
        return {"answer": "Done:\n  yes \x1b[2J" if args["wait"] else None}

    async def explain(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("explain", args))
        return {
            "decision": "allow",
            "because": "grant g1 allows it",
            "rule": "grant g1",
            "order": ["available: always"],
        }

    async def audit(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("audit", args))
        row = {"seq": 7, "at": "10:00", "call": "t1/1", "session": "main:ann", "tool": "shell", "because": "approval"}
        rows = [row | {"by": "model", "decided_by": "web:ann", "approval": "w1", "sandbox": "off\x1b[2J"}]
        result = {"count": 7, "calls": 6, "head": "ab" * 32, "broken": self.broken, "removed": 4}
        return {"rows": rows if args["last"] else [], **result}

    async def audit_exported(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("audit_exported", args))
        return {"noted": not self.broken}

    async def grants(self, _: Mapping[str, Any]) -> Any:
        held = {"place": "chat", "held_by": "telegram/default/1", "granted_by": "telegram:1", "used": 2}
        return [{"id": "g1", "allows": "shell date\x1b[2J", "expires_at": "2026-01-31", "last_used_at": None, **held}]

    async def revoke(self, args: Mapping[str, Any]) -> Any:
        self.asked.append(("revoke", args))
        return {"allows": "shell date"}

    @asynccontextmanager
    async def at(self, state: Path) -> AsyncGenerator[None]:
        commands = {
            "link": self.link,
            "sessions": self.sessions,
            "approvals": self.approvals,
            "audit": self.audit,
            "audit_exported": self.audit_exported,
            "grants": self.grants,
            "revoke": self.revoke,
            "explain": self.explain,
            "send": self.send,
        }
        ready = asyncio.Event()
        task = asyncio.create_task(ControlServer(socket_path(state), commands).run(ready))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


# --- without a daemon -----------------------------------------------------------------------


async def test_help_names_every_command(state: Path) -> None:
    done = await dragoman(state, "--help")
    assert (done.code, done.err) == (0, "")
    for command in ("run", "link", "check", "sessions", "approvals", "grants", "audit", "send"):
        assert f"\n  {command} " in done.out


async def test_help_is_quick_because_it_imports_next_to_nothing(state: Path) -> None:
    code = (
        "import sys; from gateway.cli import main; assert main(['--help']) == 0; "
        "sys.exit(str([m for m in ('pydantic', 'asyncio', 'aiohttp', 'config.load', 'structlog') if m in sys.modules]))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert err.decode().strip() == "[]"


async def test_a_start_leaves_alone_what_only_something_else_brought(state: Path) -> None:
    code = """
import sys
from gateway.cli.imports import NOT_USED, hidden, importing
with importing(), hidden(NOT_USED):
    import gateway.app.run, channels.telegram.adapter
taken = [name for name in ("rich", "cryptography") if name in sys.modules]
import rich, cryptography
sys.exit(str(taken))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
    _, err = await process.communicate()
    assert err.decode().strip() == "[]"


@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_a_tool_of_ones_own_finds_what_a_start_leaves_alone(state: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import cryptography, rich\nraise ImportError('both were found')\n")
    config = tmp_path / "config.toml"
    config.write_text('[tools.mine]\nmodule = "mine"\n')
    done = await dragoman(state, "--config", str(config), "run", environ={"PYTHONPATH": str(tmp_path)})
    assert done.code == 1
    assert "mine cannot be imported: both were found" in done.err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_a_channel_whose_packages_are_missing_names_the_extra(state: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['telegram'] = None\n")
    environ = {"PYTHONPATH": str(tmp_path), "TOKEN": "1:" + "a" * 35, "DRAGOMAN_CHANNELS__TELEGRAM__TOKEN": "env:TOKEN"}
    done = await dragoman(state, command, environ=environ)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "Error: The channel telegram needs packages that are not installed (telegram.error).",
        "Install Dragoman with the extra `telegram`; `./run` does that by itself.",
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_a_model_whose_package_is_missing_is_reported_in_words(state: Path, command: str) -> None:
    environ = {"DRAGOMAN_MODEL__NAME": "groq:llama", "DRAGOMAN_MODEL__API_KEY": "env:KEY", "KEY": "k"}
    done = await dragoman(state, command, environ=environ)
    assert done.code == 1
    assert "The model groq:llama needs a package that is not installed" in done.out + done.err
    assert "Traceback" not in done.err


async def test_version(state: Path) -> None:
    done = await dragoman(state, "--version")
    assert done.code == 0
    assert done.out.startswith("dragoman 0.")


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate"],
        ["--frob"],
        ["send"],
        ["send", " "],
        ["link", "a", "b"],
        ["sessions", "x"],
        ["audit", "--last", "-1"],
    ],
)
async def test_wrong_usage_is_exit_code_2_with_a_word_of_help(state: Path, words: list[str]) -> None:
    done = await dragoman(state, *words)
    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [["link"], ["sessions"], ["approvals"], ["audit"], ["send", "hello"]])
@pytest.mark.sampled(1)
async def test_without_a_daemon_the_cure_is_to_start_it(state: Path, words: list[str]) -> None:
    done = await dragoman(state, *words)
    assert (done.code, done.out) == (1, "")
    told, cure = done.err.splitlines()
    assert told == f"Error: No daemon runs on the state folder {state}."
    assert "Start it with `dragoman run`" in cure
    assert "--state DIR" in cure


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", [[], ["run"], ["check"]])
async def test_a_bad_configuration_stops_before_anything_starts(state: Path, words: list[str]) -> None:
    file = state.parent / "bad.toml"
    file.write_text("[http]\nprot = 1\n[log]\nlevel = 'loud'\n")
    done = await dragoman(state, "--config", str(file), *words)
    assert (done.code, done.out) == (1, "")
    assert f'{file}: http.prot: unknown key. Did you mean "port"?' in done.err
    assert f"{file}: log.level: it is none of the choices." in done.err
    assert "Traceback" not in done.err
    assert in_folder(state) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", [["run"], ["check"], ["slack-manifest"]])
async def test_config_works_before_and_after_the_command(state: Path, words: list[str]) -> None:
    file = state.parent / "bad.toml"
    file.write_text("no toml")
    before = await dragoman(state, "--config", str(file), *words)
    after = await dragoman(state, *words, "--config", str(file))
    assert after == before
    assert (after.code, after.out) == (1, "")
    assert str(file) in after.err


@pytest.mark.parametrize("words", [["link"], ["sessions"], ["approvals"], ["audit"], ["send", "hello"]])
@pytest.mark.sampled(2)
async def test_state_works_before_and_after_the_command(state: Path, words: list[str]) -> None:
    async with Daemon().at(state):
        environ = {"DRAGOMAN_STATE": str(state.parent / "other")}
        before = await dragoman(state, "--state", str(state), *words, environ=environ)
        after = await dragoman(state, "--state", "/nowhere", *words, "--state", str(state), environ=environ)
    assert after == before
    assert (after.code, after.err) == (0, "")


# --- check ----------------------------------------------------------------------------------


async def test_check_says_what_is_set_and_finds_no_problem(state: Path) -> None:
    done = await dragoman(state, "check", environ={"DRAGOMAN_HTTP__PORT": "0"})
    assert (done.code, done.err) == (0, "")
    for words in (
        f"no file at {state.parent}/.config/dragoman/config.toml: all defaults",
        "operator",
        f"state folder {state}",
        "Python 3.",
        "SQLite 3.",
        "GiB free",
        "sandbox",
    ):
        assert words in done.out
    assert "PROBLEM" not in done.out
    assert in_folder(state) == []


async def test_check_names_each_problem_with_its_cure(state: Path) -> None:
    os.chmod(state, 0o755)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environ = {
            "DRAGOMAN_HTTP__PORT": str(port),
            "DRAGOMAN_STORE__URL": "sqlite:///dev/null/x.db",
            "DRAGOMAN_PEOPLE__ALLOW": "telegram:*",
        }
        done = await dragoman(state, "check", environ=environ)
    assert done.code == 1
    assert f"note     The state folder {state} is open to other users; the next start closes it." in done.out
    assert f"chmod 700 {state}" in done.out
    assert "PROBLEM  Nothing can be written into the store's folder /dev/null: Not a directory." in done.out
    assert f"PROBLEM  Another program has taken 127.0.0.1:{port}." in done.out
    assert "note     people.allow: telegram:* lets everyone on telegram write" in done.out


async def test_check_refuses_what_a_start_would(state: Path, tmp_path: Path) -> None:
    """Every machine check; `app/test_preflight.py` has the rest. Nothing is left behind."""
    (state / "dragoman.db").mkdir()
    (state / "state.key").write_text("short")
    config = tmp_path / "config.toml"
    config.write_text('[model]\nname = "groq:x"\n')
    before = in_folder(state)
    done = await dragoman(state, "--config", str(config), "check", environ={"DRAGOMAN_HTTP__PORT": "0"})

    assert done.code == 1
    assert "dragoman.db cannot be opened: Is a directory." in done.out
    assert "state.key is damaged." in done.out
    assert "PROBLEM  The model groq:x needs a package that is not installed" in done.out
    assert in_folder(state) == before


@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_check_knows_a_port_that_our_own_daemon_holds(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        async with Daemon().at(state):
            done = await dragoman(state, "check", environ={"DRAGOMAN_HTTP__PORT": str(port)})
    assert done.code == 0
    assert f"127.0.0.1:{port} is taken, and the daemon of this state folder runs" in done.out


@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_check_refuses_an_address_of_another_machine(state: Path) -> None:
    environ = {"DRAGOMAN_HTTP__HOST": "192.0.2.1", "DRAGOMAN_HTTP__PUBLIC_URL": "https://chat.example.org"}
    done = await dragoman(state, "check", environ=environ)
    assert done.code == 1
    assert "Set http.host to an address of this machine." in done.out


@pytest.mark.whole("starts a process; other mistakes that the check finds stay")
async def test_check_refuses_a_state_that_is_a_file(state: Path) -> None:
    file = state / "file"
    file.write_text("")
    done = await dragoman(state, "--state", str(file), "check", environ={"DRAGOMAN_HTTP__PORT": "0"})
    assert done.code == 1
    assert f"PROBLEM  The state folder {file} is not a folder." in done.out


# --- with a daemon --------------------------------------------------------------------------


async def test_link_prints_the_link_and_nothing_else(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        assert await dragoman(state, "link") == Done(code=0, out="http://127.0.0.1:8470/#code=abc\n", err="")
        assert (await dragoman(state, "link", "ann")).code == 0
        refused = await dragoman(state, "link", "bob")
    assert refused == Done(code=1, out="", err="Error: There is no owner bob.\nKnown are: ann.\n")
    assert [args["owner"] for _, args in daemon.asked] == [None, "ann", "bob"]


async def test_the_state_option_chooses_the_daemon(state: Path) -> None:
    async with Daemon().at(state):
        environ = {"DRAGOMAN_STATE": str(state.parent / "other")}
        assert (await dragoman(state, "link", environ=environ)).code == 1
        assert (await dragoman(state, "--state", str(state), "link", environ=environ)).code == 0


async def test_lists_are_printed_and_cannot_steer_the_terminal(state: Path) -> None:
    async with Daemon().at(state):
        sessions = await dragoman(state, "sessions")
        approvals = await dragoman(state, "approvals")
    assert (sessions.code, approvals.code) == (0, 0)
    head, first, second = sessions.out.splitlines()
    assert head.split() == ["id", "kind", "title", "running", "queued", "waiting", "active", "at"]
    assert first.split() == ["main:ann", "main", "ann", "1", "0", "2", "2026-01-01T00:00Z"]
    assert r"Eve \x1b[31m\nmain:root" in second
    assert approvals.out == ("w1  Run, in main:ann\n  asked 10:00, until 11:00\n    rm -rf /\n    \\x1b]0;title\\x07\n")


async def test_grants_are_listed_and_taken_back(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        listed = await dragoman(state, "grants", "list")
        revoked = await dragoman(state, "grants", "revoke", "g1")
    assert listed.code == 0
    assert r"shell date\x1b[2J" in listed.out
    assert revoked == Done(code=0, out="Taken back: shell date\n", err="")
    assert daemon.asked == [("revoke", {"grant": "g1"})]


async def test_the_audit_is_printed_and_verified(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        whole = await dragoman(state, "audit", "--last", "1")
        short = await dragoman(state, "audit", "--last", "0")
    says = f"The audit is whole: 7 rows, 6 started calls. Its head: {'ab' * 32}\n"
    says += "Rows 1 to 4 were removed behind an export.\n"
    assert (whole.code, short) == (0, Done(code=0, out=says, err=""))
    head, row, _ = whole.out.removesuffix(says).splitlines()
    assert " ".join(head.split()) == "seq at call session by tool because rule decided by approval sandbox action"
    assert row.split() == [
        "7",
        "10:00",
        "t1/1",
        "main:ann",
        "model",
        "shell",
        "approval",
        "web:ann",
        "w1",
        r"off\x1b[2J",
    ]
    assert daemon.asked == [("audit", {"last": 1}), ("audit", {"last": 0})]


async def test_broken_audit_is_exit_code_1_after_its_last_rows(state: Path) -> None:
    async with Daemon(broken="The audit is not whole: row 3 is gone.").at(state):
        done = await dragoman(state, "audit")
    assert done.code == 1
    assert "main:ann" in done.out
    assert done.err == (
        "Error: The audit is not whole: row 3 is gone.\n"
        "Stop the daemon and keep a copy of its state folder; deploy/RUNBOOK.md has the next steps.\n"
    )


async def test_send_says_a_text_and_may_wait_for_the_answer(state: Path) -> None:
    daemon = Daemon()
    async with daemon.at(state):
        sent = await dragoman(state, "send", "hello")
        waited = await dragoman(state, "send", "--owner", "ann", "--wait", "-", given="from\nstdin")
    assert sent == Done(code=0, out="Sent.\n", err="")
    assert waited == Done(code=0, out="Done:\n  yes \\x1b[2J\n", err="")
    assert [args for _, args in daemon.asked] == [
        {"owner": None, "text": "hello", "wait": False},
        {"owner": "ann", "text": "from\nstdin", "wait": True},
    ]


# --- printing -------------------------------------------------------------------------------


def test_one_line_stays_one_line() -> None:
    assert plain("a\r\n\x1b[0mü\u202e\x00") == r"a\r\n\x1b[0mü\u202e\x00"
    assert plain(None) == ""


def test_a_table_is_as_wide_as_its_cells() -> None:
    rows = [{"id": "a", "title": "long title"}, {"id": "bb"}]
    assert table(["id", "title"], rows) == "id  title\na   long title\nbb"


def test_an_approval_that_lacks_something_is_still_shown() -> None:
    assert approval({"id": "w"}).startswith("w  ")
