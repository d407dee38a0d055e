"""Rendering of a slot as messages. Called by `adapter`; `showing` sends and edits them.

Pure, except that an artifact's size is read.
"""

from __future__ import annotations

from itertools import islice

from channels._shared.files import EMPTY, GONE, IN_FILE, FilePart, size_of, text_file, too_large
from channels.slack.blocks import markdown, small
from channels.slack.cards import card
from channels.slack.files import FILE
from channels.slack.limits import CAPTION_CHARS, NAME_CHARS, TEXT_PARTS, UPLOAD_BYTES
from channels.slack.markup import SlackMarkup, safe
from channels.slack.parts import ROOM, Part, SlackStoredPart, SlackTextPart
from channels.slack.plain import clean
from channels.slack.questions import question
from channels.slack.send_state import Form
from gateway.domain.slots import RenderedSlot, SlotKind
from gateway.domain.text import cut, plain, visible

LINES = 2000
"""Lines of a text, at most; a longer one goes as a file, since the time to find code blocks grows with the lines."""
HEAD_CHARS = 3000
"""Characters shown of a text that goes as a file."""
HEAD_LINES = 60
"""Lines shown of such a text."""
STATUS_CHARS = 300
"""Characters of a status line."""
SAID_CHARS = 3000
"""Characters of a message that its notification is made from."""
GOES_ON = "…"


class SlackRenderer:
    """Renderer of slots. Create one and keep it; it holds only the parser.

    It runs in the event loop, so its input is bounded by the constants above and the limits of messages.
    """

    def __init__(self) -> None:
        """Create the parser."""
        self._markup = SlackMarkup()

    def parts(self, showing: RenderedSlot, form: Form = Form.WHOLE) -> list[Part]:
        """Return the messages of a slot, in order; none when nothing is visible. `form`: form of its text.

        A card has the same number and kinds of messages while it is open and once it is decided. Text from people or
        models notifies nobody.
        """
        if showing.slot.kind is SlotKind.STATUS:
            parts = _status(showing.text)
        elif showing.slot.kind is SlotKind.CARD:
            parts = _card(showing, form) if showing.question is None else question(showing.question)
        elif showing.slot.kind is SlotKind.FILE:
            parts = self._stored(showing)
        elif not visible(clean(showing.text)):
            parts = []
        elif showing.partial:
            return self._beginning(showing.text)
        else:
            parts = self._final(showing.text, form)
        there = len(showing.slot.message_ids)
        if showing.slot.uncertain and there < len(parts):
            # Stored messages are certain; the one after them was in flight.
            parts[there] = parts[there].sent_again()
        return parts

    def _beginning(self, text: str) -> list[Part]:
        """Return a partial text in one message."""
        source = self._markup.closed(clean(_lines(text, ROOM)))
        head = next(self._markup.split(safe(source), ROOM - len(GOES_ON)), "")
        return [SlackTextPart(blocks=(markdown(head), small([GOES_ON])), said=self._said(head))] if head else []

    def _final(self, text: str, form: Form = Form.WHOLE) -> list[Part]:
        """Return the text in messages, or its beginning and a file when it would take too many."""
        if form is not Form.WHOLE:
            return self._as_file(text, HEAD_CHARS if form is Form.BEGINNING else 0)
        if len(text) > TEXT_PARTS * ROOM or text.count("\n") >= LINES:
            return self._as_file(text)
        found = list(islice(self._markup.split(safe(text), ROOM), TEXT_PARTS + 1))
        if len(found) > TEXT_PARTS:
            return self._as_file(text)
        return [SlackTextPart(blocks=(markdown(piece),), said=self._said(piece)) for piece in found]

    def _as_file(self, text: str, chars: int = HEAD_CHARS) -> list[Part]:
        """Return the beginning, at most `chars`, in one message and everything in a file.

        For command output, also its last lines.
        """
        found = self._markup.output(text)
        name, whole, below = ("output.txt", *found) if found else ("answer.md", text, "")
        head = next(self._markup.split(safe(_lines(text, chars, HEAD_LINES)), chars), "") if chars else ""
        end = "\n\n".join(filter(None, (IN_FILE, safe(below) if chars else "")))
        blocks = tuple(markdown(piece) for piece in (head, end) if piece)
        caption = f"The whole text: {len(whole):,} characters"
        return [
            SlackTextPart(blocks=blocks, said=self._said(f"{head}\n{end}")),
            FilePart(name=name, data=text_file(whole, UPLOAD_BYTES, "Slack"), caption=caption),
        ]

    def _stored(self, showing: RenderedSlot) -> list[Part]:
        """Return an artifact's message; only its caption and the reason if the file cannot be shown."""
        caption = self._said(showing.text) if visible(clean(showing.text)) else ""
        file, size = showing.slot.file, size_of(showing.path)
        if file is not None and showing.path is not None and 0 < size <= UPLOAD_BYTES:
            name = plain(file.name)[:NAME_CHARS] or file.file
            return [SlackStoredPart(name=name, path=showing.path, size=size, caption=cut(caption, CAPTION_CHARS))]
        why = too_large("Slack") if size > UPLOAD_BYTES else EMPTY if size == 0 else GONE
        text = f"{cut(showing.text, CAPTION_CHARS)}\n\n{why}".strip()
        return self._final(text)[:1]

    def _said(self, text: str) -> str:
        source = _lines(text, SAID_CHARS)
        said = self._markup.plain(source)
        return said if visible(said) else source


def _card(showing: RenderedSlot, form: Form) -> list[Part]:
    """Return a card in its form; once its rows went as files, they stay so."""
    parts, there = card(showing.rows), showing.slot.message_ids
    more = sum(one.startswith(FILE) for one in there) > sum(isinstance(part, FilePart) for part in parts)
    return card(showing.rows, filed=True) if more or form is not Form.WHOLE else parts


def _status(text: str) -> list[Part]:
    """Return a status line, cut if too long, unformatted."""
    shown = plain(text)[:STATUS_CHARS]
    return [SlackTextPart(blocks=(small([shown]),), said=shown)] if visible(shown) else []


def _lines(text: str, chars: int, lines: int = LINES) -> str:
    """Return the beginning of a text within both limits."""
    return "\n".join(text[:chars].split("\n", lines)[:lines])
