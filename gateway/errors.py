"""The only tree of errors, beside the domain types. A class's docstring is its default message, `cure` the remedy.

A refusal, a timeout or a tool's failure is a `ToolResult`, not an error (see `gateway.domain.tools`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, cast


class DragomanError(Exception):
    """Something went wrong inside Dragoman."""

    cure: str = ""

    def __init__(self, message: str = "", *, cure: str = "") -> None:
        """Store a message (default: the first line of the class's docstring) and a cure, one imperative sentence."""
        self.message = message or (self.__doc__ or "").strip().splitlines()[0]
        self.cure = cure or type(self).cure
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message followed by its cure, as shown to people."""
        return f"{self.message} {self.cure}".strip()


# --- start-up -------------------------------------------------------------------------------


class ConfigError(DragomanError):
    """The configuration is not usable."""


class StartError(DragomanError):
    """The daemon cannot start here."""


class UnseenNodes(StartError):
    """Other nodes live at the place of this one, and it has not seen that they have the same files."""

    cure = "Remove workspaces/.home from the copied state folder, or mount the same folder."

    def __init__(self, names: Sequence[str]) -> None:
        """Take the names of the nodes."""
        super().__init__(f"The files of this node have the mark of {', '.join(names)}, but lie on another disk.")
        self.names = tuple(names)


class PortInUse(StartError):
    """Another program uses this port."""


class StoreError(DragomanError):
    """The store refused or failed; nothing of this transition was written."""


class NotKnownYet(StoreError):
    """The platform does not say yet whether this person may speak here; nothing was written."""


class StoreAway(StoreError):
    """The server of the store does not answer, or takes no writes now. It may later."""


class StoreInUse(StoreError):
    """Another daemon holds this store."""

    cure = "Stop the other daemon, or give this one its own --state folder."


class StoreTooNew(StoreError):
    """The store was written by a newer version."""

    cure = "Upgrade Dragoman, or restore the backup made before the upgrade."


class StoreDamaged(StoreError):
    """The files of the store are damaged."""

    cure = (
        "Stop the daemon, copy the state folder away, and put the last backup in its place; "
        "deploy/RUNBOOK.md (A damaged store) says how to go on with what is left."
    )


class RowDamaged(DragomanError):
    """A row of the store cannot be read. No `StoreError`: the same request never succeeds later."""

    cure = "deploy/RUNBOOK.md (A damaged store) says how to restore a backup."


class StoreFull(StoreError):
    """The disk of the store is full; nothing was written and nothing was lost."""

    cure = (
        "Free space on the disk of the state folder. A daemon that runs goes on by itself; say again what was refused."
    )


# --- running --------------------------------------------------------------------------------


class LeaseLost(DragomanError):
    """Another holder has this turn now; the write was refused."""


class FilesElsewhere(LeaseLost):
    """The files of the session are on another node, which must run the turn; the write was refused."""


class NotFound(DragomanError):
    """There is no such thing here."""


class FileAway(DragomanError):
    """A file is on another node, which cannot be asked for it now."""


class BadRequest(DragomanError):
    """The request is not valid."""


class TooLarge(BadRequest):
    """The file or text exceeds a limit."""


class NoAnswer(BadRequest):
    """A server gave no usable answer, or none in time."""


class Forbidden(DragomanError):
    """This person is not allowed to do that."""


class OverBudget(DragomanError):
    """A budget of tokens or money is used up: no model is asked."""


class ModelError(DragomanError):
    """The model did not give a usable answer."""

    def __init__(
        self,
        message: str = "",
        *,
        cure: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        too_long: bool = False,
        about_request: bool = False,
    ) -> None:
        """Store whether a retry may help, and the earliest time for it in seconds from now.

        `too_long`: the request exceeds the model's context window; a shorter one may fit. `about_request`: the fault
        is, or may be, in this one request or answer; it says nothing about the model's health for others.
        """
        super().__init__(message, cure=cure)
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.too_long = too_long
        self.about_request = about_request


class SandboxMissing(DragomanError):
    """The sandbox that this session requires is not available on this machine."""

    cure = "Install bubblewrap and allow user namespaces; `dragoman check` names the missing one."


class FetchFailed(DragomanError):
    """The channel could not read a file that came with a message."""

    def __init__(self, message: str = "", *, cure: str = "", retryable: bool = False) -> None:
        """Store the reason, one sentence for the person, and whether a retry may help."""
        super().__init__(message, cure=cure)
        self.retryable = retryable


class SendOutcome(StrEnum):
    """Known effect of a send that failed."""

    RETRY = "retry"
    """The request was not processed: the same row is sent again."""
    WAIT = "wait"
    """The platform demands a pause until a time, for one scope."""
    UNCERTAIN = "uncertain"
    """The request was written and no response came: it may have been processed."""
    DEAD = "dead"
    """The platform refused permanently."""


class SendFailed(DragomanError):
    """The channel could not show a slot."""

    def __init__(
        self,
        message: str = "",
        *,
        outcome: SendOutcome,
        until: datetime | None = None,
        scope: str = "",
        creating: bool = True,
        answered: bool = False,
        unsettled: bool = False,
    ) -> None:
        """Store the outcome. For `WAIT`, `until` is the time when `scope` (`RateLimit.scope`) opens again.

        `creating`: a new message was to appear, so an `UNCERTAIN` one may be shown twice. `answered`: the platform
        reported a failure of that message, so a duplicate is unlikely. `unsettled`: this was an edit that may still
        take effect.
        """
        super().__init__(message)
        self.outcome = outcome
        self.until = until
        self.scope = scope
        self.creating = creating
        self.answered = answered
        self.unsettled = unsettled


def first_of(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first leaf error of a group, however deeply nested."""
    found = group.exceptions[0]
    return first_of(cast("BaseExceptionGroup[Any]", found)) if isinstance(found, BaseExceptionGroup) else found
