"""Errors that come in groups."""

from __future__ import annotations

from gateway.errors import StoreError, first_of


def test_first_error_of_nested_groups_is_found() -> None:
    store, other = StoreError("The disk is full."), ValueError("no")
    assert first_of(BaseExceptionGroup("", [store, other])) is store
    assert first_of(BaseExceptionGroup("", [BaseExceptionGroup("", [BaseExceptionGroup("", [store])]), other])) is store
