"""Context window: the part of a session's history that a prompt contains. Pure. Used by `prompt` and `compaction`.

Whole ended turns only, so that no call loses its result. Sizes are characters, because only the provider knows its
tokens. They are scaled by the token counts that it returned for earlier requests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gateway.domain.ids import Principal, SessionId
from gateway.domain.messages import Inbound
from gateway.domain.prompts import ToolOffer
from gateway.domain.steps import Step, StepKind
from gateway.domain.text import head_and_tail
from gateway.domain.tools import ToolResult
from gateway.domain.views import TurnView

HISTORY_TURNS = 40
"""Ended turns that a model is given at most."""
CONTEXT_TOKENS = 100_000
"""Default size of a request in tokens."""
CHARS_PER_TOKEN = 3.5
"""Default for a provider without token counts so far."""
FEWEST_CHARS, MOST_CHARS = 1.0, 5.0
"""Range of characters per token. A ratio outside of it does not belong to the text counted here."""
LONG_FROM = 0.75
"""Fraction of the budget from which older turns are put into a summary."""
KEPT_PART = 0.25
"""Fraction of the budget for the newest turns, which stay out of the summary."""
AROUND = 20
"""Characters of overhead for each message."""
AROUND_A_FILE = 80
"""Characters of the line about a file, without its name."""
SHORTEST_RESULT = 400
"""Characters that a shortened result keeps at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongHistory:
    """Session with a long history, found when a turn of it ended. Input of `compaction`."""

    session: SessionId
    epoch: int
    principal: Principal
    """Requester of the turn, who is charged for the summary."""
    hard: bool
    """True when a model refused the history as too long, independent of the estimate here."""


# --- sizes --------------------------------------------------------------------------------------


def chars_of(view: TurnView) -> int:
    """Return the approximate characters of a turn in a prompt."""
    return sum(_said(one.message) for one in view.inputs) + sum(_done(step) for step in view.steps)


def chars_of_tools(offers: Sequence[ToolOffer]) -> int:
    """Return the approximate characters of the tools in a request."""
    return sum(AROUND + len(one.name) + len(one.description) + len(str(one.schema)) for one in offers)


def chars_per_token(
    history: Sequence[TurnView], fixed: int, context_tokens: int, sizes: Sequence[int] | None = None
) -> float:
    """Return the characters per token, by the newest answers that came with token counts.

    `fixed`: characters before the history in every request; `sizes`: `chars_of` each turn, if known.
    The store does not record which turns an answer's request contained. When all turns together exceed the window, too
    many characters are counted. Such an answer may lower the ratio, but never raise it.
    """
    found, so_far = CHARS_PER_TOKEN, fixed
    for view, size in zip(history, sizes or [chars_of(one) for one in history], strict=True):
        so_far += size
        last = _last_answer(view.steps)
        tokens = last.answer.usage.input_tokens if last is not None and last.answer is not None else 0
        if last is None or tokens <= 0:
            continue
        read = so_far - _done(last)
        counted = min(max(read / tokens, FEWEST_CHARS), MOST_CHARS)
        found = counted if read <= context_tokens * found else min(found, counted)
    return found


def _last_answer(steps: Sequence[Step]) -> Step | None:
    for step in reversed(steps):
        if step.kind is StepKind.MODEL:
            return step
    return None


def _said(message: Inbound) -> int:
    files = sum(AROUND_A_FILE + len(one.name) for one in message.attachments) if message.attachments else 0
    return AROUND + len(message.text) + len(message.quoted) + len(message.unread) + files


def _done(step: Step) -> int:
    chars = AROUND
    if step.answer is not None:
        chars += len(step.answer.text) + (len(str(step.answer.opaque)) if step.answer.opaque else 0)
    if step.call is not None:
        chars += len(step.call.tool) + len(step.call.arguments)
    if step.result is not None:
        chars += len(step.result.text) + len(step.result.hint)
    return chars


# --- selection ----------------------------------------------------------------------------------


def window(history: Sequence[TurnView], room: int, sizes: Sequence[int] | None = None) -> tuple[TurnView, ...]:
    """Return the newest turns that fit into `room` characters, oldest first.

    A turn that alone exceeds the room gets its long results shortened, head and tail, to take half of the room.
    `sizes`: `chars_of` each turn, if known.
    """
    kept: list[TurnView] = []
    left = room
    for view, size in zip(reversed(history), reversed(sizes or [chars_of(one) for one in history]), strict=True):
        if size > room:
            view = shortened(view, room // 2)
            size = chars_of(view)
        if size > left:
            break
        kept.append(view)
        left -= size
    return tuple(reversed(kept))


def split(history: Sequence[TurnView], keep_chars: float, keep_turns: int) -> tuple[list[TurnView], list[TurnView]]:
    """Return the turns to summarise, and the newest ones, which stay: at least one."""
    at, left = len(history), keep_chars
    while at > 0:
        left -= chars_of(history[at - 1])
        if at < len(history) and (left < 0 or len(history) - at >= keep_turns):
            break
        at -= 1
    return list(history[:at]), list(history[at:])


def fitted(view: TurnView, room: int) -> TurnView:
    """Return the current turn, shortened to `room` characters where possible.

    Older results are cut first. Those of the newest answer stay whole, unless they alone are too long.
    """
    if chars_of(view) <= room:
        return view
    newest = max((step.answer_n for step in view.steps if step.kind is StepKind.TOOL), default=0)
    cut = shortened(view, room, before=newest)
    return cut if chars_of(cut) <= room else shortened(view, room)


def shortened(view: TurnView, room: int, before: int | None = None) -> TurnView:
    """Return the turn with its longest results cut, to about `room` characters where possible.

    `before`: cut only the results of answers with a lower step number.
    """
    lengths = {
        step.n: len(step.result.text)
        for step in view.steps
        if step.result is not None and (before is None or step.answer_n < before)
    }
    if not lengths:
        return view
    rest = chars_of(view) - sum(lengths.values())
    each = max(SHORTEST_RESULT, _each(lengths.values(), room - rest))
    steps = [replace(step, result=_cut(step.result, each)) if step.n in lengths else step for step in view.steps]
    return replace(view, steps=tuple(steps))


def _each(lengths: Collection[int], room: int) -> int:
    """Return the maximum length of each, so that together they fill the room; shorter ones leave their share."""
    for done, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - done)
        if length > share:
            return share
        room -= length
    return max(lengths)


def _cut(result: ToolResult | None, chars: int) -> ToolResult | None:
    return replace(result, text=head_and_tail(result.text, chars)) if result else None
