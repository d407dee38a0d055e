"""Names that a call gives for its sub-sessions: agents, models, presets and tools. Used by `tool_set`.

So a call that cannot begin is refused before anybody is asked. `subsessions` checks again when it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.domain.children import Delegation
from gateway.domain.decisions import Deny, DenyReason

NAME_CHARS = 64
"""Characters of a name in a hint."""
NAMES_IN_A_HINT = 20
"""Names listed in a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegates:
    """Names that the sub-sessions of a call may have. None: not known yet, so that nothing is refused for it."""

    agents: Collection[str] | None = None
    models: Collection[str] | None = None


UNKNOWN_DELEGATES = Delegates()
"""Nothing is known yet about agents and models."""


def cannot_begin(
    delegations: Sequence[Delegation], delegates: Delegates, presets: Collection[str], tools: Collection[str]
) -> Deny | None:
    """Return the refusal of the first sub-session that cannot begin, else None. Pure.

    `presets`: those that a sub-session may have. `tools`: those of the session that calls.
    """
    for one in delegations:
        named = (
            ("agent", one.agent, delegates.agents),
            ("model", one.model, delegates.models),
            ("preset", one.preset, presets),
        )
        hints = (unknown(what, name, known) for what, name, known in named if known is not None)
        if hint := next(filter(None, hints), ""):
            return Deny(reason=DenyReason.INVALID_ARGUMENTS, hint=_of(one, hint))
        if hint := lacking(one.tools or (), tools):
            return Deny(reason=DenyReason.NOT_GRANTED, hint=_of(one, hint))
    return None


def _of(delegation: Delegation, hint: str) -> str:
    return f"The step {delegation.step!r}: {hint} Nothing was run." if delegation.step else hint


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return the hint about an unknown name, with those that there are; empty for a known or empty name."""
    if not name or name in known:
        return ""
    there = f"There are: {_names(sorted(known))}." if known else f"None is configured; leave `{what}` out."
    return f"There is no {what} {name[:NAME_CHARS]!r}. {there}"


def lacking(wanted: Collection[str], there: Collection[str]) -> str:
    """Return the hint about tools that a parent cannot give; empty when it can."""
    without = sorted({name for name in wanted if name not in there})
    return f"It cannot be given {_names(without)}. There are: {_names(sorted(there))}." if without else ""


def _names(names: Sequence[str]) -> str:
    """Return the names for a hint, shortened: a model may choose any length and number."""
    shown = ", ".join(name[:NAME_CHARS] for name in names[:NAMES_IN_A_HINT]) or "none"
    more = len(names) - NAMES_IN_A_HINT
    return f"{shown} and {more} more" if more > 0 else shown
