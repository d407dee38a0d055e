"""Budgets of the configuration: amounts, people, and prices that money needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
from gateway.domain.budgets import Allowance, BudgetLimits
from gateway.errors import ConfigError

BASE = """
[owners]
ann = ["telegram:1001"]
[channels.telegram]
token = "env:T"
[model]
name = "openai:gpt-5-mini"
api_key = "env:K"
"""
PRICE = '[model.prices."openai:gpt-5-mini"]\ninput = 1\noutput = 2\n'


def loaded(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(BASE + text)
    return load(file, tmp_path, {"T": "1:t", "K": "k"}, tool_specs())


def test_budgets_are_tokens_and_millionths(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        PRICE + "[budgets]\ntokens_per_person_per_day = 200_000\nmoney_per_person_per_day = 1.5\n"
        "tokens_per_session = 7\nmoney_per_session = 0.000001\n[budgets.people.ann]\n"
        '[budgets.people."telegram:2002"]\ntokens_per_day = 9\nmoney_per_day = 2\n',
    )
    assert found.budgets == BudgetLimits(
        person=Allowance(tokens=200_000, micros=1_500_000),
        session=Allowance(tokens=7, micros=1),
        people={"ann": Allowance(), "telegram:2002": Allowance(tokens=9, micros=2_000_000)},
    )


def test_without_a_table_there_are_none_and_a_rate(tmp_path: Path) -> None:
    found = loaded(tmp_path, "")
    assert not found.budgets.any
    assert found.messages_per_minute == 20
    assert loaded(tmp_path, "[limits]\nmessages_per_minute = 0\n").messages_per_minute == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tokens_per_session = -1", "budgets.tokens_per_session"),
        ("tokens_per_session = 1.5", "budgets.tokens_per_session"),
        ("money_per_session = nan", "budgets.money_per_session"),
        ("money_per_session = -0.1", "budgets.money_per_session"),
        ('money_per_session = "5"', "budgets.money_per_session"),
        ("tokens_per_day = 5", "budgets.tokens_per_day"),
        ("money_per_session = 5", "budgets.money_per_session: openai:gpt-5-mini has no price, so its cost is unknown"),
        ("money_per_person_per_day = 5", 'Write the prices in [model.prices."openai:gpt-5-mini"], or count tokens'),
        ("[budgets.people.ann]\nmoney_per_day = 1", "budgets.people.ann.money_per_day: openai:gpt-5-mini has no"),
        ("[budgets.people.bob]", "budgets.people.bob: there is no owner 'bob'. Known are: ann"),
        ('[budgets.people."telegram:1001"]', "is an account of the owner ann. Write [budgets.people.ann]"),
        ('[budgets.people."telegram:*"]', "everyone cannot be"),
        ("[budgets.people.ann]\ntokens = 5", "budgets.people.ann.tokens"),
        ("people = 5", "budgets.people"),
    ],
)
def test_a_mistake_is_reported_with_its_cure(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, f"[budgets]\n{text}\n")
    assert told in str(error.value)


def test_messages_per_minute_is_a_whole_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"limits\.messages_per_minute"):
        loaded(tmp_path, "[limits]\nmessages_per_minute = -1\n")
