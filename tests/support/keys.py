"""Conversations by their keys, which are unique and can be parsed back."""

from __future__ import annotations

from gateway.domain.messages import Conversation


def conversation_of(key: str) -> Conversation:
    """Read what `Conversation.key` wrote. Raises `ValueError` when it is something else."""
    parts = key.split("/", 3)
    if len(parts) < 3 or not all(parts[:3]):
        raise ValueError(f"not a conversation: {key!r}")
    thread = parts[3] if len(parts) == 4 else ""
    return Conversation(channel=parts[0], account=parts[1], chat=parts[2], thread=thread)
