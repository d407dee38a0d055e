from __future__ import annotations

import stat
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from agent_tools import shell
from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.app import App, build
from gateway.app.channel_loader import redactor_of
from gateway.app.core import Fakes, make_core
from gateway.app.node_entry import own_version
from gateway.app.state import open_state, state_key
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import check_tools, load_tools
from gateway.domain.posts import PostAct
from gateway.domain.tools import CallScope, Risk, ToolResult
from gateway.egress import Egress
from gateway.errors import ConfigError, StartError
from gateway.ports import ToolContext, ToolHost
from gateway.sandbox import Containment
from gateway.store.memory import MemoryStore
from gateway.system.redaction import HIDDEN
from tests.support.clock import FakeClock

NO_SANDBOX = Containment(can_bwrap=False, can_pid_namespace=False)


def loaded(folder: Path, text: str = "") -> Loaded:
    config = folder / "config.toml"
    config.write_text(text)
    return load(config, folder / "state", {"HOME": str(folder)}, tool_specs())


Build = Callable[[str], App]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Build]:
    clock = FakeClock()
    async with aiohttp.ClientSession() as client:

        def make(text: str) -> App:
            return build(
                loaded(tmp_path, text),
                containment=NO_SANDBOX,
                environ={},
                client=client,
                fakes=Fakes(clock=clock, store=MemoryStore(clock)),
            )

        yield make


# --- what is hidden -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
        "https://example.org/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe",
        "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy",
        "xoxe.xoxp-1-Mi0yLTEyMzQ1Njc4OTA",
        "xapp-1-A0123456789-1234567890123-abcdef0123456789",
        "sk-proj-4f9aB7cDe8FgHiJkLmNoPq",
        "Bearer abcdef0123456789.ABCDEF/x+y==",
        "http://127.0.0.1:8470/#code=Zm9vYmFyYmF6cXV4",
    ],
)
def test_token_of_an_unconfigured_platform_is_hidden(tmp_path: Path, token: str) -> None:
    shown = redactor_of(loaded(tmp_path)).text(f"pasted: {token}")

    assert HIDDEN in shown
    assert token[-12:-6] not in shown


# --- tools of a workspace -------------------------------------------------------------------------

IN_A_WORKSPACE = (".gateway/tools", ".dragoman/tools", "tools", "tool")


async def test_a_file_in_a_workspace_is_no_tool(tmp_path: Path) -> None:
    """S003 would load them from trusted workspaces; a model writes there, and no draft of it is loaded (D33)."""
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w')\nfrom agent_tools.own import tool\n@tool(risk='read')\ndef mine(): 'It.'\n"
    (tmp_path / "state").mkdir(mode=0o700)
    for name in IN_A_WORKSPACE:
        place = tmp_path / "state" / "workspaces" / "main-owner" / name
        place.mkdir(parents=True)
        (place / "mine.py").write_text(code)
    clock = FakeClock()
    async with aiohttp.ClientSession() as client:
        fakes = Fakes(clock=clock, store=MemoryStore(clock))
        registry = make_core(loaded(tmp_path), NO_SANDBOX, {}, client, fakes).registry
        await registry.settle()
    assert "shell" in registry.snapshot().specs
    assert not [name for name in registry.snapshot().specs if "mine" in name]
    assert not mark.exists()


def test_the_folder_of_tools_is_not_where_agents_write(tmp_path: Path) -> None:
    (tmp_path / "state" / "workspaces" / "w" / "tools").mkdir(parents=True)
    (tmp_path / "tools").symlink_to(tmp_path / "state" / "workspaces" / "w" / "tools")
    for folder in ("state/workspaces/w/tools", "tools"):
        with pytest.raises(ConfigError, match=r"tools\.folder: it is in a workspace, where agents write"):
            loaded(tmp_path, f'[tools]\nfolder = "{folder}"\n')


# --- the state folder ---------------------------------------------------------------------------


def test_the_state_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    open_state(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700

    state.chmod(0o755)
    open_state(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert list(state.iterdir()) == []


def test_a_state_folder_that_is_a_file_is_reported_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(StartError, match=r"is not a folder\. Correct that, or name another one with --state"):
        open_state(tmp_path / "state")


async def test_a_store_whose_key_was_lost_is_told_of(tmp_path: Path) -> None:
    """At the start after that alone: by the next one it has a key."""
    told: list[list[str]] = []
    async with aiohttp.ClientSession() as client:
        for _ in range(4):
            with capture_logs() as logs:
                app = build(
                    loaded(tmp_path), containment=NO_SANDBOX, environ={}, client=client, fakes=Fakes(clock=FakeClock())
                )
                await app.daemon.store.close()
            told.append([line["event"] for line in logs if "key" in line["event"]])
            if len(told) == 2:
                (tmp_path / "state" / "state.key").unlink()
    assert told == [[], [], ["made a new key for an existing store: its open cards cannot be pressed"], []]


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = state_key(tmp_path)

    assert len(key) == 32
    assert state_key(tmp_path) == key
    assert [path.name for path in tmp_path.iterdir()] == ["state.key"]
    assert stat.S_IMODE((tmp_path / "state.key").stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.mkdir()
    assert state_key(other) != key


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_key_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.key").write_bytes(content)

    with pytest.raises(StartError, match="damaged"):
        state_key(tmp_path)


def test_a_key_that_somebody_prepared_as_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "state.new").symlink_to(target)

    with pytest.raises(StartError, match="symbolic link"):
        state_key(tmp_path)
    assert not target.exists()


# --- wiring -------------------------------------------------------------------------------------


def test_default_has_one_owner_on_the_page_and_the_operator(made: Build) -> None:
    app = made("")

    assert list(app.daemon.channels) == ["web"]
    assert app.control_commands.owners == ["owner"]
    assert app.daemon.http.address.host == "127.0.0.1"
    assert app.daemon.worker.turns.models.names == ("operator",)


def test_every_owner_has_a_principal_on_the_page(made: Build) -> None:
    app = made('[owners]\nann = ["telegram:1001"]\ncleo = []\n')

    people = app.daemon.ingress._people  # pyright: ignore[reportPrivateUsage] - what was wired
    assert people.owners == {"ann": {"web:ann", "telegram:1001"}, "cleo": {"web:cleo"}}


def test_the_page_can_be_switched_off(made: Build) -> None:
    app = made("[channels.web]\nenabled = false\n")

    assert dict(app.daemon.channels) == {}
    assert list(app.daemon.http.endpoints) == []


def test_a_channel_is_loaded_by_its_import_path(made: Build) -> None:
    app = made('[channels.test]\nmodule = "tests.support.channel"\nport = 1\n')

    assert sorted(app.daemon.channels) == ["test", "web"]
    assert app.daemon.channels["test"].name == "test"


@pytest.mark.parametrize("module", ["tests.support.nosuch", "tests.support.channel:nosuch"])
def test_a_channel_that_cannot_be_loaded_is_named(made: Build, module: str) -> None:
    with pytest.raises(ConfigError, match="test"):
        made(f'[channels.test]\nmodule = "{module}"\nport = 1\n')


def test_all_parts_share_one_store_and_one_set_of_metrics(made: Build) -> None:
    daemon = made("").daemon

    assert daemon.worker.queue is daemon.delivery.messages.outbox is daemon.sweeper.sweeps is daemon.store
    assert daemon.worker.metrics is daemon.delivery.messages.metrics is daemon.http.metrics
    assert daemon.worker.node == daemon.delivery.node == daemon.sweeper.node_id
    assert daemon.worker.node.startswith(f"{daemon.machine}#")


def test_each_life_of_a_daemon_is_another_node_of_its_machine(made: Build) -> None:
    one, other = made("").daemon, made("").daemon

    assert one.machine == other.machine
    assert one.worker.node != other.worker.node


def test_the_figures_know_each_account(made: Build, tmp_path: Path) -> None:
    toml = ""
    for n, name in enumerate("ab", 7):
        (tmp_path / name).write_text(f"{n}:{'A' * 35}")
        (tmp_path / name).chmod(0o600)
        toml += f'[channels.telegram.accounts.{name}]\ntoken = "file:{tmp_path / name}"\n'

    assert set(made(toml).daemon.http.accounts_up()) == {("web", ""), ("telegram", "a"), ("telegram", "b")}


def places(folder: Path) -> ToolHosts:
    return ToolHosts(state=folder, clock=FakeClock(), containment=NO_SANDBOX, egress=Egress())


def test_the_tools_are_those_of_the_configuration(tmp_path: Path) -> None:
    ((source,), _) = load_tools(
        loaded(tmp_path, '[tools.shell]\npermission = "always"\ntimeout = "7s"\n'), places(tmp_path).of
    )

    (shell,) = [tool for tool in source.snapshot() if tool.spec.name == "shell"]
    assert source.name == "builtin"
    assert (shell.policy.availability.value, shell.policy.timeout_s) == ("always", 7)


def missing_of(good: Loaded, tmp_path: Path, name: str) -> str:
    ((source,), _) = load_tools(good, places(tmp_path).of)
    (found,) = [tool for tool in source.snapshot() if tool.spec.name == name]
    return found.missing


def test_a_tool_of_a_channel_needs_that_channel(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"7:{'A' * 35}")
    (tmp_path / "token").chmod(0o600)
    good = loaded(tmp_path, f'[channels.telegram]\ntoken = "file:{tmp_path / "token"}"\n')

    assert missing_of(good, tmp_path, "telegram") == ""
    assert "configure [channels.slack]" in missing_of(good, tmp_path, "slack")
    channel = good.channels["telegram"]
    older = replace(channel, spec=replace(channel.spec, posts=frozenset({PostAct.SEND, PostAct.FILE, PostAct.EDIT})))
    why = missing_of(replace(good, channels={"telegram": older}), tmp_path, "telegram")
    assert why == "The channel telegram cannot show pin, poll, react. For the owner: update it."


def test_a_tool_that_is_not_complete_is_named(tmp_path: Path) -> None:
    half = ModuleType("half_a_tool")
    vars(half)["SPEC"] = shell.SPEC
    sys.modules["agent_tools.half"] = half
    good = loaded(tmp_path)
    try:
        with pytest.raises(ConfigError, match=r"The tool half is not complete: .*SPEC, Args, and run or create"):
            load_tools(with_tool(good, "half"), places(tmp_path).of)
    finally:
        del sys.modules["agent_tools.half"]


def test_stateful_tool_is_made_once_with_its_settings(tmp_path: Path) -> None:
    module = ModuleType("keeping")
    spec = replace(shell.SPEC, name="keeping", needs="no_such_package", extra="kites")
    made: list[ToolHost] = []

    class Kept:
        async def run(self, ctx: ToolContext, args: Any) -> ToolResult:
            raise NotImplementedError

        async def serve(self) -> None:
            raise NotImplementedError

    def create(host: ToolHost) -> Kept:
        made.append(host)
        return Kept()

    def scope(args: Any, settings: Any) -> CallScope:
        return CallScope(risk=Risk.READ, scope=f"{args} {settings}")

    def schema(settings: Any) -> dict[str, Any]:
        return {"description": settings}

    vars(module).update(SPEC=spec, Args=shell.Args, create=create, scope=scope, schema=schema)
    sys.modules["agent_tools.keeping"] = module
    try:
        good = with_tool(loaded(tmp_path), "keeping")
        good = replace(good, tools={"keeping": replace(good.tools["keeping"], settings="as set")})
        (source,), kept = load_tools(good, places(tmp_path).of)
        (tool,) = source.snapshot()
    finally:
        del sys.modules["agent_tools.keeping"]

    (host,) = made
    assert (host.settings, host.folder) == ("as set", tmp_path / "tools" / "keeping")
    assert not host.folder.exists(), "nothing is made before something runs"
    assert tool.run == kept["keeping"].run
    assert tool.keeps
    assert tool.call_scope is not None
    assert tool.call_scope("asked").scope == "asked as set"
    assert tool.schema == {"description": "as set"}
    assert tool.missing == (
        "keeping needs no_such_package, which is not installed. "
        "For the owner: Install Dragoman with the extra `kites` (in a clone `./run add kites`)."
    )


def with_tool(good: Loaded, name: str) -> Loaded:
    return replace(good, tools={**good.tools, name: good.tools["shell"]})


def test_a_fail_point_that_does_not_exist_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such fail point"):
        build(
            loaded(tmp_path),
            containment=NO_SANDBOX,
            environ={"DRAGOMAN_FAILPOINT": "J99:kill"},
            client=None,  # pyright: ignore[reportArgumentType] - refused before
            fakes=Fakes(store=MemoryStore(FakeClock())),
        )


def test_version_is_known() -> None:
    assert own_version()[0].isdigit()


def test_check_is_told_what_the_browser_has_or_lacks(tmp_path: Path) -> None:
    there, lacking = tmp_path / "chromium", tmp_path / "none"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o700)

    def said(executable: Path) -> dict[str, str]:
        return dict(check_tools(loaded(tmp_path, f'[tools.browser]\nexecutable = "{executable}"\n')))

    assert said(there) == {f"browser: Chromium is {there}": ""}
    cure = "Correct `executable` in [tools.browser], or remove it to have one found."
    assert said(lacking) == {f"browser: The browser {lacking} cannot be run.": cure}
