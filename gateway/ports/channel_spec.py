"""Specification of a channel: what its package exports as `CHANNEL`. Used by `config` and `app`.

Data and pure functions only. `load` imports the adapter, so that a vendor's library is imported when it is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.domain.posts import PostAct
from gateway.ports.channels import Channel, ChannelContext

CHANNEL_API = 2
"""Version of this interface. A channel states the one that it was written for. In version 1, `show` returned a text; in
version 2, a tuple of message ids."""
Build = Callable[[ChannelContext], Channel]


class Mistake(NamedTuple):
    """Problem of a setting. Both texts are without a full stop and repeat no secret."""

    what: str
    cure: str
    key: str = ""
    """Key in the account's table; empty: the table, or the value itself."""


def _any_id(_: str) -> Mistake | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdForm:
    """Form of the ids of people, or of groups, without the channel's name and its colon."""

    example: str
    check: Callable[[str], Mistake | None] = _any_id
    """Return why the text is no such id, or None. The loader refuses spaces, colons and more than 128 characters."""


def _no_message(_: str) -> str:
    return ""


def _nothing(*_: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """Specification of a channel."""

    name: str
    """Name of the table `[channels.NAME]`, and `Conversation.channel`: lower case letters, digits and `_`."""
    load: Callable[[], Build]
    """Import the adapter and return the function that makes the channel. Raises `ImportError` for a missing package."""
    api: int = 1
    """Version of the interface that the channel was written for, as a number. 1 if it states none."""
    settings: type[Any] | None = None
    """pydantic model of the table; with `account`, it has the only field `accounts`. None: a dict of the table."""
    account: type[Any] | None = None
    """pydantic model of one account, for a channel with one account or several named ones."""
    account_noun: str = "account"
    """Noun for an account in texts for people: `bot`."""
    needs: str = ""
    """Required key of an account, for an error: `a token`."""
    person: IdForm = IdForm(example="1001")
    chat: IdForm = IdForm(example="room")
    secret_patterns: tuple[str, ...] = ()
    """Regular expressions of the platform's secrets. The redactor hides them even when nothing is configured."""
    secrets_of: Callable[[Any], Iterable[Any]] = _nothing
    """Return further `SecretStr`s of an account to hide, besides those that are settings."""
    check: Callable[[Any, str | None], Iterable[Mistake]] = _nothing
    """Return the problems of an account. Arguments: its model, and `http.public_url` (None: that table has errors)."""
    warnings: Callable[[Any, Sequence[str]], Iterable[str]] = _nothing
    """Return sentences about dangerous settings. Arguments: the settings; ids of all people and chats with access."""
    describe: Callable[[Any], Iterable[tuple[str, str]]] = _nothing
    """Return (account, description) pairs of the settings, without secrets."""
    posts: frozenset[PostAct] = frozenset()
    """Posts that `Channel.show` can show besides texts and files of answers (`Slot.post`). Tools offer no others."""
    message_of: Callable[[str], str] = _no_message
    """Return the platform's id of a message from its event key; empty when the event is no message."""
    manifest: Callable[[Mapping[str, Any], str, str], Mapping[str, Any]] | None = None
    """Return the platform's app manifest. Arguments: an account's unchecked table, its name, `http.public_url`."""
    extra: str = ""
    """Extra of Dragoman, or name of the package, that installs what `load` imports."""
