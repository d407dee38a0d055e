"""Tables of accounts: `[channels.NAME]` is one, `[channels.NAME.accounts.NAME]` are several. Used by `channels`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from channels._shared.settings import ONE_ACCOUNT
from config.reading import Path, TableReader, dotted

Tables: TypeAlias = Mapping[str, tuple[Path, object]]


def account_tables(raw: object, at: Path, reader: TableReader, *, needs: str) -> Tables:
    """Return each account's table with its path; none, and a problem, when the accounts are ambiguous.

    `needs`: the required key, named in the error for a table without accounts.
    """
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
