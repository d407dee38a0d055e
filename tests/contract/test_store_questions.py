"""Questions of a call: asked once, answered by presses and messages, late, twice and after a stop; task lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.children import SpawnMode
from gateway.domain.ids import Principal, SessionId, WaitId, mint
from gateway.domain.messages import Conversation, Received
from gateway.domain.questions import Inquiry, Pick, Question
from gateway.domain.routes import Accepted, WhileRunning
from gateway.domain.slots import NewSlot, Slot, SlotKind
from gateway.domain.steps import StepState
from gateway.domain.task_lists import TaskItem, TaskState
from gateway.domain.turns import Lease, TurnKind, TurnState
from gateway.domain.waits import NewWait, Pressed, PressResult, PressVerdict, WaitKind, WaitState, inquiry_of
from gateway.errors import LeaseLost, NotFound
from gateway.ports import Store, Waiting
from tests.contract.family import FamilyScene
from tests.contract.scene import MAIN, NODE
from tests.support.clock import FakeClock
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, press, result, seconds

DAY = Question(text="Which day?", options=("Monday", "Friday"))
TOPPINGS = Question(text="Which toppings?", options=("olives", "capers", "onions"), several=True)
NAME = Question(text="What is it called?")


class QuestionScene(FamilyScene):
    """Actions of a test on questions."""

    def new(self, *questions: Question, n: int = 1, ttl_s: float = 3600) -> NewWait:
        """Return the wait of a call that asks."""
        inquiry = Inquiry(questions=questions, requester=ANN_TELEGRAM)
        return NewWait(
            id=WaitId(mint("w")),
            kind=WaitKind.QUESTION,
            n=n,
            approval=None,
            payload=inquiry.as_payload(),
            expires_in=seconds(ttl_s),
        )

    async def put(self, lease: Lease, new: NewWait) -> WaitId:
        """Ask, with a card in the chat."""
        opened = await self.store.ask(lease, new, [NewSlot(conversation=CHAT, kind=SlotKind.CARD, waits=(new.id,))])
        assert opened is not None
        return opened

    async def asking(
        self, *questions: Question, ttl_s: float = 3600, kind: TurnKind = TurnKind.MODEL
    ) -> tuple[Lease, WaitId]:
        """Return a turn that is parked on a question."""
        lease = await self.running(kind=kind)
        await self.begin_calls(lease)
        wait = await self.put(lease, self.new(*(questions or (DAY,)), ttl_s=ttl_s))
        assert await self.store.park(lease)
        return lease, wait

    async def pick(self, wait: WaitId, option: int | None, question: int = 0, *, text: str = "") -> PressResult:
        """Press a button."""
        verdict = PressVerdict(refusal=None, pick=Pick(question=question, option=option, text=text))
        return (await self.store.press(press(who=ANN_TELEGRAM), wait, verdict)).result

    async def write(
        self, text: str, *, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT, **more: Any
    ) -> Accepted:
        """Write a message that may answer."""
        say = Waiting(decision="decide", children="children", answer="answer")
        return await self.say(text, who=who, where=where, running=WhileRunning.STEER, say_if_waiting=say, **more)

    async def answers(self, wait: WaitId) -> tuple[tuple[str, ...], ...]:
        """Return the stored answers."""
        inquiry = inquiry_of(await self.wait(wait))
        assert inquiry is not None
        return inquiry.answers

    async def lists(self, session: SessionId = MAIN) -> list[tuple[str, int]]:
        """Return text and version of each message of a task list."""
        slots = await self.items(Slot, session)
        return [(slot.text, slot.version) for slot in slots if slot.kind is SlotKind.CHECKLIST]


@pytest.fixture
def scene(store: Store, clock: FakeClock) -> QuestionScene:
    return QuestionScene(store, clock)


# --- asking ---------------------------------------------------------------------------------


async def test_a_question_parks_its_turn_on_one_wait(scene: QuestionScene) -> None:
    lease = await scene.at_work()
    first = await scene.put(lease, scene.new(DAY))
    assert await scene.put(lease, scene.new(DAY)) == first, "a call that runs again asks nothing anew"
    step = await scene.step(lease.turn, 1)
    assert step.state is StepState.ASKED
    assert await scene.store.park(lease)
    wait = await scene.wait(first)
    assert (wait.kind, wait.state, wait.n) == (WaitKind.QUESTION, WaitState.OPEN, 1)
    assert [line.waiting for line in await scene.store.sessions()] == [1]
    assert len(await scene.store.card_slots(first)) == 1
    assert not await scene.store.claim(lease.node)


async def test_only_a_started_step_of_the_holder_asks(scene: QuestionScene) -> None:
    lease = await scene.planned(2)
    with pytest.raises(NotFound):
        await scene.put(lease, scene.new(DAY))
    with pytest.raises(NotFound):
        await scene.put(lease, scene.new(DAY, n=9))
    await scene.stop()
    assert await scene.store.ask(lease, scene.new(DAY), []) is None
    with pytest.raises(LeaseLost):
        await scene.store.ask(replace(lease, fence=lease.fence + 1), scene.new(DAY), [])


# --- answers --------------------------------------------------------------------------------


async def test_a_press_answers_and_wakes_the_turn(scene: QuestionScene) -> None:
    lease, wait = await scene.asking()
    scene.clock.advance(7)
    assert await scene.pick(wait, 1) is PressResult.ANSWERED
    assert await scene.answers(wait) == (("Friday",),)
    found = await scene.wait(wait)
    assert (found.state, found.decided_by) == (WaitState.ANSWERED, ANN_TELEGRAM)
    assert found.decided_at == scene.clock.now()
    again = await scene.claim()
    assert again.turn == lease.turn
    (card,) = await scene.store.card_slots(wait)
    assert card.version == 2


async def test_questions_of_a_call_are_answered_in_turn(scene: QuestionScene) -> None:
    _, wait = await scene.asking(DAY, TOPPINGS, NAME)
    assert await scene.pick(wait, 0, question=1) is PressResult.ALREADY, "it is not asked yet"
    assert await scene.pick(wait, 0) is PressResult.CHOSEN
    assert await scene.pick(wait, 1) is PressResult.ALREADY, "the first question is answered"
    for option in (2, 0, 1, 1):
        assert await scene.pick(wait, option, question=1) is PressResult.CHOSEN
    assert await scene.pick(wait, None, question=1) is PressResult.CHOSEN
    assert await scene.pick(wait, 0, question=2) is PressResult.ALREADY, "it has no such option"
    assert await scene.pick(wait, None, question=2, text="Focaccia") is PressResult.ANSWERED
    assert await scene.answers(wait) == (("Monday",), ("olives", "onions"), ("Focaccia",))
    assert await scene.pick(wait, None, question=2, text="Ciabatta") is PressResult.ALREADY


@pytest.mark.parametrize("kind", TurnKind)
async def test_the_next_message_of_that_person_answers(scene: QuestionScene, kind: TurnKind) -> None:
    lease, wait = await scene.asking(NAME, DAY, kind=kind)
    first = await scene.write("  Focaccia\n")
    assert (first.answers, first.turn) == (True, lease.turn)
    assert (await scene.write("any day")).answers
    assert await scene.answers(wait) == (("Focaccia",), ("any day",))
    stored = [one.turn for one in await scene.items(Received, MAIN) if one.message.text == "any day"]
    assert stored == [None], "the call's result has the text: no model is given it twice"
    assert not (await scene.write("and this?")).answers


@pytest.mark.parametrize(
    ("who", "where", "more"),
    [
        (ANN_SLACK, CHAT, {}),
        (BOB, CHAT, {}),
        (ANN_TELEGRAM, OTHER_CHAT, {}),
        (ANN_TELEGRAM, CHAT, {"reply_to": "of another message"}),
        (ANN_TELEGRAM, CHAT, {"quoted": "forwarded words"}),
        (ANN_TELEGRAM, CHAT, {"unread": "a photo"}),
    ],
)
async def test_other_messages_answer_nothing(
    scene: QuestionScene, who: Principal, where: Conversation, more: dict[str, str]
) -> None:
    _, wait = await scene.asking()
    accepted = await scene.write("Monday", who=who, where=where, **more)
    assert (accepted.answers, accepted.waiting) == (False, True)
    assert (await scene.wait(wait)).state is WaitState.OPEN
    replies = [slot.text for slot in await scene.items(Slot, MAIN) if slot.kind is SlotKind.REPLY]
    assert replies == ["answer"]


@pytest.mark.parametrize(("who", "where"), [(ANN_SLACK, CHAT), (BOB, CHAT), (ANN_TELEGRAM, OTHER_CHAT)])
async def test_a_command_is_answered_only_by_its_person(
    scene: QuestionScene, who: Principal, where: Conversation
) -> None:
    _, wait = await scene.asking(kind=TurnKind.COMMAND)
    assert not (await scene.write("Monday", who=who, where=where)).answers
    assert (await scene.wait(wait)).state is WaitState.OPEN


async def test_a_models_question_is_answered_before_a_commands(scene: QuestionScene) -> None:
    """A reply to its card answers the command's."""
    _, asked = await scene.asking()
    _, typed = await scene.asking(kind=TurnKind.COMMAND)
    for n, wait in enumerate((asked, typed)):
        (card,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
        assert card.waits == (wait,)
        await scene.store.slot_sent(card, (f"{69 + n}",))
    assert (await scene.write("Friday", reply_to="70")).answers
    assert await scene.answers(typed) == (("Friday",),)
    assert (await scene.write("Monday")).answers
    assert await scene.answers(asked) == (("Monday",),)


async def test_a_reply_to_the_card_answers(scene: QuestionScene) -> None:
    _, wait = await scene.asking()
    (card,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(card, ("70", "71"))
    assert (await scene.write("neither", reply_to="71")).answers
    assert await scene.answers(wait) == (("neither",),)


async def test_a_reply_to_a_second_copy_of_the_card_answers(scene: QuestionScene) -> None:
    _, wait = await scene.asking()
    assert (await scene.write("neither", reply_to="69", quoted="(re-sent) Which day?\nOr write.")).answers
    assert await scene.answers(wait) == (("neither",),)


async def test_a_message_answers_a_sub_session_below(scene: QuestionScene) -> None:
    child = await scene.child()
    assert await scene.store.park(child.parent)
    lease = await scene.work(child)
    await scene.begin_calls(lease)
    wait = await scene.put(lease, scene.new(DAY))
    assert await scene.store.park(lease)
    assert (await scene.write("Sunday")).answers
    assert await scene.answers(wait) == (("Sunday",),)
    assert (await scene.claim()).turn == lease.turn


async def test_a_reply_answers_a_sub_session_that_works_on(scene: QuestionScene) -> None:
    child = await scene.child(SpawnMode.SESSION)
    assert await scene.finish(child.parent)
    lease = await scene.work(child)
    await scene.begin_calls(lease)
    wait = await scene.put(lease, scene.new(DAY))
    assert await scene.store.park(lease)
    (card,) = await scene.store.claim_slots(NODE, ["telegram"], 5)
    await scene.store.slot_sent(card, ("70",))
    for who, where, reply in ((BOB, CHAT, "70"), (ANN_TELEGRAM, OTHER_CHAT, "70"), (ANN_TELEGRAM, CHAT, "69")):
        assert not (await scene.write("Sunday", who=who, where=where, reply_to=reply)).answers
    assert (await scene.write("Sunday", reply_to="70")).answers
    assert await scene.answers(wait) == (("Sunday",),)


# --- late, twice, stopped -------------------------------------------------------------------


async def test_an_expired_question_wakes_its_turn_unanswered(scene: QuestionScene) -> None:
    lease, wait = await scene.asking(DAY, NAME, ttl_s=60)
    assert await scene.pick(wait, 0) is PressResult.CHOSEN
    scene.clock.advance(61)
    assert await scene.pick(wait, None, question=1, text="late") is PressResult.LATE
    assert not (await scene.write("late too")).answers
    await scene.sweep(scene.store.expire_waits)
    assert (await scene.wait(wait)).state is WaitState.EXPIRED
    assert await scene.answers(wait) == (("Monday",),)
    assert (await scene.claim()).turn == lease.turn


async def test_an_open_question_is_shown_again_after_a_downtime(scene: QuestionScene) -> None:
    """A second card in the same place; both can be pressed, and an answered one is not shown a third time."""
    lease, wait = await scene.asking(DAY, NAME)
    await scene.send_all()
    assert await scene.pick(wait, 0) is PressResult.CHOSEN
    await scene.offer_again()
    old, new = await scene.store.card_slots(wait)
    assert (new.waits, new.conversation, new.turn, new.version) == ((wait,), old.conversation, lease.turn, 1)
    await scene.send_all()
    assert await scene.pick(wait, None, question=1, text="Focaccia") is PressResult.ANSWERED
    await scene.offer_again()
    assert [slot.version for slot in await scene.store.card_slots(wait)] == [3, 2]


async def test_a_question_never_shown_is_not_shown_twice(scene: QuestionScene) -> None:
    _, wait = await scene.asking()
    await scene.offer_again()
    assert len(await scene.store.card_slots(wait)) == 1


async def test_a_question_gets_the_time_of_a_downtime_once(scene: QuestionScene) -> None:
    """Nobody could answer it. Its answers so far stay; a second downtime that swallows it lets it expire."""
    lease, wait = await scene.asking(DAY, NAME, ttl_s=60)
    await scene.send_all()
    assert await scene.pick(wait, 0) is PressResult.CHOSEN
    scene.clock.advance(600)
    await scene.offer_again()
    found = await scene.wait(wait)
    assert (found.state, found.expires_at) == (WaitState.OPEN, scene.clock.now() + seconds(60))
    assert await scene.answers(wait) == (("Monday",),)
    assert len(await scene.store.card_slots(wait)) == 2
    assert await scene.state(lease.turn) is TurnState.PARKED
    scene.clock.advance(600)
    await scene.offer_again()
    assert (await scene.wait(wait)).state is WaitState.EXPIRED
    assert (await scene.claim()).turn == lease.turn


async def test_a_late_press_that_comes_again_is_late_again(scene: QuestionScene) -> None:
    _, wait = await scene.asking(ttl_s=60)
    scene.clock.advance(61)
    one = press(who=ANN_TELEGRAM)
    verdict = PressVerdict(refusal=None, pick=Pick(question=0, option=0))
    found: list[Pressed] = [await scene.store.press(one, wait, verdict) for _ in range(2)]
    assert [each.result for each in found] == [PressResult.LATE, PressResult.LATE]


async def test_a_stopped_turn_withdraws_its_question(scene: QuestionScene) -> None:
    lease, wait = await scene.asking()
    assert await scene.stop() == 1
    assert (await scene.wait(wait)).state is WaitState.CANCELLED
    assert (await scene.view(lease.turn)).turn.state is TurnState.STOPPED
    assert await scene.pick(wait, 0) is PressResult.LATE


async def test_a_press_without_a_pick_decides_no_question(scene: QuestionScene) -> None:
    _, wait = await scene.asking()
    for verdict in (
        PressVerdict(refusal=None, state=WaitState.APPROVED),
        PressVerdict(refusal=PressResult.NOT_ALLOWED),
    ):
        pressed = await scene.store.press(press(who=BOB), wait, verdict)
        assert pressed.result in (PressResult.NOT_VALID, PressResult.NOT_ALLOWED)
    assert (await scene.wait(wait)).state is WaitState.OPEN


# --- task lists -----------------------------------------------------------------------------


def task(text: str, state: TaskState = TaskState.OPEN) -> TaskItem:
    return TaskItem(text=text, state=state)


async def test_a_task_list_is_one_message_until_it_is_done(scene: QuestionScene) -> None:
    lease = await scene.at_work(4)
    await scene.store.write_list(lease, 1, [task("flour"), task("water")])
    await scene.store.write_list(lease, 1, [task("flour"), task("water")])
    await scene.store.write_list(lease, 2, [task("flour", TaskState.DONE), task("water", TaskState.DOING)])
    assert await scene.lists() == [("**Tasks: 1 of 2 done**\n\n- ☑ flour\n- ◐ water", 2)]
    done = [task("flour", TaskState.DONE), task("water", TaskState.DROPPED)]
    await scene.store.write_list(lease, 3, done)
    assert list(await scene.store.task_list(MAIN, 0)) == done
    await scene.store.write_list(lease, 4, [task("bake")])
    assert [text for text, _ in await scene.lists()] == [
        "**Tasks: 2 of 2 done**\n\n- ☑ flour\n- ☒ ~~water~~",
        "**Tasks: 0 of 1 done**\n\n- ☐ bake",
    ]


async def test_a_new_history_has_no_task_list(scene: QuestionScene) -> None:
    lease = await scene.at_work()
    await scene.store.write_list(lease, 1, [task("flour")])
    assert list(await scene.store.task_list(MAIN, 1)) == []
    with pytest.raises(NotFound):
        await scene.store.write_list(lease, 7, [task("flour")])
    await scene.came(lease, 1, result("ok"))
    with pytest.raises(NotFound):
        await scene.store.write_list(lease, 1, [task("water")])
