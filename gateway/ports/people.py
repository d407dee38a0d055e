"""Protocol of questions and task lists, for running tools. Implemented by `gateway.toolcalls.inquiries`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.domain.questions import Question
from gateway.domain.task_lists import TaskItem
from gateway.domain.tools import Park, ToolResult


class People(Protocol):
    """Questions to the person whose turn it is, and the task list that this person sees."""

    async def ask(self, questions: Sequence[Question]) -> ToolResult | Park:
        """Ask, one question after the other, in the chat where the work is. Idempotent by the step.

        The answers become the call's result. A result is returned when nobody can be asked.
        """
        ...

    async def write_list(self, items: Sequence[TaskItem]) -> None:
        """Replace the session's task list, and show it in the chat. Idempotent."""
        ...

    async def read_list(self) -> Sequence[TaskItem]:
        """Return the session's task list; empty when there is none."""
        ...
