"""Approver rules of one tool, as configured. Read by `gateway.approvals` at each press, and by `config`."""

from __future__ import annotations

from dataclasses import dataclass

QUORUM_AT_MOST = 5
"""Largest number of persons that a tool may require."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverRules:
    """Approvers of a tool's calls.

    A name with a colon is one principal. Any other name is an owner, on all accounts.
    """

    approvers: tuple[str, ...] | None = None
    """Names of those who decide; None: those of the chat, else the owners."""
    quorum: int = 1
    """Number of different persons who must allow a call. One denial denies it."""
    requester_may_approve: bool = True
    """False: the person for whom a call is asked may deny it, but not allow it."""
    escalate_to: tuple[str, ...] | None = None
    """Names of those who are asked too when nobody decided in time; None: the other owners, outside of main."""

    @property
    def one_decides(self) -> bool:
        """Return whether one person alone may allow a call, also the requester."""
        return self.quorum == 1 and self.requester_may_approve


OWNERS_DECIDE = ApproverRules()
"""Rules of a tool without any."""
NOBODY_DECIDES = ApproverRules(approvers=(), escalate_to=())
"""Rules of a tool that is gone: closed by default."""
