"""File slots for the artifacts in a call's result. Pure. Used by `scheduler`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, cast

from gateway.domain.slots import NewSlot, SlotKind, shown_when_stored
from gateway.domain.text import plain
from gateway.domain.tools import Artifact, ToolCall, ToolResult
from gateway.domain.views import TurnView

SHOWN_CHARS = 200
"""Characters of a caption's part; a longer text is left out."""


def file_slots(view: TurnView, n: int, result: ToolResult) -> list[NewSlot]:
    """Return a FILE slot for each picture and then each file of step `n`, in order, in the turn's conversation.

    For `finish_step`, with the result. None on the web page, which shows the step with its whole result. None for a
    child: people who never spoke with it would get files that nobody announced, and its parent reports its findings.
    A child's files stay in its session. None for a call that posts its file itself (`messages.post_slots`).
    """
    call, where = view.steps[n].call, view.turn.conversation
    if result.posts or call is None or view.session.lineage is not None or shown_when_stored(where):
        return []
    found = [*_pictures(call, result), *result.files]
    if not found:
        return []
    said = caption(replace(call, arguments=view.steps[n].arguments))
    return [
        NewSlot(conversation=where, kind=SlotKind.FILE, text=f"{said}{_position(k, found)}", n=n, file=one)
        for k, one in enumerate(found, 1)
    ]


def caption(call: ToolCall) -> str:
    """Return the call that made a file, in one plain line without markup: `browser open: https://example.org/`.

    The tool, its action, and the first other text among its arguments. A text longer than a line is left out, not cut:
    redaction would not recognise half of a secret.
    """
    texts = {key: _plain(value) for key, value in _arguments(call.arguments).items() if isinstance(value, str)}
    head = " ".join(filter(None, [_plain(call.tool) or "a tool", texts.pop("action", "")]))
    shown = next((text for text in texts.values() if text), "")
    return f"{head}: {shown}" if shown else head


def _pictures(call: ToolCall, result: ToolResult) -> list[Artifact]:
    """Return the result's pictures as files, named by their tool."""
    return [
        Artifact(
            file=picture.file,
            name=f"{_plain(call.tool) or 'picture'}-{k}{PurePosixPath(picture.file).suffix}",
            media_type=picture.media_type,
        )
        for k, picture in enumerate(result.pictures, 1)
    ]


def _position(k: int, all_: Sequence[Artifact]) -> str:
    return f" ({k} of {len(all_)})" if len(all_) > 1 else ""


def _arguments(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _plain(text: str) -> str:
    """Return the text on one line; empty when it is too long for a caption."""
    return plain(text) if len(text) <= SHOWN_CHARS else ""
