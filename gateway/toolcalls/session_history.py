"""Lines of a sub-session's history, as `sessions_history` shows them. Used by `subsessions`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.domain.ids import SYSTEM_CHILD, SYSTEM_HOME, SYSTEM_PARENT
from gateway.domain.messages import Inbound, Received
from gateway.domain.steps import Step
from gateway.domain.views import Row
from gateway.ports import HistoryLine


def lines_of(rows: Sequence[Row], clean: Callable[[str], str], *, calls: bool) -> list[HistoryLine]:
    """Return the messages and answers among these rows, oldest first, and with `calls` the calls and their results.

    `clean` redacts every text whole, before anybody shortens it: half a secret would not be known as one.
    """
    return [
        HistoryLine(ord=row.ord, who=who, text=clean(text))
        for row in rows
        for who, text in _said(row.item, calls=calls)
        if text
    ]


def _said(item: object, *, calls: bool) -> Iterator[tuple[str, str]]:
    if isinstance(item, Received):
        yield _speaker(item.message), "\n".join(filter(None, [item.message.text, item.message.quoted]))
    elif isinstance(item, Step) and item.answer is not None:
        yield "answer", item.answer.text
    elif isinstance(item, Step) and item.call is not None and calls:
        yield f"call of {item.call.tool}", item.call.arguments
        if item.result is not None:
            text = " ".join(filter(None, [item.result.text, item.result.hint]))
            yield f"result, {item.result.status.value}", text


def _speaker(message: Inbound) -> str:
    match message.principal:
        case who if who == SYSTEM_PARENT:
            return "task"
        case who if who == SYSTEM_CHILD:
            return "sub-session"
        case who if who == SYSTEM_HOME:
            return "gateway"
        case _:
            return "person"
