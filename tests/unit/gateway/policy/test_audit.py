"""Hash chain of the audit: every change to a row is detected and named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.domain.audit import AuditHead, AuditMark, AuditRow, StartBasis, StartedCall
from gateway.domain.ids import NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.turns import TurnKind
from gateway.policy.audit import (
    PAGE,
    Broken,
    Why,
    beginning_of,
    check_of,
    cut_off,
    follow,
    hash_of,
    missing,
    sealed,
    verify,
)
from tests.support.makers import EPOCH

EMPTY = AuditHead(since=EPOCH, seq=0, hash=beginning_of(EPOCH))
ROW = AuditRow(
    seq=0,
    at=EPOCH + timedelta(seconds=1),
    session=SessionId("main:ann"),
    turn=TurnId("t1"),
    n=1,
    lane=TurnKind.MODEL,
    tool="shell",
    action_sha="ab" * 32,
    basis=StartBasis.APPROVAL,
    wait=WaitId("w1"),
    grant=None,
    rule="",
    decided_by=Principal("telegram:1001"),
    sandbox="basic",
    node=NodeId("here#1"),
    prev_hash="",
    hash="",
)
OTHERWISE: dict[str, Any] = {
    "at": EPOCH,
    "session": "main:bob",
    "turn": "t2",
    "n": 2,
    "lane": TurnKind.COMMAND,
    "tool": "file_read",
    "rule": "config.toml:41 (rules[2])",
    "action_sha": "cd" * 32,
    "basis": StartBasis.SETTINGS,
    "grant": "g1",
    "wait": None,
    "decided_by": "telegram:2002",
    "sandbox": "off",
    "node": "there#1",
}


def written(count: int) -> list[AuditRow]:
    """An audit of so many calls, one for each step of a turn."""
    rows: list[AuditRow] = []
    head = EMPTY
    for n in range(1, count + 1):
        rows.append(sealed(replace(ROW, n=n), head))
        head = replace(head, seq=rows[-1].seq, hash=rows[-1].hash)
    return rows


def started(rows: Sequence[AuditRow]) -> list[StartedCall]:
    """The calls whose rows these are, as their steps say."""

    def started_at(row: AuditRow) -> StartedCall:
        return StartedCall(ord=10 * row.seq - 9, turn=row.turn, n=row.n, started_at=row.at, row=row, seq=row.seq)

    return [started_at(row) for row in rows]


class Rows:
    """An audit of these rows and calls."""

    def __init__(self, rows: Sequence[AuditRow], calls: Sequence[StartedCall] | None = None) -> None:
        """Store the rows and calls."""
        self.rows = rows
        self.calls = started(rows) if calls is None else calls
        self.limits: list[int] = []
        self.marks: list[AuditMark | None] = []
        """Marks of removed rows, each for one look; then none."""

    async def removed_audit(self) -> AuditMark | None:
        """Return the next mark; the last one again and again."""
        return (self.marks.pop(0) if len(self.marks) > 1 else self.marks[0]) if self.marks else None

    async def note_export(self, seq: int, row_hash: str) -> bool:
        """Note nothing."""
        return any((row.seq, row.hash) == (seq, row_hash) for row in self.rows)

    async def audit_head(self) -> AuditHead:
        """Return the last position."""
        return replace(EMPTY, seq=self.rows[-1].seq, hash=self.rows[-1].hash) if self.rows else EMPTY

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the row of a call."""
        return next((row for row in self.rows if (row.turn, row.n) == (turn, n)), None)

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Return a page of rows."""
        self.limits.append(limit)
        return [row for row in self.rows if row.seq > after][:limit]

    async def started_calls(self, after: int, limit: int) -> Sequence[StartedCall]:
        """Return a page of calls."""
        self.limits.append(limit)
        return [call for call in self.calls if call.ord > after][:limit]


# --- hashes -------------------------------------------------------------------------------------


def test_hash_is_stable_across_versions() -> None:
    """A noted head may be compared years later."""
    (first,) = written(1)
    assert EMPTY.hash == "3aebe817a654b0041e0c2f4ad7f4e1853083ba4e2c102fb0ff1ccec3b0e083c0"
    assert first.hash == "328f7fd85cd9139dab773310187b43fb43f0c2901a627c08b89213ecb6281e5d"


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five hours and three quarters ahead."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kathmandu")
def test_hash_ignores_the_time_zone() -> None:
    """It may be moved, or its zone be set, between two looks."""
    assert beginning_of(EPOCH) == EMPTY.hash


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_hash_covers_every_field(name: str) -> None:
    (row,) = written(1)
    assert hash_of(replace(row, **{name: OTHERWISE[name]})) != row.hash


def test_hash_test_covers_every_field() -> None:
    assert {field.name for field in fields(AuditRow)} == {*OTHERWISE, "seq", "prev_hash", "hash"}


# --- damage ------------------------------------------------------------------------------


def test_follow_accepts_an_intact_audit_in_any_pages() -> None:
    rows = written(7)
    for size in (1, 3, 7):
        head = EMPTY
        for first in range(0, 7, size):
            head, broken = follow(head, rows[first : first + size])
            assert broken is None
        assert (head.seq, head.hash) == (7, rows[-1].hash)


def renumbered(rows: list[AuditRow]) -> list[AuditRow]:
    """Exchange rows 3 and 4, with recomputed hashes."""
    third, fourth = rows[2], rows[3]
    rows[2], rows[3] = (replace(row, seq=seq) for row, seq in ((fourth, 3), (third, 4)))
    rows[2], rows[3] = (replace(row, hash=hash_of(row)) for row in rows[2:4])
    return rows


Harm = Callable[[list[AuditRow]], list[AuditRow]]
HARMS: list[tuple[Harm, Why, str, int]] = [
    (lambda rows: [*rows[:2], replace(rows[2], tool="x"), *rows[3:]], Why.CHANGED, "row 3 differs from what", 2),
    (lambda rows: [*rows[:2], replace(rows[2], hash="0" * 64), *rows[3:]], Why.CHANGED, "row 3 differs from what", 2),
    (lambda rows: [*rows[:2], *rows[3:]], Why.REMOVED, "row 3 is missing", 2),
    (lambda rows: [rows[0], *rows[4:]], Why.REMOVED, "rows 2 to 4 are missing", 1),
    (lambda rows: rows[1:], Why.REMOVED, "row 1 is missing", 0),
    (lambda rows: [rows[0], rows[2], rows[1], *rows[3:]], Why.REMOVED, "row 2 is missing", 1),
    (
        lambda rows: [rows[0], replace(rows[2], seq=2), replace(rows[1], seq=3)],
        Why.CHANGED,
        "row 2 differs from what",
        1,
    ),
    (renumbered, Why.MOVED, "row 3 does not follow", 2),
    (lambda rows: [rows[0], rows[1], rows[1], *rows[2:]], Why.REMOVED, "rows", 2),
]
"""Change to the rows, its damage and part of its text, and the number of intact rows."""
HARM_NAMES = ["changed", "its hash too", "removed", "several", "the first", "order", "exchanged", "made anew", "twice"]


@pytest.mark.parametrize(("harm", "why", "says", "whole"), HARMS, ids=HARM_NAMES)
def test_follow_detects_damage(harm: Harm, why: Why, says: str, whole: int) -> None:
    head, broken = follow(EMPTY, harm(written(5)))
    assert broken is not None
    assert (broken.why, head.seq) == (why, whole)
    assert says in broken.says


def test_recomputed_audit_has_another_head() -> None:
    """Nothing in the file reveals it; only a head noted elsewhere does."""
    before = written(3)
    anew = [sealed(replace(ROW, n=1, tool="harmless"), EMPTY)]
    for n in (2, 3):
        anew.append(sealed(replace(ROW, n=n), replace(EMPTY, seq=n - 1, hash=anew[-1].hash)))
    head, broken = follow(EMPTY, anew)
    assert broken is None
    assert head.hash != before[-1].hash


def test_changed_start_of_the_audit_is_detected() -> None:
    """Otherwise a later date would hide every call before it."""
    later = EPOCH + timedelta(days=1)
    _, broken = follow(AuditHead(since=later, seq=0, hash=beginning_of(later)), written(2))
    assert broken is not None
    assert broken.why is Why.MOVED


# --- started calls ---------------------------------------------------------------------


def test_missing_accepts_calls_with_their_rows() -> None:
    assert missing(EPOCH, started(written(3))) is None


def test_missing_names_a_call_without_a_row() -> None:
    calls = started(written(3))
    found = missing(EPOCH, [*calls[:2], replace(calls[2], row=None)])
    assert found == Broken(
        why=Why.NOT_WRITTEN,
        says="The audit is damaged: the call at step 3 of turn t1 started at 2026-01-01T00:00:01.000000+00:00, "
        "and there is no row of it.",
    )


def test_missing_accepts_calls_from_before_the_audit() -> None:
    (call,) = started(written(1))
    assert missing(call.started_at, [replace(call, row=None)]) is None
    assert missing(call.started_at - timedelta(microseconds=1), [replace(call, row=None)]) is not None


@pytest.mark.parametrize("other", [{"n": 2}, {"turn": TurnId("t2")}, {"started_at": EPOCH}], ids=str)
def test_missing_detects_the_row_of_another_call(other: dict[str, Any]) -> None:
    (call,) = started(written(1))
    found = missing(EPOCH, [replace(call, **other)])
    assert found is not None
    assert found.why is Why.ANOTHER_CALL
    assert "its row 1 is of another start" in found.says


# --- verification ----------------------------------------------------------------------------------


async def test_verify_reads_all_pages() -> None:
    rows = written(2 * PAGE + 1)
    audit = Rows(rows)
    found = await verify(audit)
    assert (found.rows, found.calls, found.head, found.broken) == (len(rows), len(rows), rows[-1].hash, None)
    assert set(audit.limits) == {PAGE}


async def test_verify_accepts_an_empty_audit() -> None:
    found = await verify(Rows([]))
    assert (found.rows, found.calls, found.head, found.broken) == (0, 0, EMPTY.hash, None)


async def test_verify_detects_a_removed_tail() -> None:
    """The rows that are left are whole: only the steps know that there were more."""
    rows = written(5)
    calls = [replace(call, row=call.row if call.n < 4 else None) for call in started(rows)]
    found = await verify(Rows(rows[:3], calls))
    assert found.rows == 3
    assert found.broken is not None
    assert (found.broken.why, "step 4 of turn t1" in found.broken.says) == (Why.NOT_WRITTEN, True)


async def test_verify_stops_at_the_first_damage() -> None:
    rows = written(PAGE + 5)
    audit = Rows([*rows[:3], replace(rows[3], sandbox="basic?"), *rows[4:]], [])
    found = await verify(audit)
    assert (found.rows, len(audit.limits)) == (3, 1)
    assert found.broken is not None
    assert found.broken.why is Why.CHANGED


def mark_at(row: AuditRow) -> AuditMark:
    """The mark of a removal up to this row."""
    return AuditMark(seq=row.seq, hash=row.hash, at=row.at)


async def test_verify_begins_behind_the_removed_rows() -> None:
    """Calls of removed rows need none; one that started later, or that no removed row is of, does."""
    rows = written(5)
    mark = mark_at(rows[1])
    calls = [replace(call, row=call.row if call.n > 2 else None) for call in started(rows)]
    audit = Rows(rows[2:], calls)
    audit.marks = [mark]
    found = await verify(audit)
    assert (found.rows, found.calls, found.head, found.broken, found.removed) == (3, 3, rows[4].hash, None, mark)
    for other in ({"seq": 3}, {"seq": None}, {"started_at": mark.at + timedelta(microseconds=1)}):
        damage = missing(EPOCH, [replace(calls[1], **other)], mark)
        assert damage is not None
        assert damage.why is Why.NOT_WRITTEN


@pytest.mark.parametrize(("last", "is_cut"), [(1, True), (2, True), (3, False)])
def test_a_row_must_be_left_behind_the_mark(last: int, *, is_cut: bool) -> None:
    found = cut_off(mark_at(written(2)[1]), last)
    assert (found is not None) == is_cut
    assert cut_off(None, 0) is None
    if found is not None:
        assert (found.why, "behind row 2" in found.says) == (Why.REMOVED, True)


async def test_verify_sees_that_all_behind_the_mark_is_gone() -> None:
    rows = written(2)
    audit = Rows(rows[:2], [])
    audit.marks = [mark_at(rows[1])]
    found = await verify(audit)
    assert found.broken is not None
    assert (found.broken.why, found.rows) == (Why.REMOVED, 0)


async def test_verify_restarts_when_rows_go_meanwhile() -> None:
    """Missing rows are then no damage; with the same mark they are."""
    rows = written(5)
    audit = Rows(rows[3:], [])
    audit.marks = [mark_at(rows[0]), mark_at(rows[2])]
    found = await verify(audit)
    assert (found.rows, found.broken, found.removed) == (2, None, mark_at(rows[2]))
    audit.marks = [mark_at(rows[0])]
    found = await verify(audit)
    assert found.broken is not None
    assert "rows 2 to 3 are missing" in found.broken.says


def test_a_mark_is_hashed_whole() -> None:
    mark = mark_at(ROW)
    checks = {check_of(replace(mark, **one)) for one in ({}, {"seq": 9}, {"hash": "x"}, {"at": EPOCH})}
    assert len(checks) == 4
    assert check_of(mark) == "b98ff67c607ee3347be9553413fe62e82179ea4a628f07b049eb37582e951bae"
