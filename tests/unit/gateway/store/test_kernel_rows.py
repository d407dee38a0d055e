"""Copies of frozen rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.routes import empty_session
from gateway.store.kernel.rows import SessionRow, changed
from tests.support.makers import EPOCH, route

ROW = SessionRow(session=empty_session(route(), EPOCH))


def test_changed_copy_equals_a_replaced_one() -> None:
    assert changed(ROW, summary_rev=7) == replace(ROW, summary_rev=7)
    assert ROW.summary_rev == 0


def test_changed_copy_has_no_unknown_field() -> None:
    with pytest.raises(TypeError, match="SessionRow has no summary"):
        changed(ROW, summary="A field of the session, not of the row")
