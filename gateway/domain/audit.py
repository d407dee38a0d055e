"""The audit: a row for each call that started, each bound to the one before it. Beside the journal of a turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gateway.domain.ids import NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.tools import SandboxMode
from gateway.domain.turns import TurnKind


class StartBasis(StrEnum):
    """What let a call start."""

    SETTINGS = "settings"
    """Nobody had to be asked: so the settings have it, or the risk of the tool."""
    SCOPE = "scope"
    """A person allowed its scope before, in this session."""
    APPROVAL = "approval"
    """A person allowed this one call."""
    AGAIN = "again"
    """It was begun before and cut in half, and its effect allows that it is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """What is known of a call that is about to start. A hash stands for its arguments: the audit holds no secrets."""

    tool: str
    action_sha: str
    sandbox: SandboxMode | None
    """As in `Action.sandbox`: None for a tool that starts no process."""
    scoped: bool = False
    """True when it needs no approval because a person allowed its scope before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One start of a call. Never changed and never removed."""

    seq: int
    """Its place: 1, 2, 3, … over the whole store."""
    at: datetime
    """When it started: the step's `started_at`."""
    session: SessionId
    turn: TurnId
    n: int
    """The step."""
    lane: TurnKind
    """Whether a model asked for it, or a person by a command."""
    tool: str
    action_sha: str
    because: StartBasis
    wait: WaitId | None
    """The approval that it used up; None when there was none."""
    decided_by: Principal | None
    """Who allowed it then."""
    sandbox: str
    """The mode as it is stored: empty for a tool that starts no process."""
    node: NodeId
    """Where it was started."""
    prev_hash: str
    """The hash of the row before it; of the first row, what `gateway.policy.audit.beginning_of` says."""
    hash: str
    """SHA-256 hex of `prev_hash` and everything above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """Where the audit stands."""

    since: datetime
    """Calls that started up to then, under a version that kept no audit, have no row."""
    seq: int
    """Of the last row; 0 when there is none."""
    hash: str
    """Of the last row, or what the first one begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCall:
    """A call that was started, as its step says, with the row that the step names."""

    ord: int
    """The step's place; grows over the whole store."""
    turn: TurnId
    n: int
    started_at: datetime
    """Of its last start."""
    row: AuditRow | None
