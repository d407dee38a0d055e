"""Before a model is asked: the pictures of the last calls, read from the session's output folder. Blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gateway.model.prompts import CallResult, Image, Message
from gateway.model.tools import Picture

RESULTS_WITH_PICTURES = 4
"""Of the results that have pictures, the last ones whose pictures a model is given: each costs as much as pages do."""
PICTURE_AT_MOST = 10_000_000
MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


def any_in(messages: Sequence[Message]) -> bool:
    """Whether there is anything to be read."""
    return any(isinstance(one, CallResult) and one.result.pictures for one in messages)


def with_pictures(messages: Sequence[Message], folder: Path) -> tuple[Message, ...]:
    """Return the messages, the last pictures in them; order and number stay. Reads files: call it in a thread.

    What cannot be given is said at the end of its result: missing, too large, or of a kind that models are not given.
    """
    bearing = [at for at, one in enumerate(messages) if isinstance(one, CallResult) and one.result.pictures]
    last = frozenset(bearing[-RESULTS_WITH_PICTURES:])
    return tuple(
        _loaded(one, folder) if at in last and isinstance(one, CallResult) else one for at, one in enumerate(messages)
    )


def _loaded(message: CallResult, folder: Path) -> CallResult:
    images: list[Image] = []
    notes: list[str] = []
    for picture in message.result.pictures:
        found = _read(picture, folder)
        if isinstance(found, Image):
            images.append(found)
        else:
            notes.append(f"[The picture {picture.file} cannot be given: {found}.]")
    text = "\n".join(filter(None, [message.result.text, *notes]))
    return replace(message, images=tuple(images), result=replace(message.result, text=text))


def _read(picture: Picture, folder: Path) -> Image | str:
    """Return the picture, or why not."""
    if picture.media_type not in MEDIA_TYPES:
        return "it is of a kind that models are not given"
    if Path(picture.file).name != picture.file:
        return "its name is not one of a file in the output folder"
    try:
        # No link is followed: what stands there may have been put there by a tool.
        opened = os.open(folder / picture.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                return "it is not a file"
            if kind.st_size > PICTURE_AT_MOST:
                return "it is larger than 10 MB"
            data = file.read(PICTURE_AT_MOST + 1)
    except (OSError, ValueError):
        return "it is not there any more"
    return Image(media_type=picture.media_type, data=data) if data else "it is empty"
