"""The table of failures: what each answer means for what was being shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from telegram.error import TelegramError

from channels._shared.http import UNREACHED_AGAIN_S
from channels.telegram.failures import Act, Judgement, Moved, Remedy, bad_token, judge
from channels.telegram.request import Declined, Failing, NotSent, Unanswered, Unreached
from gateway.errors import SendFailed, SendOutcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCOUNT = "telegram/main"
CHAT = "telegram/main/1001"


def judged(error: TelegramError, act: Act = Act.CREATE) -> Judgement:
    return judge(error, act, chat_scope=CHAT, account_scope=ACCOUNT, now=NOW)


def failed(error: TelegramError, act: Act = Act.CREATE) -> SendFailed:
    found = judged(error, act)
    assert isinstance(found, SendFailed)
    return found


@pytest.mark.parametrize("act", Act)
def test_what_was_not_sent_is_sent_again(act: Act) -> None:
    found = failed(NotSent("no"), act)
    assert (found.outcome, found.creating) == (SendOutcome.RETRY, False)


@pytest.mark.parametrize("act", Act)
def test_where_nobody_is_reached_all_of_the_account_waits_and_no_try_is_used_up(act: Act) -> None:
    found = failed(Unreached("no"), act)
    assert (found.outcome, found.scope, found.creating) == (SendOutcome.WAIT, ACCOUNT, False)
    assert found.until == NOW + timedelta(seconds=UNREACHED_AGAIN_S)


def test_a_create_without_an_answer_is_in_doubt() -> None:
    found = failed(Unanswered("no"))
    assert (found.outcome, found.creating) == (SendOutcome.UNCERTAIN, True)


@pytest.mark.parametrize(("error", "answered"), [(Unanswered("no"), False), (Failing("no"), True)])
def test_of_a_create_in_doubt_it_is_known_whether_telegram_said_that_it_failed(
    error: TelegramError, answered: bool
) -> None:
    assert failed(error).answered is answered


def test_an_unknown_error_of_a_create_is_in_doubt() -> None:
    assert failed(TelegramError("?")).outcome is SendOutcome.UNCERTAIN


@pytest.mark.parametrize(("act", "outcome"), [(Act.EDIT, SendOutcome.UNCERTAIN), (Act.DELETE, SendOutcome.RETRY)])
def test_what_can_be_repeated_is_repeated(act: Act, outcome: SendOutcome) -> None:
    """An edit may still be made, over a newer one."""
    found = failed(Unanswered("no"), act)
    assert (found.outcome, found.creating) == (outcome, False)


@pytest.mark.parametrize("act", Act)
def test_a_flood_waits_in_the_scope_of_its_chat(act: Act) -> None:
    found = failed(Declined(429, "Too Many Requests: retry after 7", retry_after_s=7), act)
    assert (found.outcome, found.until, found.scope) == (SendOutcome.WAIT, NOW + timedelta(seconds=7), CHAT)


def test_a_flood_that_does_not_say_for_how_long_waits_a_second() -> None:
    assert failed(Declined(429, "Too Many Requests")).until == NOW + timedelta(seconds=1)


@pytest.mark.parametrize("code", [401, 404])
def test_a_bad_token_holds_the_whole_account_back_and_loses_nothing(code: int) -> None:
    error = Declined(code, "Unauthorized")
    found = failed(error)
    assert (found.outcome, found.scope) == (SendOutcome.WAIT, ACCOUNT)
    assert found.until == NOW + timedelta(seconds=60)
    assert "@BotFather" in str(found)
    assert bad_token(error)


@pytest.mark.parametrize("error", [Declined(403, "Forbidden"), NotSent("no"), Unanswered("no")])
def test_nothing_else_is_about_the_token(error: TelegramError) -> None:
    assert not bad_token(error)


@pytest.mark.parametrize("act", Act)
def test_a_group_that_moved_is_followed(act: Act) -> None:
    error = Declined(400, "Bad Request: group chat was upgraded to a supergroup chat", moved_to="-100123")
    assert judged(error, act) == Moved(chat="-100123")


@pytest.mark.parametrize(
    ("act", "description", "remedy"),
    [
        (Act.EDIT, "Bad Request: message is not modified: specified new message content and reply markup are exactly "
                   "the same as a current content and reply markup of the message", Remedy.DONE),
        (Act.EDIT, "Bad Request: message to edit not found", Remedy.ANEW),
        (Act.EDIT, "Bad Request: message can't be edited", Remedy.ANEW),
        (Act.EDIT, "Bad Request: MESSAGE_ID_INVALID", Remedy.ANEW),
        (Act.EDIT, "Bad Request: there is no text in the message to edit", Remedy.ANEW),
        (Act.DELETE, "Bad Request: message to delete not found", Remedy.DONE),
        (Act.DELETE, "Bad Request: message can't be deleted for everyone", Remedy.DONE),
        (Act.DELETE, "Bad Request: message can't be deleted", Remedy.DONE),
        (Act.CREATE, "Bad Request: can't parse entities: unsupported start tag", Remedy.PLAIN),
        (Act.CREATE, "Bad Request: can't parse entities: entity beginning at 3 is too long", Remedy.PLAIN),
        (Act.EDIT, "Bad Request: ENTITY_BOUNDS_INVALID", Remedy.PLAIN),
        (Act.CREATE, "Bad Request: ENTITIES_TOO_LONG", Remedy.PLAIN),
        (Act.CREATE, "Bad Request: ENTITY_TEXTURL_INVALID", Remedy.PLAIN),
    ],
)  # fmt: skip
def test_some_refusals_have_a_remedy(act: Act, description: str, remedy: Remedy) -> None:
    assert judged(Declined(400, description), act) is remedy


@pytest.mark.parametrize("description", ["message is not modified", "message to edit not found"])
def test_the_remedies_of_an_edit_are_not_those_of_a_create(description: str) -> None:
    assert failed(Declined(400, description)).outcome is SendOutcome.DEAD


@pytest.mark.parametrize(
    ("code", "description", "cure"),
    [
        (403, "Forbidden: bot was blocked by the user", "unblock"),
        (403, "Forbidden: bot was kicked from the supergroup chat", "Add it again"),
        (403, "Forbidden: bot was kicked from the group chat", "Add it again"),
        (403, "Forbidden: user is deactivated", "out of the configuration"),
        (403, "Forbidden: bot can't initiate conversation with a user", "press Start"),
        (403, "Forbidden: bot is not a member of the channel chat", "Add it"),
        (403, "Forbidden: the group chat was deleted", "out of the configuration"),
        (400, "Bad Request: chat not found", "must write to the bot"),
        (400, "Bad Request: PEER_ID_INVALID", "must write to the bot"),
        (400, "Bad Request: TOPIC_CLOSED", "Open it again"),
        (400, "Bad Request: TOPIC_DELETED", "another"),
        (400, "Bad Request: message thread not found", "another"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "right to send"),
        (400, "Bad Request: have no rights to send a message", "right to send"),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", "right to send"),
    ],
)
def test_a_refusal_for_good_says_what_a_person_can_do(code: int, description: str, cure: str) -> None:
    found = failed(Declined(code, description))
    assert (found.outcome, found.creating) == (SendOutcome.DEAD, False)
    assert cure in str(found)


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (400, "Bad Request: message is too long"),
        (400, "Bad Request: BUTTON_DATA_INVALID"),
        (403, "Forbidden"),
        (413, "Request Entity Too Large"),
        (418, ""),
    ],
)
def test_any_other_refusal_is_for_good_in_telegrams_words(code: int, description: str) -> None:
    found = failed(Declined(code, description, method="sendMessage"))
    assert found.outcome is SendOutcome.DEAD
    assert f"sendMessage: {description} ({code})" in str(found)
