"""Before a model is asked: how much of a session's history it is given. Pure.

Whole ended turns only, so that no call loses its result. Sizes are characters, because nobody but the provider knows
its tokens: they are scaled by what it said that an earlier request had.
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
"""Ended turns that a model is given."""
CONTEXT_TOKENS = 100_000
"""What a request may be long, when nothing else is configured."""
CHARS_PER_TOKEN = 3.5
"""Of a provider that gave no figures yet."""
FEWEST_CHARS, MOST_CHARS = 1.0, 5.0
"""A token's; figures outside are of something else than what was counted here."""
LONG_FROM = 0.75
"""The part of the budget from which older turns are put into a summary."""
KEPT_PART = 0.25
"""The part of the budget whose newest turns stay as they are then."""
AROUND = 20
"""Characters that surround each message."""
AROUND_A_FILE = 80
"""Of the line that tells of a file, besides its name."""
SHORTEST_RESULT = 400
"""Characters that are left of a result at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongHistory:
    """A session whose history has grown long, found out when a turn of it ended."""

    session: SessionId
    epoch: int
    principal: Principal
    """For whom the turn worked, and who is charged for the summary."""
    hard: bool
    """True when a model refused the history as too long, whatever was counted here."""


# --- sizes --------------------------------------------------------------------------------------


def chars_of(view: TurnView) -> int:
    """Return about how many characters a model is given of a turn."""
    return sum(_said(one.message) for one in view.inputs) + sum(_done(step) for step in view.steps)


def chars_of_tools(offers: Sequence[ToolOffer]) -> int:
    """Return about how many characters the tools take."""
    return sum(AROUND + len(one.name) + len(one.description) + len(str(one.schema)) for one in offers)


def chars_per_token(
    history: Sequence[TurnView], fixed: int, context_tokens: int, sizes: Sequence[int] | None = None
) -> float:
    """Return how many characters a token has here, by the newest answers that came with figures.

    `fixed`: characters of what stands before the history in every request; `sizes`: `chars_of` each turn, if known.
    Nobody stored which turns were in an answer's request. Where they cannot all have fitted, too many characters are
    counted: such figures may make a token shorter, never longer.
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


# --- what is given ------------------------------------------------------------------------------


def window(history: Sequence[TurnView], room: int, sizes: Sequence[int] | None = None) -> tuple[TurnView, ...]:
    """Return the newest turns that fit into so many characters, oldest first.

    A turn that alone is longer than the room is given with its long results shortened, head and tail, so that it takes
    half of it. `sizes`: `chars_of` each turn, if known.
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
    """Return the turns that a summary takes the place of, and the newest, which stay: at least one."""
    at, left = len(history), keep_chars
    while at > 0:
        left -= chars_of(history[at - 1])
        if at < len(history) and (left < 0 or len(history) - at >= keep_turns):
            break
        at -= 1
    return list(history[:at]), list(history[at:])


def fitted(view: TurnView, room: int) -> TurnView:
    """Return the turn that is asked about, in so many characters when that can be done.

    Its older results are cut first. Those of its newest answer stay whole, unless they alone are too long.
    """
    if chars_of(view) <= room:
        return view
    newest = max((step.answer_n for step in view.steps if step.kind is StepKind.TOOL), default=0)
    cut = shortened(view, room, before=newest)
    return cut if chars_of(cut) <= room else shortened(view, room)


def shortened(view: TurnView, room: int, before: int | None = None) -> TurnView:
    """Return the turn with its longest results cut so that it is about as long as the room, when that can be done.

    `before`: only the results of answers whose step's number is lower.
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
    """Return what each may be long at most, so that together they fill the room: what is shorter leaves its share."""
    for done, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - done)
        if length > share:
            return share
        room -= length
    return max(lengths)


def _cut(result: ToolResult | None, chars: int) -> ToolResult | None:
    return replace(result, text=head_and_tail(result.text, chars)) if result else None
