"""`[channels.slack]`: one workspace, or several by name, and what they need of other tables."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from channels.slack.settings import SlackAccount, SlackSettings
from config.accounts import account_tables, is_safe_to_send_to, read_accounts
from config.basics import is_in_clear
from config.reading import Path, TableReader
from config.settings import HttpSettings

TABLE = ("channels", "slack")
NEEDS = "a bot_token"


def read_slack(raw: object, http: HttpSettings | None, reader: TableReader) -> SlackSettings | None:
    """Read the table as the accounts that it means. None when there was a problem; all of them are remembered.

    `http` is None when that table cannot be used; what needs it is not checked then.
    """

    def check(path: Path, account: SlackAccount) -> None:
        if account.mode == "http" and http is not None:
            _check_public_url(http.public_url or "", (*path, "mode"), reader)

    read = read_accounts(raw, TABLE, SlackAccount, reader, needs=NEEDS, check=check)
    if read is None:
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
        if is_in_clear(account.api_root):
            lines.append(f"channels.slack: the tokens of {name} go to {account.api_root} without TLS.")
        if account.mode == "socket" and account.signing_secret is not None:
            lines.append(f'channels.slack: the signing_secret of {name} has no effect with mode = "socket".')
        if account.mode == "http" and account.app_token is not None:
            lines.append(f'channels.slack: the app_token of {name} has no effect with mode = "http".')
    return lines


def slack_accounts(raw: object, reader: TableReader) -> Mapping[str, tuple[Path, object]]:
    """Return each account's table with its place; none, and a problem, when it is not clear which there are."""
    return account_tables(raw, TABLE, reader, needs=NEEDS)


def _check_public_url(url: str, path: Path, reader: TableReader) -> None:
    if is_safe_to_send_to(url):
        return
    what = "Slack sends through TLS, and public_url is http://" if url else "nothing says where Slack can send events"
    reader.wrong(path, what, 'Set http.public_url = "https://…" as the world reaches it, or write mode = "socket"')
