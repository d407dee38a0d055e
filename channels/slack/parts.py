"""Messages of one slot and their Web API parameters. Made by `outbound`, sent by `showing`; each can be marked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from channels._shared.files import RESENT, FilePart
from channels.slack.blocks import Json, size, small, texts
from channels.slack.limits import FALLBACK_CHARS, MESSAGE_CHARS, TEXT_CHARS
from channels.slack.plain import escaped
from gateway.domain.text import cut

NO_BUTTONS = "(The buttons cannot be shown here. Decide on the web page.)"
ROOM = MESSAGE_CHARS - len(RESENT)
"""Characters for content, without the re-sent mark: adding the mark must not move the cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTextPart:
    """Message of blocks."""

    blocks: tuple[Json, ...]
    said: str
    """Plain text for notifications and for readers without blocks."""

    def sent_again(self) -> SlackTextPart:
        """Return the part with the re-sent mark."""
        return replace(self, blocks=(small([RESENT]), *self.blocks), said=f"{RESENT} {self.said}")

    def payload(self) -> Json:
        """Return the Web API parameters of the content, the same for a new message and an edit."""
        return {"blocks": [dict(block) for block in self.blocks], "text": _field(self.said.strip(), FALLBACK_CHARS)}

    def plain(self) -> Json:
        """Return the parameters without blocks, for when Slack refuses them; an edit removes the old ones.

        They contain all words and no buttons.
        """
        words = [text for block in self.blocks if block["type"] != "actions" for text in texts(block)]
        missing = [NO_BUTTONS] if any(block["type"] == "actions" for block in self.blocks) else []
        return {"blocks": [], "text": _field("\n".join([*words, *missing]), TEXT_CHARS)}

    @property
    def size(self) -> int:
        """Return the characters of the blocks."""
        return sum(map(size, self.blocks))

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes: an edit to the same content is not needed."""
        return hashlib.sha256(json.dumps(self.payload(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackStoredPart:
    """Message with an artifact. The file is sent from the artifact store; the message is never edited."""

    name: str
    path: Path
    size: int
    """Size in bytes."""
    caption: str
    mark: str = ""

    def sent_again(self) -> SlackStoredPart:
        """Return the part with the re-sent mark."""
        return replace(self, mark=RESENT)

    @property
    def said(self) -> str:
        """Return the caption with its mark."""
        return f"{self.mark} {self.caption}".strip()

    @property
    def digest(self) -> str:
        """Return a hash of the file's identity, stable across processes."""
        return hashlib.sha256(json.dumps([self.name, str(self.path), self.size]).encode()).hexdigest()[:16]


def _field(text: str, limit: int) -> str:
    """Return text for a field that Slack parses as mrkdwn; never cut within an escape."""
    shown = cut(text, limit)
    while len(escaped(shown)) > limit:
        shown = cut(shown, len(shown) * 3 // 4)
    return escaped(shown)


Part: TypeAlias = SlackTextPart | FilePart | SlackStoredPart

NO_PREVIEWS: Json = {"unfurl_links": False, "unfurl_media": False}
