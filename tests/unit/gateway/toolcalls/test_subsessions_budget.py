"""Budget of a child, cut from the rest of its parent's turn; secrets in a child's answer are redacted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.children import Lineage
from gateway.domain.ids import TurnId, child_session
from gateway.domain.steps import Answer, Usage
from gateway.domain.tools import ToolCall
from gateway.domain.turns import ENDED, Lease, TurnLimits, TurnState
from gateway.domain.views import ChildLine
from gateway.toolcalls.subsessions import ENDS_WITHIN, tokens_used
from tests.support.engine import Engine
from tests.support.fakes import ScriptedModel
from tests.unit.gateway.toolcalls.subsession_rig import a_child, answered, call, ended, planned, spawning

LIMITS = TurnLimits(tokens=600, active=timedelta(minutes=15), child_active=timedelta(minutes=10))
SECRET = "hunter2-very-secret-key"


def spawns(count: int, mode: str = "run") -> list[ToolCall]:
    return [call("sessions_spawn", n, task=f"part {n}", mode=mode) for n in range(count)]


async def asks(engine: Engine, tokens: int, *calls: ToolCall) -> Lease:
    """Return a claimed root turn whose first answer used that many tokens and made these calls."""
    await engine.say()
    lease = await engine.claim()
    await says(engine, lease, tokens, *calls)
    return lease


async def says(engine: Engine, lease: Lease, tokens: int, *calls: ToolCall) -> None:
    given = [one for one in (await engine.store.turn(lease.turn)).inputs if one.given is None]
    answer = Answer(
        text="",
        calls=calls,
        model="scripted",
        usage=Usage(input_tokens=tokens // 2, output_tokens=tokens - tokens // 2),
    )
    await engine.store.plan(lease, answer, given=given, slots=[])


async def finishes(engine: Engine, lease: Lease, tokens: int) -> None:
    """End a child with an answer that used that many tokens."""
    given = (await engine.store.turn(lease.turn)).inputs
    answer = Answer(text="done", model="scripted", usage=Usage(input_tokens=tokens))
    assert await engine.store.finish_turn(lease, TurnState.DONE, answer=answer, given=given, slots=[], timers=[])


async def line_of(engine: Engine, parent: Lease, n: int) -> Lineage:
    """Return the lineage of the child of a step."""
    child = await engine.store.session(child_session(parent.turn, n))
    assert child is not None
    assert child.lineage is not None
    return child.lineage


async def test_children_share_the_rest_and_the_last_one_is_denied(tmp_path: Path) -> None:
    """A sixth of the limit at most; never more than the turn has, also when several are begun side by side."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 450, *spawns(3))

    assert not await engine.settle(parent)
    steps = (await engine.store.turn(parent.turn)).steps[1:]
    begun = [step.n for step in steps if step.result is None]
    assert sorted([(await line_of(engine, parent, n)).tokens for n in begun]) == [50, 100]
    (refused,) = [step.result for step in steps if step.result is not None]
    assert (refused.code, refused.status) == ("used_up", "denied")
    assert "Say what is done so far." in refused.hint


async def test_used_tokens_of_a_child_count_not_its_budget(tmp_path: Path) -> None:
    """However its end is told."""
    for mode, left in (("run", 550 - 100 - 30), ("session", 550 - 100 - 30)):
        engine = spawning(tmp_path / mode, limits=TurnLimits(tokens=6 * 550))
        parent = await asks(engine, 6 * 550 - 550, *spawns(1, mode))
        await engine.settle(parent)
        assert (await line_of(engine, parent, 1)).tokens == 550
        await finishes(engine, await engine.claim(), 30)
        assert await engine.settle(parent)
        await says(engine, parent, 100, *spawns(1))
        assert not await engine.settle(parent)
        assert (await line_of(engine, parent, 3)).tokens == left


async def test_family_stays_within_the_budget_of_its_root(tmp_path: Path) -> None:
    """Each child that is waited for passes all it may use on to children of its own that nobody waits for."""
    engine = spawning(tmp_path, limits=LIMITS)
    used = 0
    parent = await asks(engine, 0)
    for _ in range(30):
        await says(engine, parent, 1, call("sessions_spawn", task=f"wait {used}"))
        used += 1
        if await engine.settle(parent):
            break
        child = await engine.claim()
        while True:
            await says(engine, child, 1, call("sessions_spawn", task=f"go on {used}", mode="session"))
            used += 1
            await engine.settle(child)
            last = (await engine.store.turn(child.turn)).steps[-1]
            if last.result is None or last.result.code:
                break
            budget = (await line_of(engine, child, last.n)).tokens
            await finishes(engine, await engine.claim(), budget)
            used += budget
        await finishes(engine, child, 0)

    assert used <= 1.1 * LIMITS.tokens


async def test_tokens_of_unawaited_children_end_the_turn(tmp_path: Path) -> None:
    """And what those may use that are at work: they use it beside the turn."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 1, *spawns(5, "session"))
    assert await engine.settle(parent)
    for used, held in ((10, 500), (20, 410), (100, 330), (120, 330)):  # the last one beyond its limit, by one answer
        assert await engine.subsessions.tokens_untold(await engine.store.turn(parent.turn)) == held
        await finishes(engine, await engine.claim(), used)
    await says(engine, parent, 249)
    engine.model.script = [Answer(text="never given")]
    await engine.run(parent)

    said = "Stopped: this turn used 250 tokens, and 350 are its sub-sessions'; its limit is 600. Write again to go on."
    assert said in (await engine.texts())[-1]


async def test_a_turn_and_what_works_beside_it_use_no_more_than_it_may(tmp_path: Path) -> None:
    """It goes on for as long as it may, and each of its children uses all that it was given."""
    engine = spawning(tmp_path, limits=LIMITS)
    engine.model.script = [
        Answer(text="", calls=(one,), model="scripted", usage=Usage(input_tokens=20))
        for one in [*spawns(5, "session"), *[call("sessions_list", n) for n in range(9)]]
    ]
    turn = await engine.say()
    await engine.run(await engine.claim())
    root = await engine.store.turn(turn)
    given = [line.session.lineage.tokens for line in await engine.store.children_of(turn) if line.session.lineage]

    assert (root.turn.state, len(given)) == (TurnState.FAILED, 5)
    assert tokens_used(root) + sum(given) <= 1.1 * LIMITS.tokens


async def test_a_child_that_is_stopping_holds_nothing_back(tmp_path: Path) -> None:
    """It asks its model no more, however long what it runs takes to end."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 1, *spawns(1, "session"))
    assert await engine.settle(parent)
    child = await engine.claim()
    await says(engine, child, 30, *spawns(1))
    await engine.store.stop_child(parent.session, child.session, "Enough.", None)

    assert (await engine.store.turn(child.turn)).turn.state is TurnState.STOPPING
    assert await engine.subsessions.tokens_untold(await engine.store.turn(parent.turn)) == 30


async def test_a_grandchild_is_cut_from_what_its_parent_has_left(tmp_path: Path) -> None:
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 0, *spawns(1))
    assert not await engine.settle(parent)
    child = await engine.claim()
    await says(engine, child, 95, *spawns(1))
    assert not await engine.settle(child)

    assert (await line_of(engine, child, 1)).tokens == 5


async def test_a_child_never_works_longer_than_its_parent_could(tmp_path: Path) -> None:
    """Of this holding and those before it; time that it was parked does not count."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await planned(engine, *spawns(1))
    await engine.works(parent, 360)
    assert not await engine.settle(parent)
    assert (await line_of(engine, parent, 1)).active_s == 540
    assert await engine.store.park(parent)
    engine.clock.advance(3600)
    await ended(engine, await engine.claim(), "done")
    again = await engine.claim()
    await engine.works(again, 530)
    await engine.settle(again)
    await answered(engine, again, *spawns(1))
    assert not await engine.settle(again)

    assert (await line_of(engine, again, 3)).active_s == 10


async def test_spawn_repeated_after_a_crash_is_charged_once(tmp_path: Path) -> None:
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 590, *spawns(1))
    assert not await engine.settle(parent)
    engine.clock.advance(16)
    await engine.store.reclaim()
    claimed = [await engine.claim(), await engine.claim()]
    again = next(lease for lease in claimed if lease.turn == parent.turn)

    assert not await engine.settle(again)
    assert (await line_of(engine, again, 1)).tokens == 10
    assert (await engine.step(parent.turn, 1)).result is None


async def test_a_childs_title_and_last_words_tell_no_secret(tmp_path: Path) -> None:
    """They go where its parent's session is shown, and to its parent's model."""
    engine = spawning(tmp_path, secrets=[SECRET])
    parent = await planned(engine, call("sessions_spawn", task=f"use {SECRET} for it", mode="session"))
    assert await engine.settle(parent)
    await ended(engine, parent, "begun")
    engine.models.model = ScriptedModel([Answer(text=f"It is {SECRET}.", model="scripted")])
    await engine.run(await engine.claim())
    told = await engine.store.turn((await engine.claim()).turn)

    (child,) = await engine.store.family(parent.session)
    assert child.session.title == "use [hidden] for it"
    assert [one.message.quoted for one in told.inputs] == ["Task: use [hidden] for it\n\nIt is [hidden]."]


async def test_child_may_begin_sessions_without_a_person(tmp_path: Path) -> None:
    """A person stands behind its task; and what it begins ends with that."""
    engine = spawning(tmp_path)
    _, child = await a_child(engine)
    await answered(engine, child, *spawns(1, "session"))

    assert await engine.settle(child)
    assert (await engine.result(child.turn, 1)).status == "ok"


async def test_tokens_used_below_a_child_count(tmp_path: Path) -> None:
    """Nobody waits for a child of mode session, so no answer tells what it and its own children used."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 500, *spawns(1, "session"))
    assert await engine.settle(parent)
    child = await engine.claim()
    await says(engine, child, 5, *spawns(1))
    assert not await engine.settle(child)
    assert await engine.store.park(child)
    await finishes(engine, await engine.claim(), 16)
    child = await engine.claim()
    assert await engine.settle(child)
    await finishes(engine, child, 1)

    await says(engine, parent, 0, *spawns(1))
    assert not await engine.settle(parent)
    assert (await line_of(engine, parent, 3)).tokens == 600 - 500 - 5 - 16 - 1


async def test_tokens_of_a_child_with_unreported_end_count(tmp_path: Path) -> None:
    """Its parent gave up waiting."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 500, *spawns(1))
    assert not await engine.settle(parent)
    assert await engine.store.park(parent)
    child = await engine.claim()
    await says(engine, child, 40, *spawns(1))
    engine.clock.advance(ENDS_WITHIN.total_seconds() + 1)
    assert await engine.store.expire_waits() == 1
    assert await engine.store.reclaim()
    again = await engine.claim()
    assert again.turn == parent.turn
    assert await engine.settle(again)

    await says(engine, again, 0, *spawns(1))
    assert not await engine.settle(again)
    assert (await line_of(engine, again, 3)).tokens == 600 - 500 - 40


@pytest.mark.parametrize("before", [True, False])
async def test_a_child_that_ends_in_between_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    """Of two looks at the store, one could find it live no more, and the other not yet what it answered."""
    engine = spawning(tmp_path, limits=LIMITS)
    parent = await asks(engine, 500, *spawns(2))
    read = engine.store.children_of

    async def and_it_ends(turn: TurnId) -> Sequence[ChildLine]:
        found = await read(turn)
        if found and found[0].turn.state not in ENDED:
            await finishes(engine, await engine.claim(), 100)
        return await read(turn) if before else found

    monkeypatch.setattr(engine.store, "children_of", and_it_ends)
    await engine.settle(parent)
    results = [step.result for step in (await engine.store.turn(parent.turn)).steps[1:]]
    assert [one.code for one in results if one is not None and one.code] == ["used_up"]
