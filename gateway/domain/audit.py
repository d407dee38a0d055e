"""Audit types: one hash-chained row per started call. Beside the journal of a turn; the rules are in
`gateway.policy.audit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.domain.grants import GRANT_LASTS
from gateway.domain.ids import GrantId, NodeId, Principal, SessionId, TurnId, WaitId
from gateway.domain.tools import SandboxMode
from gateway.domain.turns import TurnKind


class StartBasis(StrEnum):
    """Reason why a call was allowed to start."""

    SETTINGS = "settings"
    """No approval was needed, by the settings or the tool's risk."""
    RULE = "rule"
    """A rule of the owner, of a preset or of the session allows it; `AuditRow.rule` says where that stands."""
    GRANT = "grant"
    """A grant that a person gave earlier; `AuditRow.grant` names it."""
    APPROVAL = "approval"
    """A person allowed this one call."""
    AGAIN = "again"
    """It was started before and interrupted, and its effect allows a second run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """Audit data of a call that is about to start. A hash stands for its arguments: the audit contains no secrets."""

    tool: str
    action_sha: str
    sandbox: SandboxMode | None
    """As in `Action.sandbox`: None for a tool that starts no process."""
    grant: GrantId | None = None
    """Grant that makes an approval unnecessary. It must hold when the call starts."""
    rule: str = ""
    """Place of the rule that allows it, as in `Rule.where`; empty when none does."""
    grant_lasts: timedelta = GRANT_LASTS
    """Lifetime of the grant that an approval of a scope becomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One start of a call. Never changed; removed only behind an export, by the setting for it."""

    seq: int
    """Sequence number: 1, 2, 3, … over the whole store."""
    at: datetime
    """Start time: the step's `started_at`."""
    session: SessionId
    turn: TurnId
    n: int
    """Number of the step."""
    lane: TurnKind
    """Requested by a model, or by a person's command."""
    tool: str
    action_sha: str
    basis: StartBasis
    wait: WaitId | None
    """Approval that it consumed; None when there was none."""
    grant: GrantId | None
    """Grant that it used; None when there was none."""
    rule: str
    """Place of the rule that allowed it; empty when another reason did."""
    decided_by: Principal | None
    """Principal who decided that approval."""
    sandbox: str
    """Stored form of the sandbox mode: empty for a tool that starts no process."""
    node: NodeId
    """Node that started it."""
    prev_hash: str
    """Hash of the previous row; in the first row, `gateway.policy.audit.beginning_of`."""
    hash: str
    """SHA-256 hex of `prev_hash` and every field above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """Last position of the audit."""

    since: datetime
    """Start of the audit: calls started until then, under a version without an audit, have no row."""
    seq: int
    """`seq` of the last row; 0 when there is none."""
    hash: str
    """`hash` of the last row, or the `prev_hash` of the first one to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditMark:
    """A row of the audit that is named beside it: the last one of an export, or the last one that was removed."""

    seq: int
    hash: str
    at: datetime
    """Time of the export, or the latest start among the removed rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCall:
    """Started call, as its step records it, with the audit row that the step names."""

    ord: int
    """Position of the step; grows over the whole store."""
    turn: TurnId
    n: int
    started_at: datetime
    """Time of its last start."""
    row: AuditRow | None
    seq: int | None = None
    """Number of the row that the step names, which may have been removed."""
