"""Telegram channel. `CHANNEL` is all that the configuration and the composition root know of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from channels._shared.settings import is_in_clear, is_safe_to_send_to
from channels.telegram.ids import message_of
from channels.telegram.settings import SECRETS, TelegramAccount, TelegramSettings
from gateway.domain.posts import PostAct
from gateway.ports import Build, ChannelSpec, IdForm, Mistake

_PERSON = re.compile(r"[1-9]\d{0,18}")
_GROUP = re.compile(r"-[1-9]\d{0,18}")
NOBODY = (
    "channels.telegram: nobody may write to the bot. To find your id, write to it: its refusal names your id. Put that "
    'into the file, as in [owners] you = ["telegram:1001"], and start Dragoman again.'
)


def _load() -> Build:
    from channels.telegram.adapter import build

    return build


def _person(text: str) -> Mistake | None:
    if text.startswith("@"):
        return Mistake("is a name, and names change hands", "Write the number of the account, as in telegram:1001")
    if text.startswith("-"):
        return Mistake("is a group", "Put groups into chats.allow; a person's id has no minus")
    if not _PERSON.fullmatch(text):
        return Mistake("is not a person on telegram", "Write the account's own id, as in telegram:1001")
    return None


def _chat(text: str) -> Mistake | None:
    if text.isdigit():
        return Mistake("is a person", "Put people into people.allow; a group's id begins with a minus")
    if not _GROUP.fullmatch(text):
        return Mistake("is not a group or channel on telegram", "Write its own id, as in telegram:-1003")
    return None


def _check(account: TelegramAccount, public_url: str | None) -> Iterator[Mistake]:
    if account.mode == "webhook" and public_url is not None and not is_safe_to_send_to(public_url):
        clear = "webhooks come through TLS, and public_url is http://"
        what = clear if public_url else "nothing says where webhooks can be sent"
        cure = 'Set http.public_url = "https://…" as the world reaches it, or write mode = "polling"'
        yield Mistake(what, cure, "mode")


def _warnings(settings: TelegramSettings, named: Sequence[str]) -> Iterator[str]:
    if not any(one.startswith("telegram:") for one in named):
        yield NOBODY
    for name, account in settings.accounts.items():
        if is_in_clear(account.api_root):
            yield f"channels.telegram: the token of {name} goes to {account.api_root} without TLS."
        if account.mode == "polling" and account.webhook_secret is not None:
            yield f'channels.telegram: the webhook_secret of {name} has no effect with mode = "polling".'


def _describe(settings: TelegramSettings) -> Iterator[tuple[str, str]]:
    for name, account in settings.accounts.items():
        yield name, f"bot {account.bot_id}, {account.mode} at {account.api_root}"


CHANNEL = ChannelSpec(
    name="telegram",
    api=2,
    load=_load,
    settings=TelegramSettings,
    account=TelegramAccount,
    account_noun="bot",
    needs="a token",
    person=IdForm(example="1001", check=_person),
    chat=IdForm(example="-1003", check=_chat),
    secret_patterns=SECRETS,
    secrets_of=lambda account: [account.bare_token],
    check=_check,
    warnings=_warnings,
    describe=_describe,
    posts=frozenset(PostAct),
    message_of=message_of,
    extra="telegram",
)
