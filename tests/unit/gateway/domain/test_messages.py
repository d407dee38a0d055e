"""Where messages come from."""

from __future__ import annotations

from dataclasses import replace

from gateway.domain.children import child_place
from gateway.domain.ids import OwnerName, SessionId
from gateway.domain.messages import Conversation, latest_chat, owner_page
from tests.support.makers import EPOCH, seconds

CHAT = Conversation(channel="telegram", account="main", chat="1001", thread="7")


def test_a_thread_shares_the_limits_of_its_chat() -> None:
    assert (CHAT.account_scope, CHAT.chat_scope) == ("telegram/main", "telegram/main/1001")
    assert CHAT.key == "telegram/main/1001/7"
    assert replace(CHAT, thread="").key == "telegram/main/1001"


def test_an_owners_page_is_stored_by_these_names() -> None:
    assert owner_page(OwnerName("ann")) == Conversation(channel="web", account="page", chat="ann")


def test_the_page_shows_its_own_conversations_and_those_of_children() -> None:
    assert owner_page(OwnerName("ann")).on_page
    assert child_place(SessionId("child:t1.2")).on_page
    assert not CHAT.on_page


def test_the_latest_chat_is_no_page() -> None:
    page, other = owner_page(OwnerName("ann")), replace(CHAT, chat="2002")
    early, late, latest = EPOCH, EPOCH + seconds(1), EPOCH + seconds(2)

    assert latest_chat([]) is None
    assert latest_chat([(page, latest)]) is None
    assert latest_chat([(CHAT, early), (other, late), (page, latest)]) == other
    assert latest_chat([(CHAT, late), (other, early)]) == CHAT
