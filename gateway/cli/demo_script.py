"""Scripted answers of the model of `dragoman demo`. Pure: the conversation in, the next answer out.

The script handles three topics: kernel and disk (two commands at once), sub-sessions (three at once, one command
each), and ``run `…` ``. Any other text gets a list of what to try.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

COMMANDS: Final = ("uname -r", "df -h /")
ERRANDS: Final = ("uname -sr", "nproc", "date -u")
"""Commands of the sub-sessions, one each."""

_LOOK = re.compile(r"\b(kernel|disk)\b", re.IGNORECASE)
_SPAWN = re.compile(r"\bsub-?sessions?\b", re.IGNORECASE)
_RUN = re.compile(r"\brun `([^`\n]+)`", re.IGNORECASE)
_ENDED = re.compile(r"\[(\w+)[^\]\n]*\].*")
"""The last line of a result, its status."""
_DISK = re.compile(r"\s(\S+)\s+(\S+)\s+(\S+)\s+(\d+%)\s+/\s*$")

HELP: Final = """\
I am a short script, not a language model; all the rest is real: the tools, the cards, the sandbox. Try one of these:

- which kernel is this, and how full is the disk?
- ask three sub-sessions to look around
- run `uptime`
- `/shell ls -la` runs a tool without any model; `/status`, `/stop` and `/help` always work

A real model is one table in the configuration: `config/example.toml` explains it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in an answer."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Saying:
    """One answer: text, calls, or both."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class _Result:
    text: str
    """Output of the call."""
    ended: str
    """Status line of a failed call, else empty."""


def next_saying(messages: Sequence[Mapping[str, Any]], tools: Collection[str]) -> Saying:
    """Return the next answer to a conversation of chat completions, using only the offered tools."""
    question, results, meanwhile = _read(messages)
    if _SPAWN.search(question):
        said = _spawn(results, tools)
    elif found := _RUN.search(question):
        said = _run([found[1]], f"I run `{found[1]}`.", results, tools)
    elif _LOOK.search(question):
        said = _run(COMMANDS, "Let me look at both: the kernel's version and the disk, side by side.", results, tools)
    else:
        return Saying(HELP)
    heard = "".join(f"You said meanwhile: “{text}”. I heard it. " for text in meanwhile)
    return Saying(heard + said.text, said.calls)


def _run(commands: Sequence[str], before: str, results: Sequence[_Result], tools: Collection[str]) -> Saying:
    if not results:
        if "shell" not in tools:
            return Saying("There is no shell in this session: without bubblewrap it exists in your own one alone.")
        return Saying(before, tuple(Call("shell", {"command": command}) for command in commands))
    if tuple(commands) == COMMANDS and (summary := _summary(results)):
        return Saying(summary)
    return Saying("\n".join(_line(f"`{one}`", result) for one, result in zip(commands, results, strict=False)))


def _spawn(results: Sequence[_Result], tools: Collection[str]) -> Saying:
    if results:
        lines = [_line(f"Sub-session {n}", result) for n, result in enumerate(results, 1)]
        return Saying("\n".join(["That is what they said:", "", *(f"- {line}" for line in lines)]))
    if "sessions_spawn" not in tools:
        return Saying("There are no sub-sessions in this session.")
    tasks = [f"Run `{errand}` and say what it prints." for errand in ERRANDS]
    calls = tuple(Call("sessions_spawn", {"task": task, "tools": ["shell"]}) for task in tasks)
    return Saying("I ask three sub-sessions at once. What they want to run, they ask you for.", calls)


def _summary(results: Sequence[_Result]) -> str:
    """Return both results in one sentence each; empty when either has an unexpected form."""
    if len(results) < len(COMMANDS) or any(result.ended for result in results):
        return ""
    disk = _DISK.search(results[1].text)
    if disk is None:
        return ""
    size, used, free, share = disk.groups()
    kernel = results[0].text.strip()
    return f"The kernel is **{kernel}**. The disk of `/` is **{share}** full: {used} used of {size}, {free} free."


def _line(what: str, result: _Result) -> str:
    if result.ended:
        return f"{what} did not end well: {result.ended}"
    return f"{what} printed: {result.text}" if what.startswith("`") else f"{what}: {result.text}"


def _read(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[_Result], list[str]]:
    """Return the open request, the results of its calls, and the messages since.

    While a known topic is in progress, a message without one counts as a remark.
    """
    ends = [n for n, one in enumerate(messages) if one.get("role") == "assistant" and not one.get("tool_calls")]
    open_ = messages[ends[-1] + 1 if ends else 0 :]
    said = [n for n, one in enumerate(open_) if one.get("role") == "user"]
    if not said:
        return "", [], []
    known = [n for n in said if any(topic.search(_text(open_[n])) for topic in (_SPAWN, _RUN, _LOOK))]
    begun = known[-1] if known else said[-1]
    results = [_result(_text(one)) for one in open_[begun:] if one.get("role") == "tool"]
    if said[-1] > begun and any(result.ended.startswith("[cancelled") for result in results):
        return _text(open_[said[-1]]), [], []  # the earlier request was stopped
    return _text(open_[begun]), results, [_text(open_[n]) for n in said if n > begun]


def _result(text: str) -> _Result:
    lines = text.rstrip().split("\n")
    ended = _ENDED.fullmatch(lines[-1])
    if ended is None:
        return _Result(text.strip(), "")
    well = lines[-1].startswith("[exit 0")
    return _Result("\n".join(lines[:-1]).strip(), "" if well else lines[-1])


def _text(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
