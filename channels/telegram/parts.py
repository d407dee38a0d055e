"""On the way out: what one slot becomes, message by message. Any of them may have to be marked as sent again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from channels._shared.files import RESENT, FilePart
from channels.telegram.formatted_text import Json, Rich, entities, joined, units
from channels.telegram.limits import CAPTION_UNITS, TEXT_UNITS

ROOM = TEXT_UNITS - units(f"{RESENT}\n")
"""UTF-16 units that content may fill, so that a message is cut where it was when it turns out to need the mark."""

CAPTION_ROOM = CAPTION_UNITS - units(f"{RESENT} ")
"""The same of a caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTextPart:
    """A message of text."""

    text: str
    entities: tuple[Json, ...] = ()
    buttons: tuple[tuple[Json, ...], ...] = ()
    """The inline keyboard, row by row."""
    silent: bool = False
    """Whether a new message makes no sound."""

    @staticmethod
    def of(rich: Rich, buttons: tuple[tuple[Json, ...], ...] = ()) -> TelegramTextPart:
        """Make it of text that fits."""
        return TelegramTextPart(text=rich.text, entities=tuple(entities(rich)), buttons=buttons)

    def sent_again(self) -> TelegramTextPart:
        """Return it with the mark; a block of code begins below that."""
        block = any(entity["type"] == "pre" and entity["offset"] == 0 for entity in self.entities)
        mark = f"{RESENT}\n" if block else f"{RESENT} "
        moved = tuple({**entity, "offset": entity["offset"] + units(mark)} for entity in self.entities)
        return replace(self, text=mark + self.text, entities=moved)

    def payload(self) -> Json:
        """Return the Bot API's parameters of this content, the same for a new message and an edit.

        An edit without a keyboard takes an old one away. No previews: to make one, Telegram fetches an address that a
        model wrote, which tells its owner whatever the model put into it.
        """
        payload: Json = {"text": self.text, "link_preview_options": {"is_disabled": True}}
        if self.entities:
            payload["entities"] = [dict(entity) for entity in self.entities]
        if self.buttons:
            payload["reply_markup"] = {"inline_keyboard": [[dict(button) for button in row] for row in self.buttons]}
        return payload

    @property
    def digest(self) -> str:
        """The same for the same content, in every process: an edit to what is shown already is not needed."""
        return hashlib.sha256(json.dumps(self.payload(), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramStoredPart:
    """A message with a file that came of a call. It is sent from where it is kept; its caption can be edited."""

    name: str
    path: Path | None
    """None when it is there no more, and only a message that shows it already can be kept up."""
    photo: bool
    """Whether Telegram is asked to show it as a photo."""
    caption: Rich
    mark: str = ""

    def sent_again(self) -> TelegramStoredPart:
        """Return it with the mark."""
        return replace(self, mark=RESENT)

    def payload(self) -> Json:
        """Return the Bot API's parameters of the caption, the same for a new message and an edit."""
        shown = joined([Rich(text=self.mark), self.caption], " ")
        marked = entities(shown)
        return {"caption": shown.text} | ({"caption_entities": marked} if marked else {})

    @property
    def digest(self) -> str:
        """The same for the same content, in every process."""
        whole = [self.name, self.caption.text, entities(self.caption)]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


Part: TypeAlias = TelegramTextPart | FilePart | TelegramStoredPart
