"""Single values and single tables: accepted values, refused values, and the texts of refusals."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from config.basics import is_loopback
from config.cluster import ClusterSettings
from config.model import ModelSettings
from config.settings import (
    ChannelModule,
    HttpSettings,
    LimitsSettings,
    SessionsSettings,
    StoreSettings,
    ToolSettings,
)
from config.values import Flaw, compound, duration, secret, spoken, toml
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import SessionKind
from gateway.domain.tools import ApprovalMode, Availability
from gateway.domain.turns import TurnLimits


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("120s", 120), ("2m", 120), ("1h", 3600), ("30d", 2_592_000), ("1.5s", 1.5), ("45", 45), (45, 45), (0.5, 0.5)],
)
def test_a_duration_is_a_number_with_a_unit_or_seconds(written: object, seconds: float) -> None:
    assert duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written", ["", "1w", "1h30m", "-5s", "0s", "0.0000001s", 0, -1, True, None, [], "nan", float("inf"), "9999d"]
)
def test_anything_else_is_not_a_duration(written: object) -> None:
    with pytest.raises(Flaw) as caught:
        duration(written)
    assert '"90s"' in caught.value.cure


@pytest.mark.parametrize("text", ["30d", "1h", "15m", "90s", "1.5s", "1d", "1234567s", "1234567.5s", "0.000001s"])
def test_a_duration_is_said_as_it_is_written(text: str) -> None:
    assert spoken(duration(text)) == text


def test_a_secret_comes_from_the_environment() -> None:
    found = secret("env:MY_KEY", {"MY_KEY": " abc\n"})
    assert isinstance(found, SecretStr)
    assert found.get_secret_value() == "abc"
    assert "abc" not in repr(found)


@pytest.mark.parametrize(
    ("data", "read"), [(b"abc\n", "abc"), (b"\xef\xbb\xbfabc\r\n", "abc"), (b"a" * 65_536, "a" * 65_536)]
)
def test_a_secret_comes_from_a_file(tmp_path: Path, data: bytes, read: str) -> None:
    """Editors on Windows write a byte order mark of three bytes."""
    file = tmp_path / "key"
    file.write_bytes(data)
    assert secret(f"file:{file}", {}).get_secret_value() == read


def test_a_secret_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"a" * 65_537)
    os.mkfifo(tmp_path / "pipe")  # nobody ever writes into it
    for written, word in [
        ("env:MY_KEY", "MY_KEY is not set"),
        ("env:BINARY", "BINARY is not UTF-8"),
        ("env:", "not the name of a variable"),
        ("env:A B", "not the name of a variable"),
        (f"file:{tmp_path}/absent", "No such file"),
        (f"file:{tmp_path}/empty", "is empty"),
        (f"file:{tmp_path}/binary", "not UTF-8"),
        (f"file:{tmp_path}", "is not a file"),
        (f"file:{tmp_path}/pipe", "is not a file"),
        (f"file:{tmp_path}/large", "is larger than 64 KiB"),
        (f"file:{tmp_path}/empty/key", "cannot be read (Not a directory)"),
        ("file:relative", "not an absolute path"),
        ("file:/a\0b", "cannot be seen"),
        ("file:/a\ud800b", "cannot be seen"),
    ]:
        with pytest.raises(Flaw) as caught:
            secret(written, {"MY_KEY": "", "BINARY": "\udcff\udcfe"})
        assert word in caught.value.what, written
        assert caught.value.cure


def test_a_literal_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(Flaw) as caught:
        secret("sk-very-secret", {})
    assert "env:NAME" in caught.value.cure
    assert "very-secret" not in caught.value.what + caught.value.cure


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a']", ["a"]),
        ('{"shell": "1s"}', {"shell": "1s"}),
        ('{shell = "1s"}', {"shell": "1s"}),
        ("[broken", "[broken"),
        ("plain", "plain"),
    ],
)
def test_lists_and_tables_in_variables_are_toml_or_json(text: str, value: object) -> None:
    assert compound(text) == value


@pytest.mark.parametrize("key", ["a." * 30 + "a", "a . " * 30 + "a", '"a\\".b"."c,d".' * 15 + "a", "'a b'." * 30 + "a"])
@pytest.mark.parametrize(
    "place", ["[{}]", "[[{}]]", "  {} = 1", "[a]\n{} = 1", "a = {{b = 1, {} = 1}}", "a = [{{{} = 1}}]"]
)
def test_key_of_very_many_parts_is_refused_cheaply(key: str, place: str) -> None:
    """tomllib takes a second for 30,000 of them; wherever a key can stand."""
    with pytest.raises(ValueError, match="a key of more than 30 parts"):
        toml(place.format(key))


@pytest.mark.parametrize(
    "text", [f"a = 'See {'x. ' * 29}'", f'a = """\n{"." * 500}\n"""', f"# {'a.' * 500}", f"{'a.' * 29}a = 1"]
)
def test_points_elsewhere_are_no_key(text: str) -> None:
    assert isinstance(toml(text), dict)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("a.localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False), ("127.0.0.1.x.org", False),
    ],
)  # fmt: skip
def test_loopback_means_this_machine_only(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://Chat.Example.org:443", "https://chat.example.org"),
        ("http://localhost:80/", "http://localhost"),
        ("https://chat.example.org:8443/", "https://chat.example.org:8443"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("HTTPS://[2001:DB8::1]:443", "https://[2001:db8::1]"),
    ],
)
def test_the_public_address_is_as_browsers_say_it(written: str, read: str) -> None:
    assert HttpSettings.model_validate({"public_url": written}).public_url == read


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"host": "localhost"},
        {"host": "::1", "public_url": "http://localhost:8470"},
        {"host": "0.0.0.0", "public_url": "https://chat.example.org"},
        {"host": "0.0.0.0", "trusted_proxies": ["10.0.0.0/24"]},
        {"allowed_hosts": ["chat.example.org", "10.0.0.1:8470", "[::1]:8470"]},
        {"port": 0},
    ],
)
def test_addresses_that_are_safe_are_taken(table: dict[str, object]) -> None:
    assert HttpSettings.model_validate(table).host == table.get("host", "127.0.0.1")


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"host": "0.0.0.0"}, "host"),
        ({"host": "0.0.0.0", "public_url": "http://chat.example.org"}, "host"),
        ({"host": "chat.example.org"}, "host"),
    ],
)
def test_an_open_address_without_tls_is_refused_with_the_cure(table: dict[str, object], key: str) -> None:
    flaw = flaw_of(HttpSettings, table)
    assert flaw.key == key
    assert "trusted_proxies" in flaw.cure
    assert "public_url" in flaw.cure


@pytest.mark.parametrize(
    "table",
    [
        {"host": "http://127.0.0.1"}, {"host": ""}, {"host": "a..localhost"}, {"host": "a" * 64 + ".localhost"},
        {"port": -1}, {"port": 65536}, {"port": "8470"}, {"port": True},
        {"public_url": "chat.example.org"}, {"public_url": "ftp://x"}, {"public_url": "https://"},
        {"public_url": "https://u:p@x.org"}, {"public_url": "https://x.org/path"}, {"public_url": "https://x.org?q"},
        {"public_url": "https://x.org:99999"}, {"public_url": "https://x.org:0"}, {"public_url": "https://..."},
        {"public_url": "https://.x.org"}, {"public_url": f"https://{'a' * 64}.org"},
        {"public_url": "https://x.org\n"}, {"public_url": "https://\u00fc..org"},
        {"allowed_hosts": ["*"]}, {"allowed_hosts": ["https://x.org"]}, {"allowed_hosts": "x.org"},
        {"trusted_proxies": ["proxy.example.org"]}, {"trusted_proxies": ["10.0.0.1/8"]},
    ],
)  # fmt: skip
def test_bad_http_values_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HttpSettings.model_validate(table)


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost:8470", "::1:99999"])
def test_a_host_with_a_port_says_where_the_port_stands(host: str) -> None:
    flaw = flaw_of(HttpSettings, {"host": host})
    assert "is not a host" in flaw.what
    assert "http.port" in flaw.cure


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///var/lib/dragoman/dragoman.db",
        "sqlite:///a b/ü.db",
        "memory://",
        "redis://localhost:6379/0",
        "rediss://user:secret@redis.example",
        "redis://here?prefix=second",
        "rediss://here/1?ca=/etc/ca.pem&cert=/etc/a.pem&key=/etc/a.key",
    ],
)
def test_stores_that_are_known(url: str) -> None:
    assert StoreSettings(url=url).url == url


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://", "no address of a Redis"),
        ("redis://here/zero", "no address of a Redis"),
        ("sqlite://relative.db", "absolute path"),
        ("sqlite:dragoman.db", "absolute path"),
        ("sqlite:///folder/", "absolute path"),
        ("sqlite:///x.db?mode=ro", "absolute path"),
        ("postgres://x", "absolute path"),
        ("memory://x", "absolute path"),
        ("", "absolute path"),
    ],
)
def test_stores_that_are_not(url: str, word: str) -> None:
    flaw = flaw_of(StoreSettings, {"url": url})
    assert word in f"{flaw.what} {flaw.cure}"


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"name": "openai:gpt-5-mini", "api_key": SecretStr("k")},
        {"name": "openai:qwen3:8b", "base_url": "http://127.0.0.1:11434/v1"},
        {"name": "anthropic:claude-x", "api_key": SecretStr("k")},
        {"name": "google:gemini-x", "base_url": "http://127.0.0.1:9/"},
        {"name": "bedrock:eu.some-model-v1:0"},
        {"name": "openai-responses:gpt-5"},
        {
            "name": "openai:x",
            "base_url": "http://localhost:8080/v1",
            "fallback": [{"name": "openai:y", "api_key": "k"}],
        },
    ],
)
def test_models_that_can_be_asked(table: dict[str, object]) -> None:
    assert ModelSettings.model_validate(table).name == table.get("name", "operator")


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"name": "openai:gpt-5-mini"}, "needs an api_key"),
        ({"name": "openai:x", "base_url": "https://example.org/v1"}, "needs an api_key"),
        ({"name": "anthropic:claude"}, '"env:ANTHROPIC_API_KEY"'),
        ({"name": "google:gemini", "base_url": "https://example.org"}, '"env:GOOGLE_API_KEY"'),
        ({"name": "openai:x", "api_key": "k", "fallback": [{"name": "google:y"}]}, '"env:GOOGLE_API_KEY"'),
        ({"name": "Groq:llama"}, "cannot be a provider"),
        ({"name": "operator:x"}, "cannot be a provider"),
        ({"name": "groq:"}, '"groq:<model>"'),
        ({"name": "groq: llama"}, "no model is named"),
        ({"currency": ""}, "cannot be a currency"),
        ({"currency": "US dollars"}, "cannot be a currency"),
        ({"currency": "\n"}, "cannot be a currency"),
        ({"instructions": ""}, "a path is empty"),
        ({"prices": {"operator": {"input": 1, "output": 1}}}, "the operator is no model"),
        ({"prices": {"gpt-5": {"input": 1, "output": 1}}}, '"openai:gpt-5"'),
        ({"name": "gpt-5-mini"}, '"openai:gpt-5-mini"'),
        ({"name": "openai:"}, "no model is named"),
        ({"name": ""}, "names no provider"),
        ({"fallback": [{"name": "openai:x", "api_key": "k"}]}, "needs no fallback"),
        ({"name": "openai:x", "api_key": "k", "fallback": [{"name": "operator"}]}, "cannot be a fallback"),
        ({"name": "openai:x", "api_key": "k", "fallback": [{"name": "openai:y"}]}, "needs an api_key"),
        ({"base_url": "example.org/v1"}, "not an http"),
        ({"base_url": "https://..../v1"}, "no such host"),
        ({"base_url": "https://x.org:0/v1"}, "no such host or port"),
        ({"base_url": "https://xn--a/v1"}, "no such host or port"),
        ({"base_url": r"https://a\b/v1"}, "not an address"),
        ({"base_url": "https://[::1]x/v1"}, "not an address"),
    ],
)
def test_models_that_cannot(table: dict[str, object], word: str) -> None:
    flaw = flaw_of(ModelSettings, table)
    assert word in f"{flaw.what} {flaw.cure}"


@pytest.mark.parametrize(
    "table",
    [
        {"context_tokens": 3999}, {"context_tokens": "many"}, {"context_tokens": 5000.5}, {"instructions": 3},
        {"instructions": [3]}, {"prices": {"openai:x": {"input": 1}}},
        {"prices": {"openai:x": {"input": -1, "output": 1}}}, {"prices": {"openai:x": {"input": "1", "output": 1}}},
        {"prices": {"openai:x": {"input": float("nan"), "output": 1}}},
        {"prices": {"openai:x": {"input": float("inf"), "output": 1}}},
        {"prices": {"openai:x": {"input": True, "output": 1}}},
    ],
)  # fmt: skip
def test_figures_of_a_model_that_cannot_be(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelSettings.model_validate(table)


def test_cached_tokens_cost_as_much_as_others_unless_it_is_said() -> None:
    prices = {"openai:x": {"input": 2, "output": 8.5}, "openai:y": {"input": 2, "output": 8, "cached": 0}}
    read = ModelSettings.model_validate({"prices": prices}).prices
    assert read["openai:x"].cached_or_input == 2
    assert read["openai:y"].cached_or_input == 0


def test_the_names_of_all_models_are_listed_in_order() -> None:
    first, third = ({"name": f"openai:{n}", "base_url": "http://127.0.0.1:1/v1"} for n in "xz")
    model = ModelSettings.model_validate({**first, "fallback": [{"name": "groq:y"}, third]})
    assert model.names == ("openai:x", "groq:y", "openai:z")


def test_limits_are_those_of_turns() -> None:
    assert LimitsSettings().of_a_turn() == TurnLimits()
    read = LimitsSettings(
        calls_per_turn=3, time_per_turn=timedelta(minutes=1), tokens_per_turn=0, time_per_child=timedelta(seconds=5)
    )
    assert read.of_a_turn() == TurnLimits(
        calls=3, active=timedelta(minutes=1), tokens=0, child_active=timedelta(seconds=5)
    )
    for table in ({"calls_per_turn": 0}, {"tokens_per_turn": -1}, {"calls_per_turn": "9"}):
        with pytest.raises(ValidationError):
            LimitsSettings.model_validate(table)


@pytest.mark.parametrize("word", ["steer", "queue", "interrupt"])
def test_a_message_while_a_turn_runs_does_one_of_three_things(word: str) -> None:
    assert SessionsSettings.model_validate({"message_while_running": word}).message_while_running is WhileRunning(word)


def test_a_key_that_leaves_the_machine_in_clear_is_noticed() -> None:
    key = SecretStr("k")
    assert ModelSettings(name="openai:x", base_url="http://10.0.0.5/v1", api_key=key).sends_key_in_clear()
    assert not ModelSettings(name="openai:x", base_url="http://127.0.0.1/v1", api_key=key).sends_key_in_clear()
    assert not ModelSettings(name="openai:x", base_url="https://example.org/v1", api_key=key).sends_key_in_clear()


def test_a_tools_approval_is_one_word_or_a_table_by_kind() -> None:
    assert ToolSettings.model_validate({"approval": "deny"}).approval == dict.fromkeys(SessionKind, ApprovalMode.DENY)
    by_kind = ToolSettings.model_validate({"approval": {"main": "ask", "non-main": "deny"}})
    assert by_kind.approval == {SessionKind.MAIN: ApprovalMode.ASK, SessionKind.NON_MAIN: ApprovalMode.DENY}
    assert ToolSettings().approval == {}


def test_main_only_is_main_and_unknown_permission_is_refused() -> None:
    assert ToolSettings.model_validate({"permission": "main-only"}).permission is Availability.MAIN
    for written in ("owner", "", "MAIN", 1):
        with pytest.raises(ValidationError):
            ToolSettings.model_validate({"permission": written})


def test_a_channels_module_is_an_import_path() -> None:
    for written in ("a", "a.b", "a.b:CHANNEL"):
        assert ChannelModule.model_validate({"module": written}).module == written
    for written in ("", "a.b:", ":make", "a/b", "a.b:make()"):
        with pytest.raises(ValidationError):
            ChannelModule.model_validate({"module": written})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        HttpSettings().port = 1


def flaw_of(model: type[BaseModel], table: dict[str, object]) -> Flaw:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(table)
    flaw = caught.value.errors()[0].get("ctx", {}).get("error")
    assert isinstance(flaw, Flaw)
    return flaw


def test_a_cluster_key_is_a_secret_of_some_length() -> None:
    assert ClusterSettings.model_validate({"key": SecretStr("x" * 32)}).key is not None
    flaw = flaw_of(ClusterSettings, {"key": SecretStr("x" * 31)})
    assert (flaw.what, flaw.cure) == ("the key has fewer than 32 characters", "Make one with: openssl rand -hex 32")
