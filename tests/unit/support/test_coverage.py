"""Tracing for coverage: only where it is measured, since it doubles the CPU of a test."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.no_cover
def test_unmeasured_run_is_not_traced() -> None:
    assert sys.gettrace() is None
