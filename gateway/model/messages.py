"""What channels push into the gateway, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gateway.model.ids import Handle, InboundId, Principal, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, channel or thread of one account. Equal fields mean the same place."""

    channel: str
    """The platform: `telegram`, `slack`, `web`."""
    account: str
    """The bot identity on it, as named in the configuration."""
    chat: str
    """The platform's own immutable id of the chat."""
    thread: str = ""
    """The platform's id of the topic or thread in it; empty for the chat itself."""

    @property
    def key(self) -> str:
        """The one text form, `channel/account/chat[/thread]`; `parse` reads it back."""
        parts = [self.channel, self.account, self.chat]
        return "/".join([*parts, self.thread] if self.thread else parts)

    @staticmethod
    def parse(key: str) -> Conversation:
        """Read what `key` wrote. Raises `ValueError` when it is something else."""
        parts = key.split("/", 3)
        if len(parts) < 3 or not all(parts[:3]):
            raise ValueError(f"not a conversation: {key!r}")
        thread = parts[3] if len(parts) == 4 else ""
        return Conversation(channel=parts[0], account=parts[1], chat=parts[2], thread=thread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """One message, normalised by a channel. Not stored yet."""

    event_key: str
    """The platform's id of the event; (channel, account, event_key) is accepted once, for ever."""
    conversation: Conversation
    principal: Principal
    name: str
    """How the person is called in the chat; shown, never compared."""
    direct: bool
    """True when the bot and this person are alone in the conversation."""
    addressed: bool
    """True when the bot is meant: direct, mentioned, replied to, or a command."""
    text: str
    sent_at: datetime
    """When the platform says it was sent, aware UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message as stored: given to its turn's model before step `given`."""

    id: InboundId
    turn: TurnId | None
    """None for a control command, which is answered at ingress."""
    message: Inbound
    given: int | None
    """The number of the step it was given before; None while it still waits to be given."""
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """One button press, normalised by a channel. Carries no authority but who pressed."""

    event_key: str
    conversation: Conversation
    principal: Principal
    handle: Handle
    reason: str = ""
    """What the person gave as the reason of a denial; empty otherwise. At most 1,000 characters are kept."""
