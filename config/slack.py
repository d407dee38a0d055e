"""`[channels.slack]`: one workspace, or several by name, and what they need of other tables."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import ValidationError

from channels.slack.settings import ONE_ACCOUNT, SlackAccount, SlackSettings
from config.basics import is_loopback
from config.reading import Path, Reader
from config.settings import HttpSettings

TABLE = ("channels", "slack")


def read_slack(raw: object, http: HttpSettings | None, reader: Reader) -> SlackSettings | None:
    """Read the table as the accounts that it means. None when there was a problem; all of them are remembered.

    `http` is None when that table cannot be used; what needs it is not checked then.
    """
    read: dict[str, SlackAccount] = {}
    tables = slack_accounts(raw, reader)
    for name, (path, table) in tables.items():
        account = reader.model(SlackAccount, table, path)
        if account is None:
            continue
        read[name] = account
        if account.mode == "http" and http is not None:
            _check_public_url(http.public_url or "", (*path, "mode"), reader)
    if not tables or len(read) < len(tables):
        return None
    try:
        return SlackSettings(accounts=read)
    except ValidationError as error:
        reader.explain(error, TABLE)
        return None


def slack_warnings(slack: SlackSettings | None) -> list[str]:
    """Say what is allowed and yet dangerous or without effect."""
    lines: list[str] = []
    for name, account in slack.accounts.items() if slack else ():
        api = urlsplit(account.api_root)
        if api.scheme == "http" and not is_loopback(api.hostname or ""):
            lines.append(f"channels.slack: the tokens of {name} go to {account.api_root} without TLS.")
        if account.mode == "socket" and account.signing_secret is not None:
            lines.append(f'channels.slack: the signing_secret of {name} has no effect with mode = "socket".')
        if account.mode == "http" and account.app_token is not None:
            lines.append(f'channels.slack: the app_token of {name} has no effect with mode = "http".')
    return lines


def slack_accounts(raw: object, reader: Reader) -> Mapping[str, tuple[Path, object]]:
    """Return each account's table with its place; none, and a problem, when it is not clear which there are."""
    before = len(reader.problems)
    table = reader.table(raw, TABLE)
    if len(reader.problems) > before:
        return {}
    if "accounts" not in table:
        return {ONE_ACCOUNT: (TABLE, table)}
    path = (*TABLE, "accounts")
    beside = sorted(set(table) - {"accounts"})
    if beside:
        what = f"[channels.slack] has accounts and is one itself ({', '.join(beside)})"
        reader.wrong(path, what, f"Move these keys into [channels.slack.accounts.{ONE_ACCOUNT}]")
        return {}
    named = reader.table(table["accounts"], path)
    if not named and len(reader.problems) == before:
        reader.wrong(path, "there is no account in it", "Write [channels.slack.accounts.NAME] with a bot_token")
    return {name: ((*path, name), account) for name, account in named.items()}


def _check_public_url(url: str, path: Path, reader: Reader) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" or (url and is_loopback(parts.hostname or "")):
        return
    what = "Slack sends through TLS, and public_url is http://" if url else "nothing says where Slack can send events"
    reader.wrong(path, what, 'Set http.public_url = "https://…" as the world reaches it, or write mode = "socket"')
