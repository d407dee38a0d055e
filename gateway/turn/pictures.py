"""Before a model is asked: the pictures of the last calls and those that people sent last, read from disk. Blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gateway.attachments import sniffed
from gateway.model.prompts import IMAGES, CallResult, Image, Message, UserText
from gateway.model.tools import Picture

RESULTS_WITH_PICTURES = 4
"""Of the results that have pictures, the last ones whose pictures a model is given: each costs as much as pages do."""
PICTURES_OF_PEOPLE = 4
"""Of the pictures that people sent, the last ones that a model is given."""
PICTURE_AT_MOST = 10_000_000


def any_in(messages: Sequence[Message]) -> bool:
    """Whether there is anything to be read."""
    for one in messages:
        if isinstance(one, UserText):
            if one.pictures:
                return True
        elif isinstance(one, CallResult) and one.result.pictures:
            return True
    return False


def with_pictures(messages: Sequence[Message], folder: Path, home: Path | None, mark: str) -> tuple[Message, ...]:
    """Return the messages, the last pictures in them; order and number stay. Reads files: call it in a thread.

    `folder`: where those of calls are; `home`: the workspace, where those of people are, None when nobody knows.
    What cannot be given is said, at the end of its result or of what is told of a message's files: missing, too large,
    or of a kind that models are not given.
    """
    bearing = [at for at, one in enumerate(messages) if _of_call(one)]
    last, left = frozenset(bearing[-RESULTS_WITH_PICTURES:]), PICTURES_OF_PEOPLE
    out: list[Message] = []
    for at, one in reversed([*enumerate(messages)]):
        if isinstance(one, CallResult) and at in last:
            one = _with_shots(one, folder)
        elif isinstance(one, UserText) and one.pictures and left:
            newest = one.pictures[-left:]
            left -= len(newest)
            one = _with_photos(one, newest, home, mark)
        out.append(one)
    return tuple(reversed(out))


def _of_call(message: Message) -> bool:
    return isinstance(message, CallResult) and bool(message.result.pictures)


def _with_shots(message: CallResult, folder: Path) -> CallResult:
    """A result with the pictures of its call."""
    images: list[Image] = []
    notes: list[str] = []
    for picture in message.result.pictures:
        found = _read(picture, folder) if Path(picture.file).name == picture.file else _NO_NAME
        if isinstance(found, Image):
            images.append(found)
        else:
            notes.append(f"[The picture {picture.file} cannot be given: {found}.]")
    text = "\n".join(filter(None, [message.result.text, *notes]))
    return replace(message, images=tuple(images), result=replace(message.result, text=text))


def _with_photos(message: UserText, pictures: Sequence[Picture], home: Path | None, mark: str) -> UserText:
    """A message with pictures that came with it. What is said of those that are gone stands outside of its data."""
    images: list[Image] = []
    notes: list[str] = []
    for picture in pictures:
        found = _photo(picture, home)
        if isinstance(found, Image):
            images.append(found)
        else:
            notes.append(f"[{mark} The picture {picture.file} cannot be shown to you: {found}.]")
    return replace(message, images=tuple(images), data="\n\n".join(filter(None, [message.data, *notes])))


def _photo(picture: Picture, home: Path | None) -> Image | str:
    """Return a picture of the workspace, or why not. A tool may have put anything in its place since it was fetched."""
    path = PurePosixPath(picture.file)
    if home is None or path.is_absolute() or len(path.parts) != 2 or ".." in path.parts:  # `inbox/name`
        return _NO_NAME
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(home / path.parts[0], how)
    except OSError:
        return _GONE
    try:
        found = _read(replace(picture, file=path.parts[1]), folder)
    finally:
        os.close(folder)
    if isinstance(found, str):
        return found
    if sniffed(found.data, "") != picture.media_type:
        return "something else stands in its place"
    return replace(found, name=picture.file)


_GONE = "it is not there any more"
_NO_NAME = "its name is not one of a file in its folder"


def _read(picture: Picture, folder: Path | int) -> Image | str:
    """Return the picture with this name in a folder, or in an open one; or why not."""
    if picture.media_type not in IMAGES:
        return "it is of a kind that models are not given"
    found: Image | str = _GONE
    with suppress(OSError, ValueError):
        # No link is followed: what stands there may have been put there by a tool.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        if isinstance(folder, int):
            opened = os.open(picture.file, flags, dir_fd=folder)
        else:
            opened = os.open(folder / picture.file, flags)
        found = _content(opened, picture.media_type)
    return found


def _content(opened: int, media_type: str) -> Image | str:
    """Read an open file and close it."""
    with os.fdopen(opened, "rb") as file:
        kind = os.fstat(file.fileno())
        if not stat.S_ISREG(kind.st_mode):
            return "it is not a file"
        if kind.st_size > PICTURE_AT_MOST:
            return "it is larger than 10 MB"
        data = file.read(PICTURE_AT_MOST + 1)
    return Image(media_type=media_type, data=data) if data else "it is empty"
