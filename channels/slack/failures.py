"""Mapping of failed requests to outcomes for the slot, with texts: a pure table. Used by `showing` and `account`.

An edit or a deletion may always be repeated. A new message may be repeated only if the first one certainly does not
exist.
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
"""Pause in seconds before the next attempt with a rejected token."""
SCOPE_AGAIN_S = 600.0
"""Pause in seconds before the next attempt without a needed scope."""
WAIT_AT_LEAST_S = 1.0
"""Shortest pause in seconds that a refusal causes."""
REINSTALL = "Reinstall the app from `dragoman slack-manifest` in its workspace, then start Dragoman again."


class SlackAct(StrEnum):
    """Kind of request."""

    CREATE = "create"
    RECREATE = "recreate"
    """Create after a lookup showed that the message does not exist. The lookup precedes each attempt, so this may be
    repeated."""
    LOOK = "look"
    """Look up whether a message exists."""
    EDIT = "edit"
    DELETE = "delete"
    MARK = "mark"
    """Change what stands at a message, such as a reaction. It may be repeated."""
    UPLOAD = "upload"
    """Upload a file's bytes, which nobody sees before the upload is completed."""


class SlackRemedy(StrEnum):
    """Remedy for a refused request."""

    DONE = "done"
    """Do nothing: the state is right already, or cannot be changed."""
    PLAIN = "plain"
    """Retry as text without blocks."""
    REPLACE = "replace"
    """Show the content in a new message: the old one is gone or no longer editable."""


class TooLong(SendFailed):
    """Error for a message too long for Slack; the same content may be sent in another form."""


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
"""Errors of a rejected token. Not a fault of the message: it waits for a valid token."""
_LATER = frozenset(
    {"ratelimited", "rate_limited", "message_limit_exceeded", "service_unavailable", "team_added_to_org"}
)
_REMEDIES: Mapping[tuple[SlackAct, str], SlackRemedy] = MappingProxyType(
    {
        (SlackAct.EDIT, "cant_update_message"): SlackRemedy.REPLACE,
        (SlackAct.EDIT, "edit_window_closed"): SlackRemedy.REPLACE,
        (SlackAct.EDIT, "message_not_found"): SlackRemedy.REPLACE,
        (SlackAct.EDIT, "message_not_in_streaming_state"): SlackRemedy.REPLACE,
        (SlackAct.EDIT, "msg_too_long"): SlackRemedy.REPLACE,  # an edit may be shorter than a new message
        (SlackAct.EDIT, "is_inactive"): SlackRemedy.DONE,
        (SlackAct.MARK, "already_pinned"): SlackRemedy.DONE,
        (SlackAct.MARK, "already_reacted"): SlackRemedy.DONE,
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
        "invalid_name": "This workspace knows no such reaction. Choose another one.",
        "too_many_emoji": "The message has too many reactions.",
        "too_many_reactions": "The message has too many reactions.",
        "too_many_pins": "This channel has too many pins. Take one away.",
        "message_not_found": "The message is gone. Name another one.",
        "msg_too_long": "Slack finds the message too long.",
        "file_uploads_disabled": "Files are switched off in this workspace. Ask its administrators.",
        "storage_limit_reached": "The workspace has no room for files. Delete some, or ask its administrators.",
    }
)


def judge(
    error: SlackFailure, act: SlackAct, *, chat_scope: str, account_scope: str, now: datetime, silent_s: float
) -> Judgement:
    """Return the judgement of a failed request. The scopes are those of the channel's and the account's `RateLimit`.

    `silent_s`: backoff in seconds if Slack does not answer; 0 when that counts as an attempt.
    """
    if isinstance(error, SlackUnreached):
        # Not a fault of this message: it waits as long as the outage lasts, and so do all others.
        return _wait(str(error), UNREACHED_AGAIN_S, account_scope, now)
    if isinstance(error, SlackNotSent):
        return SendFailed(str(error), outcome=SendOutcome.RETRY, creating=False)
    if not isinstance(error, SlackDeclined):
        return _silent(error, act, silent_s, chat_scope, now)
    if passes(error):
        # Messages are limited per channel. All else is limited per method, which the client handles: other channels,
        # whose messages need no lookup and no file, do not wait for it.
        again_s = error.retry_after_s or WAIT_UNTOLD_S
        return _wait(f"Slack wants us to wait with {error.method}.", again_s, chat_scope, now)
    if error.error in BAD_TOKEN:
        return _wait(token_trouble(error), TOKEN_AGAIN_S, account_scope, now)
    if error.error == "missing_scope" and error.method.startswith("chat."):  # without the files' scope, texts arrive
        return _wait(scope_trouble(error), SCOPE_AGAIN_S, account_scope, now)
    return _refused(error, act)


def passes(error: SlackFailure) -> bool:
    """Return True if the same request may succeed later."""
    return not isinstance(error, SlackDeclined) or error.error in _LATER or error.status == 429


def token_trouble(error: SlackDeclined) -> str:
    """Return the owner's message about a rejected token, with its key."""
    key = "app_token" if error.method == "apps.connections.open" else "bot_token"
    return (
        f"Slack does not accept the {key} ({error.error}). Take it from the app's page at api.slack.com/apps, "
        "put it into the configuration and start Dragoman again."
    )


def scope_trouble(error: SlackDeclined) -> str:
    """Return the owner's message about a missing scope."""
    return f"The app lacks the scope {error.needed or '(not named)'} for {error.method}. {REINSTALL}"


def _silent(error: SlackFailure, act: SlackAct, silent_s: float, scope: str, now: datetime) -> SendFailed:
    """Return the failure for an unknown outcome: a new message is uncertain, everything else is retried.

    An edit may still take effect, and overwrite a newer one.
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
