"""`[channels.telegram]`: one account, or several by name, and what they need of other tables."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from channels.telegram.settings import TelegramAccount, TelegramSettings
from config.accounts import is_safe_to_send_to, read_accounts
from config.basics import is_in_clear
from config.reading import Path, TableReader
from config.settings import HttpSettings

TABLE = ("channels", "telegram")
NEEDS = "a token"
OF_PLACES = "telegram:"
"""The beginning of what names a person or a chat there."""


def read_telegram(raw: object, http: HttpSettings | None, reader: TableReader) -> TelegramSettings | None:
    """Read the table as the accounts that it means. None when there was a problem; all of them are remembered.

    `http` is None when that table cannot be used; what needs it is not checked then.
    """

    def check(path: Path, account: TelegramAccount) -> None:
        reader.secrets.append(account.bare_token)
        if account.mode == "webhook" and http is not None:
            _check_public_url(http.public_url or "", (*path, "mode"), reader)

    read = read_accounts(raw, TABLE, TelegramAccount, reader, needs=NEEDS, check=check)
    if read is None:
        return None
    try:
        return TelegramSettings(accounts=read)
    except ValidationError as error:
        reader.explain(error, TABLE)
        return None


NOBODY = (
    "channels.telegram: nobody may write to the bot. To find your id, write to it: its refusal names your id. Put that "
    'into the file, as in [owners] you = ["telegram:1001"], and start Dragoman again.'
)


def telegram_warnings(telegram: TelegramSettings | None, named: Iterable[str]) -> list[str]:
    """Say what is allowed and yet dangerous or without effect. `named`: all people and chats that may write."""
    lines: list[str] = []
    if telegram is not None and not any(one.startswith(OF_PLACES) for one in named):
        lines.append(NOBODY)
    for name, account in telegram.accounts.items() if telegram else ():
        if is_in_clear(account.api_root):
            lines.append(f"channels.telegram: the token of {name} goes to {account.api_root} without TLS.")
        if account.mode == "polling" and account.webhook_secret is not None:
            lines.append(f'channels.telegram: the webhook_secret of {name} has no effect with mode = "polling".')
    return lines


def _check_public_url(url: str, path: Path, reader: TableReader) -> None:
    if is_safe_to_send_to(url):
        return
    what = "webhooks come through TLS, and public_url is http://" if url else "nothing says where webhooks can be sent"
    reader.wrong(path, what, 'Set http.public_url = "https://…" as the world reaches it, or write mode = "polling"')
