"""Texts within our limits that Slack finds too long: they go as a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from channels.slack.adapter import SlackChannel, build
from gateway.domain.slots import SlotKind
from gateway.errors import SendFailed, SendOutcome
from tests.support.slack import Call, FakeSlack, Fault, faults
from tests.support.surroundings import refusing
from tests.unit.channels.slack.scene import Scene, showing
from tests.unit.channels.slack.showings import row
from tests.unit.channels.slack.test_adapter import ANN, CHAT, Kept, after

TOO_LONG = faults.error("msg_too_long")
WORDS = " ".join(f"word{n}" for n in range(900))
"""Fits into one message, by our own limits."""
TWO = "\n\n".join([WORDS, WORDS])
"""… and this into two."""
LARGE = 1_000_000
"""Characters that no message has."""


@pytest.fixture
def slack(slack: FakeSlack) -> FakeSlack:
    slack.channel(CHAT, members=[ANN])
    return slack


def above(chars: int) -> Callable[[Call], Fault | None]:
    """Refuse messages with more characters in their blocks."""

    def script(call: Call) -> Fault | None:
        size = len(json.dumps(call.parameters.get("blocks", [])))
        return TOO_LONG if call.method in ("chat.postMessage", "chat.update") and size > chars else None

    return script


@pytest.mark.parametrize("text", [WORDS, TWO], ids=["one", "two"])
@pytest.mark.parametrize(("takes", "head"), [(5_000, "word0 word1"), (600, "")])
async def test_text_that_is_too_long_goes_as_file(
    slack: FakeSlack, channel: SlackChannel, text: str, takes: int, head: str
) -> None:
    slack.script(above(takes))
    shown = await channel.show(first := showing(text, CHAT), Kept())
    message, file = shown
    said = slack.shown(CHAT)[0]
    assert (said.ts, slack.uploads(CHAT)[0].id, len(slack.shown(CHAT))) == (message, file, 2)
    assert said.text.startswith(head)
    assert "in the file below" in said.text
    assert slack.uploads(CHAT)[0].content == text.encode()
    assert await channel.show(after(first, shown, text), Kept()) == shown


async def test_last_words_that_are_too_long_go_as_file(slack: FakeSlack, channel: SlackChannel) -> None:
    """The message that showed their beginning shows it again."""
    ts = await channel.show(first := showing("word0 word1", CHAT), Kept())
    slack.script(above(5_000))
    shown = await channel.show(after(first, ts, WORDS), Kept())
    assert shown[:1] == ts
    assert slack.uploads(CHAT)[0].content == WORDS.encode()
    assert len(slack.shown(CHAT)) == 2


async def test_second_part_that_is_too_long_leaves_no_first(slack: FakeSlack, channel: SlackChannel) -> None:
    posts = iter([False, True])
    slack.script(lambda call: TOO_LONG if call.method == "chat.postMessage" and next(posts, False) else None)
    shown = await channel.show(showing(TWO, CHAT), kept := Kept())
    assert kept.told[0] == shown[:1]
    assert [message.text.count("word899") for message in slack.shown(CHAT)] == [0, 0]
    assert slack.uploads(CHAT)[0].content == TWO.encode()


async def test_file_that_waits_is_not_tried_as_message_again(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(lambda call: above(5_000)(call) or refusing("files.getUploadURLExternal", faults.too_many(1))(call))
    shown, kept = showing(WORDS, CHAT), Kept()
    with pytest.raises(SendFailed) as failed:
        await channel.show(shown, kept)
    assert failed.value.outcome is SendOutcome.WAIT
    with pytest.raises(SendFailed):
        await channel.show(after(shown, kept.told[-1], WORDS), Kept())
    assert len([call for call in slack.calls() if call.error == "msg_too_long"]) == 1


async def test_file_stays_when_it_is_shown_once_more(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.script(above(5_000))
    shown = await channel.show(first := showing(WORDS, CHAT), Kept())
    again = replace(first.slot, message_ids=shown, version=3, sent_version=2, once_more=True)
    assert await channel.show(replace(first, slot=again), Kept()) == shown
    assert len(slack.shown(CHAT)) == 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_card_keeps_its_form_when_it_is_shown_once_more(
    slack: FakeSlack, scene: Scene, channel: SlackChannel, restarted: bool
) -> None:
    """Its second file is no sign that the third row is in a file too."""
    rows = (row(WORDS * 3, n=1), row(WORDS * 4, n=2), row("echo hello", n=3))
    first = replace(showing("", CHAT, kind=SlotKind.CARD), rows=rows)
    shown = await channel.show(first, Kept())
    again = replace(first.slot, message_ids=shown, version=3, sent_version=2, once_more=True)
    shower = build(scene.context()) if restarted else channel
    assert await shower.show(replace(first, slot=again), kept := Kept()) == shown
    assert (kept.told, len(slack.uploads(CHAT)), len(slack.shown(CHAT))) == ([], 2, 3)
    assert len(slack.calls("chat.update")) == 1


@pytest.mark.parametrize("commands", [(WORDS[:5_000],), (WORDS[:2_500], WORDS[1:2_500])], ids=["one", "two"])
async def test_card_that_is_too_long_goes_as_files(
    slack: FakeSlack, scene: Scene, channel: SlackChannel, commands: tuple[str, ...]
) -> None:
    """What will run can be read whole, and the buttons are there. A later version goes the same way."""
    slack.script(above(4_500))
    rows = tuple(row(command, n=n) for n, command in enumerate(commands, 1))
    first = replace(showing("", CHAT, kind=SlotKind.CARD), rows=rows)
    shown = await channel.show(first, Kept())
    uploads = slack.uploads(CHAT)
    assert shown[:-1] == tuple(one.id for one in uploads)
    assert all(command.encode() in (one.content or b"") for command, one in zip(commands, uploads, strict=True))
    card = slack.shown(CHAT)[-1]
    assert card.text.count("Only its beginning") == len(commands)
    assert [button["text"]["text"] for button in card.buttons].count("Once") == len(commands)
    calls = len(slack.calls("chat.postMessage"))
    again = await build(scene.context()).show(after(first, shown, ""), Kept())
    assert again == shown
    assert (len(slack.uploads(CHAT)), len(slack.calls("chat.postMessage"))) == (len(commands), calls)


@pytest.mark.parametrize(
    ("before", "left", "now", "filed"), [(LARGE, 1, 4_500, (1, 2)), (4_500, 1, LARGE, (2,)), (4_500, 2, LARGE, (1, 2))]
)
async def test_file_of_another_row_is_replaced_after_restart(
    slack: FakeSlack, scene: Scene, channel: SlackChannel, before: int, left: int, now: int, filed: tuple[int, ...]
) -> None:
    """A card's second attempt has another form than the first, which left `left` files. Each row can be read whole."""
    commands = {1: WORDS[:2_500], 2: WORDS.replace("word", "other") * 3}
    first = showing("", CHAT, kind=SlotKind.CARD)
    first = replace(first, rows=tuple(row(command, n=n) for n, command in commands.items()))
    kept, refuse = Kept(), refusing("chat.postMessage", faults.too_many(1))
    slack.script(lambda call: above(before)(call) or refuse(call))
    with pytest.raises(SendFailed) as failed:
        await channel.show(first, kept)
    assert failed.value.outcome is SendOutcome.WAIT
    there = kept.told[-1][:left]
    slack.script(above(now))
    shown = await build(scene.context()).show(after(first, there, ""), Kept())
    contents = {one.id: (one.content or b"").decode() for one in slack.uploads(CHAT)}
    assert [commands[n] in contents[file] for n, file in zip(filed, shown[:-1], strict=True)] == [True] * len(filed)
    assert slack.shown(CHAT)[-1].text.count("Only its beginning") == len(filed)


async def test_file_that_slack_does_not_know_is_replaced(slack: FakeSlack, scene: Scene, channel: SlackChannel) -> None:
    first = replace(showing("", CHAT, kind=SlotKind.CARD), rows=(row(WORDS * 3),))
    shown = await channel.show(first, Kept())
    slack.script(refusing("files.info", faults.too_many(1), 1))
    with pytest.raises(SendFailed) as failed:
        await build(scene.context()).show(after(first, shown, ""), Kept())
    assert failed.value.outcome is SendOutcome.WAIT
    slack.script(refusing("files.info", faults.error("file_not_found"), 1))
    file, card = await build(scene.context()).show(after(first, shown, ""), Kept())
    assert (file == shown[0], card) == (False, shown[1])
    assert slack.uploads(CHAT)[-1].id == file


@pytest.mark.parametrize(("kind", "tries"), [(SlotKind.CARD, 2), (SlotKind.STATUS, 1)])
async def test_message_in_its_shortest_form_is_dead(
    slack: FakeSlack, channel: SlackChannel, kind: SlotKind, tries: int
) -> None:
    slack.script(refusing("chat.postMessage", TOO_LONG))
    shown = replace(showing("⏳ shell", CHAT, kind=kind), rows=(row("echo hello"),))
    with pytest.raises(SendFailed) as failed:
        await channel.show(shown, Kept())
    assert failed.value.outcome is SendOutcome.DEAD
    assert len(slack.calls("chat.postMessage")) == tries
