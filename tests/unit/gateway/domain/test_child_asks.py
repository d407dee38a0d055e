from __future__ import annotations

import pytest

from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_HOME, Principal, child_asks


@pytest.mark.parametrize(
    ("authors", "expected"),
    [
        ([], False),
        ([SYSTEM_CHILD], True),
        ([SYSTEM_CHILD, SYSTEM_HOME], True),
        ([SYSTEM_HOME], False),
        ([SYSTEM_CHILD, Principal("web:ann")], False),
    ],
)
def test_a_notice_does_not_make_it_a_persons_turn(authors: list[Principal], expected: bool) -> None:
    assert child_asks(authors) is expected
