"""Messages of one slot and their Bot API parameters. Made by `outbound`, sent by `showing`; each can be marked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from channels._shared.files import RESENT, FilePart
from channels.telegram.formatted_text import FormattedText, Json, entities, joined, units
from channels.telegram.limits import CAPTION_UNITS, TEXT_UNITS

ROOM = TEXT_UNITS - units(f"{RESENT}\n")
"""UTF-16 units for content, without the re-sent mark: adding the mark must not move the cuts."""

CAPTION_ROOM = CAPTION_UNITS - units(f"{RESENT} ")
"""UTF-16 units for a caption, without the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTextPart:
    """Text message."""

    text: str
    entities: tuple[Json, ...] = ()
    buttons: tuple[tuple[Json, ...], ...] = ()
    """Inline keyboard, row by row."""
    silent: bool = False
    """True for a new message without sound."""

    @staticmethod
    def of(formatted: FormattedText, buttons: tuple[tuple[Json, ...], ...] = ()) -> TelegramTextPart:
        """Return a part for text that fits."""
        return TelegramTextPart(text=formatted.text, entities=tuple(entities(formatted)), buttons=buttons)

    def sent_again(self) -> TelegramTextPart:
        """Return the part with the re-sent mark; a leading code block starts on the next line."""
        block = any(entity["type"] == "pre" and entity["offset"] == 0 for entity in self.entities)
        mark = f"{RESENT}\n" if block else f"{RESENT} "
        moved = tuple({**entity, "offset": entity["offset"] + units(mark)} for entity in self.entities)
        return replace(self, text=mark + self.text, entities=moved)

    def payload(self) -> Json:
        """Return the Bot API parameters of the content, the same for a new message and an edit.

        An edit without a keyboard removes an old one. Previews are off: for one, Telegram fetches a URL that a model
        wrote, which reveals the URL's text to its owner.
        """
        payload: Json = {"text": self.text, "link_preview_options": {"is_disabled": True}}
        if self.entities:
            payload["entities"] = [dict(entity) for entity in self.entities]
        if self.buttons:
            payload["reply_markup"] = {"inline_keyboard": [[dict(button) for button in row] for row in self.buttons]}
        return payload

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes: an edit to the same content is not needed."""
        return hashlib.sha256(json.dumps(self.payload(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramStoredPart:
    """Message with an artifact. The file is sent from the artifact store; the caption can be edited."""

    name: str
    path: Path | None
    """None when the file is gone; then only an existing message can be edited."""
    photo: bool
    """True to send the file as a photo."""
    voice: bool
    """True to send the file as a voice message."""
    caption: FormattedText
    mark: str = ""

    def sent_again(self) -> TelegramStoredPart:
        """Return the part with the re-sent mark."""
        return replace(self, mark=RESENT)

    def payload(self) -> Json:
        """Return the Bot API parameters of the caption, the same for a new message and an edit."""
        shown = joined([FormattedText(text=self.mark), self.caption], " ")
        marked = entities(shown)
        return {"caption": shown.text} | ({"caption_entities": marked} if marked else {})

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes."""
        whole = [self.name, self.caption.text, entities(self.caption)]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramPollPart:
    """Message with a poll. It is never edited: people may have voted."""

    question: str
    options: tuple[str, ...]

    def sent_again(self) -> TelegramPollPart:
        """Return the part with the re-sent mark."""
        return replace(self, question=f"{RESENT} {self.question}")

    def payload(self) -> Json:
        """Return the Bot API parameters."""
        return {"question": self.question, "options": [{"text": one} for one in self.options]}

    @property
    def digest(self) -> str:
        """Return a hash of the content, stable across processes."""
        return hashlib.sha256(json.dumps([self.question, *self.options]).encode()).hexdigest()[:16]


Part: TypeAlias = TelegramTextPart | FilePart | TelegramStoredPart | TelegramPollPart
