"""Rules for sub-sessions: refusals, first and last message, order of a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.domain.children import NewChild, SpawnMode, SpawnRefusal
from gateway.domain.ids import NodeId, Principal, SessionId, TurnId, main_session
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.steps import Answer, Usage
from gateway.domain.turns import Lease, TurnState
from gateway.errors import NotFound
from gateway.store.child_rules import (
    WORDS_KEPT,
    ChildRows,
    End,
    answer_of,
    end_message,
    expect_of_step,
    first_message,
    in_order,
    last_words,
    lineage_below,
    not_started,
    of_another,
    refusal,
)
from tests.support.makers import ANN, CHAT, EPOCH, OTHER_CHAT
from tests.support.turns import lineage, session

LEASE = Lease(
    turn=TurnId("t7"),
    session=main_session(ANN),
    node=NodeId("here#1"),
    fence=1,
)
CHILD = SessionId("child:t7.2")


# --- the beginning --------------------------------------------------------------------------------


def test_a_child_has_the_id_of_the_step_that_spawns_it() -> None:
    expect_of_step(LEASE, 2, CHILD)
    for n, other in [(3, CHILD), (2, SessionId("child:t8.2")), (2, main_session(ANN))]:
        with pytest.raises(NotFound, match=rf"{other} is not the one that step {n} of the turn t7 spawns\.$"):
            expect_of_step(LEASE, n, other)


def test_errors_name_what_they_are_about() -> None:
    assert not_started(LEASE, 2).message == "The turn t7 has no step 2 that was started under this lease."
    stopped = of_another(CHILD)
    assert (stopped.message, stopped.cure) == (
        "The sub-session child:t7.2 is of somebody else's turn.",
        "Its requester can stop it, or ask it again.",
    )


@pytest.mark.parametrize(
    ("depth", "in_turn", "live", "why"),
    [
        (1, 0, 0, None),
        (2, 19, 4, None),
        (3, 0, 0, SpawnRefusal.TOO_DEEP),
        (2, 20, 0, SpawnRefusal.TOO_MANY_IN_TURN),
        (1, 21, 9, SpawnRefusal.TOO_MANY_IN_TURN),
        (1, 0, 5, SpawnRefusal.TOO_MANY_LIVE),
        (3, 20, 5, SpawnRefusal.TOO_DEEP),
    ],
)
def test_limits_of_depth_and_number_of_children(depth: int, in_turn: int, live: int, why: SpawnRefusal | None) -> None:
    assert refusal(depth, in_turn=in_turn, live=live) is why


COUNT = NewChild(
    session=CHILD,
    title="count",
    task="Count them.",
    tools=(),
    mode=SpawnMode.RUN,
    agent="careful",
    model="small",
    active_s=7,
    tokens=9,
    expires_in=timedelta(hours=1),
)


def test_lineage_of_a_child_comes_from_the_store() -> None:
    given = {"mode": SpawnMode.RUN, "agent": "careful", "model": "small", "active_s": 7, "tokens": 9}
    ann = main_session(ANN)

    found = lineage_below(session(), LEASE.turn, 2, OTHER_CHAT, COUNT)
    assert (found.parent, found.turn, found.n, found.depth) == (ann, "t7", 2, 1)
    assert (found.root, found.root_turn, found.conversation) == (ann, "t7", OTHER_CHAT)
    assert {name: getattr(found, name) for name in given} == given

    above = replace(lineage(), root=SessionId("main:cleo"), root_turn=TurnId("t1"))
    below = lineage_below(session(of=above, id="child:t1.4"), LEASE.turn, 2, OTHER_CHAT, COUNT)
    assert (below.parent, below.turn, below.n, below.depth) == ("child:t1.4", "t7", 2, 2)
    assert (below.root, below.root_turn, below.conversation) == ("main:cleo", "t1", CHAT)
    assert {name: getattr(below, name) for name in given} == given


def test_the_task_is_the_first_message_and_no_persons() -> None:
    assert first_message(COUNT, EPOCH) == Inbound(
        event_key="child/child:t7.2/spawn",
        conversation=Conversation(channel="web", account="child", chat=CHILD),
        principal=Principal("system:parent"),
        name="task",
        direct=True,
        addressed=True,
        text="Count them.",
        sent_at=EPOCH,
    )


# --- the end --------------------------------------------------------------------------------------

STATUS = NewSlot(conversation=CHAT, kind=SlotKind.STATUS, text="thinking")
EMPTY = NewSlot(conversation=CHAT, kind=SlotKind.CARD)
NOTE = NewSlot(conversation=CHAT, kind=SlotKind.NOTE, text="It failed.")
OTHER = NewSlot(conversation=CHAT, kind=SlotKind.ANSWER, text="Later.")


@pytest.mark.parametrize(
    ("answer", "slots", "words"),
    [
        (Answer(text="Here."), [NOTE], "Here."),
        (Answer(text=""), [NOTE], "It failed."),
        (None, [STATUS, EMPTY, NOTE, OTHER], "It failed."),
        (None, [STATUS, EMPTY], ""),
        (None, [], ""),
    ],
)
def test_last_words_of_a_turn(answer: Answer | None, slots: Sequence[NewSlot], words: str) -> None:
    assert last_words(answer, slots) == words


def end(words: str = "All 3.", title: str = "count") -> End:
    return End(child=CHILD, task=TurnId("t9"), title=title, state=TurnState.DONE, words=words)


def test_the_answer_of_a_child_has_its_words_and_what_it_cost() -> None:
    assert answer_of(end(), 1200, Usage(input_tokens=5, output_tokens=6, cached_tokens=4, cost_micros=7)) == {
        "child": CHILD,
        "state": "done",
        "text": "All 3.",
        "active_ms": 1200,
        "input_tokens": 5,
        "output_tokens": 6,
        "cost_micros": 7,
    }
    vast = answer_of(end("x" * WORDS_KEPT + "y"), 0, Usage())["text"]
    assert vast == "x" * WORDS_KEPT


@pytest.mark.parametrize(
    ("title", "words", "quoted"),
    [
        ("count", "All 3.", "Task: count\n\nAll 3."),
        ("", "All 3.", "All 3."),
        ("count", "", "Task: count"),
        ("", "", ""),
        ("count", "x" * WORDS_KEPT + "y", "Task: count\n\n" + "x" * WORDS_KEPT),
    ],
)
def test_the_end_comes_as_a_message_whose_words_are_quoted(title: str, words: str, quoted: str) -> None:
    assert end_message(end(words, title), CHAT, EPOCH) == Inbound(
        event_key="child/child:t7.2/t9/end",
        conversation=CHAT,
        principal=Principal("system:child"),
        name="sub-session",
        direct=False,
        addressed=True,
        text="The sub-session `child:t7.2` has ended: done.",
        sent_at=EPOCH,
        quoted=quoted,
    )


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "order"),
    [
        ("", ""),
        ("a/root:live:1 b/root:live:2", "a b"),
        ("b/root:live:2 a/root:live:1", "a b"),
        ("a/root:1:1 b/root:live:2", "b a"),
        ("a/root:1:1 b/root:2:2 c/root:3:3", "c b a"),  # who ended last, first
        ("a/root:5:1 b/root:2:2", "a b"),
        # A parent that has ended goes where its liveliest child goes, and stands before it.
        ("a/root:1:1 x/a:live:3 b/root:live:2", "a b x"),
        ("a/root:1:1 x/a:9:3 b/root:5:2", "a x b"),
        ("a/root:9:1 x/a:1:3 b/root:5:2", "a b x"),
        ("a/root:1:1 x/a:2:2 y/x:live:3 b/root:live:4", "a x y b"),
    ],
)
def test_a_family_is_listed_live_ones_first(family: str, order: str) -> None:
    """Each is `name/parent:ended:born`, with `live` for one that has not ended."""
    kin: list[ChildRows] = []
    for one in family.split():
        name, _, rest = one.partition("/")
        parent, ended, born = rest.split(":")
        live = ended == "live"
        kin.append(
            ChildRows(
                session=SessionId(name),
                parent=SessionId(parent),
                live=live,
                born=int(born),
                ended=0 if live else int(ended),
            )
        )

    assert in_order(kin) == order.split()
