"""A soak's arithmetic: lines through samples, what is judged of them, and what is said of a figure."""

from __future__ import annotations

import os
import random
import socket

import pytest

from tests.soak.__main__ import parsed
from tests.soak.bars import Bar, Outcome, Rest, bar_of_rows, bars_of_lives, lives_of
from tests.soak.judge import asked_badly
from tests.soak.samples import Sample, connections, slope
from tests.soak.script import Script, file_of
from tests.soak.soak import Plan, faster
from tests.support.model_server import Question
from tests.support.proof_page import read_lines


def sample(at_s: float, *, life: int = 1, rss_mb: float = 90.0, wal_mb: float = 4.0, notes: int = 0) -> Sample:
    """One look at a life in which nothing changes but what is given."""
    return Sample(
        at_s=at_s,
        life=life,
        resting=False,
        rss_mb=rss_mb,
        pss_mb=70.0,
        children=0,
        children_pss_mb=0.0,
        descriptors=30,
        files=9,
        threads=5,
        tasks=27,
        answer_ms=1.0,
        wal_mb=wal_mb,
        database_mb=1.0,
        rows={"events": int(at_s), "notes": notes},
    )


def rest(life: int, descriptors: int = 22) -> Rest:
    """Return the memory of a life at rest."""
    return Rest(life=life, descriptors=descriptors, files=9, threads=5, tasks=27)


def test_a_line_is_found_again_under_noise() -> None:
    chance = random.Random(1)
    found = slope([(at, 90 + at / 3600 * 2 + chance.gauss(0, 0.2)) for at in range(0, 1800, 10)])
    assert abs(found.an_hour - 2) < 3 * found.error
    assert 0.02 < found.error < 0.2
    assert found.over_s == 1790


@pytest.mark.parametrize("points", [[], [(1.0, 5.0)], [(1.0, 5.0), (2.0, 9.0)], [(1.0, 5.0)] * 4])
def test_too_few_samples_are_no_line(points: list[tuple[float, float]]) -> None:
    found = slope(points)
    assert (found.an_hour, found.error, found.over_s) == (0, 0, 0)


def test_a_life_is_judged_once_it_is_warm() -> None:
    """Its first five minutes grow fast, and count for nothing; later it grows by 3 MB an hour, and that is too much."""
    warming = [sample(at, rss_mb=60 + at / 10) for at in range(0, 300, 10)]
    growing = [sample(at, rss_mb=90 + at / 1200) for at in range(300, 1800, 10)]
    (life,) = lives_of([*warming, *growing], warm_up_s=300)
    assert life.rss.an_hour == pytest.approx(3)
    (memory,) = [bar for bar in bars_of_lives([life], []) if "memory" in bar.what]
    assert not memory.held


def test_an_hour_is_one_of_a_message_a_second() -> None:
    """At four messages a second 12 MB more in an hour are 3 MB for each hour's worth of messages."""
    quick = [sample(at, rss_mb=90 + at / 300) for at in range(0, 1800, 10)]
    (life,) = lives_of(quick, warm_up_s=75, per_s=4)
    assert life.rss.an_hour == pytest.approx(3)


def test_faster_plan_has_as_much_in_less_time() -> None:
    hour = Plan(minutes=60, seed=1)
    quick = faster(hour, 4)
    assert (quick.per_s * quick.gust_s, quick.per_s * quick.warm_up_s) == (hour.gust_s, hour.warm_up_s)
    assert faster(hour, 1) == hour


def test_a_model_that_is_faster_says_the_same_in_less_time() -> None:
    story = Question(text="#12 story")
    usual, quick = (Script(random.Random(1), nap_s=3, times=times)(story) for times in (1, 4))
    assert (quick.text, quick.delay_s) == (usual.text, usual.delay_s / 4)


def test_a_short_life_says_nothing_of_an_hour() -> None:
    lives = lives_of([sample(at, rss_mb=90 + at) for at in range(0, 60, 10)], warm_up_s=10)
    bars = bars_of_lives(lives, [])
    assert lives[0].rss.an_hour == pytest.approx(3600)
    assert [bar.what for bar in bars if "memory" in bar.what] == []


def test_growth_at_rest_is_a_miss() -> None:
    bars = bars_of_lives([], [(rest(1), rest(1, 21)), (rest(2), rest(2, 24))])
    assert [bar.value for bar in bars if not bar.held] == [2]


def test_new_connection_is_named_by_its_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        here, there = client.getsockname()[1], server.getsockname()[1]
        assert {f"{there} to 0, 0A", f"{here} to {there}, 01"} <= set(connections(os.getpid()))


def test_a_log_that_grows_too_large_is_noticed() -> None:
    (life,) = lives_of([sample(0), sample(10, wal_mb=80.0)], warm_up_s=0)
    assert [bar.what for bar in bars_of_lives([life], []) if not bar.held] == ["SQLite's write-ahead log"]


def test_rows_that_should_not_grow_are_told_from_those_that_do() -> None:
    steady = [sample(at, notes=20) for at in range(0, 100, 10)]
    assert bar_of_rows(steady).held
    leaking = bar_of_rows([*steady, sample(100, notes=300)])
    assert (leaking.held, leaking.value, leaking.see) == (False, 280, "notes +280")


def test_figures_become_lines_of_the_proof() -> None:
    missed = Bar(what="messages lost", value=2, bar=0, of=7, see="#12 talk")
    assert missed.told() == "MISSED  messages lost: 2 of 7 (≤ 0)  #12 talk"
    outcome = Outcome(minutes=60, per_s=4, seed=5, lives=[], bars=[missed], kills=6, counts={"messages": 7})
    assert outcome.misses() == [missed]
    found = outcome.as_json({"commit": "abc"})
    assert (found["commit"], found["lines"][0]["fault"], found["lines"][0]["held"]) == ("abc", "F31", False)
    assert found["lines"][1]["count"] == 6
    assert (found["per_s"], found["lines"][0]["test"]) == (4, "./run soak --minutes 60 --faster 4")
    assert read_lines("") == []


def test_the_model_asks_for_what_was_wished_and_then_says_so() -> None:
    script = Script(random.Random(1), nap_s=3)
    (call,) = script(Question(text="Somebody said:\n#12 nap")).calls
    assert "sleep 3" in call.arguments
    assert file_of("echo x >> ran-12; sleep 3") == "ran-12"
    assert [one.name for one in script(Question(text="#3 spawn")).calls] == ["sessions_spawn"] * 2
    assert "about 7" in script(Question(text="#6 run\n#7 talk")).text
    script.calm = False
    answers = [script(Question(text=f"#{n} talk")) for n in range(2_000)]
    assert (
        0
        < sum(answer.status != 200 for answer in answers)
        == script.refused - sum(answer.cut_after is not None or answer.nonsense is not None for answer in answers)
    )


def test_a_call_without_its_result_is_noticed() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "a"}]}
    asked: list[dict[str, object]] = [
        {"messages": [call, {"role": "tool", "tool_call_id": "a"}]},
        {"messages": [call, {"role": "user"}]},
    ]
    assert len(asked_badly(asked)) == 1


@pytest.mark.parametrize("words", [["--minutes", "0"], ["--minutes", "99999"], ["--seed", "-1"]])
def test_malformed_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(words)
    assert words[0] in capsys.readouterr().err
