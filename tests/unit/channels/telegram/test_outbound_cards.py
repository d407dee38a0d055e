"""Rendering of a card as messages with buttons."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from channels.telegram.formatted_text import units
from channels.telegram.limits import CALLBACK_BYTES, TEXT_UNITS
from channels.telegram.parts import FilePart, TelegramTextPart
from gateway.domain.slots import CardRow
from gateway.domain.tools import ACTION_BYTES, Risk
from gateway.domain.waits import Verb, WaitState
from tests.unit.channels.telegram.showings import GROUP, card, files, keyboard, pres, row, texts
from tests.unit.channels.telegram.test_outbound import THREE


def test_a_card_shows_the_whole_action_as_it_was_rendered() -> None:
    one = row("echo **not bold** [x](http://a.example) @ann\nrm \u202e x " + " " * 12)
    (part,) = texts(card(one))
    assert one.wait.approval is not None
    assert pres(part) == [one.wait.approval.rendered]
    assert "Unusual characters" in part.text
    for _, value in one.facts:
        assert value in part.text or value == "execute"


def test_a_card_shows_each_part_of_a_command() -> None:
    (part,) = texts(card(row("ls > x; sudo *y*", parts=("ls · reads only", "> x · writes", "sudo *y* · other rights"))))
    assert "\n• ls · reads only\n• > x · writes\n• sudo *y* · other rights\n" in part.text


def test_a_row_in_a_file_keeps_its_parts_short() -> None:
    (part,) = texts(card(row("z" * 9_000, parts=("y" * 600,) * 8)))
    assert part.text.count("• y") == 8
    assert units(part.text) <= TEXT_UNITS


def test_buttons_stand_in_one_order_and_name_their_row() -> None:
    (part,) = texts(card(row()))
    assert keyboard(part) == [["Once", "Deny"], ["Deny with reason"]]
    shuffled = replace(row(), buttons=row().buttons[::-1])
    assert texts(card(shuffled))[0].buttons == part.buttons
    (part,) = texts(card(*THREE))
    assert keyboard(part) == [
        ["2 · Once", "2 · Deny"],
        ["2 · Deny with reason"],
        ["3 · Once", "3 · Deny"],
        ["3 · Deny with reason"],
    ]


def test_buttons_stand_under_the_message_of_their_rows() -> None:
    parts = texts(card(*(row("z" * 900, n=n) for n in range(1, 9))))
    assert len(parts) > 1
    numbers = [int(line.split(".")[0]) for part in parts for line in part.text.splitlines() if line[1:3] == ". "]
    below = [sorted({int(line[0].split(" ")[0]) for line in keyboard(part)}) for part in parts]
    assert [n for part in below for n in part] == list(range(1, 9))
    assert sorted({*numbers}) == list(range(1, 9))
    for part, rows in zip(parts, below, strict=True):
        assert all(f"{n}. ▶️" in part.text for n in rows)


def folded(part: TelegramTextPart) -> list[str]:
    """The lines of a message that Telegram folds."""
    raw = part.text.encode("utf-16-le")
    spans = [e for e in part.entities if e["type"] == "expandable_blockquote"]
    return [
        line
        for e in spans
        for line in raw[2 * e["offset"] : 2 * (e["offset"] + e["length"])].decode("utf-16-le").splitlines()
    ]


def test_details_are_folded_and_the_expiry_stands_once() -> None:
    (part,) = texts(card(row(), row("date", n=2)))
    lines = folded(part)
    assert [line[:10] for line in lines] == ["1. Check: ", "2. Check: ", "For all 2:", "Answer by:"]
    assert part.text.count("Answer by") == 1
    parts = texts(card(*(row("z" * 900, n=n) for n in range(1, 9))))
    assert ["Answer by" in part.text for part in parts] == [False] * (len(parts) - 1) + [True]


def test_rows_say_once_what_they_have_in_common() -> None:
    """A phone showed the same folder, sandbox and requester eight times."""
    parts = texts(card(*(row("z" * 900, n=n) for n in range(1, 9))))
    assert [part.text.count("For all 8: Sandbox: basic · Asked by: ann · Session: main:ann") for part in parts] == [
        1
    ] * len(parts)
    assert all(part.text.count("For all 8: Folder: /srv/work") == 1 for part in parts)
    (part,) = texts(card(row(), row("date", n=2, cwd="/srv/other")))
    assert [part.text.count(said) for said in ("Folder: ", "Sandbox: ", "For all 2")] == [2, 1, 1]
    (part,) = texts(card(*(row(n=n, cwd="/srv/" + "d" * 600) for n in (1, 2))))
    assert "For all" not in part.text
    assert part.text.count("Sandbox: basic") == 2


def test_a_button_carries_the_handle_of_its_row() -> None:
    rows = [row(n=1), row("date", n=2)]
    (part,) = texts(card(*rows))
    carried = [button["callback_data"] for line in part.buttons for button in line]
    assert carried == [button.handle for one in rows for button in one.buttons]
    assert all(len(data.encode()) <= CALLBACK_BYTES for data in carried)


@pytest.mark.parametrize("state", [state for state in WaitState if state is not WaitState.OPEN])
def test_a_decided_card_has_no_buttons(state: WaitState) -> None:
    forged = replace(row(state=state), buttons=row().buttons)
    assert all(part.buttons == () for part in texts(card(forged)))


def test_row_too_long_to_show_cannot_be_allowed() -> None:
    (file, part) = card(row("x" * (ACTION_BYTES + 1)))
    assert isinstance(file, FilePart)
    assert isinstance(part, TelegramTextPart)
    assert keyboard(part) == [["Deny", "Deny with reason"]]
    assert "cannot be allowed" in part.text
    one = row()
    assert one.wait.approval is not None
    hidden = replace(one, wait=replace(one.wait, approval=replace(one.wait.approval, rendered="ls \u202e")))
    assert keyboard(texts(card(hidden))[0]) == [["Deny", "Deny with reason"]]
    assert Verb.ONCE in {button.verb for button in hidden.buttons}


def test_a_long_action_goes_whole_into_a_file_before_the_buttons() -> None:
    one = row("echo " + "y" * 20_000, note="There is no sandbox here.")
    file, part = card(one)
    assert isinstance(file, FilePart)
    assert isinstance(part, TelegramTextPart)
    assert one.wait.approval is not None
    assert file.name == "command.txt"
    assert file.data.decode().endswith(f"\n\n{one.wait.approval.rendered}\n")
    assert all(f"{label}: {value}" in file.data.decode() for label, value in one.facts)
    assert hashlib.sha256(file.data).hexdigest()[:16] in part.text
    assert "20,005 characters are in command.txt above" in part.text
    assert keyboard(part) == [["Once", "Deny"], ["Deny with reason"]]
    assert pres(part)[0].startswith("echo yyy")


def test_a_diff_of_many_lines_is_attached_before_the_buttons() -> None:
    lines = [f"+ line {n}" for n in range(60)]
    assert [type(part) for part in card(row("\n".join(lines[:40])))] == [TelegramTextPart]
    file, part = card(row("\n".join(lines)))
    assert isinstance(file, FilePart)
    assert isinstance(part, TelegramTextPart)
    assert b"+ line 59" in file.data
    assert pres(part)[0].count("+ line") == 40
    assert "Only its first 40 of 60 lines" in part.text
    assert keyboard(part) == [["Once", "Deny"], ["Deny with reason"]]
    assert [type(part) for part in card(row("\n".join(lines)), row("ls"))] == [FilePart, TelegramTextPart]


SIZES = [
    (1,),
    (10,) * 8,
    (3000,) * 3,
    (60_000,) * 8,
    (3500, 10, 3500, 10),
    (3900,),
    (4500, 1),
    (500,) * 8,
    (1, 20_000, 1),
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_decided_card_has_the_messages_of_the_open_one(sizes: tuple[int, ...]) -> None:
    def rows(state: WaitState, reason: str) -> list[CardRow]:
        return [row("z" * size, state, n=n, reason=reason, note="@ann " * 20) for n, size in enumerate(sizes, 1)]

    before = card(*rows(WaitState.OPEN, ""), where=GROUP)
    for state, reason in [(WaitState.DENIED, "@no \n" * 200), (WaitState.CONSUMED, ""), (WaitState.SUPERSEDED, "")]:
        after = card(*rows(state, reason), where=GROUP, uncertain=True)
        assert [type(part) for part in after] == [type(part) for part in before]
        assert [part.digest for part in files(after)] == [part.digest for part in files(before)]
        assert all(units(part.text) <= TEXT_UNITS for part in texts([*before, *after]))
        assert all(pres(a) == pres(b) for a, b in zip(texts(before), texts(after), strict=True))
    assert [len(part.buttons) for part in texts(before)] == [2 * len(pres(part)) for part in texts(before)]
    assert len({part.name for part in files(before)}) == len(files(before))


def test_rows_that_fit_are_shown_in_messages_not_files() -> None:
    assert files(card(*(row("z" * 500, n=n) for n in range(1, 9)))) == []
    assert files(card(row("z" * 3_000))) == []


def test_a_long_folder_is_in_the_file() -> None:
    file, part = card(row(cwd="/srv/" + "d" * 5000))
    assert isinstance(file, FilePart)
    assert isinstance(part, TelegramTextPart)
    assert "d" * 5000 in file.data.decode()
    assert units(part.text) <= TEXT_UNITS


def test_a_reason_in_a_group_rings_nobody() -> None:
    (part,) = texts(card(row(state=WaitState.DENIED, reason="ask @bobby"), where=GROUP))
    assert "@bobby" not in part.text
    assert "ask @" in part.text


def test_every_risk_has_a_word_and_a_sign() -> None:
    heads = {texts(card(row(risk=risk)))[0].text.splitlines()[0] for risk in Risk}
    assert len({head.split(" · ")[0] for head in heads}) == len(Risk)
    assert all(head.split(" ")[1].isalpha() for head in heads)
