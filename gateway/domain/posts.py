"""Posts: what a call asks a channel to show besides answers. Made by tools, carried by slots, shown by channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gateway.domain.ids import SlotId, TurnId
from gateway.domain.messages import Conversation


class PostAct(StrEnum):
    """Kind of post."""

    SEND = "send"
    """New message with a text."""
    EDIT = "edit"
    """Other text of a message that a post has sent."""
    FILE = "file"
    """New message with the one file of the call's result."""
    POLL = "poll"
    """New message with a question and its options."""
    REACT = "react"
    """Reaction of the bot to a message; it replaces the one before where the platform has one for each person."""
    PIN = "pin"
    """Message kept at the top of its conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPost:
    """Post as a tool asks for it."""

    act: PostAct
    chat: str = ""
    """Chat as the configuration names it, without the channel; empty: the conversation at hand."""
    text: str = ""
    """Markdown of a message, or the question of a poll."""
    options: tuple[str, ...] = ()
    emoji: str = ""
    message: str = ""
    """Name of a message that a post has sent, from its result; empty: the message that began the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Post with its destination. Stored with the result of its call, and as a slot in the same transition."""

    act: PostAct
    conversation: Conversation
    text: str = field(default="", repr=False)
    options: tuple[str, ...] = field(default=(), repr=False)
    emoji: str = ""
    slot: SlotId | None = None
    """For an edit, a reaction or a pin: the slot of an earlier post that it is about."""
    message: str = ""
    """Platform's id of the message that a reaction or a pin is about. With `slot`: filled in when it is sent."""

    @property
    def is_act(self) -> bool:
        """True for what changes a message that is there, and shows none of its own."""
        return self.act in (PostAct.REACT, PostAct.PIN)


def post_slot(turn: TurnId, n: int) -> SlotId:
    """Return the id of the slot that step `n` posts: the same when the call is run again. Models name messages so."""
    return SlotId(f"p{turn}.{n}")


def posted_by(name: str) -> tuple[TurnId, int] | None:
    """Return the turn and the step that posted a message with this name; None for no such name."""
    turn, _, n = name.removeprefix("p").rpartition(".")
    if not name.startswith("p") or not turn or not (n.isascii() and n.isdecimal()) or len(n) > 6:
        return None
    return TurnId(turn), int(n)
