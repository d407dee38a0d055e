"""Content and buttons of a card, for every platform."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.resources import files

import pytest

from channels._shared.card_layout import LINES, OUTCOMES, RISKS, RenderedRow, answer_by, rows_of
from gateway.domain.ids import Handle
from gateway.domain.slots import ANSWER_BY, Button, CardRow
from gateway.domain.tools import ACTION_BYTES, Risk
from gateway.domain.waits import Verb, WaitState
from tests.support.makers import ANN_SLACK
from tests.support.shown import card_row

row_of = partial(card_row, who=ANN_SLACK)


def clean(text: str) -> str:
    """Return the text as a platform would show it."""
    return text.replace("\x00", "")


def one(row: CardRow) -> RenderedRow:
    (made,) = rows_of([row])
    return made


def rendered(text: str) -> CardRow:
    """A row whose action is shown like this."""
    made = row_of()
    assert made.wait.approval is not None
    return replace(made, wait=replace(made.wait, approval=replace(made.wait.approval, rendered=text)))


def verbs(row: CardRow) -> list[Verb]:
    return [button.verb for button in one(row).buttons(clean)]


def test_rows_are_numbered_where_there_are_several() -> None:
    assert [row.number for row in rows_of([row_of(), row_of(n=2)])] == ["1. ", "2. "]
    assert one(row_of()).number == ""


def test_every_risk_and_every_end_has_its_sign() -> None:
    assert set(RISKS) == set(Risk)
    assert set(OUTCOMES) == set(WaitState) - {WaitState.OPEN, WaitState.ANSWERED}
    assert one(row_of(risk=Risk.NETWORK)).risk == "🌐 network"
    assert one(replace(row_of(), wait=replace(row_of().wait, approval=None))).risk == ""


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("uptime", True),
        ("", True),
        ("echo \x00", False),
        ("x" * ACTION_BYTES, True),
        ("x" * (ACTION_BYTES + 1), False),
        ("ü" * (ACTION_BYTES // 2), True),
        ("ü" * (ACTION_BYTES // 2 + 1), False),
    ],
)
def test_once_is_only_for_what_is_shown_exactly(text: str, whole: bool) -> None:
    row = rendered(text)
    assert one(row).whole(clean) is whole
    assert verbs(row) == [*([Verb.ONCE] if whole else []), Verb.DENY, Verb.DENY_REASON]


def test_row_without_a_request_cannot_be_allowed() -> None:
    row = row_of()
    assert not one(replace(row, wait=replace(row.wait, approval=None))).whole(clean)


def test_buttons_stand_in_one_order_while_the_row_is_open() -> None:
    row = row_of()
    assert verbs(replace(row, buttons=row.buttons[::-1])) == verbs(row)
    for state in OUTCOMES:
        assert verbs(row_of(state=state)) == []


def test_an_outcome_has_its_sign() -> None:
    assert one(row_of()).outcome == ""
    denied = one(row_of(state=WaitState.DENIED, reason="not now")).outcome
    assert denied.startswith("⛔ ")
    assert "not now" in denied


def test_a_long_row_goes_whole_into_a_file_that_the_card_names() -> None:
    first, second = (row.filed() for row in rows_of([row_of("echo one", note="mind this"), row_of("echo two", n=2)]))
    assert first.file is not None
    assert second.file is not None
    assert (first.file.name, second.file.name) == ("command-1.txt", "command-2.txt")
    assert second.file.caption == "2. What is asked, whole"
    text = first.file.data.decode()
    assert text.startswith(first.row.title)
    assert "mind this" in text
    assert text.endswith(f"\n\n{first.rendered}\n")
    assert first.beginning.startswith(f"⚠️ Only its beginning. All {len(first.rendered):,} characters are in command-1")
    alone = one(row_of()).filed()
    assert alone.file is not None
    assert (alone.file.name, alone.file.caption) == ("command.txt", "What is asked, whole")
    assert one(row_of()).beginning == ""


def test_a_tall_row_shows_its_first_lines() -> None:
    tall = one(row_of("\n".join(f"+ line {n}" for n in range(60)))).filed()
    assert tall.head.split("\n") == tall.rendered.split("\n")[:LINES]
    assert tall.beginning.startswith("⚠️ Only its first 40 of 60 lines. All ")
    wide = one(row_of("\n".join("+" * 300 for _ in range(60)))).filed()
    assert wide.beginning.startswith("⚠️ Only its first 6 of 60 lines. All ")
    long_lines = one(row_of("\n".join("+" * 3_000 for _ in range(60)))).filed()
    assert (long_lines.head, long_lines.beginning[:24]) == ("", "⚠️ Only its beginning. A")
    assert not one(row_of("\n" * (LINES - 1))).is_tall


def test_details_and_expiry_stand_apart_from_the_facts() -> None:
    facts = (("Folder", "/srv"), ("Session", "main:ann"), (ANSWER_BY, "noon"), ("Check", "01234567"))
    row = replace(row_of(), facts=facts)
    assert one(row).facts == [("Session", "main:ann")]
    assert one(row).details == [("Folder", "/srv"), ("Check", "01234567")]
    assert answer_by(rows_of([row, row])) == "Answer by: noon"
    assert answer_by(rows_of([row, replace(row_of(state=WaitState.DENIED), facts=facts)])) == "Answer by: noon"
    assert answer_by(rows_of([replace(row_of(state=WaitState.DENIED), facts=facts)])) == ""
    assert answer_by(rows_of([replace(row, facts=())])) == ""


def test_the_risk_is_no_fact_besides() -> None:
    row = replace(row_of(), facts=(("Risk", "execute"), ("Where", "/srv/work")))
    assert one(row).facts == [("Where", "/srv/work")]


def test_a_second_question_stands_where_the_outcome_will() -> None:
    asked = replace(row_of(), question="Always allow “uptime” for 30 days?")
    assert one(asked).outcome == "❓ Always allow “uptime” for 30 days?"


@pytest.mark.parametrize("verb", [Verb.ALWAYS, Verb.GRANT_CHAT, Verb.GRANT_SESSION, Verb.GRANT_PERSON])
def test_nothing_is_granted_that_the_card_does_not_show_whole(verb: Verb) -> None:
    row = row_of()
    granting = replace(row, buttons=(*row.buttons, Button(verb=verb, label="x", handle=Handle("h"))))
    assert verb in verbs(granting)
    filed = one(granting).filed()
    assert [button.verb for button in filed.buttons(clean)] == [Verb.ONCE, Verb.DENY, Verb.DENY_REASON]
    hidden = rendered("x" * (ACTION_BYTES + 1))
    assert verb not in verbs(replace(hidden, buttons=granting.buttons))


@pytest.mark.parametrize("risk", list(Risk))
def test_page_names_a_risk_as_chats_do(risk: Risk) -> None:
    script = (files("gateway.server.page") / "static" / "views" / "card.js").read_text()
    assert f'{risk.value}: "{RISKS[risk].partition(" ")[2]}"' in script
