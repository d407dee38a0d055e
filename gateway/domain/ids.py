"""Id types, minted and parsed here and opaque everywhere else."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NewType

Principal = NewType("Principal", str)
"""Author of a message or press: `channel:user` (`telegram:1001`, `web:ann`) or `channel:team/user`. Never a display
name."""

OwnerName = NewType("OwnerName", str)
"""Name of a person in the table `[owners]`: letters, digits, `-` and `_`."""

Person = NewType("Person", str)
"""One human, however many accounts: an owner's name, or the principal of somebody who is no owner."""

SessionId = NewType("SessionId", str)
"""`main:<owner>`, `dm:<conversation>`, `chat:<conversation>` or `child:<id>`; unique in a store."""

TurnId = NewType("TurnId", str)
InboundId = NewType("InboundId", str)
WaitId = NewType("WaitId", str)
SlotId = NewType("SlotId", str)
GrantId = NewType("GrantId", str)
CallId = NewType("CallId", str)
"""Id of a tool call as the model gave it, made unique within its turn."""

NodeId = NewType("NodeId", str)
"""One run of one daemon: the machine's name and a number made at start."""

Handle = NewType("Handle", str)
"""Payload of a button. Worthless without the state key; see `gateway.approvals`."""

PAGE = "web"
"""Channel of the web page. It reads the stored rows: what other channels are sent, it has once it is stored."""
SYSTEM_PARENT = Principal("system:parent")
"""Author of a child's task: the text is the parent's model's, not that of the person whose turn spawned it."""
SYSTEM_CHILD = Principal("system:child")
"""Author of the message that reports the end of a child to a session."""
SYSTEM_HOME = Principal("system:home")
"""Author of the notice to a session that its files are away."""
SYSTEM_CONTROL = Principal("system:control")
"""Person at the control socket: a person who may run commands as the daemon's user."""


def child_asks(authors: Iterable[Principal]) -> bool:
    """Return True for messages of which the end of a sub-session is the only author, but for the gateway's notices."""
    return set(authors) - {SYSTEM_HOME} == {SYSTEM_CHILD}


def mint(prefix: str) -> str:
    """Return a new id: the prefix and 64 random bits in hex."""
    return f"{prefix}{secrets.token_hex(8)}"


def principal(channel: str, user: str, team: str = "") -> Principal:
    """Build a principal from a platform's immutable ids. Raises `ValueError` without a channel or a user id."""
    if not channel or not user:
        raise ValueError("a principal needs a channel and a user id")
    return Principal(f"{channel}:{team}/{user}" if team else f"{channel}:{user}")


def channel_of(who: Principal) -> str:
    """Return the channel of a principal."""
    return who.partition(":")[0]


def web_principal(owner: OwnerName) -> Principal:
    """Return the principal that `owner` has on the web page."""
    return principal(PAGE, owner)


def main_session(owner: OwnerName) -> SessionId:
    """Return the id of the one session that all direct conversations of `owner` share."""
    return SessionId(f"main:{owner}")


def child_session(turn: TurnId, n: int) -> SessionId:
    """Return the id of the session that step `n` of a turn spawns. It is the same when the step is run again."""
    return SessionId(f"child:{turn}.{n}")


def step_session(turn: TurnId, n: int, place: int) -> SessionId:
    """Return the id of the session that does a step of the workflow of step `n`. `place`: its place, from 1."""
    return SessionId(f"child:{turn}.{n}.{place}")


def status_slot(turn: TurnId) -> SlotId:
    """Return the id of a turn's status line."""
    return SlotId(f"s{turn}")


def awaited_slot(turn: TurnId) -> SlotId:
    """Return the id of the slot that says which node a turn waits for."""
    return SlotId(f"w{turn}")


def answer_slot(turn: TurnId, n: int) -> SlotId:
    """Return the id of the slot that shows the model answer of step `n`. It is the same while it streams and at its
    end.
    """
    return SlotId(f"o{turn}.{n}")
