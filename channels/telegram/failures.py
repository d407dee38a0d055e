"""Mapping of failed requests to outcomes for the slot: a pure table. Used by `showing` and `adapter`.

An edit or a deletion may always be repeated. A new message may be repeated only if the first one certainly does not
exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from telegram.error import TelegramError

from channels._shared.http import UNREACHED_AGAIN_S
from channels.telegram.request import Failing, TelegramDeclined, TelegramNotSent, TelegramUnreached
from gateway.errors import SendFailed, SendOutcome

TOKEN_AGAIN_S = 60.0
"""Pause in seconds before the next attempt with a rejected token."""
WAIT_AT_LEAST_S = 1.0
"""Shortest pause in seconds that a rate limit of Telegram causes."""
ASK_BOTFATHER = "Get the bot's token from @BotFather, put it into the configuration and start Dragoman again."


class TelegramAct(StrEnum):
    """Kind of request."""

    CREATE = "create"
    EDIT = "edit"
    DELETE = "delete"
    MARK = "mark"
    """Change what stands at a message, such as a reaction. It may be repeated."""


class TelegramRemedy(StrEnum):
    """Remedy for a refused request."""

    DONE = "done"
    """Do nothing: the state is right already, or cannot be changed."""
    PLAIN = "plain"
    """Retry as text without entities."""
    AS_FILE = "as_file"
    """Retry as a document: Telegram does not accept the file as a photo."""
    REPLACE = "replace"
    """Show the content in a new message: the old one is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Migration of the group to a supergroup: retry at once under the new id."""

    chat: str


Judgement: TypeAlias = TelegramRemedy | Moved | SendFailed

_NO_PHOTO = ("photo_invalid", "photo_save_file_invalid", "image_process_failed", "too big for a photo", "type of file")
_GONE = (
    "message to edit not found",
    "message can't be edited",
    "message_id_invalid",
    "no text in the message to edit",
    "no caption in the message to edit",
)
_NO_MESSAGE = "The message is gone. Name another one."
_CANNOT_GO = ("message to delete not found", "message can't be deleted", "message_id_invalid", "message identifier")
_REMEDIES: tuple[tuple[TelegramAct | None, tuple[str, ...], TelegramRemedy], ...] = (
    (TelegramAct.EDIT, ("message is not modified",), TelegramRemedy.DONE),
    (TelegramAct.EDIT, _GONE, TelegramRemedy.REPLACE),
    (TelegramAct.DELETE, _CANNOT_GO, TelegramRemedy.DONE),
    (TelegramAct.CREATE, _NO_PHOTO, TelegramRemedy.AS_FILE),
    (None, ("can't parse entities", "entity_", "entities_", "entity beginning"), TelegramRemedy.PLAIN),
)

_DEAD: tuple[tuple[str, str], ...] = (
    ("message to react not found", _NO_MESSAGE),
    ("message to pin not found", _NO_MESSAGE),
    ("reaction_invalid", "This chat does not take that reaction. Choose another one."),
    ("rights to manage pinned", "The bot may not pin messages in this chat. Give it the right to."),
    ("rights to pin", "The bot may not pin messages in this chat. Give it the right to."),
    ("rights to send polls", "The bot may not send polls in this chat. Give it the right to."),
    ("bot was blocked", "This person has blocked the bot. They can unblock it in Telegram and press Start."),
    ("user is deactivated", "This person's Telegram account no longer exists. Take it out of the configuration."),
    ("can't initiate conversation", "A bot may not write first. They must open it in Telegram and press Start."),
    ("bot was kicked", "The bot was removed from this chat. Add it again to hear from it."),
    ("bot is not a member", "The bot is not in this chat. Add it to it."),
    ("was deactivated", "This group was closed. Take it out of the configuration."),
    ("was deleted", "This group was deleted. Take it out of the configuration."),
    ("chat not found", "Telegram does not know this chat. Somebody must write to the bot there first."),
    ("peer_id_invalid", "Telegram does not know this chat. Somebody must write to the bot there first."),
    ("topic_closed", "This topic is closed. Open it again, or let the bot manage topics."),
    ("topic_deleted", "This topic was deleted. Write in another one."),
    ("message thread not found", "This topic was deleted. Write in another one."),
    ("rights", "The bot may not write in this chat. Give it the right to send messages there."),
    ("write_forbidden", "The bot may not write in this chat. Give it the right to send messages there."),
    ("chat_restricted", "The bot may not write in this chat. Give it the right to send messages there."),
)


def judge(error: TelegramError, act: TelegramAct, *, chat_scope: str, account_scope: str, now: datetime) -> Judgement:
    """Return the judgement of a failed request. The scopes are those of the chat's and the account's `RateLimit`."""
    if isinstance(error, TelegramUnreached):
        # Not a fault of this message: it waits as long as the outage lasts, and so do all others.
        return _wait(str(error), now + timedelta(seconds=UNREACHED_AGAIN_S), account_scope)
    if isinstance(error, TelegramNotSent):
        return SendFailed(str(error), outcome=SendOutcome.RETRY, creating=False)
    if not isinstance(error, TelegramDeclined):
        if act is TelegramAct.CREATE:
            answered = isinstance(error, Failing)
            return SendFailed(str(error), outcome=SendOutcome.UNCERTAIN, creating=True, answered=answered)
        # An edit may still take effect; repeating a deletion does no harm.
        outcome = SendOutcome.UNCERTAIN if act is TelegramAct.EDIT else SendOutcome.RETRY
        return SendFailed(str(error), outcome=outcome, creating=False)
    if error.moved_to:
        return Moved(chat=error.moved_to)
    if error.code == 429:
        until = now + timedelta(seconds=max(error.retry_after_s, WAIT_AT_LEAST_S))
        return _wait("Telegram wants us to wait.", until, chat_scope)
    if bad_token(error):
        # Not a fault of this message: it waits for a valid token and uses up no attempt.
        return _wait(token_trouble(error), now + timedelta(seconds=TOKEN_AGAIN_S), account_scope)
    return _refused(error, act)


def bad_token(error: TelegramError) -> bool:
    """Return True if Telegram rejects the token: 401 for a revoked one, 404 for a malformed one."""
    return isinstance(error, TelegramDeclined) and error.code in (401, 404)


def token_trouble(error: TelegramError) -> str:
    """Return the owner's message about a rejected token."""
    code = error.code if isinstance(error, TelegramDeclined) else 0
    return f"Telegram does not accept the bot's token ({code}). {ASK_BOTFATHER}"


def _wait(why: str, until: datetime, scope: str) -> SendFailed:
    return SendFailed(why, outcome=SendOutcome.WAIT, until=until, scope=scope, creating=False)


def _refused(error: TelegramDeclined, act: TelegramAct) -> TelegramRemedy | SendFailed:
    said = error.description.lower()
    for only, words, remedy in _REMEDIES:
        if only in (None, act) and any(word in said for word in words):
            return remedy
    why = next((text for words, text in _DEAD if words in said), str(error))
    return SendFailed(why, outcome=SendOutcome.DEAD, creating=False)
