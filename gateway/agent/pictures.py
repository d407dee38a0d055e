"""Reader of the pictures in a prompt: those of the last calls and the last from people. Blocking. Used by `prompt`.

How many of each are read stands in its two constants.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from gateway.agent.attachments import sniffed
from gateway.domain.prompts import CallResult, Image, Message, UserText
from gateway.domain.tools import PICTURE_BYTES, PICTURES, Picture
from gateway.system.safe_open import open_beneath

RESULTS_WITH_PICTURES = 4
"""Newest results with pictures whose pictures a model is given: a picture costs as many tokens as pages of text."""
PICTURES_OF_PEOPLE = 4
"""Newest pictures from people that a model is given; of the last message with pictures, all."""


def any_in(messages: Sequence[Message]) -> bool:
    """Return True when a message has pictures to read."""
    for one in messages:
        if isinstance(one, UserText):
            if one.pictures:
                return True
        elif isinstance(one, CallResult) and one.result.pictures:
            return True
    return False


def of_calls(messages: Sequence[Message]) -> list[str]:
    """Return the names of the pictures of calls that `with_pictures` reads."""
    bearing = [one for one in messages if isinstance(one, CallResult) and one.result.pictures]
    return [picture.file for one in bearing[-RESULTS_WITH_PICTURES:] for picture in one.result.pictures]


def with_pictures(
    messages: Sequence[Message],
    folder: Path,
    workspace: Path | None,
    mark: str,
    away: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Message, ...]:
    """Return the messages with the last pictures in them; order and number stay. Reads files: call it in a thread.

    `folder`: the folder of the calls' pictures; `workspace`: that of people's pictures, None when it is not usable.
    `away`: by name of a picture of a call, why it cannot be had now.
    A picture that is missing, too large or of an unsupported type is named at the end of its result or file list.
    """
    bearing = [at for at, one in enumerate(messages) if _of_call(one)]
    last, left, given = frozenset(bearing[-RESULTS_WITH_PICTURES:]), PICTURES_OF_PEOPLE, False
    out: list[Message] = []
    for at, one in reversed([*enumerate(messages)]):
        if isinstance(one, CallResult) and at in last:
            one = _with_shots(one, folder, away)
        elif isinstance(one, UserText) and one.pictures and left:
            newest = one.pictures[-left:] if given else one.pictures
            left, given = max(0, left - len(newest)), True
            one = _with_photos(one, newest, workspace, mark)
        out.append(one)
    return tuple(reversed(out))


def _of_call(message: Message) -> bool:
    return isinstance(message, CallResult) and bool(message.result.pictures)


def _with_shots(message: CallResult, folder: Path, away: Mapping[str, str]) -> CallResult:
    """Return the result with the pictures of its call."""
    images: list[Image] = []
    notes: list[str] = []
    for picture in message.result.pictures:
        found = _read(picture, folder, [picture.file]) if Path(picture.file).name == picture.file else _NO_NAME
        if isinstance(found, Image):
            images.append(found)
        else:
            notes.append(f"[The picture {picture.file} cannot be given: {away.get(picture.file, found)}.]")
    text = "\n".join(filter(None, [message.result.text, *notes]))
    return replace(message, images=tuple(images), result=replace(message.result, text=text))


def _with_photos(message: UserText, pictures: Sequence[Picture], workspace: Path | None, mark: str) -> UserText:
    """Return the message with its pictures. Notes on missing ones stand outside of its data block."""
    images: list[Image] = []
    notes: list[str] = []
    for picture in pictures:
        found = _photo(picture, workspace)
        if isinstance(found, Image):
            images.append(found)
        else:
            notes.append(f"[{mark} The picture {picture.file} cannot be shown to you: {found}.]")
    return replace(message, images=tuple(images), data="\n\n".join(filter(None, [message.data, *notes])))


def _photo(picture: Picture, workspace: Path | None) -> Image | str:
    """Return a picture of the workspace, or the reason why not. A tool may have replaced it since the fetch."""
    path = PurePosixPath(picture.file)
    if workspace is None or path.is_absolute() or len(path.parts) != 2 or ".." in path.parts:  # `inbox/name`
        return _NO_NAME
    found = _read(picture, workspace, path.parts)
    if isinstance(found, str):
        return found
    if sniffed(found.data, "") != picture.media_type:
        return "something else stands in its place"
    return replace(found, name=picture.file)


_NO_NAME = "its name is not one of a file in its folder"


def _read(picture: Picture, folder: Path, parts: Sequence[str]) -> Image | str:
    """Return the picture at this path beneath a folder, or the reason why not. A tool may have put anything there."""
    if picture.media_type not in PICTURES:
        return "it is of a kind that models are not given"
    try:
        with os.fdopen(open_beneath(folder, parts), "rb") as file:
            data = file.read(PICTURE_BYTES + 1)
    except (OSError, ValueError):
        return "it is not there any more"
    if len(data) > PICTURE_BYTES:
        return "it is larger than 10 MB"
    return Image(media_type=picture.media_type, data=data) if data else "it is empty"
