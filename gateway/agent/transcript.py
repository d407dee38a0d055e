"""The history a model is given, built from stored turns and always valid for a provider. Pure, but that `Marks` draws
a key when it is made.

Each answer's calls are followed by exactly their results, in call order, before any text of a person. What others
said stands apart from it, in blocks whose end they cannot write.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import TypeAlias

from gateway.agent.turn_cache import PerTurnCache
from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_PARENT, InboundId, SessionId
from gateway.domain.messages import CONTEXT_KEPT, Attachment, FetchedFile, Inbound, Received
from gateway.domain.prompts import CallResult, Message, ModelRequest, ToolOffer, UserText, block, speaker
from gateway.domain.sessions import SessionKind
from gateway.domain.steps import Step, StepKind
from gateway.domain.text import plain
from gateway.domain.tools import PICTURES, Picture, outcome_unknown
from gateway.domain.turns import TurnKind
from gateway.domain.views import TurnView

CHARS_OF_EACH = 1_000
NAME_CHARS = 100
"""Of what a file is called."""
NAME_READ = 1_000
CHARS_OF_A_CHILD = 20_000
"""Of what a sub-session answered: that is what it was spawned for."""

HEARD = "Messages of other people in the group, from before the message below"
QUOTED = "The message that the message below answers"
ANSWERED = "What the sub-session answered"
SUMMARY = "What was said before the messages below, in short"
FILES = "Files that came with the message below, as paths in the workspace; their senders chose what they are called"


class Marks:
    """Makes the marks that stand around data and before who speaks: 64 bits in hex, which nobody can know or guess.

    A random one for each call would be safer still. This one lasts as long as a session's epoch in one life of the
    process, because a beginning that changes makes every request of a group one that no provider has in its cache.
    The price: the model reads it each time and might say it aloud, so it is taken out of answers before they are
    stored or shown. It can still leave in a call's arguments, and come back in what that call read: as soon as it is in
    anything that is given, another one takes its place.
    """

    def __init__(self) -> None:
        """Draw this life's key."""
        self._key = secrets.token_bytes(32)
        self._texts = PerTurnCache(_texts_of)

    def of(self, session: SessionId, epoch: int, views: Iterable[TurnView], summary: str = "") -> str:
        """Return the first mark of the session's epoch that is in nothing of these turns: what people said, what was
        called, what came of it.
        """
        said = [summary, *map(self._texts.of, views)]
        made = (hmac.digest(self._key, f"{session}\n{epoch}\n{n}".encode(), "sha256").hex()[:16] for n in count())
        return next(mark for mark in made if not any(mark in text for text in said))


def _texts_of(view: TurnView) -> str:
    said = [text for one in view.inputs for text in _texts(one.message)]
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
    told: Told | None = None,
) -> ModelRequest:
    """Return what a model is asked; with a mark only where somebody is named or data is given.

    `summary`: what stands for the turns before `history`; data, given before everything else. `told`: the caller's, for
    all its requests.
    """
    mark = marks.of(turn.session.id, turn.turn.epoch, [*history, turn], summary)
    given = messages(history, turn, mark, told)
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
    """Whether the mark stands in this message, or around it."""
    match message:
        case UserText():
            return bool(message.name or message.data)
        case CallResult():
            return message.result.untrusted
        case _:
            return False


def messages(history: Sequence[TurnView], turn: TurnView, mark: str, told: Told | None = None) -> tuple[Message, ...]:
    """Return the whole conversation: the ended turns, oldest first, then this one with every message it has so far."""
    views = [*history, turn]
    heard = frozenset([one.id for view in views for one in view.inputs if one.context][-CONTEXT_KEPT:])
    out: list[Message] = []
    for view in history:
        plain = told.of(view) if told is not None else None
        out += _of_turn(view, heard, mark) if plain is None else plain
    out += _of_turn(turn, heard, mark)
    return tuple(out)


Told: TypeAlias = PerTurnCache[tuple[Message, ...] | None]


def told_before() -> Told:
    """What ended turns became in earlier questions, as far as it is the same in each; None for the others."""
    return PerTurnCache(_plain)


def _plain(view: TurnView) -> tuple[Message, ...] | None:
    """A turn whose messages have no mark around anything, and nothing that was said beside the bot."""
    if any(one.context or not _is_plain(one.message) for one in view.inputs):
        return None
    return tuple(_of_turn(view, frozenset(), ""))


def _is_plain(message: Inbound) -> bool:
    return not (message.quoted or message.unread or message.attachments)


def ungiven(turn: TurnView) -> tuple[InboundId, ...]:
    """The messages of the turn that no answer has seen yet."""
    return tuple(received.id for received in turn.inputs if received.given is None)


def _of_turn(view: TurnView, heard: Collection[InboundId], mark: str) -> Iterable[Message]:
    waiting = list(view.inputs)
    for step in view.steps:
        if step.kind is not StepKind.MODEL or step.answer is None:
            continue
        yield from _said(view, [r for r in waiting if r.given is not None and r.given <= step.n], heard, mark)
        waiting = [r for r in waiting if r.given is None or r.given > step.n]
        # What the person was told besides is for nobody else.
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


# --- what people said ---------------------------------------------------------------------------


def _said(view: TurnView, received: Sequence[Received], heard: Collection[InboundId], mark: str) -> Iterable[UserText]:
    """What the turn's own person said, each with what it answers; what others said stands before the first of it."""
    several = view.session.kind is SessionKind.NON_MAIN
    # A command is read word by word, by who must not read anything else.
    command = view.turn.kind is TurnKind.COMMAND
    others = [] if command else [one.message for one in received if one.context and one.id in heard]
    data = block(HEARD, [_line(one) for one in others], mark)
    for parts in _joined(received):
        one = [part.message for part in parts]
        text, name, who = _text(one, command=command), "", None
        if several and one[0].principal != SYSTEM_PARENT:  # its task is all that a sub-session is told: plain text
            name, who = one[0].name or one[0].principal, one[0].principal
        if command:
            yield UserText(text=text, name=name, who=who)
            continue
        if one[0].principal == SYSTEM_CHILD:
            yield UserText(text="", data="\n\n".join(filter(None, [data, _ended(one[0], mark)])))
            data = ""
            continue
        if not data and all(map(_is_plain, one)):  # as most are
            yield UserText(text=text, name=name, who=who)
            continue
        quoted = _quoted(one, mark)
        text = _readable(text, [message.unread for message in one if message.unread])
        blocks = [data, quoted, _files(parts, mark)]
        yield UserText(text=text, name=name, who=who, data="\n\n".join(filter(None, blocks)), pictures=_pictures(parts))
        data = ""
    if data:
        yield UserText(text="", data=data)


def _text(messages: Sequence[Inbound], *, command: bool) -> str:
    """Join what a platform cut off, and the captions of an album. A command goes on with nothing but its own rest."""
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
    """What the message answers."""
    return block(QUOTED, [_short(message.quoted) for message in messages if message.quoted], mark)


def _ended(message: Inbound, mark: str) -> str:
    """That a sub-session has ended, in the gateway's own line, so that nobody takes it for a person's; what it said."""
    return block(f"{message.text} {ANSWERED}", [_short(message.quoted, CHARS_OF_A_CHILD) or "Nothing."], mark)


def _joined(received: Sequence[Received]) -> list[list[Received]]:
    """The messages that ask for something, each with those that the platform had cut off from it, or of its album."""
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
    """Say what came along, so that the model does not make it up."""
    notes = [f"[{plain(one)} came with this message; it cannot be read yet]" for one in unread]
    return "\n\n".join(filter(None, [text, *notes]))


# --- the files that came with it ----------------------------------------------------------------


def _files(received: Sequence[Received], mark: str) -> str:
    """Where each is, or why it is not there."""
    return block(FILES, [_file(*found) for one in received for found in _found(one)], mark)


def _found(received: Received) -> list[tuple[Attachment, FetchedFile | None]]:
    """What came with a message and what became of it, which nobody knows when nobody looked."""
    files = received.files or ()
    return [(one, files[at] if at < len(files) else None) for at, one in enumerate(received.message.attachments)]


def _file(file: Attachment, found: FetchedFile | None) -> str:
    called = f'called "{_name(file)}"' if file.name.strip() else "without a name"
    if found is not None and found.path:
        return f"{found.path} ({found.media_type}, {found.size:,} bytes), {called}"
    why = found.trouble if found is not None and found.trouble else "It was not fetched."
    return f"Not there: a file {called}. {plain(why)}"


def _name(file: Attachment) -> str:
    """On one line, nothing in it that cannot be seen."""
    return plain(file.name[:NAME_READ]).replace('"', "'")[:NAME_CHARS]


def _pictures(received: Sequence[Received]) -> tuple[Picture, ...]:
    """Those that a model can look at."""
    there = [found for one in received for _, found in _found(one) if found is not None and found.path]
    return tuple(Picture(file=one.path, media_type=one.media_type) for one in there if one.media_type in PICTURES)


# --- data ---------------------------------------------------------------------------------------


def _line(message: Inbound) -> str:
    """Who said what. Further lines are moved in, so that nobody speaks in another one's name."""
    text = _readable(_short(message.text), [message.unread] if message.unread else [])
    files = [f'[a file "{_name(one)}" came with this message; it was not fetched]' for one in message.attachments]
    text = "\n".join(filter(None, [text, *files]))
    return f"{speaker(message.name, message.principal)}: " + "\n    ".join(text.splitlines())


def _short(text: str, chars: int = CHARS_OF_EACH) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"
