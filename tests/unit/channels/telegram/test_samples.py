"""Samples in `channels/telegram/samples`: each parses to its expected meaning; a new kind is one more file."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from telegram import Update

import channels.telegram
from channels.telegram.inbound import UNREAD, BotIdentity, read

SAMPLES = sorted((Path(channels.telegram.__file__).parent / "samples").glob("*.json"))
BOT = BotIdentity(id=7000000001, username="dragoman_bot", account="main")
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def written(value: Any) -> Any:
    """Write what an update means as samples do: by field, without those that have their default."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [written(one) for one in cast("list[object]", value)]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    named = {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
    return {name: written(found) for name, (found, default) in named.items() if found != default}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_means_what_it_says(sample: Path) -> None:
    told = json.loads(sample.read_text())
    found = read(told["update"], BOT, NOW)
    assert {type(found).__name__: written(found)} == told["expected"], told["about"]


@pytest.mark.parametrize("sample", [one for one in SAMPLES if not one.stem.startswith("poison")], ids=lambda p: p.stem)
def test_a_sample_is_shaped_as_the_library_knows_updates(sample: Path) -> None:
    """The people in the samples are invented, and so may be mistakes: the library raises on what lacks a field."""
    update = json.loads(sample.read_text())["update"]
    assert Update.de_json(update, None).update_id == update["update_id"]


def test_there_are_samples_of_every_outcome() -> None:
    outcomes = [json.loads(sample.read_text())["expected"] for sample in SAMPLES]
    assert {kind for one in outcomes for kind in one} == {"Inbound", "TelegramPress", "ChatMigration", "Refused"}
    reasons = {one["Refused"]["reason"] for one in outcomes if "Refused" in one}
    assert reasons == {"poison", "unknown", "not_a_person"}


@pytest.mark.parametrize(("field", "name"), UNREAD.items())
def test_unreadable_message_is_named(field: str, name: str) -> None:
    (plain,) = [json.loads(one.read_text())["update"] for one in SAMPLES if one.stem == "private_text"]
    del plain["message"]["text"]
    plain["message"][field] = [{}] if field == "photo" else {}
    found = written(read(plain, BOT, NOW))
    assert (found["text"], found["unread"]) == ("", name)
