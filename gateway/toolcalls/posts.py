"""Posts of calls: where a call may post, and what about. Used by `execution`, for the tools of channels.

A post is checked and returned, not sent: it is stored as a slot together with the result of its call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.domain.ids import Principal, TurnId
from gateway.domain.messages import Conversation
from gateway.domain.posts import NewPost, Post, PostAct, post_slot, posted_by
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.tools import NAMED_AT_MOST, ResultStatus, ToolResult
from gateway.domain.views import TurnView
from gateway.errors import BadRequest, Forbidden, NotFound
from gateway.policy.routing import AllowedPeople
from gateway.system.redaction import Redactor

MARK = "*From the agent, asked in another conversation:*"
"""Line above a text or the caption of a file that people read who did not ask for it."""
POLL_MARK = "From the agent:"
"""Mark before the question of a poll, which has no formatting."""
ABOUT = frozenset({PostAct.EDIT, PostAct.REACT, PostAct.PIN})
"""Posts about a message that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlaces:
    """Facts about a configured channel that posts need."""

    accounts: Sequence[str]
    """Names of its accounts."""
    posts: frozenset[PostAct]
    """Posts that it can show."""
    message_of: Callable[[str], str]
    """Return the platform's id of the message of an event key; empty when the event is no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageService:
    """Service behind the messages of every call."""

    people: AllowedPeople
    channels: Mapping[str, ChannelPlaces]
    turn: Callable[[TurnId], Awaitable[TurnView]]
    """Return a stored turn. Raises `NotFound`."""
    redactor: Redactor

    def of(self, view: TurnView, n: int) -> CallMessages:
        """Return the messages of step `n` of this turn."""
        return CallMessages(by=self, view=view, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMessages:
    """`ports.Messages` of one call."""

    by: MessageService
    view: TurnView
    n: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Name what this call posts."""
        object.__setattr__(self, "name", str(post_slot(self.view.turn.id, self.n)))

    async def post(self, channel: str, wanted: NewPost) -> Post:
        """Return the post that a call may make. Raises `BadRequest`, `Forbidden` or `NotFound`."""
        places = self.by.channels.get(channel)
        if places is None or wanted.act not in places.posts:
            raise BadRequest(f"{channel} cannot show that here.", cure="Say it in the answer.")
        where = self._where(channel, wanted.chat, places)
        clean, here = self.by.redactor.text, where == self.view.turn.conversation
        text = clean(wanted.text)
        if wanted.act is PostAct.POLL and not here:
            text = f"{POLL_MARK} {text}"
        elif wanted.act in (PostAct.SEND, PostAct.FILE) and not here:
            text = f"{MARK}\n\n{text}".strip()
        post = Post(act=wanted.act, conversation=where, text=text, options=tuple(map(clean, wanted.options)))
        post = replace(post, emoji=wanted.emoji)
        return await self._about(post, wanted.message, places) if wanted.act in ABOUT else post

    def _where(self, channel: str, chat: str, places: ChannelPlaces) -> Conversation:
        here = self.view.turn.conversation
        at_hand = self.view.session.lineage is None and here.channel == channel
        if not chat:
            if at_hand:
                return here
            raise BadRequest(f"This conversation is not on {channel}.", cure="Name a chat there.")
        if f"{channel}:{chat}" not in self.by.people.chats and not self._is_known(Principal(f"{channel}:{chat}")):
            raise Forbidden(
                f"The owner never listed {chat[:NAMED_AT_MOST]!r} on {channel}.",
                cure=f'Ask the owner to put "{channel}:{chat[:NAMED_AT_MOST]}" into [chats] allow.',
            )
        account = here.account if at_hand else places.accounts[0] if len(places.accounts) == 1 else ""
        if not account:
            raise BadRequest(
                f"{channel} has several accounts, and none is at hand here.", cure="Ask for it from a chat of that one."
            )
        return Conversation(channel=channel, account=account, chat=chat.rpartition("/")[2])

    def _is_known(self, who: Principal) -> bool:
        """Return whether this is a person whose direct chat has their own id, as on Telegram."""
        return "/" not in who and self.by.people.is_named(who)

    async def _about(self, post: Post, message: str, places: ChannelPlaces) -> Post:
        """Return the post with the message that it is about: one of our own, or the one that began the turn."""
        if message:
            return await self._about_own(post, message)
        if post.act is PostAct.EDIT:
            raise BadRequest("Only a message that was posted here can be edited.", cure="Name it in `message`.")
        if post.conversation != self.view.turn.conversation:
            raise BadRequest("There is no message at hand in that chat.", cure="Name one that was posted there.")
        keys = [one.message.event_key for one in self.view.inputs if one.message.conversation == post.conversation]
        found = next((id_ for key in reversed(keys) if (id_ := places.message_of(key))), "")
        if not found:
            raise NotFound("No message of a person began this.", cure="Name one that was posted here, in `message`.")
        return replace(post, message=found)

    async def _about_own(self, post: Post, message: str) -> Post:
        unknown = NotFound(
            f"{message[:NAMED_AT_MOST]!r} was not posted by this session.",
            cure="Take the name from the result of the call that posted it.",
        )
        place = posted_by(message)
        if place is None:
            raise unknown
        turn, n = place
        try:
            view = self.view if turn == self.view.turn.id else await self.by.turn(turn)
        except NotFound:
            raise unknown from None
        step = view.steps[n] if n < len(view.steps) else None
        result = None if step is None else step.result
        if view.session.id != self.view.session.id or result is None or result.status is not ResultStatus.OK:
            raise unknown
        earlier = next((one for one in result.posts if one.act not in ABOUT), None)
        if earlier is None or earlier.conversation != post.conversation:
            raise unknown
        if post.act is PostAct.EDIT and earlier.act is not PostAct.SEND:
            raise BadRequest("Only a text can be edited.", cure="Post another message.")
        if post.act is PostAct.EDIT and earlier.conversation != self.view.turn.conversation:
            post = replace(post, text=f"{MARK}\n\n{post.text}")
        return replace(post, slot=post_slot(turn, n))


def post_slots(view: TurnView, n: int, result: ToolResult) -> list[NewSlot]:
    """Return the slots of what step `n` posts, for `finish_step`. An edit names the slot that it changes."""
    return [_slot(view, n, post, result) for post in result.posts if post.act is not PostAct.FILE or result.files]


def _slot(view: TurnView, n: int, post: Post, result: ToolResult) -> NewSlot:
    own = post_slot(view.turn.id, n)
    match post.act:
        case PostAct.SEND:
            return NewSlot(conversation=post.conversation, kind=SlotKind.POST, text=post.text, n=n, id=own)
        case PostAct.EDIT:
            return NewSlot(conversation=post.conversation, kind=SlotKind.POST, text=post.text, n=n, id=post.slot)
        case PostAct.FILE:
            file = result.files[0]
            return NewSlot(conversation=post.conversation, kind=SlotKind.FILE, text=post.text, n=n, file=file, id=own)
        case PostAct.POLL | PostAct.REACT | PostAct.PIN:
            bare = replace(post, text="")
            kind, text = SlotKind.POST, post.text
            return NewSlot(conversation=post.conversation, kind=kind, text=text, n=n, id=own, post=bare)
