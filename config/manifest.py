"""Platform app manifest of a configuration whose tokens need not exist yet. Used by `dragoman slack-manifest`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.accounts import account_tables
from config.channels import built_in
from config.load import read_tables
from config.reading import TableReader, as_error, suggest
from gateway.errors import ConfigError


def app_manifest(
    channel: str, path: Path | str | None, environ: Mapping[str, str], account: str | None
) -> Mapping[str, Any]:
    """Return the manifest of one configured account; without `[channels.NAME]`, one with the defaults.

    Only the account's table and `http.public_url` are read: the app is created before its tokens exist. Raises
    `ConfigError` for an unknown account, or when there are several and none was named.
    """
    spec = built_in()[channel]
    if spec.manifest is None:
        raise ConfigError(f"{channel} has no app manifest.", cure="Set the channel up as its documentation says.")
    _, raw, _, reader = read_tables(path, environ)
    table = reader.table(raw.get("channels", {}), ("channels",)).get(channel, {})
    tables = account_tables(table, ("channels", channel), reader, needs=spec.needs)
    if reader.problems:
        raise as_error(reader.problems)
    name = _chosen(list(tables), account, channel)
    where, found = tables[name]
    keys = reader.table(found, where)
    url = _public_url(raw.get("http", {}), reader)
    if reader.problems:
        raise as_error(reader.problems)
    try:
        return spec.manifest(keys, name, url)
    except ValueError as error:
        what, _, cure = str(error).partition(". ")
        key, _, what = what.partition(": ")
        reader.wrong((*where, key), what, cure.rstrip("."))
        raise as_error(reader.problems) from None


def _chosen(names: list[str], account: str | None, channel: str) -> str:
    if account is None:
        if len(names) > 1:
            raise ConfigError(f"There are several accounts: {', '.join(names)}.", cure="Name one with --account NAME.")
        return names[0]
    if account not in names:
        raise ConfigError(
            f"There is no {channel.capitalize()} account {account!r}.", cure=f"{suggest(account, names)}."
        )
    return account


def _public_url(raw: object, reader: TableReader) -> str:
    url = reader.table(raw, ("http",)).get("public_url", "")
    if not isinstance(url, str) or (url and not url.startswith("https://")):
        what = "platforms send to https:// addresses only"
        reader.wrong(("http", "public_url"), what, 'Write "https://…", or remove it')
        return ""
    return url.rstrip("/")
