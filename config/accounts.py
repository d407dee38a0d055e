"""Reader of `[channels.telegram]` and `[channels.slack]`: one account, or several by name. Used by `config.load`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from channels._shared.settings import ONE_ACCOUNT
from channels.slack.settings import SlackAccount, SlackSettings
from channels.telegram.settings import TelegramAccount, TelegramSettings
from config.basics import is_in_clear, is_loopback
from config.reading import Path, TableReader, dotted
from config.settings import HttpSettings

A = TypeVar("A", bound=BaseModel)
Tables: TypeAlias = Mapping[str, tuple[Path, object]]

TELEGRAM: Final = ("channels", "telegram")
SLACK: Final = ("channels", "slack")
TELEGRAM_NEEDS = "a token"
SLACK_NEEDS = "a bot_token"
TELEGRAM_PREFIX = "telegram:"
"""Prefix of the ids of people and chats on Telegram."""
NOBODY = (
    "channels.telegram: nobody may write to the bot. To find your id, write to it: its refusal names your id. Put that "
    'into the file, as in [owners] you = ["telegram:1001"], and start Dragoman again.'
)


def read_telegram(raw: object, http: HttpSettings | None, reader: TableReader) -> TelegramSettings | None:
    """Read the accounts of the table. Return None when there was a problem; the reader collects all of them.

    `http` is None when that table is unusable; checks that depend on it are skipped then.
    """

    def check(path: Path, account: TelegramAccount) -> None:
        reader.secrets.append(account.bare_token)
        if account.mode == "webhook" and http is not None and not is_safe_to_send_to(url := http.public_url or ""):
            clear = "webhooks come through TLS, and public_url is http://"
            what = clear if url else "nothing says where webhooks can be sent"
            reader.wrong((*path, "mode"), what, _cure("polling"))

    read = _read_accounts(raw, TELEGRAM, TelegramAccount, reader, needs=TELEGRAM_NEEDS, check=check)
    if read is None:
        return None
    try:
        return TelegramSettings(accounts=read)
    except ValidationError as error:
        reader.explain(error, TELEGRAM)
        return None


def read_slack(raw: object, http: HttpSettings | None, reader: TableReader) -> SlackSettings | None:
    """Read the accounts of the table. Return None when there was a problem; the reader collects all of them.

    `http` is None when that table is unusable; checks that depend on it are skipped then.
    """

    def check(path: Path, account: SlackAccount) -> None:
        if account.mode == "http" and http is not None and not is_safe_to_send_to(url := http.public_url or ""):
            clear = "Slack sends through TLS, and public_url is http://"
            what = clear if url else "nothing says where Slack can send events"
            reader.wrong((*path, "mode"), what, _cure("socket"))

    read = _read_accounts(raw, SLACK, SlackAccount, reader, needs=SLACK_NEEDS, check=check)
    if read is None:
        return None
    try:
        return SlackSettings(accounts=read)
    except ValidationError as error:
        reader.explain(error, SLACK)
        return None


def _cure(mode: str) -> str:
    return f'Set http.public_url = "https://…" as the world reaches it, or write mode = "{mode}"'


def telegram_warnings(telegram: TelegramSettings | None, named: Iterable[str]) -> list[str]:
    """Return warnings about settings that are dangerous or have no effect. `named`: people and chats with access."""
    lines: list[str] = []
    if telegram is not None and not any(one.startswith(TELEGRAM_PREFIX) for one in named):
        lines.append(NOBODY)
    for name, account in telegram.accounts.items() if telegram else ():
        if is_in_clear(account.api_root):
            lines.append(f"channels.telegram: the token of {name} goes to {account.api_root} without TLS.")
        if account.mode == "polling" and account.webhook_secret is not None:
            lines.append(f'channels.telegram: the webhook_secret of {name} has no effect with mode = "polling".')
    return lines


def slack_warnings(slack: SlackSettings | None) -> list[str]:
    """Return warnings about settings that are dangerous or have no effect."""
    lines: list[str] = []
    for name, account in slack.accounts.items() if slack else ():
        if is_in_clear(account.api_root):
            lines.append(f"channels.slack: the tokens of {name} go to {account.api_root} without TLS.")
        if account.mode == "socket" and account.signing_secret is not None:
            lines.append(f'channels.slack: the signing_secret of {name} has no effect with mode = "socket".')
        if account.mode == "http" and account.app_token is not None:
            lines.append(f'channels.slack: the app_token of {name} has no effect with mode = "http".')
    return lines


def slack_accounts(raw: object, reader: TableReader) -> Tables:
    """Return each Slack account's table with its path; none, and a problem, when the accounts are ambiguous."""
    return account_tables(raw, SLACK, reader, needs=SLACK_NEEDS)


def _read_accounts(
    raw: object, at: Path, kind: type[A], reader: TableReader, *, needs: str, check: Callable[[Path, A], None]
) -> dict[str, A] | None:
    """Read the accounts of the table `at`. Return None when there was a problem; the reader collects all of them.

    `needs`: the required key, named in the error for a table without accounts. `check` validates each account read.
    """
    read: dict[str, A] = {}
    tables = account_tables(raw, at, reader, needs=needs)
    for name, (path, table) in tables.items():
        account = reader.model(kind, table, path)
        if account is not None:
            read[name] = account
            check(path, account)
    return read if tables and len(read) == len(tables) else None


def account_tables(raw: object, at: Path, reader: TableReader, *, needs: str) -> Tables:
    """Return each account's table with its path; none, and a problem, when the accounts are ambiguous."""
    before, channel = len(reader.problems), dotted(at)
    table = reader.table(raw, at)
    if len(reader.problems) > before:
        return {}
    if "accounts" not in table:
        return {ONE_ACCOUNT: (at, table)}
    path = (*at, "accounts")
    beside = sorted(set(table) - {"accounts"})
    if beside:
        what = f"[{channel}] has accounts and is one itself ({', '.join(beside)})"
        reader.wrong(path, what, f"Move these keys into [{channel}.accounts.{ONE_ACCOUNT}]")
        return {}
    named = reader.table(table["accounts"], path)
    if not named and len(reader.problems) == before:
        reader.wrong(path, "there is no account in it", f"Write [{channel}.accounts.NAME] with {needs}")
    return {name: ((*path, name), account) for name, account in named.items()}


def is_safe_to_send_to(url: str) -> bool:
    """Return whether a platform may send user messages to this URL: over TLS, or on this machine only."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (bool(url) and is_loopback(parts.hostname or ""))
