"""JSON schema of the configuration file, for editors: `python -m config.schema > config/schema.json`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from config.agents import NAME, AgentSettings
from config.channels import built_in
from config.cluster import ClusterSettings
from config.hooks import HookSettings
from config.model import ModelSettings
from config.plugins import tool_specs
from config.retention import AuditSettings
from config.rules import RuleSettings
from config.settings import (
    BudgetSettings,
    ChannelModule,
    ChatsSettings,
    HttpSettings,
    LimitsSettings,
    LogSettings,
    PeopleSettings,
    SandboxSettings,
    SessionsSettings,
    StoreSettings,
    ToolSettings,
    WebSettings,
)
from config.tools import table_of
from config.values import DURATION, ENV_NAME, spoken
from config.voice import VoiceSettings
from gateway.ports import ChannelSpec

_DURATION: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": f"^{DURATION.pattern}$"}, {"type": "number", "exclusiveMinimum": 0}]
}
_SECRET: dict[str, Any] = {"type": "string", "pattern": f"^(env:{ENV_NAME}|file:/.+)$"}
_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


class _AsWritten(GenerateJsonSchema):
    """Schema generator that writes durations and secrets in the form of the file."""

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:
        return dict(_DURATION)

    def encode_default(self, dft: Any) -> Any:
        return spoken(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def schema() -> dict[str, Any]:
    """Return the schema of the whole file. Deterministic."""
    definitions: dict[str, Any] = {}
    tables: dict[str, type[BaseModel]] = {
        "store": StoreSettings, "cluster": ClusterSettings, "http": HttpSettings, "model": ModelSettings,
        "people": PeopleSettings, "chats": ChatsSettings, "sessions": SessionsSettings, "audit": AuditSettings,
        "limits": LimitsSettings, "budgets": BudgetSettings, "sandbox": SandboxSettings, "log": LogSettings,
        "voice": VoiceSettings}  # fmt: skip
    properties: dict[str, Any] = {name: _table(model, definitions) for name, model in tables.items()}
    properties["owners"] = {
        "type": "object",
        "description": 'Each owner\'s accounts on the channels. No table: one owner called "owner".',
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,32}$"},
        "additionalProperties": _NAMES,
    }
    properties["channels"] = {
        "type": "object",
        "properties": {
            "web": _table(WebSettings, definitions),
            **{name: _channel(spec, definitions) for name, spec in built_in().items()},
        },
        "additionalProperties": _table(ChannelModule, definitions),
    }
    properties["agents"] = {
        "type": "object",
        "description": "Kinds of sub-session that a model may spawn, by name.",
        "propertyNames": {"pattern": f"^{NAME}$"},
        "additionalProperties": _table(AgentSettings, definitions),
    }
    properties["rules"] = {
        "type": "array",
        "description": "Rules about calls, in order: the last one that matches decides.",
        "items": _table(RuleSettings, definitions),
    }
    properties["hooks"] = {
        "type": "array",
        "description": "Programs that see each call before it is decided, or after it ran.",
        "items": _table(HookSettings, definitions),
    }
    properties["tools"] = {
        "type": "object",
        "properties": {
            "folder": {"type": "string", "description": "A folder whose *.py files are tools."},
            "packages": {**_NAMES, "description": "Installed packages whose tools are used."},
            "timeouts": {
                "type": "object",
                "description": 'Timeouts by tool or "tool.action".',
                "additionalProperties": dict(_DURATION),
            },
            **{name: _table(table_of(spec), definitions) for name, spec in tool_specs().items() if spec.settings},
        },
        "additionalProperties": _table(ToolSettings, definitions),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Dragoman's configuration",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def text() -> str:
    """Return the content of `config/schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _channel(spec: ChannelSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a channel's table."""
    if spec.account is not None:
        return _accounts(spec.name, spec.account, spec.account_noun, definitions)
    return {"type": "object"} if spec.settings is None else _table(spec.settings, definitions)


def _accounts(channel: str, model: type[BaseModel], one: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table of one account or several named ones; no key is required, since either is valid."""
    account = _table(model, definitions)
    definitions[model.__name__] = account
    accounts = {
        "type": "object",
        "description": f"Several {one}s, by names of your own; then nothing else stands in [channels.{channel}].",
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,32}$"},
        "additionalProperties": {"$ref": f"#/$defs/{model.__name__}"},
    }
    either = {key: value for key, value in account.items() if key != "required"}
    return {
        **either,
        "description": f"`[channels.{channel}]`: one {one}, or several in its table `accounts`.",
        "properties": {**account["properties"], "accounts": accounts},
    }


def _table(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    made = model.model_json_schema(schema_generator=_AsWritten)
    definitions.update({name: _tidy(one) for name, one in made.pop("$defs", {}).items()})
    return _tidy(made)


def _tidy(node: Any) -> Any:
    """Drop generated titles; write secrets and optional keys in the form of the file."""
    if isinstance(node, list):
        return [_tidy(one) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    table = _without_null(cast("dict[str, Any]", node))
    if table.get("format") == "password":
        return {**_SECRET, "description": table["description"]}
    return {key: _tidy(one) for key, one in table.items() if not (key == "title" and isinstance(one, str))}


def _without_null(table: dict[str, Any]) -> dict[str, Any]:
    """Drop `null` choices: TOML has no null, the key is left out instead."""
    choices: list[Any] = table.get("anyOf", [])
    if {"type": "null"} not in choices:
        return table
    rest = [one for one in choices if one != {"type": "null"}]
    kept = {key: one for key, one in table.items() if key not in {"anyOf", "default"}}
    return {**kept, **(rest[0] if len(rest) == 1 else {"anyOf": rest})}


if __name__ == "__main__":
    sys.stdout.write(text())
