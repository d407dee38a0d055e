"""Hooks of the owner around each call: before it is decided, and after it ran. Used by `scheduler` and `execution`.

A hook that fails, takes too long or answers anything but what is described here refuses the call (before), or its
output is withheld (after). Hooks before a call run once; their outcome is stored with its step.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from gateway.domain.file_changes import FileChangeKind
from gateway.domain.hooks import HookEvent, HookOutcome
from gateway.domain.text import cut, mended
from gateway.domain.tools import ARGUMENTS_AT_MOST, ResultStatus, ToolResult
from gateway.domain.waits import WaitKind
from gateway.system.logging_setup import log
from gateway.system.redaction import Redactor, redacted_line
from gateway.toolcalls.hook_programs import TROUBLE_BYTES, HookFailed
from gateway.toolcalls.output import bounded
from gateway.toolcalls.prepared import Prepared

WITHIN_S = 10.0
"""Timeout of one hook in seconds."""
AT_ONCE = 4
"""Hooks that run at once."""
REASON_CHARS = 1_000
"""Characters of a hook's reason."""
FILES_TOLD = 200
"""Changed files of one call in a hook's payload."""
NOTHING_CHANGED: Mapping[str, FileChangeKind] = MappingProxyType({})
_ANSWERS: Mapping[HookEvent, Mapping[str, type]] = MappingProxyType(
    {HookEvent.BEFORE: {"arguments": dict, "refuse": str}, HookEvent.AFTER: {"text": str}}
)
"""Keys that a hook may answer with, at most one of them. No key: the call, or the result, stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook: what it is asked about, and how."""

    name: str
    event: HookEvent
    tools: frozenset[str]
    """Tools whose calls it sees; empty: those of every tool."""
    ask: Callable[[Mapping[str, Any]], Awaitable[object]]
    """Return the answer to a question, both as JSON values. May raise anything: its code is foreign."""

    def is_for(self, event: HookEvent, tool: str) -> bool:
        """Return whether the hook sees this event of this tool's calls."""
        return self.event is event and (not self.tools or tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """All hooks of the configuration, in its order."""

    hooks: Sequence[Hook] = ()
    redactor: Redactor = field(default_factory=Redactor)
    within_s: float = WITHIN_S
    _at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _log: Any = field(default_factory=lambda: log("hooks"))

    def any_for(self, event: HookEvent, tool: str) -> bool:
        """Return whether any hook sees this event of this tool's calls."""
        return any(hook.is_for(event, tool) for hook in self.hooks)

    async def before_all(self, calls: Mapping[int, Prepared]) -> Mapping[int, HookOutcome]:
        """Run the hooks before several calls, by their steps. Never raises."""
        outcomes: dict[int, HookOutcome] = {}

        async def run(n: int, call: Prepared) -> None:
            outcomes[n] = await self.before(call)

        async with asyncio.TaskGroup() as group:
            for n, call in calls.items():
                group.create_task(run(n, call), name=f"hooks before {call.step.turn}/{n}")
        return outcomes

    async def before(self, call: Prepared) -> HookOutcome:
        """Run the hooks before a valid call, each on the arguments that the one before it left. Never raises."""
        arguments: Mapping[str, Any] = dict(call.action.arguments)
        by: list[str] = []
        for hook in self._of(HookEvent.BEFORE, call):
            try:
                answer = await self._answer(hook, {**_about(call, hook.event), "arguments": arguments})
            except HookFailed as failed:
                why = f"The hook {hook.name} failed, so the call is refused: {failed.why}."
                return HookOutcome(by=hook.name, refused=why)
            if "refuse" in answer:
                said = redacted_line(str(answer["refuse"]), REASON_CHARS, self.redactor) or "it gives no reason"
                return HookOutcome(by=hook.name, refused=f"The hook {hook.name} refuses this: {said}")
            if "arguments" in answer and answer["arguments"] != arguments:
                arguments = answer["arguments"]
                by.append(hook.name)
        return HookOutcome(by=", ".join(by), arguments=json.dumps(arguments) if by else None)

    async def after(
        self, call: Prepared, result: ToolResult, changed: Mapping[str, FileChangeKind] = NOTHING_CHANGED
    ) -> ToolResult:
        """Run the hooks after a call on its whole result, which has the same shape for every tool. Never raises.

        `changed` are the files that the call changed, relative to the workspace; hooks get the first of them. The text
        of a hook is redacted and bounded like a tool's. The file with the whole output is no longer named, since a hook
        saw the text alone.
        """
        text = result.text
        for hook in self._of(HookEvent.AFTER, call):
            question = {
                **_about(call, hook.event),
                "arguments": call.action.arguments,
                "result": _shape(call, result, text),
                "files": [{"path": path, "change": kind.value} for path, kind in islice(changed.items(), FILES_TOLD)],
                "files_left_off": max(0, len(changed) - FILES_TOLD),
            }
            try:
                answer = await self._answer(hook, question)
            except HookFailed as failed:
                return _withheld(result, f"the hook {hook.name} failed after it: {failed.why}")
            text = str(answer.get("text", text))
        if text == result.text:
            return result
        clean = self.redactor.text(mended(text))
        return bounded(replace(result, text=clean, dropped_bytes=0, full_output="", output_path="", output_cut=False))

    def unseen(self, call: Prepared, result: ToolResult) -> ToolResult:
        """Return the result of a call that was cut short, without the output that a hook would have seen."""
        if not result.text or not self.any_for(HookEvent.AFTER, call.tool.spec.name):
            return result
        hint = f"{result.hint} What it printed is withheld, since a hook has not seen it.".strip()
        return replace(result, text="", hint=hint, full_output="", output_path="", pictures=(), files=())

    def _of(self, event: HookEvent, call: Prepared) -> Iterator[Hook]:
        return (hook for hook in self.hooks if hook.is_for(event, call.tool.spec.name))

    async def _answer(self, hook: Hook, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the valid answer of a hook. Raises `HookFailed`."""
        try:
            async with self._at_once:
                return _valid(hook, await self._asked(hook, question))
        except HookFailed as failed:
            detail = redacted_line(failed.detail, TROUBLE_BYTES, self.redactor)
            self._log.error("hook failed", hook=hook.name, tool=question["tool"], why=failed.why, detail=detail)
            raise

    async def _asked(self, hook: Hook, question: Mapping[str, Any]) -> object:
        scope = asyncio.timeout(self.within_s)
        try:
            async with scope:
                return await hook.ask(question)
        except HookFailed:
            raise
        except TimeoutError as error:
            why = f"it took longer than {self.within_s:g} s" if scope.expired() else "something inside timed out"
            raise HookFailed(why) from error
        except Exception as error:
            raise HookFailed(f"it raised {type(error).__name__}", str(error)) from error


def _valid(hook: Hook, answer: object) -> Mapping[str, Any]:
    """Return an answer in the described form; None is one too. Raises `HookFailed`."""
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise HookFailed("its answer is not a JSON object")
    found, known = cast("dict[str, Any]", answer), _ANSWERS[hook.event]
    if not found.keys() <= known.keys() or len(found) > 1:
        raise HookFailed(f"its answer has other keys than one of: {', '.join(known)}")
    for key, value in found.items():
        if not isinstance(value, known[key]):
            raise HookFailed(f"`{key}` in its answer is not {'an object' if known[key] is dict else 'text'}")
    try:
        size = len(json.dumps(found))
    except (TypeError, ValueError, RecursionError) as error:
        raise HookFailed("its answer is not JSON") from error
    if hook.event is HookEvent.BEFORE and size > ARGUMENTS_AT_MOST:
        raise HookFailed("its answer is longer than a million characters")
    return found


def _about(call: Prepared, event: HookEvent) -> dict[str, Any]:
    """Return the facts of a call that every question has."""
    session = call.view.session
    return {
        "event": event.value,
        "tool": call.tool.spec.name,
        "session": session.id,
        "kind": session.kind.value,
        "turn": call.step.turn,
        "step": call.step.n,
        "by": call.view.turn.kind.value,
        "principal": call.view.turn.principal,
        "workspace": call.action.cwd,
    }


def _shape(call: Prepared, result: ToolResult, text: str) -> dict[str, Any]:
    """Return a result as hooks see it, of whichever tool."""
    asked = [one for one in call.view.waits if one.n == call.step.n and one.kind is WaitKind.APPROVAL]
    return {
        "status": result.status.value,
        "text": text,
        "code": result.code,
        "hint": result.hint,
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "approval_ms": round(asked[-1].decided_after.total_seconds() * 1000) if asked else 0,
        "untrusted": result.untrusted,
    }


def _withheld(result: ToolResult, why: str) -> ToolResult:
    """Return the error in place of a result whose output no hook could check."""
    hint = cut(f"The call ran and ended ({result.status.value}), but its output is withheld: {why}.", REASON_CHARS)
    return ToolResult(status=ResultStatus.ERROR, text="", code="hook_failed", hint=hint, duration_ms=result.duration_ms)
