"""The tool `todo_write`: writes the session's task list, which the chat shows as one message that is edited."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from gateway.domain.task_lists import TASK_CHARS, TASKS_AT_MOST, TaskItem, TaskState, is_finished
from gateway.domain.text import one_line
from gateway.domain.tools import Availability, Effect, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="todo_write",
    description="Write the task list that the person sees. Give the whole list each time; it replaces the old one.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    positional="todos",
    example="Buy rye flour",
    indexed=True,
    subjects=frozenset(),
)
READ_AT_MOST = 10_000
"""Items that are read at all, so that a list that is too long is refused in words."""
_STATES = {"pending": "open", "todo": "open", "in_progress": "doing", "completed": "done", "cancelled": "dropped"}


class Todo(BaseModel):
    """One item of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000),
        Field(validation_alias=AliasChoices("text", "content")),
    ]
    state: Annotated[
        Literal["open", "doing", "done", "dropped"], Field(validation_alias=AliasChoices("state", "status"))
    ] = "open"

    @field_validator("state", mode="before")
    @classmethod
    def usual_name(cls, given: Any) -> Any:
        """Take the names that other agents use for the states."""
        return _STATES.get(given, given) if isinstance(given, str) else given


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    todos: Annotated[tuple[Todo, ...], Field(max_length=READ_AT_MOST, description="All items; an empty list ends it.")]

    @field_validator("todos", mode="before")
    @classmethod
    def one_text(cls, given: Any) -> Any:
        """Take a text for an open item."""
        listed: object = given.splitlines() if isinstance(given, str) else given
        if not isinstance(listed, list):
            return given
        return [{"text": one} if isinstance(one, str) else one for one in cast("list[object]", listed)]


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Replace the list. Safe to repeat."""
    if len(args.todos) > TASKS_AT_MOST:
        hint = (
            f"A list has at most {TASKS_AT_MOST} items, and this has {len(args.todos):,}; the old list stays. "
            "Write one item for several steps, or only the next ones."
        )
        return ToolResult(status=ResultStatus.ERROR, text="", code="too_many", hint=hint)
    items = [TaskItem(text=one_line(one.text, TASK_CHARS), state=TaskState(one.state)) for one in args.todos]
    await ctx.people.write_list(items)
    left = sum(not is_finished([one]) for one in items)
    return ToolResult(status=ResultStatus.OK, text=f"{len(items) - left} of {len(items)} done.")
