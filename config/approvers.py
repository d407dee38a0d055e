"""Checks of approvers across tables: names that exist, people whom a card reaches, quorums that can be met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from config.people import Channels, check_person
from config.reading import Path, TableReader, suggest
from config.values import Flaw
from gateway.domain.ids import OwnerName, Principal, channel_of
from gateway.domain.tools import ToolPolicy

KEYS = ("approvers", "escalate_to")
"""Keys of a tool's table that name people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """People of the configuration, whom approvers may be."""

    owners: Mapping[OwnerName, tuple[Principal, ...]]
    allowed: Sequence[str]
    """`people.allow`."""
    channels: Channels

    def person_of(self, name: str) -> str:
        """Return the owner with this name or principal, else the principal."""
        return next((owner for owner, who in self.owners.items() if name == owner or name in who), name)

    def reached(self, who: str) -> bool:
        """Return whether a person may write directly, so that a card finds a chat."""
        owns = any(who in principals for principals in self.owners.values())
        return owns or who in self.allowed or f"{channel_of(Principal(who))}:*" in self.allowed


def check_approvers(
    tools: object,
    chats: Mapping[str, Sequence[str]],
    policies: Mapping[str, ToolPolicy],
    named: Named,
    reader: TableReader,
) -> list[str]:
    """Check all lists of approvers; the reader collects problems. Return warnings about quorums.

    `tools`: the table `[tools]` as written.
    """
    for path, name in [*_of_tools(tools), *_of_chats(chats)]:
        _check_name(name, path, named, reader)
    warnings: list[str] = []
    for tool, policy in policies.items():
        warnings += _check_quorum(tool, policy, chats, named, reader)
    return warnings


def _of_tools(tools: object) -> Iterator[tuple[Path, str]]:
    """Yield each name with its place; what is not of the right type was reported when it was read."""
    tables = cast("dict[str, object]", tools) if isinstance(tools, dict) else {}
    for tool, table in tables.items():
        for key in KEYS:
            listed = cast("dict[str, Any]", table).get(key) if isinstance(table, dict) else None
            rows = cast("list[object]", listed) if isinstance(listed, list) else []
            yield from ((("tools", tool, key, n), name) for n, name in enumerate(rows) if isinstance(name, str))


def _of_chats(chats: Mapping[str, Sequence[str]]) -> Iterator[tuple[Path, str]]:
    for chat, names in chats.items():
        yield from ((("chats", "approvers", chat, n), name) for n, name in enumerate(names))


def is_person(name: str, path: Path, named: Named, reader: TableReader) -> bool:
    """Return whether a name is a well-formed principal. Report an unknown owner, and a malformed principal."""
    if ":" not in name:
        if name not in named.owners:
            reader.wrong(path, f"there is no owner {name!r}", suggest(name, named.owners))
        return False
    try:
        check_person(name, named.channels, everyone=False)
    except Flaw as flaw:
        reader.flaw(path, flaw)
        return False
    return True


def _check_name(name: str, path: Path, named: Named, reader: TableReader) -> None:
    if is_person(name, path, named, reader) and not named.reached(name):
        reader.wrong(path, f"{name} may not write directly, so no card reaches them", "Add them to people.allow")


def _check_quorum(
    tool: str, policy: ToolPolicy, chats: Mapping[str, Sequence[str]], named: Named, reader: TableReader
) -> list[str]:
    """Report a quorum that nobody can meet. Return warnings about those that some requests cannot meet."""
    rules = policy.deciding
    names = list(named.owners) if rules.approvers is None else rules.approvers
    persons = {named.person_of(name) for name in names}
    if rules.quorum > len(persons):
        if rules.quorum == 1:
            reader.wrong(("tools", tool, "approvers"), "nobody may decide", 'Name somebody, or set approval = "deny"')
        else:
            what = f"{rules.quorum} people must allow a call, and {len(persons) or 'nobody'} may"
            cure = f"Name {rules.quorum} different people in tools.{tool}.approvers, or lower the quorum"
            reader.wrong(("tools", tool, "quorum"), what, cure)
        return []
    warnings: list[str] = []
    if not rules.requester_may_approve and rules.quorum == len(persons):
        who = ", ".join(sorted(persons))
        warnings.append(
            f"tools.{tool}: nobody can allow a call that {who} asked for, as requester_may_approve is false. "
            f"Name more people in tools.{tool}.approvers."
        )
    if rules.approvers is None:
        warnings += [
            f"chats.approvers: {chat} names fewer people than the {rules.quorum} who must allow {tool}, so it cannot "
            f"run there. Name more, or set tools.{tool}.approvers."
            for chat, listed in chats.items()
            if len({named.person_of(name) for name in listed}) < rules.quorum
        ]
    return warnings
