"""Table of failures: the meaning of each answer for the slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from channels._shared.http import UNREACHED_AGAIN_S
from channels.slack.failures import Judgement, SlackAct, SlackRemedy, judge
from channels.slack.request import SlackDeclined, SlackFailure, SlackNotSent, SlackUnanswered, SlackUnreached
from gateway.errors import SendFailed, SendOutcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCOUNT = "slack/main"
CHANNEL = "slack/main/C0KITCHEN"
POST = "chat.postMessage"
SILENT_S = 8.0


def judged(error: SlackFailure, act: SlackAct = SlackAct.CREATE, silent_s: float = SILENT_S) -> Judgement:
    return judge(error, act, chat_scope=CHANNEL, account_scope=ACCOUNT, now=NOW, silent_s=silent_s)


def failed(error: SlackFailure, act: SlackAct = SlackAct.CREATE, silent_s: float = SILENT_S) -> SendFailed:
    found = judged(error, act, silent_s)
    assert isinstance(found, SendFailed)
    return found


@pytest.mark.parametrize("act", SlackAct)
def test_unsent_request_is_retried(act: SlackAct) -> None:
    found = failed(SlackNotSent("no"), act)
    assert (found.outcome, found.creating) == (SendOutcome.RETRY, False)


@pytest.mark.parametrize("act", SlackAct)
def test_unreachable_server_holds_the_account_and_uses_no_try(act: SlackAct) -> None:
    found = failed(SlackUnreached("no"), act)
    assert (found.outcome, found.scope, found.creating) == (SendOutcome.WAIT, ACCOUNT, False)
    assert found.until == NOW + timedelta(seconds=UNREACHED_AGAIN_S)


def test_a_create_without_an_answer_is_in_doubt() -> None:
    found = failed(SlackUnanswered("no"))
    assert (found.outcome, found.creating) == (SendOutcome.UNCERTAIN, True)
    assert failed(SlackFailure("?")).outcome is SendOutcome.UNCERTAIN


@pytest.mark.parametrize("act", [act for act in SlackAct if act is not SlackAct.CREATE])
def test_repeatable_request_holds_its_channel_and_uses_no_try(act: SlackAct) -> None:
    found = failed(SlackUnanswered("no"), act)
    assert (found.outcome, found.scope, found.creating) == (SendOutcome.WAIT, CHANNEL, False)
    assert found.until == NOW + timedelta(seconds=SILENT_S)
    assert found.unsettled is (act is SlackAct.EDIT)  # it may still be made, over a newer one


@pytest.mark.parametrize("act", [act for act in SlackAct if act is not SlackAct.CREATE])
def test_request_that_waited_too_long_gets_a_few_more_tries(act: SlackAct) -> None:
    found = failed(SlackUnanswered("no"), act, silent_s=0)
    outcome = SendOutcome.UNCERTAIN if act is SlackAct.EDIT else SendOutcome.RETRY
    assert (found.outcome, found.creating) == (outcome, False)


@pytest.mark.parametrize("method", [POST, "chat.update", "files.completeUploadExternal", "conversations.history"])
@pytest.mark.parametrize("error", ["ratelimited", "rate_limited", "message_limit_exceeded"])
def test_a_limit_holds_up_its_channel_and_no_other(error: str, method: str) -> None:
    found = failed(SlackDeclined(error, method=method, status=429, retry_after_s=7))
    assert (found.outcome, found.until, found.scope) == (SendOutcome.WAIT, NOW + timedelta(seconds=7), CHANNEL)


@pytest.mark.parametrize(
    "error", ["ratelimited", "rate_limited", "message_limit_exceeded", "service_unavailable", "team_added_to_org"]
)
def test_rate_limit_without_a_time_lasts_half_a_minute(error: str) -> None:
    assert failed(SlackDeclined(error, method=POST)).until == NOW + timedelta(seconds=30)


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "account_inactive", "token_expired"])
@pytest.mark.parametrize("act", SlackAct)
def test_bad_token_holds_the_whole_account_and_loses_nothing(error: str, act: SlackAct) -> None:
    found = failed(SlackDeclined(error, method=POST), act)
    assert (found.outcome, found.scope) == (SendOutcome.WAIT, ACCOUNT)
    assert "bot_token" in str(found)


def test_a_missing_scope_is_named_with_its_cure() -> None:
    found = failed(SlackDeclined("missing_scope", method=POST, needed="chat:write"))
    assert (found.outcome, found.scope) == (SendOutcome.WAIT, ACCOUNT)
    assert "the scope chat:write for chat.postMessage. Reinstall the app from `dragoman slack-manifest`" in str(found)
    found = failed(
        SlackDeclined("missing_scope", method="files.getUploadURLExternal", needed="files:write"), SlackAct.UPLOAD
    )
    assert found.outcome is SendOutcome.DEAD, "without files, words still arrive"
    assert "files:write" in str(found)


@pytest.mark.parametrize(
    ("act", "error", "remedy"),
    [
        (SlackAct.EDIT, "message_not_found", SlackRemedy.REPLACE),
        (SlackAct.EDIT, "edit_window_closed", SlackRemedy.REPLACE),
        (SlackAct.EDIT, "cant_update_message", SlackRemedy.REPLACE),
        (SlackAct.EDIT, "msg_too_long", SlackRemedy.REPLACE),
        (SlackAct.DELETE, "message_not_found", SlackRemedy.DONE),
        (SlackAct.DELETE, "cant_delete_message", SlackRemedy.DONE),
        (SlackAct.CREATE, "invalid_blocks", SlackRemedy.PLAIN),
        (SlackAct.RECREATE, "invalid_blocks", SlackRemedy.PLAIN),
        (SlackAct.EDIT, "msg_blocks_too_long", SlackRemedy.PLAIN),
    ],
)
def test_some_refusals_have_a_remedy(act: SlackAct, error: str, remedy: SlackRemedy) -> None:
    assert judged(SlackDeclined(error, method="chat.update"), act) is remedy


@pytest.mark.parametrize(
    ("act", "error"), [(SlackAct.CREATE, "message_not_found"), (SlackAct.UPLOAD, "invalid_blocks")]
)
def test_a_remedy_of_one_act_is_none_of_another(act: SlackAct, error: str) -> None:
    assert failed(SlackDeclined(error, method=POST), act).outcome is SendOutcome.DEAD


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("channel_not_found", "/invite"),
        ("not_in_channel", "/invite"),
        ("is_archived", "Unarchive"),
        ("restricted_action", "may not write"),
        ("restricted_action_thread_only_channel", "threads only"),
        ("messages_tab_disabled", "slack-manifest"),
        ("thread_not_found", "another one"),
        ("file_uploads_disabled", "administrators"),
    ],
)
def test_a_refusal_for_good_says_what_a_person_can_do(error: str, cure: str) -> None:
    found = failed(SlackDeclined(error, method=POST))
    assert (found.outcome, found.creating) == (SendOutcome.DEAD, False)
    assert cure in str(found)


def test_any_other_refusal_is_for_good_in_slacks_words() -> None:
    found = failed(SlackDeclined("something_new", method=POST, details=("json-pointer:/blocks/0",)))
    assert found.outcome is SendOutcome.DEAD
    assert "something_new: json-pointer:/blocks/0" in str(found)
