"""Text that tells a person where the files of a message lie, in turns that no model reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.domain.messages import FetchedFile, Received
from gateway.domain.text import as_code
from gateway.domain.views import TurnView

KEPT = "The file of your message is in the workspace as {paths}."
ALL_KEPT = "The files of your message are in the workspace, in their order: {paths}."
MISSING = "A file of your message is not in the workspace: {why}"


def files_told(view: TurnView) -> str:
    """Say under which names the files lie that nobody was told of yet, and why one is missing; empty without any.

    Names that senders chose are left out: the text becomes part of what models read, where such names are data.
    """
    found = [file for received in view.inputs if _is_new(received) for file in received.files or ()]
    paths = [as_code(file.path) for file in found if file.path]
    return "\n".join([*_kept(paths), *(_missing(file) for file in found if not file.path)])


def _is_new(received: Received) -> bool:
    return received.given is None and not received.context


def _kept(paths: Sequence[str]) -> list[str]:
    if not paths:
        return []
    return [(KEPT if len(paths) == 1 else ALL_KEPT).format(paths=", ".join(paths))]


def _missing(file: FetchedFile) -> str:
    return MISSING.format(why=file.trouble or "It was not fetched.")
