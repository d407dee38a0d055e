"""On the way out: what one slot becomes, message by message. Any of them may have to be marked as sent again."""

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
"""Characters that content may fill, so that a message is cut where it was when it turns out to need the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTextPart:
    """A message of blocks."""

    blocks: tuple[Json, ...]
    said: str
    """What it says, in plain text: for notifications, and for whoever cannot see blocks."""

    def sent_again(self) -> SlackTextPart:
        """Return it with the mark."""
        return replace(self, blocks=(small([RESENT]), *self.blocks), said=f"{RESENT} {self.said}")

    def payload(self) -> Json:
        """Return the Web API's parameters of this content, the same for a new message and an edit."""
        return {"blocks": [dict(block) for block in self.blocks], "text": _field(self.said.strip(), FALLBACK_CHARS)}

    def plain(self) -> Json:
        """Return the parameters of the same without blocks, for when Slack refuses them; an edit takes them away.

        All its words are there, and none of its buttons.
        """
        words = [text for block in self.blocks if block["type"] != "actions" for text in texts(block)]
        missing = [NO_BUTTONS] if any(block["type"] == "actions" for block in self.blocks) else []
        return {"blocks": [], "text": _field("\n".join([*words, *missing]), TEXT_CHARS)}

    @property
    def size(self) -> int:
        """Characters of its blocks."""
        return sum(map(size, self.blocks))

    @property
    def digest(self) -> str:
        """The same for the same content, in every process: an edit to what is shown already is not needed."""
        return hashlib.sha256(json.dumps(self.payload(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackStoredPart:
    """A message with a file that came of a call. It is sent from where it is kept, and never edited."""

    name: str
    path: Path
    size: int
    """Bytes."""
    caption: str
    mark: str = ""

    def sent_again(self) -> SlackStoredPart:
        """Return it with the mark."""
        return replace(self, mark=RESENT)

    @property
    def said(self) -> str:
        """What stands beside the file."""
        return f"{self.mark} {self.caption}".strip()

    @property
    def digest(self) -> str:
        """The same for the same file, in every process."""
        return hashlib.sha256(json.dumps([self.name, str(self.path), self.size]).encode()).hexdigest()[:16]


def _field(text: str, limit: int) -> str:
    """Return text for a field that Slack reads as its own notation; never cut within an escape."""
    shown = cut(text, limit)
    while len(escaped(shown)) > limit:
        shown = cut(shown, len(shown) * 3 // 4)
    return escaped(shown)


Part: TypeAlias = SlackTextPart | FilePart | SlackStoredPart

NO_PREVIEWS: Json = {"unfurl_links": False, "unfurl_media": False}
