"""The tool `ask_user`: asks the person whose turn it is, with buttons or for a text, and waits for the answer.

The questions of one call are asked one after the other, on one card. The wait is a row: the turn parks, and an answer
after a restart counts as any other.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from gateway.domain.questions import OPTION_CHARS, OPTIONS_AT_MOST, QUESTION_CHARS, QUESTIONS_AT_MOST, Question
from gateway.domain.text import one_line
from gateway.domain.tools import Availability, Effect, Park, ResultStatus, Risk, ToolResult, ToolSpec
from gateway.ports import ToolContext

SPEC = ToolSpec(
    name="ask_user",
    description="Ask the person and wait for the answer. They may write in place of choosing.",
    risk=Risk.NONE,
    effect=Effect.IDEMPOTENT,
    availability=Availability.ALWAYS,
    positional="questions",
    example="Which day suits you?",
    subjects=frozenset(),
)


class AskedQuestion(BaseModel):
    """One question of a call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=QUESTION_CHARS)]
    options: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=OPTION_CHARS)], ...],
        Field(max_length=OPTIONS_AT_MOST),
    ] = ()
    several: Annotated[
        bool, Field(validation_alias=AliasChoices("several", "multiple"), description="Several may be chosen.")
    ] = False


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: Annotated[
        tuple[AskedQuestion, ...], Field(min_length=1, max_length=QUESTIONS_AT_MOST, description="Asked in turn.")
    ]

    @field_validator("questions", mode="before")
    @classmethod
    def one_text(cls, given: Any) -> Any:
        """Take a text for one question without options: people type it, and some models write it."""
        listed = cast("list[object]", given if isinstance(given, list) else [given])
        return [{"question": one} if isinstance(one, str) else one for one in listed]


def schema(_: None) -> dict[str, Any]:
    """Return the schema offered to a model: a third of the model's own, since it is in every request."""
    text = {"type": "string"}
    one = {
        "type": "object",
        "properties": {
            "question": text,
            "options": {"type": "array", "maxItems": OPTIONS_AT_MOST, "items": {**text, "maxLength": OPTION_CHARS}},
            "several": {"type": "boolean", "description": "several options may be chosen"},
        },
        "required": ["question"],
    }
    listed = {"type": "array", "maxItems": QUESTIONS_AT_MOST, "items": one}
    return {"type": "object", "properties": {"questions": listed}, "required": ["questions"]}


async def run(ctx: ToolContext, args: Args) -> ToolResult | Park:
    """Ask, and wait. Safe to repeat."""
    questions = [
        Question(
            text=one.question,
            options=tuple(one_line(option, OPTION_CHARS) for option in one.options),
            several=one.several,
        )
        for one in args.questions
    ]
    for one in questions:
        if len({option for option in one.options if option}) < len(one.options):
            hint = f"Two options of {one.text!r} are alike, or one is empty. Give each its own words."
            return ToolResult(status=ResultStatus.ERROR, text="", code="options", hint=hint)
    return await ctx.people.ask(questions)
