"""Documented configuration, executed: the example, the schema, and the owner's own tools."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

import config
from channels._shared.settings import ProxyUrl
from channels.slack.settings import SlackAccount, SlackSettings
from channels.telegram.settings import TelegramAccount, TelegramSettings
from config.load import load
from config.plugins import tool_specs
from config.schema import schema, text
from gateway.domain.children import Agent
from gateway.domain.tools import Availability
from gateway.domain.turns import TurnLimits
from gateway.errors import ConfigError
from tests.support.settings import settings_of

HERE = Path(config.__file__).parent

CHANNEL_OF_ONES_OWN = """
from gateway.ports import ChannelSpec
CHANNEL = ChannelSpec(name="test", api=2, load=lambda: None)
"""


def uncommented() -> str:
    """The example with every key that it explains: `#key = …` is a key, `# text` is prose."""
    return re.sub(r"^#(?=[^ #\n])", "", (HERE / "example.toml").read_text(), flags=re.MULTILINE)


def test_the_example_loads_as_it_is_and_means_the_defaults(tmp_path: Path) -> None:
    loaded = load(HERE / "example.toml", tmp_path, {}, tool_specs())
    assert loaded.settings == load(None, tmp_path, {"HOME": str(tmp_path)}, tool_specs()).settings
    assert loaded.warnings == ()


OWN_TOOL = """
from gateway.domain.tools import Effect, Availability, Risk, ToolSpec
SPEC = ToolSpec(
    name="my_tool", description="Mine.", risk=Risk.READ, effect=Effect.PURE, availability=Availability.ALWAYS
)
"""


def own_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str = OWN_TOOL) -> None:
    """Make `my_package.my_tool` importable."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "my_tool.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("my_package", "my_package.my_tool"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_an_own_tool_has_a_policy_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_tool(tmp_path, monkeypatch)
    file = tmp_path / "config.toml"
    file.write_text('[tools.my_tool]\nmodule = "my_package.my_tool"\npermission = "main"\n')
    loaded = load(file, tmp_path, {}, tool_specs())
    assert loaded.own_tools["my_tool"].module == "my_package.my_tool"
    assert loaded.tools["my_tool"].availability is Availability.MAIN


@pytest.mark.parametrize(
    ("table", "module", "told"),
    [
        ("my_tool", "no_such_package.tool", "cannot be imported"),
        ("my_tool", "my_package", "has no SPEC"),
        ("other", "my_package.my_tool", "[tools.my_tool]"),
        ("shell", "my_package.my_tool", "another name"),
        ("my_tool", "my package", "my package"),
        ("my_tool", "", "is no import path"),
        ("my_tool", ".my_tool", "is no import path"),
        ("my_tool", "a." * 2_000 + "a", "cannot be imported"),
    ],
)
def test_an_own_tool_that_cannot_be_had_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, module: str, told: str
) -> None:
    own_tool(tmp_path, monkeypatch)
    file = tmp_path / "config.toml"
    file.write_text(f'[tools.{table}]\nmodule = "{module}"\n')
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(file, tmp_path, {}, tool_specs())


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def run(:", " (SyntaxError: "),
        ("1 / 0", " (ZeroDivisionError: division by zero)"),
        ("import nothing_such", ": No module named 'nothing_such'"),
        ("import sys; sys.exit(3)", " (SystemExit: 3)"),
        ("class Mute(Exception):\n    def __str__(self): 1 / 0\nraise Mute", " (Mute: it does not say why)"),
    ],
)
def test_an_own_tool_whose_code_breaks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, told: str
) -> None:
    own_tool(tmp_path, monkeypatch, code)
    file = tmp_path / "config.toml"
    file.write_text('[tools.my_tool]\nmodule = "my_package.my_tool"\n')
    with pytest.raises(ConfigError) as caught:
        load(file, tmp_path, {}, tool_specs())
    assert f"my_package.my_tool cannot be imported{told}" in caught.value.message


def test_an_own_tool_that_cannot_be_looked_into_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_tool(tmp_path, monkeypatch, "def __getattr__(name):\n    raise RuntimeError('not today')")
    file = tmp_path / "config.toml"
    file.write_text('[tools.my_tool]\nmodule = "my_package.my_tool"\n')
    with pytest.raises(ConfigError, match=r"SPEC of my_package\.my_tool cannot be had \(RuntimeError: not today\)"):
        load(file, tmp_path, {}, tool_specs())


def test_the_example_loads_with_every_key_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_tool(tmp_path, monkeypatch)
    (tmp_path / "my_package" / "my_channel.py").write_text(CHANNEL_OF_ONES_OWN)
    (tmp_path / "presets").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "my_file.py").write_text(OWN_TOOL.replace("my_tool", "counts"))
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dragoman.tools]\nacme = acme_tool\n[dragoman.hooks]\nacme = acme_hook:after\n"
    )
    (tmp_path / "acme_tool.py").write_text(OWN_TOOL.replace("my_tool", "acme_tool"))
    (tmp_path / "acme_hook.py").write_text("async def after(call):\n    return {}\n")
    file = tmp_path / "config.toml"
    file.write_text(uncommented())
    (tmp_path / "instructions.md").write_text("Be kind.\n")
    (tmp_path / "researcher.md").write_text("Be thorough.\n")
    environ = {
        "DRAGOMAN_CLUSTER_KEY": "k" * 32,
        "OPENAI_API_KEY": "k", "LOCAL_MODEL_KEY": "k", "BRAVE_API_KEY": "k", "EXA_API_KEY": "k",
        "TELEGRAM_BOT_TOKEN": "1:t", "TELEGRAM_WEBHOOK_SECRET": "s",
        "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_SIGNING_SECRET": "a-signing-secret",
    }  # fmt: skip
    loaded = load(file, tmp_path, environ, tool_specs())
    assert loaded.settings.model.name == "openai:gpt-5-mini"
    assert loaded.settings.model.prices["openai:gpt-5-mini"].cached_or_input == 0.025
    assert loaded.settings.model.context_tokens == 100_000, "what is commented out shows the defaults"
    assert loaded.limits == TurnLimits(), "what is commented out shows the defaults"
    assert loaded.instructions == "Be kind."
    assert [(one.name, one.event, one.tools) for one in loaded.hooks] == [
        ("check-call", "before_tool_call", {"shell"}),
        ("acme", "after_tool_call", frozenset()),
    ]
    assert loaded.agents == {
        "researcher": Agent(
            name="researcher", description="Looks things up on this machine and sums them up.",
            model="openai:local-model", tools=("shell",), instructions="Be thorough.", preset="explore", generation=6,
        )
    }  # fmt: skip
    proxy = ProxyUrl("http://proxy.example.org:3128")
    assert loaded.settings.model.proxy == loaded.settings.model.fallback[0].proxy == proxy
    assert settings_of(loaded, "telegram") == TelegramSettings(
        accounts={"main": TelegramAccount(token=SecretStr("1:t"), webhook_secret=SecretStr("s"), proxy=proxy)}
    ), "what is commented out shows the defaults"
    slack = SlackAccount(
        bot_token=SecretStr("xoxb-1"),
        app_token=SecretStr("xapp-1"),
        signing_secret=SecretStr("a-signing-secret"),
        proxy=proxy,
    )
    assert settings_of(loaded, "slack") == SlackSettings(accounts={"main": slack}), "the defaults, again"


def test_example_explains_every_key_and_has_fewer_than_150() -> None:
    explained = set(keys_of_file(tomllib.loads(uncommented())))
    # The table of one of several accounts has the keys of the table of the only one, and stands in its place.
    whole = schema()
    known = {
        key
        for key in keys_of_schema(whole, whole["$defs"])
        if not key.startswith(("channels.telegram.accounts.", "channels.slack.accounts."))
    }
    # The example's own tables of tools are read by their keys, whatever tool has them.
    known = {re.sub(r"^tools\.(?!timeouts\.)\w+\.", "tools.*.", key) for key in known}
    assert known <= explained, f"not in the example: {sorted(known - explained)}"
    assert len(known) < 150


def test_the_schema_file_is_what_the_settings_say() -> None:
    assert (HERE / "schema.json").read_text() == text(), "run: python -m config.schema > config/schema.json"
    assert json.loads(text()) == schema()
    approval = schema()["properties"]["tools"]["additionalProperties"]["properties"]["approval"]
    assert {"enum": ["ask", "allow", "deny"]} in approval["anyOf"]
    assert "type" not in approval


def keys_of_schema(node: Mapping[str, Any], parts: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the paths of all keys below `node`. `parts`: the schema's definitions."""
    if "$ref" in node:
        return keys_of_schema(parts[node["$ref"].rpartition("/")[2]], parts, path)
    if node.get("type") == "array":
        return keys_of_schema(node["items"], parts, path)
    named = {**node.get("properties", {})}
    if isinstance(node.get("additionalProperties"), dict):
        named["*"] = node["additionalProperties"]
    if not named or "anyOf" in node:
        return [path]
    return [key for name, below in named.items() for key in keys_of_schema(below, parts, f"{path}.{name}".lstrip("."))]


KEYS_BESIDE_TOOLS = {"tools.timeouts", "tools.folder", "tools.packages"}


def keys_of_file(node: Any, path: str = "") -> list[str]:
    anything = {
        "owners",
        "agents",
        "model.prices",
        "tools",
        "tools.timeouts",
        "chats.approvers",
        "budgets.people",
        "sessions.preset",
        "sessions.generation",
    }  # tables whose keys are names
    if isinstance(node, list) and node and isinstance(node[0], dict):
        return [key for one in cast("list[Any]", node) for key in keys_of_file(one, path)]
    if not isinstance(node, dict):
        return [path]
    keys: list[str] = []
    for name, below in cast("dict[str, Any]", node).items():
        whole = f"{path}.{name}"
        known = not (path in anything or whole == "channels.test") or whole in KEYS_BESIDE_TOOLS
        keys += keys_of_file(below, f"{path}.{name if known else '*'}".lstrip("."))
    return keys
