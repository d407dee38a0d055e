"""Spoken answers to voice messages, stored as artifacts beside their text. Used by `turn`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.ids import SessionId
from gateway.domain.slots import NewSlot, SlotKind, spoken_file
from gateway.domain.text import visible
from gateway.domain.tools import Artifact
from gateway.domain.views import TurnView
from gateway.errors import ModelError
from gateway.ports import Speaker
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor

SPOKEN_CHARS = 1_500
"""Characters of an answer that is spoken; a longer one is for reading."""
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, kw_only=True)
class SpokenAnswers:
    """Maker of spoken answers. One per node."""

    speaker: Speaker
    outputs: Callable[[SessionId], Path]
    """Return the folder of a session's artifacts, which need not exist."""
    redactor: Redactor

    async def slots(self, view: TurnView, text: str) -> list[NewSlot]:
        """Return the slot of a spoken answer; none where it is not wanted, or fails: the text is shown either way.

        Safe to repeat: the file of a step has the same name each time.
        """
        text = self.redactor.text(text).strip()
        if not is_wanted(view) or not visible(text) or len(text) > SPOKEN_CHARS:
            return []
        n = len(view.steps)
        name = spoken_file(view.turn.id, n)
        try:
            data = await self.speaker.speak(text)
            await asyncio.to_thread(_write, self.outputs(view.session.id), name, data)
        except (ModelError, OSError) as error:
            log("voice").warning("not spoken", error=str(error))
            return []
        file = Artifact(file=name, name="answer.ogg", media_type="audio/ogg")
        return [NewSlot(conversation=view.turn.conversation, kind=SlotKind.FILE, n=n, file=file)]


def is_wanted(view: TurnView) -> bool:
    """Return whether the person spoke."""
    if view.session.lineage is not None:
        return False
    return any(
        found.heard and came.spoken
        for one in view.inputs
        if not one.context
        for came, found in zip(one.message.attachments, one.files or (), strict=False)
    )


def _write(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / name, _WRITE, 0o600), "wb") as file:
        file.write(data)
