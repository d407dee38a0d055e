from __future__ import annotations

from channels.telegram import ids
from gateway.domain.messages import Conversation
from tests.support.keys import conversation_of


def test_a_person_is_the_accounts_number() -> None:
    assert ids.principal(1001) == "telegram:1001"


def test_conversation_key_of_chat_and_topic_reads_back() -> None:
    chat, topic = ids.conversation("main", -1003), ids.conversation("main", -1003, 5)
    assert chat == Conversation(channel="telegram", account="main", chat="-1003")
    assert (chat.key, topic.key) == ("telegram/main/-1003", "telegram/main/-1003/5")
    assert conversation_of(topic.key) == topic
    assert len({chat, topic, ids.conversation("other", -1003), ids.conversation("main", 1003)}) == 4


def test_no_two_events_share_a_key() -> None:
    keys = [
        ids.message_key(1, 23), ids.message_key(12, 3), ids.message_key(-1, 23), ids.edit_key(1, 23, 4, "a"),
        ids.edit_key(1, 23, 4, "b"), ids.edit_key(1, 2, 34, "a"), ids.press_key("1"), ids.press_key("1.23"),
        ids.update_key(1),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
