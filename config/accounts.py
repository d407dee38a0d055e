"""`[channels.NAME]` of a platform with accounts: one of them, or several by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from channels._shared.settings import ONE_ACCOUNT
from config.basics import is_loopback
from config.reading import Path, TableReader, dotted

A = TypeVar("A", bound=BaseModel)
Tables: TypeAlias = Mapping[str, tuple[Path, object]]


def read_accounts(
    raw: object, at: Path, kind: type[A], reader: TableReader, *, needs: str, check: Callable[[Path, A], None]
) -> dict[str, A] | None:
    """Read the table `at` as the accounts that it means. None when there was a problem; all of them are remembered.

    `needs`: what an account cannot be without, for who has none. `check` looks at each that was read, with its place.
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
    """Return each account's table with its place; none, and a problem, when it is not clear which there are."""
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
    """Whether a platform may send what people say to this address: through TLS, or not beyond this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (bool(url) and is_loopback(parts.hostname or ""))
