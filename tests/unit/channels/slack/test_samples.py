"""Samples in `channels/slack/samples`: each parses to its expected meaning; a new kind of payload is one more file.

After an intended change, rewrite the expectations with `DRAGOMAN_GOLDEN=write` in the environment, and read the
difference before the commit.
"""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import channels.slack
from channels.slack.inbound import Identity, PersonFacts, about, read

SAMPLES = sorted((Path(channels.slack.__file__).parent / "samples").glob("*.json"))
ME = Identity(account="main", team="T0HOME", user="U0DRAGO", name="dragoman", app="A0DRAGO")
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def written(value: Any) -> Any:
    """Write what a payload means as samples do: by field, without those that have their default."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [written(one) for one in cast("list[object]", value)]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    named = {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
    return {name: written(found) for name, (found, default) in named.items() if found != default and name != "raw"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_means_what_it_says(sample: Path) -> None:
    told = json.loads(sample.read_text())
    found = read(told["payload"], ME, NOW, PersonFacts(**told.get("known", {})))
    meant = {type(found).__name__: written(found)}
    if os.environ.get("DRAGOMAN_GOLDEN") == "write":
        sample.write_text(json.dumps({**told, "expected": meant}, indent=1, ensure_ascii=False) + "\n")
    assert json.loads(json.dumps(meant)) == json.loads(sample.read_text())["expected"], told["about"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_speaker_of_each_sample_is_known_before_reading(sample: Path) -> None:
    told = json.loads(sample.read_text())
    speaks = told["expected"].get("Inbound") or told["expected"].get("Stopping", {}).get("message")
    found = about(told["payload"])
    if speaks is not None:
        assert found is not None
        assert speaks["principal"].endswith(f"/{found.user}")
        thread = speaks["conversation"].get("thread", "")
        assert found.thread in (thread, ""), "the thread that it was said in"


def test_there_are_samples_of_every_outcome() -> None:
    outcomes = [json.loads(sample.read_text())["expected"] for sample in SAMPLES]
    assert {kind for one in outcomes for kind in one} == {
        *("Inbound", "SlackPress", "Asking", "Stopping", "Opened", "Looked", "AccessEnded", "Refused")
    }
    reasons = {one["Refused"]["reason"] for one in outcomes if "Refused" in one}
    assert reasons == {"poison", "unknown", "not_a_person"}
