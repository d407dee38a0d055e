"""The tool `workflow`: runs a declared graph of tasks, each in a sub-session, and returns every result in order.

The graph and its progress are rows of the store; this module only reads and checks the declaration.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from agent_tools._sessions import Name, WorkSeconds
from gateway.domain.children import Delegation
from gateway.domain.tools import Availability, CallScope, Effect, Park, Risk, ToolResult, ToolSpec
from gateway.domain.workflows import WorkflowStep, fault_of, in_words
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="workflow",
    description="Run a graph of tasks in sub-sessions. Each begins when those that it needs are done.",
    risk=Risk.EXECUTE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.MAIN,
    indexed=True,
    of_children=True,
    returns_child_text=True,
    subjects=frozenset(),
)
READ_AT_MOST = 2_000
"""Steps that are read at all, so that a graph that is too large is refused in words."""


class Step(BaseModel):
    """One step of the graph."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200), Field(description="Its name.")]
    task: Annotated[
        str,
        StringConstraints(strip_whitespace=True),
        Field(description="All it must know; {{name}} stands for the result of a step in `needs`."),
    ]
    needs: Annotated[tuple[str, ...], Field(max_length=50, description="Steps that must be done before.")] = ()
    agent: Annotated[Name | None, Field(description="A configured agent.")] = None
    preset: Annotated[Name | None, Field(description="A preset that limits it further.")] = None
    tools: Annotated[tuple[Name, ...] | None, Field(max_length=100, description="The only tools it may use.")] = None
    tokens: Annotated[int | None, Field(ge=1, description="Tokens it may use.")] = None
    timeout_s: WorkSeconds = None


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Annotated[tuple[Step, ...], Field(max_length=READ_AT_MOST, description="At most 50 steps.")]

    @field_validator("steps")
    @classmethod
    def is_a_graph(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Refuse what could not run to its end."""
        if fault := fault_of([_declared(step) for step in steps]):
            raise PydanticCustomError("workflow", "{fault}", {"fault": fault})
        return steps


def _declared(step: Step) -> WorkflowStep:
    return WorkflowStep(
        name=step.name,
        task=step.task,
        needs=step.needs,
        agent=step.agent or "",
        preset=step.preset or "",
        tools=step.tools,
        tokens=step.tokens or 0,
        timeout_s=step.timeout_s,
    )


def scope(args: Args, _: None) -> CallScope:
    """Return the graph in words, for the card. What a step touches is decided at its own calls."""
    begins = tuple(
        Delegation(step=step.name, agent=step.agent or "", preset=step.preset or "", tools=step.tools)
        for step in args.steps
    )
    summary = in_words([_declared(step) for step in args.steps])
    return CallScope(risk=Risk.EXECUTE, summary=summary, delegates=begins)


async def run(ctx: ToolContext, args: Args) -> ToolResult | Park:
    """Start the graph; the turn then waits for its last step. Idempotent for each call's step."""
    return await ctx.sessions.workflow([_declared(step) for step in args.steps])
