"""Rendering of a slot as messages. Called by `adapter`; `showing` sends and edits them.

Pure, except that an artifact's size and image header are read.
"""

from __future__ import annotations

from itertools import islice

from channels._shared.files import EMPTY, GONE, IN_FILE, FilePart, size_of, text_file, too_large
from channels.telegram.cards import card
from channels.telegram.formatted_text import FormattedText, clean, finish, joined, split, units
from channels.telegram.limits import NAME_CHARS, TEXT_PARTS, TEXT_UNITS, UPLOAD_BYTES
from channels.telegram.markdown_scan import closed, output
from channels.telegram.markup import TelegramMarkup
from channels.telegram.parts import CAPTION_ROOM, ROOM, Part, TelegramPollPart, TelegramStoredPart, TelegramTextPart
from channels.telegram.pictures import is_photo
from channels.telegram.questions import question
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.domain.text import plain, visible

SOURCE_CHARS = 16_384
"""Characters of Markdown that are parsed, at most; a longer text goes as a file unparsed."""
SOURCE_LINES = 800
"""Lines of such Markdown, at most."""
HEAD_CHARS = 8_192
"""Characters of Markdown parsed for the beginning of a text: one message and its markup."""
HEAD_LINES = 400
"""Lines of such a beginning."""
END_UNITS = 1_000
"""UTF-16 units of the note below the beginning of a text that goes as a file."""
SPEECH = "audio/ogg"
"""Media type of a file that is sent as a voice message."""
GOES_ON = "…"
QUESTION_CHARS = 288
"""Characters of a poll's question: 300 of the Bot API, less the re-sent mark."""
OPTION_CHARS = 100
"""Characters of an option of a poll."""


class TelegramRenderer:
    """Renderer of slots. Create one and keep it; it holds only the parser.

    It runs in the event loop, so its input is bounded: lines and characters by the constants above, formatting by the
    size of the messages. No text is parsed twice. The worst text found, a table with formatting in many cells, takes
    35 ms of CPU, a long list less than 20; a callback may take 100. So there is no thread: it would compete with the
    loop for the interpreter, and cost every answer a hand-over.
    """

    def __init__(self) -> None:
        """Create the parser."""
        self._markup = TelegramMarkup()

    def parts(self, showing: RenderedSlot) -> list[Part]:
        """Return the messages of a slot, in order; none when nothing is visible.

        A card has the same number and kinds of messages while it is open and once it is decided. In groups, mentions
        notify nobody.
        """
        parts: list[Part]
        if showing.slot.kind is SlotKind.STATUS:
            parts = _status(showing)
        elif showing.slot.kind is SlotKind.CARD:
            asked, in_group = showing.question, _in_group(showing)
            parts = card(showing.rows, quiet=in_group) if asked is None else question(asked, in_group=in_group)
        elif showing.slot.kind is SlotKind.FILE:
            parts = self._stored(showing)
        elif showing.slot.post is not None:
            options = tuple(plain(one)[:OPTION_CHARS] for one in showing.slot.post.options)
            parts = [TelegramPollPart(question=plain(showing.text)[:QUESTION_CHARS], options=options)]
        elif showing.partial:
            return self._beginning(showing)
        else:
            parts = self._final(showing)
        there = len(showing.slot.message_ids)
        if showing.slot.uncertain and there < len(parts):
            # Stored messages are certain; the one after them was in flight.
            parts[there] = parts[there].sent_again()
        return parts

    def _beginning(self, showing: RenderedSlot) -> list[Part]:
        """Return a partial text in one message."""
        head = next(split(self._head(showing), TEXT_UNITS - units(f" {GOES_ON}")), None)
        return [] if head is None else [TelegramTextPart.of(joined([head, FormattedText(text=GOES_ON)], _gap(head)))]

    def _final(self, showing: RenderedSlot) -> list[Part]:
        """Return the text in messages, or its beginning and a file when it would take too many."""
        text = showing.text
        if len(text) > SOURCE_CHARS or text.count("\n") >= SOURCE_LINES:
            return self._as_file(showing, self._head(showing))
        formatted, whole = self._read(showing, text, messages=TEXT_PARTS)
        if whole and not formatted.text and visible(text):  # only markup, such as an empty code block
            formatted = finish(clean(text), (), quiet=_in_group(showing))
        found = list(islice(split(formatted, ROOM), TEXT_PARTS + 1)) if whole else []
        if not whole or len(found) > TEXT_PARTS:
            return self._as_file(showing, formatted)
        return [TelegramTextPart.of(one) for one in found]

    def _as_file(self, showing: RenderedSlot, formatted: FormattedText) -> list[Part]:
        """Return the beginning in one message and everything in a file; for command output, also its last lines."""
        found = output(showing.text)
        name, whole, below = ("output.txt", *found) if found else ("answer.md", showing.text, "")
        end = self._markup.formatted(f"{IN_FILE}\n{below}", quiet=_in_group(showing))
        if units(end.text) > END_UNITS:  # a table grows when it is laid out in columns
            end = finish(clean(f"{IN_FILE}\n{below}"), (), quiet=_in_group(showing))
        head = next(split(formatted, ROOM - units(f"\n\n{end.text}")), FormattedText(text=""))
        caption = f"The whole text: {len(whole):,} characters"
        return [
            TelegramTextPart.of(joined([head, end], "\n\n")),
            FilePart(name=name, data=text_file(whole, UPLOAD_BYTES, "Telegram"), caption=caption),
        ]

    def _stored(self, showing: RenderedSlot) -> list[Part]:
        """Return an artifact's message; only its caption and the reason if the file cannot be shown."""
        caption = self._caption(showing)
        file, path, size = showing.slot.file, showing.path, size_of(showing.path)
        can = 0 < size <= UPLOAD_BYTES
        if file is not None and (can or showing.slot.message_ids):
            name = plain(file.name).replace('"', "'")[:NAME_CHARS] or file.file
            photo = can and path is not None and is_photo(path, size)
            spoken = file.media_type == SPEECH
            part = TelegramStoredPart(name=name, path=path if can else None, photo=photo, voice=spoken, caption=caption)
            return [part]
        why = too_large("Telegram") if size > UPLOAD_BYTES else EMPTY if size == 0 else GONE
        return [TelegramTextPart.of(joined([caption, FormattedText(text=why)], "\n\n"))]

    def _caption(self, showing: RenderedSlot) -> FormattedText:
        """Return as much of the text as fits a caption."""
        formatted = self._head(showing)
        found = next(split(formatted, CAPTION_ROOM), FormattedText(text=""))
        if units(formatted.text) <= CAPTION_ROOM:
            return found
        head = next(split(formatted, CAPTION_ROOM - units(f" {GOES_ON}")), FormattedText(text=""))
        return joined([head, FormattedText(text=GOES_ON)], _gap(head))

    def _head(self, showing: RenderedSlot) -> FormattedText:
        """Return as much of the beginning as one message can show."""
        lines = showing.text[:HEAD_CHARS].split("\n", HEAD_LINES)[:HEAD_LINES]
        rest = showing.text[HEAD_CHARS:][-SOURCE_CHARS:]
        return self._read(showing, closed("\n".join(lines)), messages=1, rest=rest)[0]

    def _read(
        self, showing: RenderedSlot, markdown: str, *, messages: int, rest: str = ""
    ) -> tuple[FormattedText, bool]:
        """Return as much as `messages` can show, and whether that is all."""
        formatted, whole = self._markup.beginning(markdown, messages=messages, quiet=_in_group(showing), rest=rest)
        return (formatted if visible(formatted.text) else FormattedText(text="")), whole


def _status(showing: RenderedSlot) -> list[Part]:
    """Return a status line, cut if too long: unformatted, silent, and without notifications in groups."""
    formatted = finish(plain(showing.text), (), quiet=_in_group(showing))
    return [TelegramTextPart(text=line.text, silent=True) for line in islice(split(formatted, ROOM), 1)]


def _in_group(showing: RenderedSlot) -> bool:
    """Return True for a group or channel: Telegram's ids of those are negative."""
    return showing.slot.conversation.chat.startswith("-")


def _gap(head: FormattedText) -> str:
    """Return the separator between a text and an addition."""
    return "\n" if any(span.kind == "pre" and span.end == len(head.text) for span in head.spans) else " "
