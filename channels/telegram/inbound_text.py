"""Text of a Telegram message with its entities, offsets in UTF-16 units. Used by `inbound`; pure."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from channels.telegram.fields import TEXT_AT_MOST, TelegramFields

ENTITIES_AT_MOST = 1000
"""Entities read per message. More are ignored, not refused: the words are as good without them."""
_COMMAND = re.compile(r"(/[A-Za-z0-9_]+)@([A-Za-z0-9_]+)")
_AFTER_A_NAME = " \t\r\n,:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """Marked part of the text. `start` and `end` are UTF-16 units from its beginning."""

    kind: str
    start: int
    end: int
    url: str
    language: str
    user: int | None


@dataclass(frozen=True, slots=True)
class Words:
    """Text or caption with its entities."""

    text: str
    entities: Sequence[Entity]
    _units: bytes

    @staticmethod
    def read(message: TelegramFields) -> Words:
        """Return a message's text, or its caption if it has no text. Raises `Malformed`."""
        kind, marks = ("text", "entities") if "text" in message else ("caption", "caption_entities")
        text = message.text(kind)
        marked = message.objects(marks, most=TEXT_AT_MOST)[:ENTITIES_AT_MOST]
        entities = [_entity(one) for one in marked]
        return Words(text, entities, text.encode("utf-16-le"))

    @property
    def units(self) -> int:
        """Return the length in UTF-16 units."""
        return len(self._units) // 2

    def part(self, start: int, end: int) -> str:
        """Return the text between two offsets. A half character, which Telegram never sends, is replaced."""
        return self._units[2 * start : 2 * end].decode("utf-16-le", "replace")

    def of(self, entity: Entity) -> str:
        """Return the text of an entity."""
        return self.part(entity.start, entity.end)

    def command_for(self) -> str | None:
        """Return the username a leading command is for; empty for any bot, None without a command."""
        first = self._first("bot_command")
        return None if first is None else self.of(first).partition("@")[2]

    def names(self, bot: int, username: str) -> bool:
        """Return True if the bot is mentioned anywhere."""
        return any(self._is_name(entity, bot, username) for entity in self.entities)

    def said_to(self, bot: int, username: str) -> str:
        """Return the text as Markdown, without a leading mention of the bot.

        A command stays as written, except for the bot's name: its text becomes arguments, and added markup would
        change what runs. A text that is only the mention stays.
        """
        begin = max((e.end for e in self.entities if e.start == 0 and self._is_name(e, bot, username)), default=0)
        rest = self.part(begin, self.units).lstrip(_AFTER_A_NAME) if begin else self.text
        if not rest:
            return self.text
        if not rest.lstrip().startswith("/"):
            return self._marked(self.units - len(rest.encode("utf-16-le")) // 2)
        command = _COMMAND.match(rest)
        if command and username and command[2].lower() == username.lower():
            return command[1] + rest[command.end() :]
        return rest

    def _first(self, kind: str) -> Entity | None:
        return next((entity for entity in self.entities if entity.kind == kind and entity.start == 0), None)

    def _is_name(self, entity: Entity, bot: int, username: str) -> bool:
        if entity.kind == "text_mention":
            return entity.user == bot
        return entity.kind == "mention" and bool(username) and self.of(entity).lower() == f"@{username}".lower()

    def _marked(self, begin: int) -> str:
        """Return the text from `begin` on with links and code as Markdown; other entities are plain text."""
        parts: list[str] = []
        at = begin
        for entity in sorted(self.entities, key=lambda one: one.start):
            marked = _MARKS.get(entity.kind)
            if marked is None or entity.start < at or entity.end > self.units:
                continue  # nested or invalid: keep the plain words
            parts += [self.part(at, entity.start), marked(self.of(entity), entity)]
            at = entity.end
        return "".join([*parts, self.part(at, self.units)]).strip() if parts else self.part(begin, self.units)


def _entity(fields: TelegramFields) -> Entity:
    start = fields.number("offset", least=0)
    user = fields.maybe("user")
    return Entity(
        kind=fields.text("type"),
        start=start,
        end=start + fields.number("length", least=0),
        url=fields.text("url"),
        language=fields.text("language"),
        user=None if user is None else user.number("id"),
    )


def _link(text: str, entity: Entity) -> str:
    return f"[{text}]({entity.url})"


def _code(text: str, entity: Entity) -> str:
    fence = _fence(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _pre(text: str, entity: Entity) -> str:
    fence = _fence(text, 3)
    return f"\n{fence}{entity.language}\n{text.rstrip()}\n{fence}\n"


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


_MARKS: Mapping[str, Callable[[str, Entity], str]] = types.MappingProxyType(
    {"text_link": _link, "code": _code, "pre": _pre}
)
