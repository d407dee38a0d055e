"""Posts of calls through the whole engine: real tools, real decisions, the memory store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.ids import CallId, SessionId, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.posts import PostAct, post_slot, posted_by
from gateway.domain.rules import Rule, Verdict
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.steps import Answer
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult
from gateway.domain.turns import Lease
from gateway.domain.waits import Verb
from gateway.toolcalls.posts import MARK, ChannelPlaces, MessageService
from tests.contract.tool_rig import built_in
from tests.support.engine import Engine
from tests.support.fakes import GROUP, NODE, PEOPLE
from tests.support.makers import ANN_TELEGRAM, CHAT

EVERYWHERE = frozenset({"main", "dm", "non-main"})
SECRET = "hunter2-hunter2"
OPEN = (Rule(tool="telegram", pattern="*", decision=Verdict.ALLOW, kinds=EVERYWHERE, where="rules[0]"),)
SLACK = Conversation(channel="slack", account="main", chat="D0ANN")


def key_of(event_key: str) -> str:
    """Return the id of the message in a test's event key."""
    return event_key if event_key.startswith("e") else ""


class Posting:
    """An engine with the tools of both channels, whose calls are made by hand."""

    def __init__(self, folder: Path, rules: Sequence[Rule] = (), accounts: Sequence[str] = ("default",)) -> None:
        tools = built_in(folder / "tools")
        made = [
            replace(tools[name], policy=replace(tools[name].policy, rules=tuple(rules)))
            for name in ("telegram", "slack")
        ]
        self.engine = Engine(folder / "state", made, secrets=[SECRET])
        self.places = ChannelPlaces(accounts=accounts, posts=frozenset(PostAct), message_of=key_of)
        self.service = self.engine.execution.messages = MessageService(
            people=PEOPLE,
            channels={"telegram": self.places, "slack": self.places},
            turn=self.engine.store.turn,
            redactor=self.engine.redactor,
        )
        self.turn = TurnId("")
        self.lease: Lease
        """Lease of the last call's turn."""

    async def call(self, tool: str = "telegram", *, where: Conversation = CHAT, **arguments: Any) -> ToolResult | None:
        """Make one call in a turn of its own, which is over then. None: somebody is asked."""
        self.turn = await self.engine.say(where=where, who=ANN_TELEGRAM)
        lease = self.lease = await self.engine.claim()
        view = await self.engine.store.turn(self.turn)
        call = ToolCall(id=CallId("c1"), tool=tool, arguments=json.dumps(arguments))
        given = view.inputs
        await self.engine.store.plan(lease, Answer(text="", calls=(call,), model="scripted"), given=given, slots=[])
        if await self.engine.settle(lease):
            await self.engine.run(lease)
        return (await self.engine.step(self.turn, 1)).result

    async def slots(self, session: str = "") -> list[Slot]:
        """Return the slots that calls made, without answers and status lines."""
        return [one for one in await self.engine.slots(session=session) if one.kind in (SlotKind.POST, SlotKind.FILE)]


async def ok(posting: Posting, tool: str = "telegram", **arguments: Any) -> ToolResult:
    found = await posting.call(tool, **arguments)
    assert found is not None
    assert found.status is ResultStatus.OK, found
    return found


async def test_a_message_leaves_once_where_it_was_asked(tmp_path: Path) -> None:
    posting = Posting(tmp_path)
    found = await ok(posting, text=f"The key is {SECRET}.")
    (slot,) = await posting.slots()
    assert (slot.id, slot.conversation, slot.kind) == (post_slot(posting.turn, 1), CHAT, SlotKind.POST)
    assert slot.text == "The key is [hidden]."
    assert slot.id in found.text
    assert SECRET not in repr(found.posts[0].text)


@pytest.mark.parametrize("chat", ["-1003", "2002"])
async def test_no_other_chat_is_written_to_without_a_rule(tmp_path: Path, chat: str) -> None:
    """I49, I52: a model that was talked into it posts to a conversation that no rule opens."""
    posting = Posting(tmp_path)
    found = await posting.call(text="Send me the notes.", chat=chat)
    assert found is not None
    assert (found.status, found.code) == (ResultStatus.DENIED, "configured")
    assert f"no rule opens '{chat}'" in found.hint
    assert 'tool = "telegram"' in found.hint
    assert await posting.slots() == []


async def test_a_rule_opens_a_listed_chat_and_marks_the_text(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    await ok(posting, text="Supper is ready.", chat="-1003")
    await ok(posting, text="And bread.", chat="2002")
    group, person = await posting.slots()
    assert (group.conversation, group.text) == (GROUP, f"{MARK}\n\nSupper is ready.")
    assert person.conversation == replace(GROUP, chat="2002")


async def test_a_chat_that_was_never_listed_is_refused_in_words(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    for chat in ("-1004", "9999", "@kitchen"):
        found = await posting.call(text="Hello.", chat=chat)
        assert found is not None
        assert found.status is ResultStatus.ERROR
        assert f"never listed {chat!r} on telegram" in found.hint
        assert "[chats] allow" in found.hint
    assert await posting.slots() == []


@pytest.mark.parametrize("posts", [None, frozenset({PostAct.POLL})])
async def test_unsupported_post_is_refused_with_a_hint(tmp_path: Path, posts: frozenset[PostAct] | None) -> None:
    posting = Posting(tmp_path, OPEN)
    channels = {} if posts is None else {"telegram": replace(posting.places, posts=posts)}
    posting.engine.execution.messages = replace(posting.service, channels=channels)
    found = await posting.call(text="Hello.")
    assert found is not None
    assert (found.status, found.hint) == (ResultStatus.ERROR, "telegram cannot show that here. Say it in the answer.")
    assert await posting.slots() == []


async def test_a_rule_that_asks_asks_with_the_chat(tmp_path: Path) -> None:
    asks = Rule(tool="telegram", pattern="-1003", decision=Verdict.ASK, kinds=EVERYWHERE, where="rules[0]")
    posting = Posting(tmp_path, [asks])
    assert await posting.call(text="Supper is ready.", chat="-1003") is None
    (wait,) = await posting.engine.waits(posting.turn)
    assert wait.approval is not None
    assert wait.approval.summary == "post to the chat -1003"
    assert await posting.slots() == []
    await posting.engine.press(wait.id, Verb.ONCE)
    assert await posting.engine.settle(posting.lease)
    (slot,) = await posting.slots()
    assert slot.conversation == GROUP


async def test_a_message_is_edited_only_by_its_session(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    await ok(posting, text="One of three.")
    name = str(post_slot(posting.turn, 1))
    await ok(posting, action="edit", message=name, text="Two of three.")
    (slot,) = await posting.slots()
    assert (slot.text, slot.version) == ("Two of three.", 2)
    for message, chat in ((name, "-1003"), (f"{name}9", ""), ("p.1", ""), ("o1", ""), ("p" + "9" * 99 + ".1", "")):
        found = await posting.call(action="edit", message=message, text="Mine.", chat=chat)
        assert found is not None
        assert found.status is ResultStatus.ERROR
        assert "was not posted by this session" in found.hint
    found = await posting.call(action="edit", message=name, text="Mine.", where=GROUP)
    assert found is not None
    assert found.status is ResultStatus.ERROR
    assert [one.text for one in await posting.slots()] == ["Two of three."]


async def test_reaction_and_pin_are_about_a_message_at_hand(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    await ok(posting, action="react", emoji="👍")
    (received,) = (await posting.engine.store.turn(posting.turn)).inputs
    (reaction,) = await posting.slots()
    assert reaction.post is not None
    assert (reaction.post.act, reaction.post.emoji) == (PostAct.REACT, "👍")
    assert reaction.post.message == received.message.event_key
    await ok(posting, text="Rules of the house.")
    await ok(posting, action="pin", message=str(post_slot(posting.turn, 1)))
    pin = (await posting.slots())[-1]
    assert pin.post is not None
    assert (pin.post.act, pin.post.slot) == (PostAct.PIN, (await posting.slots())[1].id)
    found = await posting.call(action="react", emoji="👍", chat="-1003")
    assert found is not None
    assert "no message at hand in that chat" in found.hint


async def test_a_pin_is_given_the_platforms_id_when_it_is_sent(tmp_path: Path) -> None:
    posting = Posting(tmp_path)
    store = posting.engine.store
    await ok(posting, text="Rules of the house.")
    await ok(posting, action="pin", message=str(post_slot(posting.turn, 1)))
    while due := await store.claim_slots(NODE, ["telegram"], 10):
        for slot in due:
            if slot.post is not None:
                assert (slot.post.message, slot.text) == ("41", "")
            await store.slot_sent(slot, ("41", "42") if slot.kind is SlotKind.POST and slot.post is None else ("7",))
    assert await store.any_due(["telegram"]) is False


async def test_a_poll_and_a_file_are_slots_of_their_own(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    await ok(posting, action="poll", text="Which\u202e day?", options=["Mon", f"{SECRET}"], chat="-1003")
    folder = posting.engine.workspaces.workspace(SessionId("main:ann"))
    (folder / "notes").write_text("rye\n")
    await ok(posting, action="send_file", path="notes", text="The list.")
    poll, file = await posting.slots()
    assert poll.post is not None
    assert (poll.text, poll.post.options) == ("From the agent: Which day?", ("Mon", "[hidden]"))
    assert (file.kind, file.text, file.conversation) == (SlotKind.FILE, "The list.", CHAT)
    assert file.file is not None
    assert file.file.name == "notes"
    await ok(posting, action="send_file", path="notes", text="The list.", chat="-1003")
    await ok(posting, action="send_file", path="notes", chat="-1003")
    assert [one.text for one in (await posting.slots())[2:]] == [f"{MARK}\n\nThe list.", MARK]
    for path in ("../notes", "/etc/passwd", "missing", ".env"):
        found = await posting.call(action="send_file", path=path)
        assert found is not None
        assert found.status in (ResultStatus.DENIED, ResultStatus.ERROR)
    assert len(await posting.slots()) == 4


async def test_post_elsewhere_names_its_chat(tmp_path: Path) -> None:
    posting = Posting(tmp_path, OPEN)
    found = await posting.call("slack", text="Hello.")
    assert found is not None
    assert "This conversation is not on slack." in found.hint
    two = Posting(tmp_path / "two", [replace(OPEN[0], tool="slack")], accounts=("one", "two"))
    two.engine.execution.messages = replace(
        two.engine.execution.messages, people=replace(PEOPLE, chats=frozenset(["slack:T0AA/C0CC"]))
    )
    found = await two.call("slack", text="Hello.", channel="T0AA/C0CC")
    assert found is not None
    assert "slack has several accounts" in found.hint
    found = await two.call("telegram", action="poll", text="?", options=["a", "b"], chat="-1003")
    assert found is not None
    assert found.status is ResultStatus.ERROR


@pytest.mark.parametrize(("name", "place"), [("pt1.7", ("t1", 7)), ("pa.b.2", ("a.b", 2)), ("t1.7", None)])
def test_a_name_tells_turn_and_step(name: str, place: tuple[str, int] | None) -> None:
    assert posted_by(name) == place
