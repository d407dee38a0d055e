"""Loop guard: detects a turn that repeats the same calls. Pure. Used by `decide`.

A model that is stuck repeats one call, or a cycle of a few, across its answers. First a person is asked before it goes
on; in the end the call is refused without asking.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from gateway.domain.decisions import Allow, Ask, Decision, Deny, DenyReason
from gateway.domain.steps import Step
from gateway.domain.views import TurnView

LONGEST_CYCLE = 4
"""Calls in the longest cycle detected: `A B C D A B C D …`."""
ASK_FROM = 3
"""Repeats from which a call that would be allowed needs a decision."""
DENY_FROM = 10
"""Repeats from which a call is refused, regardless of any other rule."""

KeyOf = Callable[[Step], str]
"""Return the key that equal calls share. Takes the step of a call; must not raise."""


def same_call(step: Step) -> str:
    """Return the tool and its arguments in canonical JSON, independent of key order and spacing."""
    if step.call is None:
        return ""
    try:
        arguments = json.dumps(json.loads(step.call.arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        arguments = step.call.arguments
    return f"{step.call.tool} {arguments}"


def repeats(view: TurnView, n: int, key_of: KeyOf = same_call) -> int:
    """Return the repetitions of the cycle that ends with the call at step `n`, right before it in this turn.

    A cycle is 1 to 4 calls: 3 for the last of `A A A A`, 2 for the last of `A B A B A B`, 0 for a new call or one after
    a different cycle. Earlier calls count regardless of their results. 0 when step `n` is not a call.
    """
    made = [step for step in view.steps if step.call is not None and step.n <= n]
    if not made or made[-1].n != n:
        return 0
    keys = [key_of(step) for step in made]
    return max(_rounds(keys, length) for length in range(1, LONGEST_CYCLE + 1))


def _rounds(keys: list[str], length: int) -> int:
    same = 0
    while same + length < len(keys) and keys[-1 - same] == keys[-1 - same - length]:
        same += 1
    return same // length


def checked(decision: Decision, repeated: int) -> Decision:
    """Return the decision about a call, tightened by its number of repeats.

    The hint of a refusal and `Ask.because` contain the number.
    """
    if isinstance(decision, Deny):
        return decision
    if repeated >= DENY_FROM:
        hint = (
            f"The same call was made {repeated} times before in this turn. Do something else, or say what is missing."
        )
        return Deny(reason=DenyReason.LOOP, hint=hint)
    if isinstance(decision, Allow) and repeated >= ASK_FROM:
        return Ask(because=f"The same call was made {repeated} times before in this turn.")
    return decision
