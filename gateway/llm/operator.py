"""Operator: the default model, without an LLM. People use the tools themselves (`/shell uptime`). Used by turns."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from gateway.domain.ids import CallId
from gateway.domain.prompts import (
    CallResult,
    Complete,
    Message,
    ModelEvent,
    ModelRequest,
    TextPart,
    ToolOffer,
    UserText,
)
from gateway.domain.steps import Answer
from gateway.domain.text import as_code, split_command
from gateway.domain.tools import ResultStatus, ToolCall, ToolResult, ToolSpec
from gateway.toolcalls.typed_arguments import arguments_of

_NO_MODEL = """\
No model is attached, so I cannot answer that myself.{tools}

To attach a model, put this into the configuration and start Dragoman again:

```toml
[model]
name = "openai:gpt-5-mini"
api_key = "env:OPENAI_API_KEY"
```"""

_NO_MODEL_FOR_GUESTS = "No model is attached, so I cannot answer that: ask an owner of this bot to attach one."
_TOOLS = " You can still use the tools (`/tools` lists them)"
_EXAMPLE = ": `/shell uptime` runs `uptime` on this machine once you allow it."


class Operator:
    """`ports.Model` without an LLM: commands become calls, results become text, anything else a short hint."""

    def __init__(self, commands: Callable[[], Mapping[str, ToolSpec]]) -> None:
        """`commands`: returns the current tools, keyed by each command word, including their names."""
        self._commands = commands

    @property
    def name(self) -> str:
        """Return `operator`."""
        return "operator"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer the last message, or the results that end the transcript. Never raises."""
        answer = self._answer(request)
        if answer.text:
            yield TextPart(text=answer.text)
        yield Complete(answer=answer)

    def _answer(self, request: ModelRequest) -> Answer:
        messages = [one for one in request.messages if not (isinstance(one, UserText) and one.is_notice)]
        last = messages[-1] if messages else None
        if isinstance(last, CallResult):
            return self._say("\n\n".join(self._shown(result) for result in _last_results(messages)))
        if isinstance(last, UserText):
            return self._reply(last.text, request)
        return self._say(self._hint(request))

    def _reply(self, text: str, request: ModelRequest) -> Answer:
        command, offers = split_command(text), request.tools
        if command is None:
            return self._say(self._hint(request))
        word, rest = command
        spec = self._commands().get(word)
        if spec is None:
            return self._say(f"There is no command {as_code('/' + word)}. {self._tools(offers)}".strip())
        schema: Mapping[str, Any] = next(
            (offer.schema for offer in offers if offer.name == spec.name), dict[str, Any]()
        )
        arguments = arguments_of(spec, rest, schema)
        if isinstance(arguments, str):
            return self._say(arguments)
        call = ToolCall(id=CallId("c1"), tool=spec.name, arguments=json.dumps(arguments, ensure_ascii=False))
        return Answer(text="", calls=(call,), model=self.name)

    def _say(self, text: str) -> Answer:
        return Answer(text=text, model=self.name)

    def _hint(self, request: ModelRequest) -> str:
        there = {offer.name for offer in request.tools} & self._commands().keys()
        if not request.for_owner:
            return f"{_NO_MODEL_FOR_GUESTS}{f'{_TOOLS}.' if there else ''}"
        example = _EXAMPLE if "shell" in there else "."
        return _NO_MODEL.format(tools=f"{_TOOLS}{example}" if there else "")

    def _tools(self, offers: Sequence[ToolOffer]) -> str:
        names = self._names(offers)
        return f"There are: {names}." if names else "No tool is available here."

    def _names(self, offers: Sequence[ToolOffer]) -> str:
        known = self._commands()
        return ", ".join(f"`/{known[offer.name].by_hand}`" for offer in offers if offer.name in known)

    def _shown(self, given: CallResult) -> str:
        spec = self._commands().get(given.tool)
        return _shown(given, speaks=spec is not None and spec.returns_child_text)


# --- results to text ------------------------------------------------------------------------------


def _last_results(messages: Sequence[Message]) -> list[CallResult]:
    results: list[CallResult] = []
    for message in reversed(messages):
        if not isinstance(message, CallResult):
            break
        results.append(message)
    return results[::-1]


def _shown(given: CallResult, *, speaks: bool) -> str:
    """Return the output in a fence with the status below it; a call that never ran has a reason only.

    `speaks`: the output is Markdown already, the answer of another session.
    """
    result = given.result
    parts: list[str] = []
    if _ran(result):
        text = result.text if speaks else _fenced(result.text)
        parts += [text] if result.text else []
        parts.append(_status(result, given.tool))
    else:
        word, reason = _NOT_RUN[result.status]
        said = result.text or result.hint or reason
        parts.append(said if said.lower().startswith(word) else f"{word}: {said}")
    if result.dropped_bytes:
        parts.append(f"{result.dropped_bytes:,} bytes left out{_where(result)}")
    if result.hint and not any(result.hint in part for part in (result.text, parts[-1])):
        parts.append(result.hint)
    return "\n".join(parts)


def _where(result: ToolResult) -> str:
    """Return the place of the whole output."""
    if result.output_path:
        part = "its beginning" if result.output_cut else "all of it"
        return f"; {part} is in {as_code(result.output_path)} of the workspace"
    return "; the web page shows all of it" if result.full_output else ""


_NOT_RUN = {
    ResultStatus.ERROR: ("failed", "no reason given"),
    ResultStatus.DENIED: ("denied", "no reason given"),
    ResultStatus.EXPIRED: ("expired", "nobody decided in time; nothing was run"),
    ResultStatus.CANCELLED: ("cancelled", "nothing was run"),
    ResultStatus.UNKNOWN: ("outcome unknown", "it may or may not have happened, and is not run again automatically"),
}


def _ran(result: ToolResult) -> bool:
    """Return True if the text is output; the text of a refusal is its reason."""
    if result.status in (ResultStatus.OK, ResultStatus.TIMEOUT):
        return True
    if result.status in (ResultStatus.ERROR, ResultStatus.CANCELLED, ResultStatus.UNKNOWN):
        return result.exit_code is not None or result.duration_ms > 0
    return False


def _status(result: ToolResult, tool: str) -> str:
    took = _seconds(result.duration_ms)
    exited = f"exit {result.exit_code} · {took}"
    above = "; partial output above" if result.text else ""
    if result.status is ResultStatus.TIMEOUT:
        return f"timed out after {took}{above}"
    if result.status is ResultStatus.CANCELLED:
        return f"cancelled after {took}{above}"
    if result.status is ResultStatus.UNKNOWN:
        return f"outcome unknown: it may or may not have happened{above}"
    if result.exit_code is not None:
        return exited
    return f"{tool} {'done' if result.status is ResultStatus.OK else 'failed'} · {took}"


def _seconds(duration_ms: int) -> str:
    seconds = duration_ms / 1000
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _fenced(text: str) -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{ticks}\n{text.removesuffix(chr(10))}\n{ticks}"
