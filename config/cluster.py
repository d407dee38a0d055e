"""`[cluster]`: what the nodes of one gateway have in common."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, StrictInt, field_validator

from config.basics import SettingsTable
from config.values import Flaw
from gateway.domain.nodes import HOME_AWAY_AFTER, Role

KEY_CHARS = 32
"""Least characters of a cluster key: the store keeps a fingerprint of it, from which a short one could be guessed."""
TURNS_AT_ONCE = 256
"""Turns of a node at a time, at most."""
HOME_AWAY_AT_LEAST = timedelta(seconds=3)
"""Least silence after which a node loses its sessions. Nodes send signs of life six times as often."""


def _name(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}", text):
        raise Flaw(f"{text[:40]!r} is no name of a node", 'Write letters, digits, dots and dashes, as in "node-1"')
    return text


def _address(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query):
        raise Flaw(
            f"{text[:60]!r} is no address of a node", 'Write a scheme, a host and a port: "http://10.0.0.5:8470"'
        )
    return text


def _folder(text: str) -> str:
    if text and (not Path(text).is_absolute() or "\0" in text):
        raise Flaw(f"{text[:60]!r} is no absolute path", 'Write it whole: "/mnt/dragoman"')
    return text


class ClusterSettings(SettingsTable):
    """`[cluster]`."""

    key: SecretStr | None = Field(
        default=None,
        description='"env:NAME" or "file:PATH": the secret that all nodes of one gateway share; it signs their '
        "buttons. Needed with several nodes. Default: a key in the state folder.",
    )
    node: Annotated[str, AfterValidator(_name)] = Field(
        default="", description="The name of this node among the others. Default: the machine and the state folder."
    )
    roles: tuple[Role, ...] = Field(
        default=tuple(Role),
        description='Roles of this node: "ingress" (receives messages, serves the page), "worker" (runs turns), '
        '"delivery" (sends). Default: all three.',
    )
    turns_at_once: StrictInt = Field(
        default=TURNS_AT_ONCE,
        ge=1,
        le=TURNS_AT_ONCE,
        description="Turns that this node runs at a time. Further ones wait, or run on another node.",
    )
    address: Annotated[str, AfterValidator(_address)] = Field(
        default="",
        description="Address of this node's HTTP server for the other nodes, to read its files: "
        '"http://10.0.0.5:8470". Without it they cannot.',
    )
    workspaces: Annotated[str, AfterValidator(_folder)] = Field(
        default="",
        description="An absolute path where all nodes have mounted one disk. Workspaces and outputs lie there, so that "
        "any node goes on with the files of any session. Default: in the state folder of each node.",
    )
    home_away_after: timedelta = Field(
        default=HOME_AWAY_AFTER,
        description="Longest silence of a node before others take its sessions; ten times that after a drain or an "
        "orderly end. They continue with an empty workspace, and say so.",
    )

    @field_validator("home_away_after")
    @classmethod
    def _is_no_hiccup(cls, after: timedelta) -> timedelta:
        if after < HOME_AWAY_AT_LEAST:
            least = f'Write at least "{HOME_AWAY_AT_LEAST.total_seconds():g}s"'
            raise Flaw(f"{after.total_seconds():g} s is too short: a busy node would lose its sessions", least)
        return after

    @field_validator("roles")
    @classmethod
    def _has_some(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if not roles:
            raise Flaw("a node without a role does nothing", 'Write, for instance, ["worker"], or leave it out')
        return roles

    @field_validator("key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < KEY_CHARS:
            raise Flaw(f"the key has fewer than {KEY_CHARS} characters", "Make one with: openssl rand -hex 32")
        return key
