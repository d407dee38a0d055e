"""Ids: each its own type, minted and parsed here and opaque everywhere else."""

from __future__ import annotations

import secrets
from typing import NewType

Principal = NewType("Principal", str)
"""Who speaks: `channel:user` (`telegram:1001`, `web:ann`) or `channel:team/user`. Never a display name."""

OwnerName = NewType("OwnerName", str)
"""A named person of the table `[owners]`: letters, digits, `-` and `_`."""

SessionId = NewType("SessionId", str)
"""`main:<owner>`, `dm:<conversation>`, `chat:<conversation>` or `child:<id>`; unique in a store."""

TurnId = NewType("TurnId", str)
InboundId = NewType("InboundId", str)
WaitId = NewType("WaitId", str)
SlotId = NewType("SlotId", str)
CallId = NewType("CallId", str)
"""A tool call's id as the model gave it, made unique within its turn."""

NodeId = NewType("NodeId", str)
"""One life of one daemon: the machine's name and a number made at start."""

Handle = NewType("Handle", str)
"""What a button carries. Worthless without the state key; see `gateway.approvals`."""

PAGE = "web"
"""The channel of the web page, which reads the rows themselves: what others are sent, it has when it is stored."""
SYSTEM_PARENT = Principal("system:parent")
"""Who gives a child its task: words of its parent's model, not of the person whose turn spawned it."""
SYSTEM_CHILD = Principal("system:child")
"""Who tells a session that one of its children has ended."""


def mint(prefix: str) -> str:
    """Return a new id: the prefix and 64 random bits in hex."""
    return f"{prefix}{secrets.token_hex(8)}"


def principal(channel: str, user: str, team: str = "") -> Principal:
    """Make a principal from a platform's immutable ids."""
    if not channel or not user:
        raise ValueError("a principal needs a channel and a user id")
    return Principal(f"{channel}:{team}/{user}" if team else f"{channel}:{user}")


def channel_of(who: Principal) -> str:
    """Return the channel a principal belongs to."""
    return who.partition(":")[0]


def web_principal(owner: OwnerName) -> Principal:
    """Return the principal that `owner` has on the web page."""
    return principal(PAGE, owner)


def main_session(owner: OwnerName) -> SessionId:
    """Return the id of the one session that all direct conversations of `owner` share."""
    return SessionId(f"main:{owner}")


def child_session(turn: TurnId, n: int) -> SessionId:
    """Return the id of the session that step `n` of a turn spawns: the same when the step is run again."""
    return SessionId(f"child:{turn}.{n}")


def status_slot(turn: TurnId) -> SlotId:
    """Return the id of a turn's status line."""
    return SlotId(f"s{turn}")


def answer_slot(turn: TurnId, n: int) -> SlotId:
    """Return the id of the slot that shows the model answer of step `n`: the same for its beginning and its end."""
    return SlotId(f"o{turn}.{n}")
