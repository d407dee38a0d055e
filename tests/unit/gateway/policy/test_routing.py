from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.ids import OwnerName, Principal, main_session
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.routes import Drop, DropReason, Route
from gateway.domain.sessions import Origin, SessionKind
from gateway.policy.routing import AllowedPeople, may_be_let_in_later, may_begin_anew, may_see, may_stop_all, route
from tests.support.fakes import BOB_CHAT, CLEO, CLEO_TELEGRAM, GROUP, PEOPLE
from tests.support.makers import ANN, ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, attachment, inbound

STRANGER = Principal("telegram:9009")


def in_group(who: Principal = ANN_TELEGRAM, text: str = "hello") -> Inbound:
    return inbound(text, who=who, where=GROUP, direct=False)


@pytest.mark.parametrize(
    ("message", "session", "kind", "origin"),
    [
        (inbound(who=ANN_TELEGRAM, where=CHAT), "main:ann", SessionKind.MAIN, Origin.DIRECT),
        (inbound(who=ANN_SLACK, where=OTHER_CHAT), "main:ann", SessionKind.MAIN, Origin.DIRECT),
        (inbound(who=CLEO_TELEGRAM, where=CHAT), "main:cleo", SessionKind.MAIN, Origin.DIRECT),
        (inbound(who=BOB, where=BOB_CHAT), "dm:telegram/default/2002", SessionKind.DM, Origin.DIRECT),
        (replace(inbound(""), attachments=(attachment(),)), "main:ann", SessionKind.MAIN, Origin.DIRECT),
        (in_group(), "chat:telegram/default/-1003", SessionKind.NON_MAIN, Origin.GROUP),
        (in_group(BOB), "chat:telegram/default/-1003", SessionKind.NON_MAIN, Origin.GROUP),
        (in_group(STRANGER), "chat:telegram/default/-1003", SessionKind.NON_MAIN, Origin.GROUP),
        (replace(in_group(BOB), outsider=True), "chat:telegram/default/-1003", SessionKind.NON_MAIN, Origin.GROUP),
        (replace(inbound(who=ANN_SLACK, where=OTHER_CHAT), outsider=True), "main:ann", SessionKind.MAIN, Origin.DIRECT),
    ],
)
def test_route_by_author_and_conversation(message: Inbound, session: str, kind: SessionKind, origin: Origin) -> None:
    found = route(message, PEOPLE)

    assert isinstance(found, Route)
    assert (found.session, found.kind, found.origin) == (session, kind, origin)
    assert (found.owner is not None) == (kind is SessionKind.MAIN)


@pytest.mark.parametrize(
    ("message", "title"),
    [
        (inbound(who=ANN_SLACK, where=OTHER_CHAT), "ann"),
        (replace(inbound(who=BOB, where=BOB_CHAT), name="Bob B."), "Bob B."),
        (in_group(), "telegram -1003"),
        (inbound(where=replace(GROUP, thread="7"), direct=False), "telegram -1003"),
    ],
)
def test_session_title(message: Inbound, title: str) -> None:
    found = route(message, PEOPLE)

    assert isinstance(found, Route)
    assert found.title == title


def test_thread_has_its_own_session_under_its_chats_permit() -> None:
    thread = replace(GROUP, thread="7")
    found = route(inbound(where=thread, direct=False), PEOPLE)

    assert isinstance(found, Route)
    assert (found.session, found.origin) == ("chat:telegram/default/-1003/7", Origin.THREAD)


@pytest.mark.parametrize(
    ("message", "reason", "told"),
    [
        (inbound(who=STRANGER), DropReason.STRANGER, True),
        (inbound(where=replace(GROUP, chat="-666"), direct=False), DropReason.CHAT_NOT_ALLOWED, False),
        (inbound(where=replace(GROUP, channel="slack"), direct=False), DropReason.CHAT_NOT_ALLOWED, False),
        (inbound(""), DropReason.EMPTY, False),
        (inbound(" \n\t"), DropReason.EMPTY, False),
        (in_group(text="  "), DropReason.EMPTY, False),
        (replace(in_group(text=" "), addressed=False), DropReason.EMPTY, False),
        (replace(inbound(" "), unread="a photo"), DropReason.UNREADABLE, True),
        (replace(inbound("", who=BOB, where=BOB_CHAT), unread="a photo"), DropReason.UNREADABLE, True),
        (replace(in_group(text=""), unread="a photo"), DropReason.UNREADABLE, True),
        (replace(inbound("", who=STRANGER), unread="a photo"), DropReason.STRANGER, True),
        (replace(in_group(STRANGER), outsider=True), DropReason.STRANGER, False),
        (replace(inbound(who=STRANGER), outsider=True), DropReason.STRANGER, True),
        (
            replace(inbound("", where=replace(GROUP, chat="-666"), direct=False), unread="a photo"),
            DropReason.CHAT_NOT_ALLOWED,
            False,
        ),
        (
            replace(inbound(where=replace(GROUP, chat="-666"), direct=False), addressed=False),
            DropReason.CHAT_NOT_ALLOWED,
            False,
        ),
    ],
)
def test_drop_has_a_reason(message: Inbound, reason: DropReason, told: bool) -> None:
    assert route(message, PEOPLE) == Drop(reason=reason, told=told)


@pytest.mark.parametrize(
    ("message", "later"),
    [
        (in_group(STRANGER), True),
        (in_group(BOB), False),  # let in whatever they are
        (inbound(who=ANN_SLACK, where=OTHER_CHAT), False),
        (inbound(who=STRANGER), False),  # let in by nobody
        (inbound(where=replace(GROUP, chat="-666"), who=STRANGER, direct=False), False),
        (replace(in_group(STRANGER), addressed=False), False),
        (in_group(STRANGER, " "), False),
    ],
)
def test_only_a_message_decided_by_outsider_status_waits(message: Inbound, later: bool) -> None:
    unsure = replace(message, outsider=True, unsure=True)
    assert may_be_let_in_later(unsure, PEOPLE) is later
    assert not may_be_let_in_later(replace(unsure, unsure=False), PEOPLE)


def test_unsure_sender_allowed_by_wildcard_waits() -> None:
    everybody = AllowedPeople(owners={}, allowed=frozenset([Principal("telegram:*")]))
    assert may_be_let_in_later(replace(inbound(who=STRANGER), outsider=True, unsure=True), everybody)


@pytest.mark.parametrize(
    ("chat", "also_called", "allowed"),
    [
        ("-55", ("-1003",), True),
        ("-55", ("-7", "-1003"), True),
        ("-1003", ("-7",), True),
        ("-55", ("-7",), False),
        ("-55", (), False),
        ("-55", ("", "*", "telegram:-1003"), False),
    ],
)
def test_chat_is_allowed_under_any_of_its_ids(chat: str, also_called: tuple[str, ...], allowed: bool) -> None:
    where = replace(GROUP, chat=chat)
    found = route(replace(in_group(), conversation=where, also_called=also_called), PEOPLE)

    if allowed:
        assert isinstance(found, Route)
        assert found.session == f"chat:{where.key}"  # the session is the one under its first id
    else:
        assert found == Drop(reason=DropReason.CHAT_NOT_ALLOWED, told=False)


def test_chat_alias_allows_no_direct_message() -> None:
    said = replace(inbound(who=STRANGER), also_called=("-1003",))
    assert route(said, PEOPLE) == Drop(reason=DropReason.STRANGER, told=True)


def test_unaddressed_file_is_context() -> None:
    said = replace(in_group(STRANGER, ""), addressed=False, attachments=(attachment(),))
    found = route(said, PEOPLE)

    assert isinstance(found, Drop)
    assert found.reason is DropReason.CONTEXT


@pytest.mark.parametrize("thread", ["", "7"])
@pytest.mark.parametrize(("text", "unread"), [("hello", ""), ("look", "a photo"), ("", "a photo")])
def test_unaddressed_message_is_context_of_its_session(thread: str, text: str, unread: str) -> None:
    said = replace(inbound(text, who=STRANGER, where=replace(GROUP, thread=thread), direct=False), unread=unread)
    meant = route(replace(said, text="hello"), PEOPLE)

    assert isinstance(meant, Route)
    assert route(replace(said, addressed=False), PEOPLE) == Drop(reason=DropReason.CONTEXT, told=False, route=meant)


@pytest.mark.parametrize("message", [inbound("what is it?"), in_group(text="what is it?")])
def test_caption_is_routed_with_any_content(message: Inbound) -> None:
    assert route(replace(message, unread="a photo"), PEOPLE) == route(message, PEOPLE)


@pytest.mark.parametrize(
    "message",
    [
        replace(inbound(who=STRANGER), name="ann"),  # the display name is an owner's
        replace(inbound(who=STRANGER), name="telegram:1001"),
        inbound(who=STRANGER, where=CHAT),  # the conversation is an owner's
        inbound(who=Principal("telegram:ann")),  # the name where an id belongs
        inbound(who=Principal("slack:1001")),  # an owner's id on another platform
        inbound(who=Principal("slack:T0ZZ/U0BB")),  # an owner's id in another workspace
        inbound(who=Principal("slack:U0BB")),  # … or in none
        inbound(who=Principal("telegram:10010")),  # a prefix
        inbound(who=Principal("telegram:01001")),
        inbound(who=Principal("telegram:1001 ")),
        inbound(who=Principal("TELEGRAM:1001")),
        inbound(who=Principal("telegram:-1003")),  # an allowed group as the sender
        inbound(who=Principal("telegram:")),
        inbound(who=Principal("")),
        inbound(who=Principal("telegram:136817688")),  # Telegram's stand-ins: a channel, an anonymous admin, itself
        inbound(who=Principal("telegram:1087968824")),
        inbound(who=Principal("telegram:777000")),
    ],
)
def test_people_are_identified_by_the_whole_immutable_id(message: Inbound) -> None:
    assert route(message, PEOPLE) == Drop(reason=DropReason.STRANGER, told=True)


@pytest.mark.parametrize(
    "people",
    [
        AllowedPeople(owners={}),
        AllowedPeople(owners={ANN: frozenset()}),
        AllowedPeople(owners={ANN: frozenset([Principal("")])}),
        AllowedPeople(owners={}, allowed=frozenset([Principal("")])),
        AllowedPeople(owners={}, allowed=frozenset([Principal("*")])),
        AllowedPeople(owners={}, allowed=frozenset([Principal(":*")])),
        AllowedPeople(owners={}, allowed=frozenset([Principal("*:*")])),
        AllowedPeople(owners={}, chats=frozenset([""])),
        AllowedPeople(owners={}, chats=frozenset(["*"])),
        AllowedPeople(owners={}, chats=frozenset(["telegram:"])),
        AllowedPeople(owners={}, chats=frozenset(["telegram:*"])),
    ],
)
def test_empty_configuration_allows_nobody(people: AllowedPeople) -> None:
    assert isinstance(route(inbound(), people), Drop)
    assert isinstance(route(in_group(), people), Drop)


def test_wildcard_covers_one_channel_only() -> None:
    people = AllowedPeople(owners={ANN: frozenset([ANN_TELEGRAM])}, allowed=frozenset([Principal("telegram:*")]))

    assert isinstance(route(inbound(who=STRANGER), people), Route)
    assert isinstance(route(inbound(who=Principal("slack:T0/U0"), where=OTHER_CHAT), people), Drop)
    owner = route(inbound(), people)
    assert isinstance(owner, Route)
    assert owner.session == main_session(ANN)


def test_group_with_an_owner_is_not_main() -> None:
    found = route(in_group(), PEOPLE)

    assert isinstance(found, Route)
    assert (found.kind, found.owner) == (SessionKind.NON_MAIN, None)


def test_chats_never_share_a_session() -> None:
    places = [
        Conversation(channel="telegram", account="default", chat="1"),
        Conversation(channel="telegram", account="other", chat="1"),
        Conversation(channel="telegram", account="default", chat="1", thread="2"),
        Conversation(channel="telegram", account="default", chat="12"),
    ]
    people = AllowedPeople(owners={}, chats=frozenset(["telegram:1", "telegram:12"]))
    found = [route(inbound(where=place, direct=False), people) for place in places]

    assert len({one.session for one in found if isinstance(one, Route)}) == len(places)


@pytest.mark.parametrize(
    ("owner", "session_owner", "kind", "sees"),
    [
        (ANN, ANN, SessionKind.MAIN, True),
        (ANN, CLEO, SessionKind.MAIN, False),
        (ANN, None, SessionKind.MAIN, False),
        (ANN, None, SessionKind.DM, True),
        (ANN, None, SessionKind.NON_MAIN, True),
    ],
)
def test_owner_sees_all_but_others_main_sessions(
    owner: OwnerName, session_owner: OwnerName | None, kind: SessionKind, sees: bool
) -> None:
    assert may_see(owner, session_owner, kind) is sees


def test_only_owners_stop_turns_of_others() -> None:
    assert may_stop_all(in_group(ANN_TELEGRAM), PEOPLE)
    assert not may_stop_all(in_group(BOB), PEOPLE)
    assert not may_stop_all(in_group(STRANGER), PEOPLE)


def test_only_owners_reset_a_shared_session() -> None:
    assert may_begin_anew(in_group(ANN_TELEGRAM), PEOPLE)
    assert may_begin_anew(inbound(who=ANN_TELEGRAM, where=CHAT), PEOPLE)
    assert may_begin_anew(inbound(who=BOB, where=BOB_CHAT), PEOPLE)
    assert not may_begin_anew(in_group(BOB), PEOPLE)
    assert not may_begin_anew(in_group(STRANGER), PEOPLE)
