"""Errors that come in groups."""

from __future__ import annotations

from gateway.errors import StoreError, first_of


def test_the_first_error_of_a_group_is_found_however_deep_it_stands() -> None:
    store, other = StoreError("The disk is full."), ValueError("no")
    assert first_of(BaseExceptionGroup("", [store, other])) is store
    assert first_of(BaseExceptionGroup("", [BaseExceptionGroup("", [BaseExceptionGroup("", [store])]), other])) is store
