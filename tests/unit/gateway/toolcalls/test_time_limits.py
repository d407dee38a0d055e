"""Timeout of a call: that of its tool or action, and what its own argument may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.tools import ToolPolicy
from gateway.toolcalls.processes import limit_s
from tests.support.fakes import FakeTool

SPEC = FakeTool(name="x").tool().spec
POLICY = ToolPolicy(
    availability=SPEC.availability, approval={}, timeout_s=30, actions={"download": 300, "peek": 5}, sandbox=None
)


@pytest.mark.parametrize(
    ("arguments", "longest", "seconds"),
    [
        ({}, None, 30),
        ({"action": "download"}, None, 300),
        ({"action": "peek"}, None, 5),
        ({"action": "other"}, None, 30),
        ({"action": 7}, None, 30),
        ({"action": ["download"]}, None, 30),
        ({"timeout": 3}, None, 3),
        ({"timeout": 0.5}, None, 0.5),
        ({"timeout": 99}, None, 30),  # a call may only lower it …
        ({"timeout": 99}, 600, 99),  # … unless the tool lets it raise it
        ({"timeout": 9999}, 600, 600),
        ({"timeout": 9999}, 10, 30),
        ({"action": "download", "timeout": 400}, None, 300),
        ({"action": "download", "timeout": 1}, None, 1),
        ({"timeout": 0}, 600, 30),
        ({"timeout": -1}, 600, 30),
        ({"timeout": None}, 600, 30),
        ({"timeout": "99"}, 600, 30),
        ({"timeout": float("nan")}, 600, 30),
        ({"timeout": float("inf")}, 600, 600),
        ({"timeout": True}, 600, 30),
    ],
)
def test_time_limit_of_a_call(arguments: Mapping[str, Any], longest: float | None, seconds: float) -> None:
    assert limit_s(replace(SPEC, max_timeout_s=longest), POLICY, arguments) == seconds


@pytest.mark.parametrize(
    ("ceilings", "arguments", "seconds"),
    [
        ({"x"}, {"timeout": 99}, 30),
        ({"x"}, {"timeout": 3}, 3),
        ({"x"}, {}, 30),
        ({"x"}, {"action": "download"}, 30),
        ({"x"}, {"action": "download", "timeout": 400}, 30),
        ({"x"}, {"action": "peek"}, 5),
        ({"x"}, {"action": "peek", "timeout": 99}, 5),
        ({"x", "download"}, {"action": "download"}, 300),
        ({"x"}, {"action": "x", "timeout": 99}, 30),
        ({"download"}, {"action": "download", "timeout": 400}, 300),
        ({"download"}, {"action": "download", "timeout": 200}, 200),
        ({"download"}, {"action": "peek", "timeout": 99}, 99),
        ({"download"}, {"timeout": 99}, 99),
        ({"download"}, {"action": ["download"], "timeout": 99}, 99),
    ],
)
def test_a_configured_timeout_is_a_ceiling(ceilings: set[str], arguments: Mapping[str, Any], seconds: float) -> None:
    policy = replace(POLICY, ceilings=frozenset(ceilings))

    assert limit_s(replace(SPEC, max_timeout_s=600), policy, arguments) == seconds


# --- one place ----------------------------------------------------------------------------------
