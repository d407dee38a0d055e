"""Routing rules: which session a message belongs to, from its author, its conversation and the allowed people. Pure.

Used by ingress for every message, and by the web page for what an owner may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gateway.domain.ids import OwnerName, Principal, SessionId, channel_of
from gateway.domain.messages import Conversation, Inbound
from gateway.domain.routes import Drop, DropReason, Route, main_route
from gateway.domain.sessions import Origin, SessionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedPeople:
    """People and chats allowed by the configuration, by immutable ids. Everybody else is a stranger."""

    owners: Mapping[OwnerName, frozenset[Principal]]
    """Principals of each owner, including the one on the web page."""
    allowed: frozenset[Principal] = frozenset()
    """Other people who may write directly; `channel:*` allows everybody there."""
    chats: frozenset[str] = frozenset()
    """Allowed groups, channels and threads, as `channel:chat`."""
    approvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Approvers of a group or channel where they are not the owners: names of owners, or principals."""
    _owner_of: dict[Principal, OwnerName] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the owners by principal."""
        index = {who: name for name, principals in self.owners.items() for who in principals}
        object.__setattr__(self, "_owner_of", index)

    def owner_of(self, who: Principal) -> OwnerName | None:
        """Return the owner with this principal, or None."""
        return self._owner_of.get(who)

    def may_write_directly(self, who: Principal) -> bool:
        """Return whether a person who is not an owner may write directly."""
        return who in self.allowed or Principal(f"{channel_of(who)}:*") in self.allowed

    def is_named(self, who: Principal) -> bool:
        """Return whether the configuration names this very person, as guests need."""
        return who in self._owner_of or who in self.allowed

    def may_be_used(self, conversation: Conversation, also_called: Iterable[str] = ()) -> bool:
        """Return whether this group or channel is allowed, under any id that it has or had."""
        return any(f"{conversation.channel}:{chat}" in self.chats for chat in (conversation.chat, *also_called))


def route(message: Inbound, people: AllowedPeople) -> Route | Drop:
    """Return the route of a message, or the reason why it starts nothing. Unknown people and places are dropped."""
    if message.outsider and not people.is_named(message.principal):
        return Drop(reason=DropReason.STRANGER, told=message.direct)
    if not message.direct:
        return _route_in_chat(message, people)
    owner = people.owner_of(message.principal)
    if owner is not None:
        return _if_readable(message, main_route(owner))
    if not people.may_write_directly(message.principal):
        return Drop(reason=DropReason.STRANGER, told=True)
    session = SessionId(f"dm:{message.conversation.key}")
    return _if_readable(
        message, Route(session=session, kind=SessionKind.DM, origin=Origin.DIRECT, owner=None, title=message.name)
    )


def may_be_let_in_later(message: Inbound, people: AllowedPeople) -> bool:
    """Return whether the message would start something if its sender turned out not to be an outsider.

    True only while the platform does not say. A message that does not address the bot is dropped instead of delivered
    again: there, unknown counts as stranger.
    """
    if not message.unsure or isinstance(route(message, people), Route):
        return False
    return isinstance(route(replace(message, outsider=False), people), Route)


def _route_in_chat(message: Inbound, people: AllowedPeople) -> Route | Drop:
    if not people.may_be_used(message.conversation, message.also_called):
        return Drop(reason=DropReason.CHAT_NOT_ALLOWED, told=False)
    place = message.conversation
    found = Route(
        session=SessionId(f"chat:{place.key}"),
        kind=SessionKind.NON_MAIN,
        origin=Origin.THREAD if place.thread else Origin.GROUP,
        owner=None,
        title=f"{place.channel} {place.chat}",
    )
    if message.addressed:
        return _if_readable(message, found)
    if message.text.strip() or message.unread or message.attachments:
        return Drop(reason=DropReason.CONTEXT, told=False, route=found)
    return Drop(reason=DropReason.EMPTY, told=False)


def _if_readable(message: Inbound, found: Route) -> Route | Drop:
    """Return the route for a text or files, with any other content; else a drop, with a reply to the sender for
    unreadable content.
    """
    if message.text.strip() or message.attachments:
        return found
    if message.unread:
        return Drop(reason=DropReason.UNREADABLE, told=True)
    return Drop(reason=DropReason.EMPTY, told=False)


def may_see(owner: OwnerName, session_owner: OwnerName | None, root_kind: SessionKind) -> bool:
    """Return whether `owner` sees a session on the page: their own main one, its children, and every one outside
    main.
    """
    return session_owner == owner if root_kind is SessionKind.MAIN else True


def may_begin_anew(message: Inbound, people: AllowedPeople) -> bool:
    """Return whether /new may reset the history here: for owners anywhere, for others in their own chat."""
    return message.direct or people.owner_of(message.principal) is not None


def may_stop_all(message: Inbound, people: AllowedPeople) -> bool:
    """Return whether /stop here stops everybody's turns: for owners it does, others stop only their own."""
    return people.owner_of(message.principal) is not None
