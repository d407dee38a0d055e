"""Conversations of messages."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.children import child_place
from gateway.domain.ids import OwnerName, SessionId
from gateway.domain.messages import Conversation, latest_chat, owner_page
from tests.support.makers import EPOCH, seconds

CHAT = Conversation(channel="telegram", account="main", chat="1001", thread="7")


def test_thread_shares_rate_limits_of_its_chat() -> None:
    assert (CHAT.account_scope, CHAT.chat_scope) == ("telegram/main", "telegram/main/1001")
    assert CHAT.key == "telegram/main/1001/7"
    assert replace(CHAT, thread="").key == "telegram/main/1001"


def test_owner_page_has_a_stable_key() -> None:
    assert owner_page(OwnerName("ann")) == Conversation(channel="web", account="page", chat="ann")


def test_on_page_holds_for_owner_and_child_conversations() -> None:
    assert owner_page(OwnerName("ann")).on_page
    assert child_place(SessionId("child:t1.2")).on_page
    assert not CHAT.on_page


def test_latest_chat_ignores_pages() -> None:
    page, other = owner_page(OwnerName("ann")), replace(CHAT, chat="2002")
    early, late, latest = EPOCH, EPOCH + seconds(1), EPOCH + seconds(2)

    assert latest_chat([]) is None
    assert latest_chat([(page, latest)]) is None
    assert latest_chat([(CHAT, early), (other, late), (page, latest)]) == other
    assert latest_chat([(CHAT, late), (other, early)]) == CHAT
