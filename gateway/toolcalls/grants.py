"""Grants beside calls: the scopes that a tool is given, and the grant that a card may offer. Used by `decide`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gateway import approvals as asking
from gateway.domain.grants import Grant, GrantOffer
from gateway.domain.presets import Preset
from gateway.domain.scopes import Scopes
from gateway.domain.sessions import Session
from gateway.domain.tools import CallScope
from gateway.policy.grants import offer, scopes_of
from gateway.policy.permission import reachable
from gateway.toolcalls.prepared import Prepared
from gateway.toolcalls.tool_set import Tool

Granted: TypeAlias = Sequence[Grant]
"""Grants that hold for the calls of a turn."""


def held_by(tool: Tool, granted: Granted) -> Granted:
    """Return the grants that hold for a tool: those that stand for all who must allow its calls by now."""
    return [grant for grant in granted if grant.satisfies(tool.policy.deciding)]


def scopes_for(tool: Tool, session: Session, preset: Preset, call_scope: CallScope, granted: Granted) -> Scopes:
    """Return the scopes that a call may reach: those granted to its tool, its own, and those that rules allow."""
    found = Scopes(
        scopes_of(held_by(tool, granted), tool.spec.name), reachable(tool.spec, tool.policy, session, preset)
    )
    return found | {call_scope.scope} if call_scope.scope else found


def offer_for(call: Prepared, shown: str) -> GrantOffer | None:
    """Return the grant that may be given with the approval of a call. `shown`: the call as its card shows it.

    None where the card escapes something: what is granted for long must be read as it is.
    """
    if call.tool.spec.leaves_plan or asking.needs_escape(call.action, call.preview):
        return None
    tool, key = call.tool, asking.action_key(call.action)
    prepared = tool.prepare is not None
    return offer(
        tool.spec.name, key, call.call_scope, call.view.session, shown, in_order=tool.in_order, prepared=prepared
    )
