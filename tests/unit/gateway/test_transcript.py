from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gateway.model.ids import CallId, InboundId, SessionId, TurnId, main_session
from gateway.model.messages import Received
from gateway.model.prompts import CallResult, Message, UserText
from gateway.model.sessions import Origin, Session, SessionKind, Turn, TurnKind, TurnState
from gateway.model.tools import Answer, ResultStatus, Step, StepKind, StepState, ToolResult
from gateway.model.views import TurnView
from gateway.transcript import messages, ungiven
from tests.support.fakes import calls
from tests.support.makers import ANN, ANN_TELEGRAM, CHAT, EPOCH, inbound, result


def received(text: str, given: int | None) -> Received:
    return Received(id=InboundId(f"i-{text}"), turn=TurnId("t"), message=inbound(text), given=given, received_at=EPOCH)


def said(n: int, answer: Answer) -> Step:
    return Step(turn=TurnId("t"), n=n, kind=StepKind.MODEL, state=StepState.FINISHED, answer=answer)


def called(n: int, answer: Answer, index: int, answer_n: int, found: ToolResult | None) -> Step:
    state = StepState.FINISHED if found else StepState.STARTED
    return Step(
        turn=TurnId("t"),
        n=n,
        kind=StepKind.TOOL,
        state=state,
        call=answer.calls[index],
        answer_n=answer_n,
        result=found,
    )


def view(inputs: list[Received], steps: list[Step], *, kind: SessionKind = SessionKind.MAIN) -> TurnView:
    session = Session(
        id=main_session(ANN) if kind is SessionKind.MAIN else SessionId("chat:x"),
        kind=kind,
        origin=Origin.DIRECT,
        owner=ANN,
        title="",
        epoch=0,
        root_kind=kind,
        created_at=EPOCH,
        active_at=EPOCH,
    )
    turn = Turn(
        id=TurnId("t"),
        session=session.id,
        epoch=0,
        kind=TurnKind.MODEL,
        state=TurnState.RUNNING,
        conversation=CHAT,
        principal=ANN_TELEGRAM,
        created_at=EPOCH,
        started_at=EPOCH + timedelta(seconds=1),
        ended_at=None,
        active_ms=0,
    )
    return TurnView(turn=turn, session=session, inputs=tuple(inputs), steps=tuple(steps), waits=())


def short(found: tuple[Message, ...]) -> list[str]:
    out: list[str] = []
    for one in found:
        match one:
            case UserText(text=text, name=name):
                out.append(f"{name}> {text}" if name else f"> {text}")
            case Answer(text=text):
                out.append(f"= {text}")
            case CallResult(call=call, result=of):
                out.append(f"{call}: {of.status}")
    return out


TWO = calls("read", "shell", text="Two.")
LAST = Answer(text="Done.")


def test_a_call_is_followed_by_its_results_in_call_order_before_any_text_of_a_person() -> None:
    found = view(
        [received("go", 0), received("and this", 3), received("new", None)],
        [
            said(0, TWO),
            called(2, TWO, 1, 0, result(status=ResultStatus.DENIED)),
            called(1, TWO, 0, 0, result()),
            said(3, LAST),
        ],
    )
    ordered = replace(found, steps=tuple(sorted(found.steps, key=lambda step: step.n)))

    assert short(messages([], ordered)) == [
        "> go",
        "= Two.",
        "c0: ok",
        "c1: denied",
        "> and this",
        "= Done.",
        "> new",
    ]


def test_a_message_that_came_while_calls_run_is_given_after_their_results() -> None:
    found = view(
        [received("go", 0), received("wait!", None)],
        [said(0, TWO), called(1, TWO, 0, 0, result()), called(2, TWO, 1, 0, result())],
    )

    assert short(messages([], found)) == ["> go", "= Two.", "c0: ok", "c1: ok", "> wait!"]
    assert ungiven(found) == ("i-wait!",)


def test_a_call_without_a_result_still_has_one() -> None:
    found = view([received("go", 0)], [said(0, TWO), called(1, TWO, 0, 0, None), called(2, TWO, 1, 0, result())])

    assert short(messages([], found)) == ["> go", "= Two.", "c0: unknown", "c1: ok"]


def test_results_belong_to_the_answer_that_named_them_even_when_call_ids_repeat() -> None:
    again = calls("read", text="Again.")
    found = view(
        [received("go", 0)],
        [
            said(0, TWO),
            called(1, TWO, 0, 0, result()),
            called(2, TWO, 1, 0, result()),
            said(3, again),
            called(4, again, 0, 3, result(status=ResultStatus.ERROR)),
        ],
    )

    assert again.calls[0].id == TWO.calls[0].id == CallId("c0")
    assert short(messages([], found)) == ["> go", "= Two.", "c0: ok", "c1: ok", "= Again.", "c0: error"]


def test_ended_turns_come_first_and_whole() -> None:
    old = view([received("old", 0)], [said(0, LAST)])
    now = view([received("now", None)], [])

    assert short(messages([old, old], now)) == ["> old", "= Done.", "> old", "= Done.", "> now"]


def test_where_several_people_speak_each_is_named_and_elsewhere_nobody_is() -> None:
    assert short(messages([], view([received("hi", None)], [], kind=SessionKind.NON_MAIN))) == ["Ann> hi"]
    assert short(messages([], view([received("hi", None)], [], kind=SessionKind.DM))) == ["> hi"]


def test_several_messages_before_one_answer_are_all_given_in_order() -> None:
    found = view([received("a", 0), received("b", 0), received("c", None)], [said(0, LAST)])

    assert short(messages([], found)) == ["> a", "> b", "= Done.", "> c"]
