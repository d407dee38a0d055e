"""Usage of an answer, wait of a cut message, and where an owner is notified."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from gateway.domain.messages import Inbound
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import TurnKind, TurnState
from gateway.domain.views import Spent
from gateway.errors import ConfigError
from gateway.store import open_store
from gateway.store.answer_rules import cost_of, together
from gateway.store.memory import MemoryStore
from gateway.store.message_parts import Fate, fate, goes_on, held_until
from gateway.store.sqlite import SqliteStore
from tests.support.clock import FakeClock
from tests.support.makers import ANN, BOB, EPOCH, attachment, inbound, seconds

USED = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, cost_micros=4)


def test_answer_without_figures_has_no_usage() -> None:
    assert cost_of(Answer(text="Hi.", model="m"), BOB, EPOCH) is None


def test_an_answer_counts_for_the_person_and_the_day_in_utc() -> None:
    late = datetime(2026, 3, 1, 1, 0, tzinfo=timezone(timedelta(hours=2)))

    assert cost_of(Answer(text="", model="m", usage=USED), BOB, late) == Spent(
        day=date(2026, 2, 28), principal=BOB, model="m", answers=1, usage=USED
    )


def test_sums_are_sums() -> None:
    one = Spent(day=EPOCH.date(), principal=BOB, model="m", answers=1, usage=USED)
    more = Usage(input_tokens=10, output_tokens=20, cached_tokens=30, cost_micros=40)

    assert together(one, replace(one, answers=2, usage=more)) == replace(
        one, answers=3, usage=Usage(input_tokens=11, output_tokens=22, cached_tokens=33, cost_micros=44)
    )


# --- a message that its platform cut --------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "kind", "goes"),
    [
        (inbound(), TurnKind.MODEL, True),
        (replace(inbound(), follows="k1"), TurnKind.MODEL, True),
        (replace(inbound(), follows="k0"), TurnKind.MODEL, False),  # something came between
        (inbound(), TurnKind.COMMAND, False),
        (replace(inbound(), reply_to="7"), TurnKind.MODEL, False),
        (replace(inbound(), quoted="> it"), TurnKind.MODEL, False),
        (replace(inbound(), unread="a sticker"), TurnKind.MODEL, False),
        (replace(inbound(), attachments=(attachment(),)), TurnKind.MODEL, False),
    ],
)
def test_next_part_of_a_cut_message(more: Inbound, kind: TurnKind, goes: bool) -> None:
    assert goes_on(more, kind, "k1", was_cut=True) is goes
    assert not goes_on(more, kind, "k1", was_cut=False)


@pytest.mark.parametrize(
    ("kind", "turn", "state", "begun", "found"),
    [
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.QUEUED, False, Fate.JOINS),
        (TurnKind.MODEL, TurnKind.COMMAND, TurnState.QUEUED, False, Fate.JOINS),
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.STOPPED, False, Fate.APART),
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.RUNNING, True, Fate.STEERS),
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.PARKED, True, Fate.STEERS),
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.QUEUED, True, Fate.STEERS),  # given back
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.STOPPING, True, Fate.APART),
        (TurnKind.MODEL, TurnKind.MODEL, TurnState.DONE, True, Fate.APART),
        (TurnKind.MODEL, TurnKind.COMMAND, TurnState.RUNNING, True, Fate.APART),
        (TurnKind.COMMAND, TurnKind.MODEL, TurnState.QUEUED, False, Fate.APART),
    ],
)
def test_fate_of_a_further_album_message(
    kind: TurnKind, turn: TurnKind, state: TurnState, begun: bool, found: Fate
) -> None:
    assert fate(kind, turn, state, begun=begun) is found


@pytest.mark.parametrize(
    ("part", "after_s", "until_s"), [(1, 0, 1), (9, 4, 5), (9, 5.5, 6), (9, 6, None), (2, 3600, None), (10, 1, None)]
)
def test_wait_for_an_album(part: int, after_s: float, until_s: float | None) -> None:
    found = held_until(replace(inbound(), album="a1"), part=part, first_at=EPOCH, now=EPOCH + seconds(after_s))

    assert found == (None if until_s is None else EPOCH + seconds(until_s))


@pytest.mark.parametrize(
    ("cut", "part", "after_s", "until_s"),
    [
        (True, 1, 0, 1.5),
        (True, 2, 1, 2.5),
        (True, 7, 4.5, 6),
        (True, 7, 5, 6),  # 6 s in all
        (True, 8, 5, None),
        (False, 1, 0, None),
    ],
)
def test_wait_for_the_next_part(cut: bool, part: int, after_s: float, until_s: float | None) -> None:
    found = held_until(replace(inbound(), cut=cut), part=part, first_at=EPOCH, now=EPOCH + seconds(after_s))

    assert found == (None if until_s is None else EPOCH + seconds(until_s))


# --- which store ----------------------------------------------------------------------------------


async def test_the_url_says_which_store_and_it_has_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    memory, sqlite = (open_store(url, clock) for url in ("memory://", f"sqlite://{tmp_path / 'a.db'}"))
    try:
        assert (type(memory), type(sqlite)) == (MemoryStore, SqliteStore)
        assert (tmp_path / "a.db").exists()
        for store in (memory, sqlite):
            await store.saw_page(ANN)
            assert (await store.last_contact(ANN, [])).page_seen_at == clock.now()
    finally:
        await sqlite.close()


@pytest.mark.parametrize("url", ["", "memory:", "memory://x", "sqlite://relative.db", "SQLITE:///tmp/x", "redis:", "x"])
def test_another_url_is_refused_with_the_cure(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url, FakeClock())
    assert refused.value.message == f"No store can be opened at {url!r}."
    assert refused.value.cure == "Use `sqlite:///` with an absolute path, `redis://` with an address, or `memory://`."
