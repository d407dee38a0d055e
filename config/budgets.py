"""Reader of `[budgets]`: limits of tokens and money by person and day, and by session."""

from __future__ import annotations

from typing import cast

from config.approvers import Named, is_person
from config.model import ModelSettings
from config.reading import TableReader
from config.settings import BudgetSettings
from gateway.domain.budgets import BudgetLimits

OPERATOR = "operator"
"""The model that costs nothing."""


def read_budgets(raw: object, model: ModelSettings | None, reader: TableReader) -> BudgetLimits:
    """Return the budgets; none where the table is wrong, which the reader reports."""
    settings = reader.model(BudgetSettings, raw, ("budgets",))
    if settings is None:
        return BudgetLimits()
    limits = settings.limits()
    _check_prices(settings, model, reader)
    return limits


def _check_prices(settings: BudgetSettings, model: ModelSettings | None, reader: TableReader) -> None:
    """Report budgets of money that a model without a price would pass unseen."""
    keys = [
        *([("money_per_person_per_day",)] if settings.money_per_person_per_day else []),
        *([("money_per_session",)] if settings.money_per_session else []),
        *(("people", name, "money_per_day") for name, one in settings.people.items() if one.money_per_day),
    ]
    free = [] if model is None else [one for one in model.names if one != OPERATOR and one not in model.prices]
    for key in keys if free else ():
        cure = f'Write the prices in [model.prices."{free[0]}"], or count tokens'
        reader.wrong(("budgets", *key), f"{free[0]} has no price, so its cost is unknown", cure)


def check_budgets(raw: object, named: Named, reader: TableReader) -> None:
    """Check the names in `[budgets.people]`; the reader collects problems."""
    people = reader.table(raw, ("budgets",)).get("people", {})
    for name in cast("dict[str, object]", people) if isinstance(people, dict) else ():
        _check_name(name, named, reader)


def _check_name(name: str, named: Named, reader: TableReader) -> None:
    path = ("budgets", "people", name)
    if not is_person(name, path, named, reader):
        return
    owner = named.person_of(name)
    if owner != name:
        reader.wrong(path, f"{name} is an account of the owner {owner}", f"Write [budgets.people.{owner}]")
