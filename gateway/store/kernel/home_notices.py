"""Notices to people and models when the files of a session are away. Used by `homes`. Pure."""

from __future__ import annotations

from enum import StrEnum


class Away(StrEnum):
    """Reason for which the files of a session cannot be reached."""

    SILENT = "silent"
    """Their node does not answer."""
    LEFT = "left"
    """Their node was drained or ended, or takes no turns any more."""
    REPLACED = "replaced"
    """A node of the same name has another state folder now."""
    GONE = "gone"
    """Nobody knows their node any more."""


_FOR_OWNERS = {
    Away.SILENT: "The node `{node}` does not answer, and the files of this session are there.",
    Away.LEFT: "The node `{node}` takes no work now, and the files of this session are there.",
    Away.REPLACED: "The node `{node}` has another state folder now; the files of this session are in the earlier one.",
    Away.GONE: "The node with the files of this session is not known any more.",
}
_FOR_OTHERS = {
    Away.SILENT: "The files of this conversation are on another machine that does not answer now.",
    Away.LEFT: "The files of this conversation are on another machine that takes no work now.",
    Away.REPLACED: "The files of this conversation cannot be reached now.",
    Away.GONE: "The files of this conversation cannot be reached now.",
}


def files_awaited(why: Away, node: str, *, for_owners: bool) -> str:
    """Return the text for a session that waits for its files. Only owners read the names of nodes, as below."""
    return f"{_says(why, node, for_owners)} This waits for them; if they stay away, work goes on with an empty folder."


def files_away(why: Away, node: str, taker: str, *, for_owners: bool) -> str:
    """Return the text for a session whose files are away. Only owners read the names of nodes: these may be paths."""
    says = _says(why, node, for_owners)
    where = f" on the node `{taker}`" if for_owners and taker != node else ""
    return f"{says} Work goes on with an empty folder{where}. The files do not come back by themselves."


def _says(why: Away, node: str, for_owners: bool) -> str:
    return (_FOR_OWNERS if for_owners else _FOR_OTHERS)[why].format(node=node)
