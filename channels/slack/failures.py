"""What a request that failed means for the slot that was being shown, and the words for it: pure, a table.

An edit or a deletion may be repeated whatever became of it; a new message may not, unless it is certain that the
first one does not stand there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from channels._shared.http import UNREACHED_AGAIN_S
from channels.slack.request import WAIT_UNTOLD_S, SlackDeclined, SlackFailure, SlackNotSent, SlackUnreached
from gateway.errors import SendFailed, SendOutcome

TOKEN_AGAIN_S = 60.0
SCOPE_AGAIN_S = 600.0
WAIT_AT_LEAST_S = 1.0
REINSTALL = "Reinstall the app from `dragoman slack-manifest` in its workspace, then start Dragoman again."


class SlackAct(StrEnum):
    """What was tried."""

    CREATE = "create"
    RECREATE = "recreate"
    """The same, after Slack said that the message does not stand there. It is asked again before each further try, so
    that this may be repeated."""
    LOOK = "look"
    """Whether a message stands there."""
    EDIT = "edit"
    DELETE = "delete"
    UPLOAD = "upload"
    """A file's bytes, which nobody sees before the upload is completed."""


class SlackRemedy(StrEnum):
    """What to do instead of failing."""

    DONE = "done"
    """Nothing: it is as it should be, or nothing can be done about it."""
    PLAIN = "plain"
    """The same once more, as text without blocks."""
    ANEW = "anew"
    """The message is gone, or no longer to be changed: show its content in a new one."""


class TooLong(SendFailed):
    """Slack takes no message of this length; the same content may go in another form."""


Judgement: TypeAlias = SlackRemedy | SendFailed

BAD_TOKEN = frozenset(
    {
        "account_inactive",
        "app_uninstalled",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "user_removed_from_team",
    }
)
"""Not a fault of this message: it waits until there is a good token."""
_LATER = frozenset(
    {"ratelimited", "rate_limited", "message_limit_exceeded", "service_unavailable", "team_added_to_org"}
)
_REMEDIES: Mapping[tuple[SlackAct, str], SlackRemedy] = MappingProxyType(
    {
        (SlackAct.EDIT, "cant_update_message"): SlackRemedy.ANEW,
        (SlackAct.EDIT, "edit_window_closed"): SlackRemedy.ANEW,
        (SlackAct.EDIT, "message_not_found"): SlackRemedy.ANEW,
        (SlackAct.EDIT, "message_not_in_streaming_state"): SlackRemedy.ANEW,
        (SlackAct.EDIT, "msg_too_long"): SlackRemedy.ANEW,  # an edit may be shorter than a new message
        (SlackAct.EDIT, "is_inactive"): SlackRemedy.DONE,
        (SlackAct.DELETE, "cant_delete_message"): SlackRemedy.DONE,
        (SlackAct.DELETE, "channel_not_found"): SlackRemedy.DONE,
        (SlackAct.DELETE, "compliance_exports_prevent_deletion"): SlackRemedy.DONE,
        (SlackAct.DELETE, "is_inactive"): SlackRemedy.DONE,
        (SlackAct.DELETE, "message_not_found"): SlackRemedy.DONE,
    }
)
_BLOCKS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "markdown_text_conflict", "msg_blocks_too_long", "block_mismatch"}
)
_WRITE_THERE = "The app may not write in this channel. Let it, or take the channel out of the configuration."
_DEAD: Mapping[str, str] = MappingProxyType(
    {
        "channel_not_found": "Slack knows no such channel, or the app is not in it. Add it with /invite.",
        "not_in_channel": "The app is not in this channel. Add it with /invite.",
        "is_archived": "This channel is archived. Unarchive it, or take it out of the configuration.",
        "is_inactive": "This conversation is closed. Write to the app in another one.",
        "user_disabled": "This person's account was deactivated. Take it out of the configuration.",
        "user_not_found": "Slack knows no such person. Take them out of the configuration.",
        "cannot_dm_bot": "Apps cannot write to each other. Take the app out of the configuration.",
        "messages_tab_disabled": f"The app's messages tab is switched off. {REINSTALL}",
        "restricted_action": _WRITE_THERE,
        "restricted_action_read_only_channel": _WRITE_THERE,
        "restricted_action_thread_only_channel": f"{_WRITE_THERE} It takes answers in threads only.",
        "restricted_action_thread_locked": "This thread is locked. Write in another one.",
        "restricted_action_non_threadable_channel": f"{_WRITE_THERE} It takes no threads.",
        "thread_not_found": "The message that began this thread is gone. Write in another one.",
        "cannot_reply_to_message": "Nobody can answer in this thread. Write in another one.",
        "ekm_access_denied": "The administrators of this workspace have stopped messages. Ask them.",
        "accesslimited": "Slack does not take requests from this network. Ask the administrators of the workspace.",
        "access_denied": "The app may not do that here. Ask the administrators of the workspace.",
        "no_permission": "The app may not do that here. Ask the administrators of the workspace.",
        "msg_too_long": "Slack finds the message too long.",
        "file_uploads_disabled": "Files are switched off in this workspace. Ask its administrators.",
        "storage_limit_reached": "The workspace has no room for files. Delete some, or ask its administrators.",
    }
)


def judge(
    error: SlackFailure, act: SlackAct, *, chat_scope: str, account_scope: str, now: datetime, silent_s: float
) -> Judgement:
    """Say what a failed request means. The scopes are those of the channel's and of the account's `RateLimit`.

    `silent_s`: how long to wait where Slack says nothing; 0 when that counts as a try.
    """
    if isinstance(error, SlackUnreached):
        # Not a fault of this message, which waits for as long as it takes, and with it all others.
        return _wait(str(error), UNREACHED_AGAIN_S, account_scope, now)
    if isinstance(error, SlackNotSent):
        return SendFailed(str(error), outcome=SendOutcome.RETRY, creating=False)
    if not isinstance(error, SlackDeclined):
        return _silent(error, act, silent_s, chat_scope, now)
    if passes(error):
        # Messages are counted by channel. Everything else is counted by method, which the client sees to itself: other
        # channels, whose messages need no lookup and no file, do not wait for that.
        again_s = error.retry_after_s or WAIT_UNTOLD_S
        return _wait(f"Slack wants us to wait with {error.method}.", again_s, chat_scope, now)
    if error.error in BAD_TOKEN:
        return _wait(token_trouble(error), TOKEN_AGAIN_S, account_scope, now)
    if error.error == "missing_scope" and error.method.startswith("chat."):  # without files, words still arrive
        return _wait(scope_trouble(error), SCOPE_AGAIN_S, account_scope, now)
    return _refused(error, act)


def passes(error: SlackFailure) -> bool:
    """Whether the same request may be answered well a little later, without anybody doing something about it."""
    return not isinstance(error, SlackDeclined) or error.error in _LATER or error.status == 429


def token_trouble(error: SlackDeclined) -> str:
    """Say to the owner that a token is not good, and which."""
    key = "app_token" if error.method == "apps.connections.open" else "bot_token"
    return (
        f"Slack does not accept the {key} ({error.error}). Take it from the app's page at api.slack.com/apps, "
        "put it into the configuration and start Dragoman again."
    )


def scope_trouble(error: SlackDeclined) -> str:
    """Say to the owner what the app may not do."""
    return f"The app lacks the scope {error.needed or '(not named)'} for {error.method}. {REINSTALL}"


def _silent(error: SlackFailure, act: SlackAct, silent_s: float, scope: str, now: datetime) -> SendFailed:
    """Nobody knows what became of it: a new message is in doubt, everything else is repeated for as long as it takes.

    An edit may still be made, over something newer.
    """
    if act is SlackAct.CREATE:
        return SendFailed(str(error), outcome=SendOutcome.UNCERTAIN, creating=True)
    if silent_s > 0:
        return _wait(str(error), silent_s, scope, now, unsettled=act is SlackAct.EDIT)
    outcome = SendOutcome.UNCERTAIN if act is SlackAct.EDIT else SendOutcome.RETRY
    return SendFailed(str(error), outcome=outcome, creating=False)


def _wait(why: str, seconds: float, scope: str, now: datetime, *, unsettled: bool = False) -> SendFailed:
    until = now + timedelta(seconds=max(seconds, WAIT_AT_LEAST_S))
    return SendFailed(why, outcome=SendOutcome.WAIT, until=until, scope=scope, creating=False, unsettled=unsettled)


def _refused(error: SlackDeclined, act: SlackAct) -> Judgement:
    if error.error in _BLOCKS and act in (SlackAct.CREATE, SlackAct.RECREATE, SlackAct.EDIT):
        return SlackRemedy.PLAIN
    remedy = _REMEDIES.get((act, error.error))
    if remedy is not None:
        return remedy
    if error.error == "msg_too_long":
        return TooLong(_DEAD[error.error], outcome=SendOutcome.DEAD, creating=False)
    why = scope_trouble(error) if error.error == "missing_scope" else _DEAD.get(error.error, str(error))
    return SendFailed(why, outcome=SendOutcome.DEAD, creating=False)
