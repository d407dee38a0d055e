"""Whole configurations of models and agents: their instructions, prices and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from pydantic_ai.models import KnownModelName
from pydantic_ai.providers import infer_provider_class

from config.describe import lines
from config.load import Loaded, load
from config.model import PROVIDERS
from gateway.domain.children import Agent
from gateway.domain.tools import Availability, Effect, Risk, ToolSpec
from gateway.domain.turns import TurnLimits
from gateway.errors import ConfigError

SPECS = {
    name: ToolSpec(name=name, description="", risk=Risk.READ, effect=Effect.PURE, availability=Availability.ALWAYS)
    for name in ("read", "shell")
}
MODEL = '[model]\nname = "openai:x"\nbase_url = "http://127.0.0.1:1/v1"\n'
FALLBACK = '[[model.fallback]]\nname = "groq:y"\n'


def read(tmp_path: Path, toml: str, environ: Mapping[str, str] | None = None) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(toml)
    return load(file, tmp_path / "state", environ or {}, SPECS)


def refusal(tmp_path: Path, toml: str, environ: Mapping[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml, environ)
    return caught.value


def test_second_model_of_one_name_is_refused(tmp_path: Path) -> None:
    twice = '[[model.fallback]]\nname = "openai:x"\nbase_url = "http://127.0.0.1:2/v1"\n'
    for toml in (MODEL + twice, MODEL + FALLBACK + FALLBACK):
        error = refusal(tmp_path, toml)
        assert "model.fallback: two models are called" in error.message
        assert "--served-model-name" in error.cure
    read(tmp_path, MODEL + FALLBACK)


# --- instructions ---------------------------------------------------------------------------


def test_instructions_are_read_in_order_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes("\ufeff  Be kind. \r\n".encode())
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "b.md").write_text("Bé brief.\n\n")
    (tmp_path / "empty.md").touch()
    assert read(tmp_path, "").instructions == ""
    assert read(tmp_path, '[model]\ninstructions = "a.md"\n').instructions == "Be kind."
    toml = f'[model]\ninstructions = ["notes/b.md", "empty.md", "{tmp_path}/a.md"]\n'
    assert read(tmp_path, toml).instructions == "Bé brief.\n\nBe kind."
    environ = {"DRAGOMAN_MODEL__INSTRUCTIONS": "a.md, notes/b.md"}
    assert read(tmp_path, "", environ).instructions == "Be kind.\n\nBé brief."


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('"absent.md"', "absent.md. Create it"),
        ('"folder"', "folder is a folder"),
        ('"binary.md"', "not UTF-8 text (byte 0)"),
        ('"utf16.md"', "zero byte"),
        ('"pipe"', "is not a file"),
        ('"long.md"', "more than 64 KB in all"),
        ('["half.md", "half.md", "half.md"]', "model.instructions[2]: with"),
        ('"a.md/b.md"', "cannot be read (Not a directory)"),
        ('"\\u0000"', "cannot be seen"),
        ("[3]", "it is not text"),
        ("3", "it is not a list"),
        ('["a.md", ""]', "a path is empty"),
    ],
)
def test_instructions_that_cannot_be_read_stop_the_start(tmp_path: Path, written: str, words: str) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.md").write_bytes(b"\xff\xfea")
    (tmp_path / "utf16.md").write_bytes("ab".encode("utf-16-le"))
    (tmp_path / "long.md").write_bytes(b"x" * 65_537)
    (tmp_path / "half.md").write_bytes(b"x" * 32_768)
    os.mkfifo(tmp_path / "pipe")
    error = refusal(tmp_path, f"[model]\ninstructions = {written}\n")
    assert words in f"{error.message} {error.cure}"
    assert error.cure
    assert "model.instructions" in error.message


def test_64_kb_of_instructions_are_taken(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_bytes(b"x" * 65_536)
    assert len(read(tmp_path, '[model]\ninstructions = "long.md"\n').instructions) == 65_536


def test_a_relative_path_needs_a_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Be kind.")
    environ = {"HOME": str(tmp_path), "DRAGOMAN_MODEL__INSTRUCTIONS": "a.md"}
    with pytest.raises(ConfigError) as caught:
        load(None, tmp_path, environ, SPECS)
    assert "$DRAGOMAN_MODEL__INSTRUCTIONS: model.instructions: a.md is relative" in caught.value.message
    environ["DRAGOMAN_MODEL__INSTRUCTIONS"] = f"{tmp_path}/a.md"
    assert load(None, tmp_path, environ, SPECS).instructions == "Be kind."


# --- prices and limits ----------------------------------------------------------------------


def test_prices_are_by_the_names_of_models(tmp_path: Path) -> None:
    prices = '[model.prices."openai:x"]\ninput = 0.25\noutput = 2\ncached = 0\n[model.prices."openai:z"]\n'
    loaded = read(tmp_path, f'{MODEL}currency = "€"\n{prices}input = 1\noutput = 1\n')
    price = loaded.settings.model.prices["openai:x"]
    assert (price.input, price.output, price.cached_or_input) == (0.25, 2, 0)
    assert loaded.warnings == ("model.prices: no model is called openai:z, so its prices have no effect.",)
    told = dict(lines(loaded))
    assert told["price of openai:x"] == "0.25 read, 0 read from a cache, 2 written (€ a million tokens)"


def test_prices_come_from_variables_too(tmp_path: Path) -> None:
    environ = {"DRAGOMAN_MODEL__PRICES": '{"openai:x" = {input = 1, output = 2}}'}
    assert read(tmp_path, MODEL, environ).settings.model.prices["openai:x"].output == 2


def test_limits_are_read(tmp_path: Path) -> None:
    toml = '[limits]\ncalls_per_turn = 5\ntime_per_turn = "2m"\ntokens_per_turn = 0\ntime_per_child = 30\n'
    loaded = read(tmp_path, toml)
    assert loaded.limits == TurnLimits(
        calls=5, active=timedelta(minutes=2), tokens=0, child_active=timedelta(seconds=30)
    )
    told = dict(lines(loaded))["limits of a turn"]
    assert told == "5 calls, 2m of work, any number of tokens; a sub-session 30s; 3 open approvals a person"
    assert read(tmp_path, "", {"DRAGOMAN_LIMITS__CALLS_PER_TURN": "7"}).limits.calls == 7


def test_limits_of_programs_are_read(tmp_path: Path) -> None:
    loaded = read(tmp_path, "[sandbox]\nmemory_mb = 512\ntree_mb = 0\nfile_mb = 20\ntmp_mb = 5\n")
    assert (loaded.sandbox.memory_mb, loaded.sandbox.file_mb, loaded.sandbox.tmp_mb) == (512, 20, 5)
    told = "512 MB of memory a process, any number together, 20 MB a file, 5 MB of /tmp"
    assert dict(lines(loaded))["limits of a program"] == told
    usual = "4096 MB of memory a process, 16384 MB together, 10240 MB a file, 1024 MB of /tmp"
    assert dict(lines(read(tmp_path, "")))["limits of a program"] == usual
    with pytest.raises(ConfigError, match=r"sandbox\.memory_mb"):
        read(tmp_path, "[sandbox]\nmemory_mb = 1\n")


# --- agents ---------------------------------------------------------------------------------


def test_agents_are_read(tmp_path: Path) -> None:
    (tmp_path / "scout.md").write_text("Look, do not touch.\n")
    loaded = read(
        tmp_path,
        f'{MODEL}{FALLBACK}[agents.scout-2]\ndescription = " Looks. "\nmodel = "groq:y"\ntools = ["read", "read"]\n'
        'instructions = "scout.md"\n[agents.all]\ndescription = "Does."\n[agents.none]\ndescription = "Says."\n'
        "tools = []\n",
    )
    assert loaded.agents == {
        "scout-2": Agent(
            name="scout-2", description="Looks.", model="groq:y", tools=("read",), instructions="Look, do not touch."
        ),
        "all": Agent(name="all", description="Does."),
        "none": Agent(name="none", description="Says.", tools=()),
    }
    told = dict(lines(loaded))
    assert told["agent scout-2"] == "Looks., groq:y, tools read, instructions set"
    assert told["agent none"] == "Says., tools none"


def test_an_agents_model_is_one_of_those_configured(tmp_path: Path) -> None:
    agent = '[agents.scout]\ndescription = "Looks."\nmodel = "groq:z"\n'
    error = refusal(tmp_path, f"{MODEL}{FALLBACK}{agent}")
    assert "agents.scout.model: no model is called 'groq:z'" in error.message
    assert 'Did you mean "groq:y"?' in error.cure
    assert "groq:y, openai:x" in error.cure
    assert "[[model.fallback]]" in error.cure


def test_bad_model_is_reported_once_and_not_for_its_agents(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[model]\nname = "x"\n[agents.scout]\ndescription = "Looks."\nmodel = "openai:x"\n')
    assert "agents.scout" not in error.message


@pytest.mark.parametrize("name", ["Ann", "a b", "ä", '"a.b"', '""', "x" * 33])
def test_agents_have_plain_names(tmp_path: Path, name: str) -> None:
    quoted = name if name.startswith('"') else f'"{name}"'
    error = refusal(tmp_path, f'[agents.{quoted}]\ndescription = "Looks."\n')
    assert "lower-case letters, digits, - and _" in error.cure


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "it is missing"),
        ('description = " "', "it is empty"),
        (f'description = "{"x" * 301}"', "at most 300 characters"),
        ('description = "x"\ntools = "read"', "it is not a list"),
        ('description = "x"\ntools = ["reed"]', 'Did you mean "read"? Known are: read, shell'),
        ('description = "x"\ncolour = 1', "unknown key"),
        ('description = "x"\ninstructions = ""', "a path is empty"),
        ('description = "x"\ninstructions = ["a"]', "it is not text"),
    ],
)
def test_agents_that_cannot_be(tmp_path: Path, table: str, words: str) -> None:
    error = refusal(tmp_path, f"[agents.scout]\n{table}\n")
    assert "agents.scout" in error.message
    assert words in f"{error.message} {error.cure}"


def test_each_agents_instructions_have_a_measure_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_bytes(b"x" * 65_536)
    agents = "".join(f'[agents.{n}]\ndescription = "x"\ninstructions = "long.md"\n' for n in "ab")
    loaded = read(tmp_path, f'[model]\ninstructions = "long.md"\n{agents}')
    assert {len(agent.instructions) for agent in loaded.agents.values()} == {65_536}


# --- providers ------------------------------------------------------------------------------


@pytest.mark.whole("imports each provider's library; that others are refused at a start stays")
def test_providers_are_those_of_the_library() -> None:
    """Each provider exists in the library, or lacks its package; no provider of the library's models is missing."""
    for name in PROVIDERS:
        with suppress(ImportError):
            infer_provider_class(name)
    named = {str(model).partition(":")[0] for model in get_args(KnownModelName.__value__)} - {"test"}
    assert {name for name in named if "/" not in name} <= PROVIDERS
