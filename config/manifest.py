"""Slack app manifest of a configuration whose tokens need not exist yet. Used by `dragoman slack-manifest`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from channels.slack.manifest import manifest
from channels.slack.settings import Mode
from config.accounts import slack_accounts
from config.load import read_tables
from config.reading import TableReader, as_error, suggest
from gateway.errors import ConfigError


def slack_manifest(path: Path | str | None, environ: Mapping[str, str], account: str | None) -> dict[str, Any]:
    """Return the manifest of one configured account; without `[channels.slack]`, one for Socket Mode.

    Only `mode` and `http.public_url` are read: the app is created before its tokens exist. Raises `ConfigError` for an
    unknown account, or when there are several and none was named.
    """
    _, raw, _, reader = read_tables(path, environ)
    tables = slack_accounts(reader.table(raw.get("channels", {}), ("channels",)).get("slack", {}), reader)
    if reader.problems:
        raise as_error(reader.problems)
    name = _chosen(list(tables), account)
    where, table = tables[name]
    mode = reader.table(table, where).get("mode", "socket")
    if mode not in {"socket", "http"}:
        reader.wrong((*where, "mode"), "it is none of the choices", 'Write one of "socket" or "http"')
    url = _public_url(raw.get("http", {}), reader)
    if reader.problems:
        raise as_error(reader.problems)
    return manifest(cast("Mode", str(mode)), account=name, public_url=url)


def _chosen(names: list[str], account: str | None) -> str:
    if account is None:
        if len(names) > 1:
            raise ConfigError(f"There are several accounts: {', '.join(names)}.", cure="Name one with --account NAME.")
        return names[0]
    if account not in names:
        raise ConfigError(f"There is no Slack account {account!r}.", cure=f"{suggest(account, names)}.")
    return account


def _public_url(raw: object, reader: TableReader) -> str:
    url = reader.table(raw, ("http",)).get("public_url", "")
    if not isinstance(url, str) or (url and not url.startswith("https://")):
        reader.wrong(
            ("http", "public_url"), "Slack sends to https:// addresses only", 'Write "https://…", or remove it'
        )
        return ""
    return url.rstrip("/")
