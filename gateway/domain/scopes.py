"""Scopes that a call may reach: those that people allowed, and those that the owner's rules allow. Used by `ports`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.domain.rules import Verdict


def ask_about_all(_: str) -> Verdict:
    """Return the decision about a scope without rules."""
    return Verdict.ASK


@dataclass(frozen=True, slots=True)
class Scopes:
    """Set of scopes (`CallScope.scope`). A rule may be about any number of them, so it cannot be listed."""

    granted: frozenset[str] = frozenset()
    """Scopes that people allowed for longer than one call, with the call's own."""
    by_rules: Callable[[str], Verdict] = ask_about_all
    """Return the decision about a call of this scope that nobody allowed."""

    def __contains__(self, scope: object) -> bool:
        """Return whether a call may reach this scope without another question. What is denied is never reached."""
        if not isinstance(scope, str) or not scope:
            return False
        found = self.by_rules(scope)
        return found is Verdict.ALLOW or (found is Verdict.ASK and scope in self.granted)

    def __or__(self, more: Iterable[str]) -> Scopes:
        """Return the same with these granted too."""
        return Scopes(self.granted | frozenset(more), self.by_rules)


NO_SCOPES = Scopes()
"""Nothing was allowed, and no rule is known."""
