"""What the fault tests leave behind: their figures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fault.telegram_rig import Figure


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Keep what was measured, beside what is allowed, in the report of the test: `pytest --junit-xml=FILE`."""

    def keep(what: str, found: object, bar: object) -> None:
        record_property(what, f"{found} (bar: {bar})")

    return keep
