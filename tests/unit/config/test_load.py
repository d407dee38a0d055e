"""Whole configurations: lookup, precedence, and the error that lists every problem with its cure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import config
from config.describe import lines
from config.load import Loaded, load
from gateway.domain.tools import ApprovalMode, Availability, Effect, Risk, SandboxPolicy, ToolSpec
from gateway.errors import ConfigError

HERE = Path(config.__file__).parent
SPECS = {
    "shell": ToolSpec(
        name="shell", description="", risk=Risk.EXECUTE, effect=Effect.UNSAFE, availability=Availability.MAIN,
        timeout_s=120.0, max_timeout_s=600.0, sandbox=SandboxPolicy.AUTO,
    ),
    "spawn": ToolSpec(
        name="spawn", description="", risk=Risk.NONE, effect=Effect.IDEMPOTENT, availability=Availability.ALWAYS,
        approval={"dm": ApprovalMode.ASK, "non-main": ApprovalMode.ASK},
    ),
    "browser": ToolSpec(
        name="browser", description="", risk=Risk.NETWORK, effect=Effect.UNSAFE, availability=Availability.MAIN,
        timeout_s=60.0, actions={"download": 300.0, "open": 60.0},
    ),
}  # fmt: skip


def read(tmp_path: Path, toml: str = "", environ: Mapping[str, str] | None = None) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load(file, tmp_path / "state", environ or {}, SPECS)


def refusal(tmp_path: Path, toml: str = "", environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml, environ)
    return str(caught.value)


# --- where it is found ----------------------------------------------------------------------


def test_without_a_file_everything_is_default(tmp_path: Path) -> None:
    loaded = load(None, None, {"HOME": str(tmp_path)}, SPECS)
    assert loaded.file is None
    assert loaded.state == tmp_path / ".local/state/dragoman"
    assert loaded.settings.store.url == f"sqlite://{tmp_path}/.local/state/dragoman/dragoman.db"
    assert loaded.settings.owners == {"owner": ()}
    assert (loaded.settings.http.host, loaded.settings.http.port) == ("127.0.0.1", 8470)
    assert loaded.settings.model.name == "operator"
    assert loaded.settings.web.enabled
    assert loaded.warnings == ()


def test_configuration_is_named_then_from_variables_then_xdg(tmp_path: Path) -> None:
    places = {name: tmp_path / name / "dragoman" / "config.toml" for name in ("named", "variable", "xdg", ".config")}
    for n, place in enumerate(places.values()):
        place.parent.mkdir(parents=True)
        place.write_text(f"[http]\nport = {n + 1}\n")
    environ = {"HOME": str(tmp_path)}
    assert load(None, None, environ, SPECS).settings.http.port == 4
    environ |= {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert load(None, None, environ, SPECS).settings.http.port == 3
    environ |= {"DRAGOMAN_CONFIG": str(places["variable"])}
    assert load(None, None, environ, SPECS).settings.http.port == 2
    assert load(places["named"], None, environ, SPECS).settings.http.port == 1


def test_state_folder_is_named_then_from_variables_then_xdg(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "xdg")}
    assert load(None, None, environ, SPECS).state == tmp_path / "xdg" / "dragoman"
    environ |= {"DRAGOMAN_STATE": "~/variable"}
    assert load(None, None, environ, SPECS).state == tmp_path / "variable"
    assert load(None, tmp_path / "named", environ, SPECS).state == tmp_path / "named"
    assert load(None, "relative", environ, SPECS).state == Path.cwd() / "relative"


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    for path, environ in [(tmp_path / "absent", {}), (None, {"DRAGOMAN_CONFIG": str(tmp_path / "absent")})]:
        with pytest.raises(ConfigError) as caught:
            load(path, tmp_path, environ, SPECS)
        assert "no such file" in caught.value.message
        assert caught.value.cure


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[http\n", "line 1"),
        (b"[http]\nport = 1\nport = 2\n", "line 3"),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * 1_100_000, "larger than 1 MiB"),
    ],
)
def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, tmp_path, {}, SPECS)
    assert str(file) in caught.value.message
    assert words in caught.value.message
    assert caught.value.cure


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, tmp_path, {}, SPECS)


# --- environment variables ------------------------------------------------------------------


def test_variables_win_over_the_file_and_are_typed(tmp_path: Path) -> None:
    toml = '[http]\nport = 1\n[owners]\nAnn = []\n[channels.test]\nmodule = "tests.support.channel"\n'
    loaded = read(tmp_path, toml, {
        "DRAGOMAN_HTTP__PORT": "9000",
        "DRAGOMAN_HTTP__ALLOWED_HOSTS": "a.org, b.org",
        "DRAGOMAN_HTTP__TRUSTED_PROXIES": '["10.0.0.1"]',
        "DRAGOMAN_CHANNELS__WEB__ENABLED": "false",
        "DRAGOMAN_CHANNELS__TEST__TOKEN": "t",
        "DRAGOMAN_TOOLS__SHELL__TIMEOUT": "10s",
        "DRAGOMAN_TOOLS__SHELL__APPROVAL": '{main = "allow"}',
        "DRAGOMAN_TOOLS__TIMEOUTS": '{"browser.download" = "5s"}',
        "DRAGOMAN_OWNERS__ANN": "telegram:1,telegram:2",
        "DRAGOMAN_MODEL__NAME": "openai:x",
        "DRAGOMAN_MODEL__BASE_URL": "https://example.org/v1",
        "DRAGOMAN_MODEL__API_KEY": "env:KEY",
        "DRAGOMAN_MODEL__FALLBACK": '[{name = "openai:y", api_key = "env:KEY"}]',
        "KEY": "k",
    })  # fmt: skip
    assert loaded.settings.http.port == 9000
    assert loaded.settings.http.allowed_hosts == ("a.org", "b.org")
    assert loaded.settings.http.trusted_proxies == ("10.0.0.1/32",)
    assert not loaded.settings.web.enabled
    assert loaded.channels["test"].settings == {"token": "t"}
    assert loaded.tools["shell"].timeout_s == 10
    assert loaded.tools["shell"].approval == {"main": ApprovalMode.ALLOW}
    assert loaded.tools["browser"].actions == {"download": 5, "open": 60}
    assert loaded.settings.owners == {"Ann": ("telegram:1", "telegram:2")}
    assert [one.name for one in loaded.settings.model.fallback] == ["openai:y"]
    assert [one.get_secret_value() for one in loaded.secrets] == ["k", "k"]
    assert "DRAGOMAN_HTTP__PORT" in loaded.variables


def test_the_daemons_own_variables_set_nothing(tmp_path: Path) -> None:
    environ = {"DRAGOMAN_STATE": "/nowhere", "DRAGOMAN_FAILPOINT": "x", "DRAGOMAN_IMAGE": "y", "OTHER__KEY": "z"}
    loaded = read(tmp_path, "", environ)
    assert loaded.variables == ()
    assert loaded.warnings == ()


def test_a_variable_that_is_wrong_is_named_instead_of_the_file(tmp_path: Path) -> None:
    told = refusal(tmp_path, "[http]\nhost = 3\n", {
        "DRAGOMAN_HTTP__PORT": "many", "DRAGOMAN_HTPP__PORT": "1", "DRAGOMAN_LOG__LEVEL__X": "1",
        "DRAGOMAN_MODEL__API_KEY": "sk-literal", "DRAGOMAN_HTTP__HOST__X": "1",
    })  # fmt: skip
    assert "$DRAGOMAN_HTTP__PORT: http.port: it is not a whole number" in told
    assert "$DRAGOMAN_HTPP__PORT: htpp.port: unknown table" in told
    assert 'Did you mean "http"?' in told
    assert "$DRAGOMAN_MODEL__API_KEY: model.api_key: a secret is not written here itself" in told
    assert "$DRAGOMAN_HTTP__HOST__X: http.host.x: host is a single value" in told
    assert "log.level" in told
    assert f"{tmp_path}/config.toml: http.host: it is not text" in told
    assert "sk-literal" not in told


def test_a_variable_that_names_too_many_tables_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path, "", {"DRAGOMAN_TOOLS__SHELL__TIMEOUT" + 3_000 * "__S": "1"})
    assert "tools.shell: DRAGOMAN_TOOLS__SHELL__TIMEOUT__S__S" in told
    assert "names more than 30 tables in one another" in told
    assert "Unset it" in told
    assert len(told) < 500


def test_a_variable_with_too_few_underscores_is_warned_of(tmp_path: Path) -> None:
    toml = '[model]\nname = "openai:x"\napi_key = "env:DRAGOMAN_MODEL_KEY"\n'
    loaded = read(tmp_path, toml, {"DRAGOMAN_HTTP_PORT": "1", "DRAGOMAN_MODEL_KEY": "k"})
    assert loaded.warnings == ("$DRAGOMAN_HTTP_PORT sets nothing; $DRAGOMAN_HTTP__PORT would.",)
    loaded = read(tmp_path, "", {"DRAGOMAN_OWNERS": '{ids = ["telegram:1"]}'})
    assert loaded.warnings[:1] == ("$DRAGOMAN_OWNERS sets nothing; $DRAGOMAN_OWNERS__NAME would.",)


# --- problems -------------------------------------------------------------------------------


@pytest.mark.whole("tries every setting; each mistake has a test of its own")
def test_no_problem_is_reported_at_length(tmp_path: Path) -> None:
    lines = "\n".join(f"k{n} = 1" for n in range(200))
    told = refusal(tmp_path, f"[channels.slack.accounts.{'a' * 50_000}]\n{lines}\n")
    assert "aaa…: unknown key. " in told
    assert len(told) < 200_000
    assert len(refusal(tmp_path, f'[http]\nhost = "{"x" * 50_000}"\n')) < 2_000
    assert len(refusal(tmp_path, f'[a."{"x" * 50_000}"]\n' * 2)) < 2_000


def test_thousands_of_things_that_are_missing_are_found_at_once(tmp_path: Path) -> None:
    """A lookup of each problem among all earlier ones took 8 s of CPU, growing quadratically."""
    began = time.process_time()
    told = refusal(tmp_path, f"[model]\nfallback = [{'{}, ' * 20_000}]\n")
    assert "model.fallback[0].name: it is missing. Add name = …." in told
    assert time.process_time() - began < 3


def test_first_hundred_problems_are_listed(tmp_path: Path) -> None:
    told = refusal(tmp_path, "", {"DRAGOMAN_OWNERS__ANN": "telegram:1" + ",x" * 20_000})
    assert told.startswith("The configuration has 20,000 problems:\n")
    assert told.count("owners.ann[") == 100
    assert told.endswith("\n  and 19,900 more, shown once some of these are fixed.")


WRONG = """
[owners]
ann = ["telegram:1001", "telegram:1001", "web:ann", "telegram:@x", "telegram:-5", "telegram:*", "slack:U0B", "irc:x", 5]
bob = ["telegram:1001", "slack:T0AA/U0BB"]
carl = "telegram:7"
"d d" = []
[store]
url = "redis://"
[http]
prot = 1
port = "x"
[model]
name = "openai:gpt"
api_key = "sk-very-secret"
[[model.fallback]]
name = "gpt-5"
[model.prices."openai:gpt"]
input = "1"
outputs = 1
[limits]
calls_per_turn = 0
calls = 1
time_per_child = "1w"
[agents.Ann]
description = "x"
[agents.ben]
tools = ["shell", "sheel"]
[agents.carl]
description = "x\\ny"
[agents.dora]
description = "x"
tools = ["sheel"]
instructions = "absent.md"
[channels.telegram]
token = "x"
limits = { per_chat_per_s = -1, per_chat = 1 }
[channels.slack]
[channels.slak]
[channels.web]
cookie_lifetime = "soon"
colour = 1
[channels.Bad-Name]
module = "tests.support.channel"
[people]
allow = ["telegram:*", "telegram:2002", "telegram:-1"]
[chats]
allow = ["telegram:-1003", "slack:T0AA/C0CC", "telegram:1003", "slack:T0AA/U0CC", "telegram:*"]
[sessions]
message_while_running = "shout"
approval_expiry_main = "1w"
[tools]
timeouts = { shell = "1h", "foo.bar" = 3, browser = { download = "1s" } }
[tools.shell]
permission = "allways"
approval = { main = "ask", x = "deny", dm = "maybe" }
[tools.browser]
sandbox = "basic"
approval = "perhaps"
[tools.sheel]
[log]
level = "loud"
[htpp]
[[rules]]
tool = "shell"
"""

EXPECTED = {
    "owners.ann[2]": "needs no entry",
    "owners.ann[3]": "names change hands",
    "owners.ann[4]": "is a group",
    "owners.ann[5]": "everyone cannot be an owner",
    "owners.ann[6]": "slack:T0AA/U0BB",
    "owners.ann[7]": "there is no channel 'irc'",
    "owners.ann[8]": "it is not text",
    "owners.bob[0]": "already belongs to the owner ann",
    "owners.carl": "it is not a list",
    'owners."d d"': "cannot be an owner's name",
    "store.url": "no address of a Redis",
    "http.prot": 'Did you mean "port"?',
    "http.port": "it is not a whole number",
    "model.api_key": "env:NAME",
    "model.fallback[0].name": '"openai:gpt-5"',
    'model.prices."openai:gpt".input': "it is not a number",
    'model.prices."openai:gpt".outputs': 'Did you mean "output"?',
    'model.prices."openai:gpt".output': "it is missing",
    "limits.calls_per_turn": "Write 1 or more",
    "limits.calls": "[limits] knows: calls_per_turn",
    "limits.time_per_child": "is not a duration",
    "agents.Ann": "lower-case letters, digits, - and _",
    "agents.ben.description": "it is missing",
    "agents.carl.description": "not one line",
    "agents.dora.tools[0]": 'Did you mean "shell"? Known are: browser, shell, spawn',
    "agents.dora.instructions": "there is no file",
    "channels.telegram.token": "a secret is not written here itself",
    "channels.telegram.limits.per_chat_per_s": "Write 0 or more",
    "channels.telegram.limits.per_chat": 'Did you mean "per_chat_per_s"?',
    "channels.slack.bot_token": "it is missing",
    "channels.slak": "there is no channel 'slak'",
    "channels.web.cookie_lifetime": "is not a duration",
    "channels.web.colour": "unknown key",
    "channels.Bad-Name": "cannot be a channel's name",
    "people.allow[2]": "is a group",
    "chats.allow[2]": "is a person",
    "chats.allow[3]": "slack:T0AA/C0CC",
    "chats.allow[4]": "telegram:-1003",
    "sessions.message_while_running": '"steer", "queue" or "interrupt"',
    "sessions.approval_expiry_main": "is not a duration",
    "tools.timeouts.shell": "10m at most",
    'tools.timeouts."foo.bar"': "browser.download, browser.open, shell, spawn",
    "tools.timeouts.browser": '"browser.<action>"',
    "tools.shell.permission": '"always", "main", "non-main" or "blocked"',
    "tools.shell.approval.x": '"main", "dm" or "non-main"',
    "tools.shell.approval.dm": '"ask", "allow" or "deny"',
    "tools.browser.sandbox": "starts no process",
    "tools.browser.approval": "a table by kind",
    "tools.sheel": 'Did you mean "shell"?',
    "log.level": '"debug", "info", "warning" or "error"',
    "rules[0].pattern": "it is missing",
    "rules[0].decision": "it is missing",
    "htpp": 'Did you mean "http"?',
}


def test_every_problem_is_told_at_once_with_file_key_and_cure(tmp_path: Path) -> None:
    told = refusal(tmp_path, WRONG)
    found = dict(re.findall(rf"^  {re.escape(str(tmp_path))}/config\.toml(?::\d+)?: (.+?): (.+)$", told, re.MULTILINE))
    # A sandbox for a tool without processes is only looked at when the rest of its table is right.
    expected = {key: words for key, words in EXPECTED.items() if key != "tools.browser.sandbox"}
    assert set(found) == set(expected)
    for key, words in expected.items():
        assert words in found[key], key
        assert found[key].count(". ") >= 1, f"{key} has no cure"
    assert f"The configuration has {len(expected)} problems" in told
    assert "very-secret" not in told


def test_one_problem_is_reported_with_its_cure_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[tools.browser]\nsandbox = 'basic'\n")
    assert caught.value.message.startswith(f"{tmp_path}/config.toml: tools.browser.sandbox: browser starts no process")
    assert caught.value.cure == "Remove it."


@pytest.mark.parametrize(
    "table", ["owners", "store", "http", "model", "limits", "agents", "channels", "people", "sessions", "tools", "log"]
)
def test_a_value_in_place_of_a_table_is_refused(tmp_path: Path, table: str) -> None:
    assert f"{table}: it is not a table" in refusal(tmp_path, f"{table} = 1\n")


def test_a_missing_secret_is_named_with_its_key(tmp_path: Path) -> None:
    told = refusal(tmp_path, '[model]\nname = "openai:x"\napi_key = "env:OPENAI_API_KEY"\n')
    assert "model.api_key: the environment variable OPENAI_API_KEY is not set" in told
    assert "Set OPENAI_API_KEY" in told


def test_two_different_timeouts_for_one_tool_are_a_problem(tmp_path: Path) -> None:
    told = refusal(tmp_path, '[tools.timeouts]\nshell = "1s"\n[tools.shell]\ntimeout = "2s"\n')
    assert "tools.shell.timeout: tools.timeouts says something else" in told


# --- what comes of it -----------------------------------------------------------------------


def test_people_and_places_are_read(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        '[owners]\nann = ["telegram:1001", "slack:T0AA/U0BB", "test:a.b"]\nbob = []\n'
        '[channels.test]\nmodule = "tests.support.channel"\nroom = 1\n'
        '[people]\nallow = ["test:*", "slack:T0AA/W1"]\n[chats]\nallow = ["test:room", "telegram:-1003"]\n',
    )
    assert loaded.settings.owners == {"ann": ("telegram:1001", "slack:T0AA/U0BB", "test:a.b"), "bob": ()}
    assert loaded.channels["test"].origin == "tests.support.channel"
    assert loaded.settings.people.allow == ("test:*", "slack:T0AA/W1")
    assert loaded.settings.chats.allow == ("test:room", "telegram:-1003")
    assert loaded.warnings == (
        "slack: the channel is not configured, so nobody can write there yet.",
        "telegram: the channel is not configured, so nobody can write there yet.",
        "people.allow: test:* lets everyone on test write to the agent directly.",
    )


def test_tools_have_their_own_defaults_under_what_is_set(tmp_path: Path) -> None:
    untouched = read(tmp_path).tools
    assert untouched["shell"].availability is Availability.MAIN
    assert untouched["shell"].approval == {}
    assert (untouched["shell"].timeout_s, untouched["shell"].sandbox) == (120, SandboxPolicy.AUTO)
    assert untouched["browser"].actions == {"download": 300, "open": 60}
    toml = (
        '[tools.shell]\npermission = "always"\napproval = { dm = "deny" }\ntimeout = 30\nsandbox = "basic"\n'
        '[tools.timeouts]\nbrowser = "1m"\n"browser.download" = "10m"\n[tools.browser]\npermission = "main-only"\n'
    )
    tools = read(tmp_path, toml).tools
    assert tools["shell"].availability is Availability.ALWAYS
    assert tools["shell"].approval == {"dm": ApprovalMode.DENY}
    assert (tools["shell"].timeout_s, tools["shell"].sandbox) == (30, SandboxPolicy.BASIC)
    assert (tools["browser"].timeout_s, tools["browser"].availability) == (60, Availability.MAIN)
    assert tools["browser"].actions == {"download": 600, "open": 60}


def test_configured_approval_overrides_the_tools_own(tmp_path: Path) -> None:
    assert read(tmp_path).tools["spawn"].approval == {"dm": ApprovalMode.ASK, "non-main": ApprovalMode.ASK}
    told = read(tmp_path, '[tools.spawn]\napproval = { dm = "deny", main = "ask" }\n').tools["spawn"].approval
    assert told == {"main": ApprovalMode.ASK, "dm": ApprovalMode.DENY, "non-main": ApprovalMode.ASK}
    assert set(read(tmp_path, '[tools.spawn]\napproval = "allow"\n').tools["spawn"].approval.values()) == {"allow"}


def test_dangerous_or_useless_setting_is_warned_of(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        '[tools.shell]\npermission = "always"\napproval = "allow"\n[model]\nbase_url = "http://example.org/v1"\n'
        "[channels.web]\nenabled = false\n",
    )
    told = "\n".join(loaded.warnings)
    assert "tools.shell: runs without asking anyone in sessions of kind dm" in told
    assert "tools.shell: runs without asking anyone in sessions of kind non-main" in told
    assert "no effect with the operator" in told
    assert "nobody can write" in told


def test_a_file_that_everyone_may_change_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    file.chmod(0o666)
    assert f"chmod o-w {file}" in load(file, tmp_path, {}, SPECS).warnings[0]


def test_a_secret_that_everyone_may_read_is_warned_of(tmp_path: Path) -> None:
    """No warning for a file readable by its group, as services have it, or inside a private folder."""
    with TemporaryDirectory() as made:
        open_to_all, hidden = Path(made), tmp_path / "hidden"
        open_to_all.chmod(0o755)
        hidden.mkdir(mode=0o700)
        key, token, other = open_to_all / "key", open_to_all / "token", hidden / "other"
        for place, mode in ((key, 0o644), (token, 0o640), (other, 0o644)):
            place.write_text("1:secret")
            place.chmod(mode)
        toml = f"""
            [model]
            name = "openai:x"
            api_key = "file:{key}"
            [[model.fallback]]
            name = "openai:y"
            api_key = "file:{other}"
            [channels.telegram]
            token = "file:{token}"
            """
        told = [line for line in read(tmp_path, toml).warnings if "secret" in line]
    assert told == [f"{key} holds a secret that every user of this machine can read; run: chmod o-r {key}"]


def test_settings_are_described_without_secrets(tmp_path: Path) -> None:
    loaded = read(
        tmp_path,
        '[model]\nname = "openai:x"\napi_key = "env:KEY"\n[sessions]\napproval_expiry_main = "2h"\n',
        {"KEY": "very-secret", "DRAGOMAN_HTTP__PORT": "0"},
    )
    rows = dict(lines(loaded))
    assert rows["model"] == "openai:x, key set"
    assert rows["listens on"] == "127.0.0.1:any free port"
    assert rows["$DRAGOMAN_HTTP__PORT"] == "overrides it"
    assert rows["tool shell"] == "main, 2m, sandbox auto, network auto"
    assert (
        rows["limits of a turn"]
        == "50 calls, 15m of work, 1000000 tokens; a sub-session 10m; 3 open approvals a person"
    )
    assert "very-secret" not in f"{rows} {loaded}"
    assert loaded.settings.sessions.approval_expiry_main == timedelta(hours=2)


def test_place_on_an_unconfigured_channel_is_warned_of(tmp_path: Path) -> None:
    loaded = read(tmp_path, '[chats]\nallow = ["slack:T0AA/C0CC"]\n')
    assert loaded.warnings == ("slack: the channel is not configured, so nobody can write there yet.",)
