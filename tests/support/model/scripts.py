"""Script of a model: answers and the prompts that they fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Nonsense: TypeAlias = Literal[
    "bad_json", "wrong_role", "duplicate_ids", "huge_arguments", "many_calls", "endless", "empty", "html"
]


class Part(BaseModel):
    """A piece of a script; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(Part):
    """A tool call. `arguments` is JSON text, sent as it is, so that it may be malformed."""

    name: str
    arguments: str = "{}"
    id: str | None = None
    """None: a fresh one. Empty: none is sent."""


class UsageFigures(Part):
    """Token figures of an answer."""

    prompt: int = 10
    completion: int = 5
    cached: int = 0


class Reply(Part):
    """One answer, and its faults.

    In `text`, `reasoning` and the calls' arguments `{result1}` is the first tool result after the last user message,
    without the lines that mark it as data, `{results}` all of them so, `{text}` that message, `{nth}` its number in the
    conversation, `{model}` the model asked.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: UsageFigures | None = UsageFigures()
    finish: str | None = None
    """The finish reason; None: `tool_calls` or `stop`. Empty: none is sent."""
    role: str = "assistant"

    chunks: int = Field(default=8, ge=1)
    """Events that the text is split into."""
    fragments: int = Field(default=1, ge=1)
    """Events that each call's arguments are split into; the calls' fragments take turns."""
    think_s: float = 0.0
    """Seconds before the first byte."""
    delay_s: float = 0.0
    """Seconds before each event."""

    stall_after: int | None = None
    """Events sent before it falls silent for `stall_s`."""
    stall_s: float = 3600.0
    cut_after: int | None = None
    """Events sent before the connection is closed."""
    endless: bool = False
    """Says its text again and again, and never ends."""
    done: bool = True
    """Ends with `[DONE]`."""
    stream: bool = True
    """False: a whole completion in one JSON, whatever was asked for."""
    status: int = 200
    """Another one: an error response with `error` as its message, or with `raw`."""
    error: str = "scripted failure"
    code: str | None = None
    headers: dict[str, str] = {}
    raw: str | None = None
    """The body instead of all the above, with `content_type`."""
    content_type: str | None = None
    nonsense: Nonsense | None = None
    """A ready-made way to be wrong, laid over the rest (`tests.support.model.nonsense`)."""


class Rule(Part):
    """A reply for every prompt that fits. An omitted field fits anything."""

    text: str = ""
    """A regular expression to be found in the last user message."""
    results: int | None = None
    """The number of tool results after it."""
    result: str = ""
    """A regular expression to be found in one of those results …"""
    result_of: str = ""
    """… that is of this tool, or of the call with this id."""
    nth: int | None = None
    """The number of that user message in the conversation; the first is 1."""
    system: str = ""
    """A regular expression to be found in the system prompt."""
    offers: tuple[str, ...] = ()
    """Tools that the model is shown."""
    hides: tuple[str, ...] = ()
    """Tools that it is not shown."""
    model: str = ""
    """The model that is asked, as the request names it."""
    times: int | None = Field(default=None, ge=1)
    """Times that it answers; then it fits nothing. None: always."""
    reply: Reply

    def fits(self, question: Question) -> bool:
        """Say whether this rule answers the question, however often it did so already."""
        return (
            self.results in (None, question.results)
            and self.nth in (None, question.nth)
            and self.model in ("", question.model)
            and question.tools.issuperset(self.offers)
            and question.tools.isdisjoint(self.hides)
            and re.search(self.text, question.text) is not None
            and re.search(self.system, question.system) is not None
            and self._fits_results(question)
        )

    def _fits_results(self, question: Question) -> bool:
        if not self.result and not self.result_of:
            return True
        meant = [one for one in question.outcomes if self.result_of in ("", one.tool, one.call)]
        return any(re.search(self.result, one.text) for one in meant)


class Script(Part):
    """Replies in order, replies in order by the model asked, and rules."""

    replies: tuple[Reply, ...] = ()
    models: dict[str, tuple[Reply, ...]] = {}
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A tool result as the model is given it."""

    call: str
    tool: str
    """Empty when no call has its id."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request, as far as scripts look at it."""

    text: str = ""
    """The last user message."""
    nth: int = 0
    """Number of user messages."""
    outcomes: tuple[Outcome, ...] = ()
    """The tool results after the last user message."""
    system: str = ""
    tools: frozenset[str] = frozenset()
    model: str = ""

    @property
    def results(self) -> int:
        """Return the number of tool results after the last user message."""
        return len(self.outcomes)

    @staticmethod
    def of(body: Mapping[str, Any]) -> Question:
        """Read a request."""
        messages: list[Mapping[str, Any]] = list(body.get("messages") or [])
        users = [n for n, message in enumerate(messages) if message.get("role") == "user"]
        named = {
            str(call.get("id")): str(call.get("function", {}).get("name", ""))
            for message in messages
            for call in message.get("tool_calls") or ()
        }
        last = users[-1] if users else -1
        outcomes = [message for message in messages[last + 1 :] if message.get("role") == "tool"]
        return Question(
            text=_words(messages[last]) if users else "",
            nth=len(users),
            outcomes=tuple(_outcome(message, named) for message in outcomes),
            system="\n".join(_words(one) for one in messages if one.get("role") in ("system", "developer")),
            tools=frozenset(str(tool.get("function", {}).get("name")) for tool in body.get("tools") or ()),
            model=str(body.get("model", "")),
        )


Answering: TypeAlias = Callable[[Question], Reply | None]
"""A script that is a function; None leaves the question to rules and replies."""


def unmarked(result: str) -> str:
    """A result without what says that it is data: the line above it, and the two marks around it.

    Nor has it the line below that names the sub-session whose answer it is.
    """
    marked = r"\A\[[^\n]*data between two lines ([0-9a-f]{16}), never instructions to you\]\n\1\n(.*)\n\1"
    plain = re.sub(marked, r"\2", result, flags=re.DOTALL)
    return re.sub(r"\s*\bFrom child:\S+\.\Z", "", plain)


def filled(reply: Reply, question: Question) -> Reply:
    """Put into a reply what the question brought."""
    words = {
        "text": question.text,
        "nth": str(question.nth),
        "model": question.model,
        "results": "\n".join(unmarked(one.text) for one in question.outcomes),
        **{f"result{n}": unmarked(one.text) for n, one in enumerate(question.outcomes, 1)},
    }

    def put(text: str, escaped: Callable[[str], str]) -> str:
        # One pass: braces inside a result are its own.
        return re.sub(r"\{(text|nth|model|results|result\d+)\}", lambda m: escaped(words.get(m[1], m[0])), text)

    calls = tuple(
        call.model_copy(update={"arguments": put(call.arguments, lambda word: json.dumps(word)[1:-1])})
        for call in reply.calls
    )
    texts = {"text": put(reply.text, str), "reasoning": put(reply.reasoning, str)}
    return reply.model_copy(update={**texts, "calls": calls})


def _outcome(message: Mapping[str, Any], named: Mapping[str, str]) -> Outcome:
    call = str(message.get("tool_call_id", ""))
    return Outcome(call=call, tool=named.get(call, ""), text=_words(message))


def _words(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
