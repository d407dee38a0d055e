"""Builder of the messages a model is given, from stored turns; always valid for a provider. Used by `prompt`.

Each answer's calls are followed by exactly their results, in call order, before any text of a person. Text of other
people stands apart, in blocks whose end they cannot write. Pure, except that `Marks` draws a key when it is made.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import TypeAlias

from gateway.agent.turn_cache import PerTurnCache
from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_HOME, SYSTEM_PARENT, InboundId, SessionId
from gateway.domain.messages import CONTEXT_KEPT, Attachment, FetchedFile, Inbound, Received
from gateway.domain.prompts import CallResult, Message, ModelRequest, ToolOffer, UserText, block, speaker
from gateway.domain.sessions import SessionKind
from gateway.domain.steps import Step, StepKind
from gateway.domain.text import plain
from gateway.domain.tools import PICTURES, Picture, outcome_unknown
from gateway.domain.turns import TurnKind
from gateway.domain.views import TurnView

CHARS_OF_EACH = 1_000
"""Characters of a quoted or overheard message."""
NAME_CHARS = 100
"""Characters of a file's name as shown."""
NAME_READ = 1_000
"""Characters of a file's name that are read at all."""
CHARS_OF_A_CHILD = 20_000
"""Characters of a sub-session's answer: the purpose of spawning it."""

HEARD = "Messages of other people in the group, from before the message below"
QUOTED = "The message that the message below answers"
ANSWERED, SAYS = "What the sub-session answered", "What the sub-session says"
INPUTS = "What other sub-sessions answered"
SUMMARY = "What was said before the messages below, in short"
NOTICE = "The gateway says"
SPOKEN = "[Transcript of a voice message; words may be wrong]"
FILES = "Files that came with the message below, as paths in the workspace; their senders chose what they are called"


class Marks:
    """Generator of the marks around data and before speakers' names: 64 unguessable bits in hex.

    A random mark for each request would be safer still. This one lasts for a session's epoch in one process, because
    a changing prefix would defeat the provider's prompt cache for every request of a group. The price: the model reads
    it each time and might repeat it, so it is removed from answers before they are stored or shown. It can still leave
    in a call's arguments and return in what that call read. As soon as any input contains it, another mark replaces it.
    """

    def __init__(self) -> None:
        """Draw this process's key."""
        self._key = secrets.token_bytes(32)
        self._texts = PerTurnCache(_texts_of)

    def of(self, session: SessionId, epoch: int, views: Iterable[TurnView], summary: str = "") -> str:
        """Return the first mark of the session's epoch that no message, call or result of these turns contains."""
        said = [summary, *map(self._texts.of, views)]
        made = (hmac.digest(self._key, f"{session}\n{epoch}\n{n}".encode(), "sha256").hex()[:16] for n in count())
        return next(mark for mark in made if not any(mark in text for text in said))


def _texts_of(view: TurnView) -> str:
    said = [text for one in view.inputs for text in (*_texts(one.message), *(file.heard for file in one.files or ()))]
    return "\n".join([*said, *(text for step in view.steps for text in _written(step))])


def _texts(message: Inbound) -> tuple[str, ...]:
    return message.text, message.quoted, message.name, message.unread, *(one.name for one in message.attachments)


def _written(step: Step) -> Iterable[str]:
    if step.answer is not None:
        yield step.answer.text
    if step.call is not None:
        yield from (step.call.tool, step.call.arguments)
    if step.result is not None:
        yield from (step.result.text, step.result.hint)


def request(
    system: str,
    history: Sequence[TurnView],
    turn: TurnView,
    tools: tuple[ToolOffer, ...],
    marks: Marks,
    summary: str = "",
    cache: MessageCache | None = None,
) -> ModelRequest:
    """Return the model request; with a mark only where a speaker is named or data is given.

    `summary`: summary of the turns before `history`; data, placed first. `cache`: the caller's, shared by its requests.
    """
    mark = marks.of(turn.session.id, turn.turn.epoch, [*history, turn], summary)
    given = messages(history, turn, mark, cache)
    if summary:
        given = (UserText(text="", data=block(SUMMARY, [summary], mark)), *given)
    return ModelRequest(
        system=system,
        messages=given,
        tools=tools,
        mark=mark if any(map(_has_mark, given)) else "",
        for_owner=turn.session.root_kind is SessionKind.MAIN,
    )


def _has_mark(message: Message) -> bool:
    """Return True when the mark is in this message, or around it."""
    match message:
        case UserText():
            return bool(message.name or message.data)
        case CallResult():
            return message.result.untrusted
        case _:
            return False


def messages(
    history: Sequence[TurnView], turn: TurnView, mark: str, cache: MessageCache | None = None
) -> tuple[Message, ...]:
    """Return the whole conversation: the ended turns, oldest first, then this one with all its messages so far."""
    views = [*history, turn]
    heard = frozenset([one.id for view in views for one in view.inputs if one.context][-CONTEXT_KEPT:])
    out: list[Message] = []
    for view in history:
        cached = cache.of(view) if cache is not None else None
        out += _of_turn(view, heard, mark) if cached is None else cached
    out += _of_turn(turn, heard, mark)
    return tuple(out)


MessageCache: TypeAlias = PerTurnCache[tuple[Message, ...] | None]


def message_cache() -> MessageCache:
    """Return a cache of ended turns' messages, for turns with the same ones in every prompt; None for the others."""
    return PerTurnCache(_plain)


def _plain(view: TurnView) -> tuple[Message, ...] | None:
    """Return the messages of a turn without marks and without overheard messages, else None."""
    if any(one.context or not _is_plain(one.message) for one in view.inputs):
        return None
    return tuple(_of_turn(view, frozenset(), ""))


def _is_plain(message: Inbound) -> bool:
    return not (message.quoted or message.unread or message.attachments or message.principal == SYSTEM_HOME)


def ungiven(turn: TurnView) -> tuple[Received, ...]:
    """Return the messages of the turn that no answer has seen yet."""
    return tuple(received for received in turn.inputs if received.given is None)


def _of_turn(view: TurnView, heard: Collection[InboundId], mark: str) -> Iterable[Message]:
    waiting = list(view.inputs)
    for step in view.steps:
        if step.kind is not StepKind.MODEL or step.answer is None:
            continue
        yield from _said(view, [r for r in waiting if r.given is not None and r.given <= step.n], heard, mark)
        waiting = [r for r in waiting if r.given is None or r.given > step.n]
        # The note is for the person alone.
        yield replace(step.answer, note="") if step.answer.note else step.answer
        yield from _results(view.steps, step.n)
    if waiting:
        yield from _said(view, waiting, heard, mark)


def _results(steps: Sequence[Step], answer_n: int) -> Iterable[CallResult]:
    for step in steps:
        if step.call is not None and step.answer_n == answer_n:
            yield CallResult(
                call=step.call.id, tool=step.call.tool, result=step.result or outcome_unknown(step.started_at)
            )


# --- messages of people -------------------------------------------------------------------------


def _said(view: TurnView, received: Sequence[Received], heard: Collection[InboundId], mark: str) -> Iterable[UserText]:
    """Yield the requester's messages, each with what it quotes; overheard ones stand before the first."""
    several = view.session.kind is SessionKind.NON_MAIN
    # The operator parses a command word by word, and must not get anything else.
    command = view.turn.kind is TurnKind.COMMAND
    beside = [] if command else [one for one in received if one.context]
    notices = [one.message for one in beside if one.message.principal == SYSTEM_HOME]
    others = [one.message for one in beside if one.id in heard and one.message not in notices]
    yield from [_notice(one, mark) for one in notices]
    data = block(HEARD, [_line(one) for one in others], mark)
    for parts in _joined(received):
        one = [part.message for part in parts]
        text, name, who = _text(one, command=command), "", None
        if several and one[0].principal != SYSTEM_PARENT:  # a sub-session's task is plain text, without a speaker
            name, who = one[0].name or one[0].principal, one[0].principal
        if command:
            yield UserText(text=text, name=name, who=who)
            continue
        if one[0].principal == SYSTEM_HOME:
            yield _notice(one[0], mark)
            continue
        if one[0].principal == SYSTEM_CHILD:
            yield UserText(text="", data="\n\n".join(filter(None, [data, _ended(one[0], mark)])))
            data = ""
            continue
        if not data and all(map(_is_plain, one)):  # the common case
            yield UserText(text=text, name=name, who=who)
            continue
        quoted = _quoted(one, mark)
        text = _readable(text, [message.unread for message in one if message.unread])
        text = text if command else "\n\n".join(filter(None, [text, *map(_spoken, parts)]))
        blocks = [data, quoted, _files(parts, mark)]
        yield UserText(text=text, name=name, who=who, data="\n\n".join(filter(None, blocks)), pictures=_pictures(parts))
        data = ""
    if data:
        yield UserText(text="", data=data)


def _notice(message: Inbound, mark: str) -> UserText:
    """Return the gateway's notices to a model. It cannot pass for a person's text."""
    return UserText(text="", data=block(NOTICE, [message.text], mark), is_notice=True)


def _text(messages: Sequence[Inbound], *, command: bool) -> str:
    """Join the parts of a message that the platform cut, or the captions of an album; of a command its own parts."""
    texts = [messages[0].text]
    for before, message in pairwise(messages):
        if before.cut:
            texts[-1] += message.text
        else:
            texts.append(message.text)
    if command:
        return next((text for text in texts if text.lstrip().startswith("/")), texts[0])
    return "\n\n".join(filter(None, texts))


def _quoted(messages: Sequence[Inbound], mark: str) -> str:
    """Return the block of messages that this one answers."""
    quoted = [message for message in messages if message.quoted]
    if quoted and all(message.principal == SYSTEM_PARENT for message in quoted):  # a step of a workflow
        return block(INPUTS, [_short(message.quoted, CHARS_OF_A_CHILD) for message in quoted], mark)
    return block(QUOTED, [_short(message.quoted) for message in quoted], mark)


def _ended(message: Inbound, mark: str) -> str:
    """Return the end of a sub-session, or what it says at work. The gateway's line cannot pass for a person's."""
    what = SAYS if message.event_key.endswith("/said") else ANSWERED
    return block(f"{message.text} {what}", [_short(message.quoted, CHARS_OF_A_CHILD) or "Nothing."], mark)


def _joined(received: Sequence[Received]) -> list[list[Received]]:
    """Return the messages to the bot, each with its further parts: cut off by the platform, or of its album."""
    out: list[list[Received]] = []
    for one in received:
        if one.context:
            continue
        if one.continues and out and out[-1][0].message.principal == one.message.principal:
            out[-1].append(one)
        else:
            out.append([one])
    return out


def _readable(text: str, unread: Sequence[str]) -> str:
    """Append a note on unreadable attachments, so that the model does not invent their content."""
    notes = [f"[{plain(one)} came with this message; it cannot be read yet]" for one in unread]
    return "\n\n".join(filter(None, [text, *notes]))


# --- attachments --------------------------------------------------------------------------------


def _files(received: Sequence[Received], mark: str) -> str:
    """Return the block of a message's files: the path of each, or why it is missing."""
    return block(FILES, [_file(*found) for one in received for found in _found(one)], mark)


def _found(received: Received) -> list[tuple[Attachment, FetchedFile | None]]:
    """Return a message's attachments, each with its fetched file; None when it was not fetched."""
    files = received.files or ()
    return [(one, files[at] if at < len(files) else None) for at, one in enumerate(received.message.attachments)]


def _file(file: Attachment, found: FetchedFile | None) -> str:
    called = f'called "{_name(file)}"' if file.name.strip() else "without a name"
    if found is not None and found.path:
        heard = f'; its transcript: "{found.heard}"' if found.heard and not file.spoken else ""
        return f"{found.path} ({found.media_type}, {found.size:,} bytes), {called}{heard}"
    why = found.trouble if found is not None and found.trouble else "It was not fetched."
    return f"Not there: a file {called}. {plain(why)}"


def _spoken(received: Received) -> str:
    """Return the words of a message's voice messages, marked: a transcript may be wrong, and is never a command."""
    words = [found.heard for file, found in _found(received) if file.spoken and found is not None and found.heard]
    return "\n\n".join(f"{SPOKEN}\n{one}" for one in words)


def _name(file: Attachment) -> str:
    """Return the name on one line, without invisible characters."""
    return plain(file.name[:NAME_READ]).replace('"', "'")[:NAME_CHARS]


def _pictures(received: Sequence[Received]) -> tuple[Picture, ...]:
    """Return the files that a model can view."""
    there = [found for one in received for _, found in _found(one) if found is not None and found.path]
    return tuple(Picture(file=one.path, media_type=one.media_type) for one in there if one.media_type in PICTURES)


# --- data ---------------------------------------------------------------------------------------


def _line(message: Inbound) -> str:
    """Return speaker and text. Further lines are indented, so that no text can fake another speaker's line."""
    text = _readable(_short(message.text), [message.unread] if message.unread else [])
    files = [f'[a file "{_name(one)}" came with this message; it was not fetched]' for one in message.attachments]
    text = "\n".join(filter(None, [text, *files]))
    return f"{speaker(message.name, message.principal)}: " + "\n    ".join(text.splitlines())


def _short(text: str, chars: int = CHARS_OF_EACH) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"
