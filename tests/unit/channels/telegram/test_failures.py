"""Table of failures: the meaning of each answer for the slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from telegram.error import TelegramError

from channels._shared.http import UNREACHED_AGAIN_S
from channels.telegram.failures import Judgement, Moved, TelegramAct, TelegramRemedy, bad_token, judge
from channels.telegram.request import Failing, TelegramDeclined, TelegramNotSent, TelegramUnanswered, TelegramUnreached
from gateway.errors import SendFailed, SendOutcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCOUNT = "telegram/main"
CHAT = "telegram/main/1001"


def judged(error: TelegramError, act: TelegramAct = TelegramAct.CREATE) -> Judgement:
    return judge(error, act, chat_scope=CHAT, account_scope=ACCOUNT, now=NOW)


def failed(error: TelegramError, act: TelegramAct = TelegramAct.CREATE) -> SendFailed:
    found = judged(error, act)
    assert isinstance(found, SendFailed)
    return found


@pytest.mark.parametrize("act", TelegramAct)
def test_unsent_request_is_retried(act: TelegramAct) -> None:
    found = failed(TelegramNotSent("no"), act)
    assert (found.outcome, found.creating) == (SendOutcome.RETRY, False)


@pytest.mark.parametrize("act", TelegramAct)
def test_unreachable_server_holds_the_account_and_uses_no_try(act: TelegramAct) -> None:
    found = failed(TelegramUnreached("no"), act)
    assert (found.outcome, found.scope, found.creating) == (SendOutcome.WAIT, ACCOUNT, False)
    assert found.until == NOW + timedelta(seconds=UNREACHED_AGAIN_S)


def test_a_create_without_an_answer_is_in_doubt() -> None:
    found = failed(TelegramUnanswered("no"))
    assert (found.outcome, found.creating) == (SendOutcome.UNCERTAIN, True)


@pytest.mark.parametrize(("error", "answered"), [(TelegramUnanswered("no"), False), (Failing("no"), True)])
def test_create_in_doubt_knows_if_telegram_reported_a_failure(error: TelegramError, answered: bool) -> None:
    assert failed(error).answered is answered


def test_an_unknown_error_of_a_create_is_in_doubt() -> None:
    assert failed(TelegramError("?")).outcome is SendOutcome.UNCERTAIN


@pytest.mark.parametrize(
    ("act", "outcome"), [(TelegramAct.EDIT, SendOutcome.UNCERTAIN), (TelegramAct.DELETE, SendOutcome.RETRY)]
)
def test_repeatable_request_is_repeated(act: TelegramAct, outcome: SendOutcome) -> None:
    """An edit may still be made, over a newer one."""
    found = failed(TelegramUnanswered("no"), act)
    assert (found.outcome, found.creating) == (outcome, False)


@pytest.mark.parametrize("act", TelegramAct)
def test_a_flood_waits_in_the_scope_of_its_chat(act: TelegramAct) -> None:
    found = failed(TelegramDeclined(429, "Too Many Requests: retry after 7", retry_after_s=7), act)
    assert (found.outcome, found.until, found.scope) == (SendOutcome.WAIT, NOW + timedelta(seconds=7), CHAT)


def test_a_flood_that_does_not_say_for_how_long_waits_a_second() -> None:
    assert failed(TelegramDeclined(429, "Too Many Requests")).until == NOW + timedelta(seconds=1)


@pytest.mark.parametrize("code", [401, 404])
def test_bad_token_holds_the_whole_account_and_loses_nothing(code: int) -> None:
    error = TelegramDeclined(code, "Unauthorized")
    found = failed(error)
    assert (found.outcome, found.scope) == (SendOutcome.WAIT, ACCOUNT)
    assert found.until == NOW + timedelta(seconds=60)
    assert "@BotFather" in str(found)
    assert bad_token(error)


@pytest.mark.parametrize("error", [TelegramDeclined(403, "Forbidden"), TelegramNotSent("no"), TelegramUnanswered("no")])
def test_nothing_else_is_about_the_token(error: TelegramError) -> None:
    assert not bad_token(error)


@pytest.mark.parametrize("act", TelegramAct)
def test_a_group_that_moved_is_followed(act: TelegramAct) -> None:
    error = TelegramDeclined(400, "Bad Request: group chat was upgraded to a supergroup chat", moved_to="-100123")
    assert judged(error, act) == Moved(chat="-100123")


@pytest.mark.parametrize(
    ("act", "description", "remedy"),
    [
        (
            TelegramAct.EDIT,
            "Bad Request: message is not modified: specified new message content and reply markup are "
            "exactly the same as a current content and reply markup of the message",
            TelegramRemedy.DONE,
        ),
        (TelegramAct.EDIT, "Bad Request: message to edit not found", TelegramRemedy.REPLACE),
        (TelegramAct.EDIT, "Bad Request: message can't be edited", TelegramRemedy.REPLACE),
        (TelegramAct.EDIT, "Bad Request: MESSAGE_ID_INVALID", TelegramRemedy.REPLACE),
        (TelegramAct.EDIT, "Bad Request: there is no text in the message to edit", TelegramRemedy.REPLACE),
        (TelegramAct.DELETE, "Bad Request: message to delete not found", TelegramRemedy.DONE),
        (TelegramAct.DELETE, "Bad Request: message can't be deleted for everyone", TelegramRemedy.DONE),
        (TelegramAct.DELETE, "Bad Request: message can't be deleted", TelegramRemedy.DONE),
        (TelegramAct.CREATE, "Bad Request: can't parse entities: unsupported start tag", TelegramRemedy.PLAIN),
        (
            TelegramAct.CREATE,
            "Bad Request: can't parse entities: entity beginning at 3 is too long",
            TelegramRemedy.PLAIN,
        ),
        (TelegramAct.EDIT, "Bad Request: ENTITY_BOUNDS_INVALID", TelegramRemedy.PLAIN),
        (TelegramAct.CREATE, "Bad Request: ENTITIES_TOO_LONG", TelegramRemedy.PLAIN),
        (TelegramAct.CREATE, "Bad Request: ENTITY_TEXTURL_INVALID", TelegramRemedy.PLAIN),
    ],
)
def test_some_refusals_have_a_remedy(act: TelegramAct, description: str, remedy: TelegramRemedy) -> None:
    assert judged(TelegramDeclined(400, description), act) is remedy


@pytest.mark.parametrize("description", ["message is not modified", "message to edit not found"])
def test_the_remedies_of_an_edit_are_not_those_of_a_create(description: str) -> None:
    assert failed(TelegramDeclined(400, description)).outcome is SendOutcome.DEAD


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
    found = failed(TelegramDeclined(code, description))
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
    found = failed(TelegramDeclined(code, description, method="sendMessage"))
    assert found.outcome is SendOutcome.DEAD
    assert f"sendMessage: {description} ({code})" in str(found)
