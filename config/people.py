"""Reader of `[owners]`, `[people]` and `[chats]`: immutable ids only, never names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from config.reading import Path, TableReader
from config.values import EnvText, Flaw
from gateway.domain.ids import PAGE, OwnerName, Principal
from gateway.ports import ChannelSpec, IdForm

Channels: TypeAlias = Mapping[str, ChannelSpec]
"""Channels whose people and chats may be named."""

DEFAULT_OWNER = OwnerName("owner")
_OWNER = re.compile(r"[A-Za-z0-9_-]{1,32}")
NAMES_TOLD = 20
"""Most names of channels in one error."""
_ANY = re.compile(r"[^\s:*\x00-\x1f]{1,128}")


def read_owners(raw: object, known: Channels, reader: TableReader) -> Mapping[OwnerName, tuple[Principal, ...]]:
    """Return owners with their principals, each of one owner only. Without a table: one owner called "owner"."""
    owners: dict[OwnerName, tuple[Principal, ...]] = {}
    belongs: dict[str, str] = {}
    for name, listed in reader.table(raw, ("owners",)).items():
        path = ("owners", name)
        if not _OWNER.fullmatch(name):
            reader.wrong(path, f"{name!r} cannot be an owner's name", "Use 1 to 32 letters, digits, - and _")
            continue
        principals: dict[Principal, None] = {}
        for place, who in _texts(listed, path, reader):
            try:
                check_person(who, known, everyone=False)
            except Flaw as flaw:
                reader.flaw(place, flaw)
                continue
            other = belongs.setdefault(who, name)
            if other != name:
                reader.wrong(place, f"{who} already belongs to the owner {other}", "Leave it with one of the two")
            else:
                principals[Principal(who)] = None
        owners[OwnerName(name)] = tuple(principals)
    return owners or {DEFAULT_OWNER: ()}


def check_people(listed: Sequence[str], known: Channels, reader: TableReader) -> list[str]:
    """Check `people.allow`; the reader collects problems. Return warnings about `channel:*`, which admits everyone."""
    warnings: list[str] = []
    for n, who in enumerate(listed):
        try:
            check_person(who, known, everyone=True)
        except Flaw as flaw:
            reader.flaw(("people", "allow", n), flaw)
            continue
        if who.endswith(":*"):
            warnings.append(f"people.allow: {who} lets everyone on {who[:-2]} write to the agent directly.")
    return warnings


def check_chats(
    listed: Sequence[str], approvers: Mapping[str, Sequence[str]], known: Channels, reader: TableReader
) -> None:
    """Check `chats.allow` and the chats of `chats.approvers`; the reader collects problems."""
    for n, chat in enumerate(listed):
        try:
            check_chat(chat, known)
        except Flaw as flaw:
            reader.flaw(("chats", "allow", n), flaw)
    for chat in approvers:
        if chat not in listed:
            what = f"{chat} is not in chats.allow, so nothing is asked there"
            reader.wrong(("chats", "approvers", chat), what, "Add it to chats.allow")


def _texts(listed: Any, path: Path, reader: TableReader) -> Iterator[tuple[Path, str]]:
    try:
        read = reader.value(tuple[str, ...], listed, path)
    except Flaw as flaw:
        reader.flaw(path, flaw)
        return
    if not isinstance(read, list):
        reader.wrong(path, "it is not a list", 'Write a list: ["telegram:1001"], or [] for the web page alone')
        return
    for n, one in enumerate(cast("list[object]", read)):
        if isinstance(one, str):
            yield (*path, n), str(one) if isinstance(one, EnvText) else one
        else:
            reader.wrong((*path, n), "it is not text", 'Write it in quotes, as in "telegram:1001"')


def check_person(who: str, known: Channels, *, everyone: bool) -> None:
    """Raise `Flaw` unless this is a person's id. `everyone`: `channel:*` is allowed too."""
    channel, user = _split(who, "telegram:1001", known)
    if everyone and user == "*":
        return
    if user == "*":
        raise Flaw(f"{who} means everyone, and everyone cannot be an owner", "Name one person's id")
    form = known[channel].person
    _check(
        who, user, form, f"is not a person on {channel}", f"Write the account's own id, as in {channel}:{form.example}"
    )


def check_chat(chat: str, known: Channels) -> None:
    """Raise `Flaw` unless this is a group's or channel's id."""
    channel, place = _split(chat, "telegram:-1003", known)
    form = known[channel].chat
    what = f"is not a group or channel on {channel}"
    _check(chat, place, form, what, f"Write its own id, as in {channel}:{form.example}")


def _check(text: str, name: str, form: IdForm, what: str, cure: str) -> None:
    """Raise `Flaw` for what the channel does not accept. Its own text comes first, as it names the mistake."""
    try:
        wrong = form.check(name)
    except Exception as error:
        raise Flaw(f"{text!r} cannot be checked ({type(error).__name__})", "Correct the channel's code") from error
    if wrong is not None:
        raise Flaw(f"{text!r} {wrong.what}", wrong.cure)
    if not _ANY.fullmatch(name):
        raise Flaw(f"{text!r} {what}", cure)


def _split(text: str, example: str, known: Channels) -> tuple[str, str]:
    channel, colon, rest = text.partition(":")
    if text == "*":
        raise Flaw("'*' names no channel", 'Write "telegram:*" for everyone on Telegram')
    if not colon or not rest:
        raise Flaw(f"{text!r} does not say channel and id", f"Write it as in {example}")
    if channel == PAGE:
        raise Flaw(f"{text} needs no entry: every owner may sign in on the web page", "Remove it")
    if channel not in known:
        raise Flaw(f"there is no channel {channel!r}", f"Known are: {', '.join(sorted(known)[:NAMES_TOLD])}")
    return channel, rest
