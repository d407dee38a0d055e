"""`[cluster]`: what the nodes of one gateway have in common."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from config.basics import Table
from config.values import Flaw

KEY_CHARS = 32
"""Least characters of a cluster key: the store keeps a fingerprint of it, from which a short one could be guessed."""


class ClusterSettings(Table):
    """`[cluster]`."""

    key: SecretStr | None = Field(
        default=None,
        description='"env:NAME" or "file:PATH": the secret that all nodes of one gateway share; it signs their '
        "buttons. Needed with several nodes. Default: a key in the state folder.",
    )

    @field_validator("key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < KEY_CHARS:
            raise Flaw(f"the key has fewer than {KEY_CHARS} characters", "Make one with: openssl rand -hex 32")
        return key
