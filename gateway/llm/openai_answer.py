"""Parser of a model server's chunks into one answer: text, calls, usage, reasoning. Pure; guesses nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

from gateway.domain.nesting import is_too_deep
from gateway.domain.steps import Answer, Usage
from gateway.domain.text import mended
from gateway.domain.tools import NAMED_AT_MOST, call_of
from gateway.errors import ModelError
from gateway.llm.json_access import as_object, as_objects, as_text
from gateway.llm.openai_payload import CALL_EXTRAS, OPAQUE
from gateway.llm.sse import EVENT_BYTES, EventSplitter, EventTooLong
from gateway.llm.text_buffer import TextBuffer

CUT_NOTE = "\n\n[cut here: the model reached its output limit]"
"""Appended to an answer that reached the output limit."""

_CUT = frozenset({"length", "max_tokens", "model_length"})
_BROKEN = frozenset({"error", "abort", "network_error", "insufficient_system_resource", "malformed_function_call"})
_ID_CHARS = 128
_LOOKED_AT_MOST = 4 * 1024 * 1024
"""Characters of one answer that are parsed to find the end of calls without ids: those are rare and short."""
_PARTS_AT_MOST = 50_000
"""Commas and opening brackets of one chunk outside strings. Chunks have a few; so many take 0.1 s to parse."""
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_A_FRAGMENT = 16
"""Characters that each fragment of a call or of reasoning counts in addition: there may be many empty ones."""
_A_BLOCK = 64
"""Characters that each block of reasoning counts in addition."""
_TOKENS_AT_MOST = 1_000_000_000
"""Tokens of one answer; no model reads more, and the store's usage sums hold nine billion such answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """Limits of one answer; more is an error, never a shorter answer."""

    text_chars: int = 1024 * 1024
    """Characters of the text: four times the longest that models write. Redacting it takes 0.1 s."""
    reasoning_chars: int = 4 * 1024 * 1024
    argument_chars: int = 10 * 1024 * 1024
    """Characters of all calls' names and arguments together."""
    calls: int = 512
    chunk_bytes: int = EVENT_BYTES
    """Bytes of one event of a stream, or of a whole answer from a server that does not stream."""

    # Each raises `ModelError` beyond its limit. Received characters count, before halves of surrogates are joined.

    def check_text(self, chars: int) -> None:
        """Check the text's characters so far."""
        if chars > self.text_chars:
            raise beyond(f"The model's answer is longer than {self.text_chars} characters.")

    def check_reasoning(self, chars: int) -> None:
        """Check the characters of all reasoning blocks so far."""
        if chars > self.reasoning_chars:
            raise beyond(f"The model's reasoning is longer than {self.reasoning_chars} characters.")

    def check_arguments(self, chars: int) -> None:
        """Check the characters of all calls so far."""
        if chars > self.argument_chars:
            raise beyond(f"The arguments of the model's calls exceed {self.argument_chars} characters.")

    def check_calls(self, count: int) -> None:
        """Check the number of calls so far."""
        if count > self.calls:
            raise beyond(f"The model asked for more than {self.calls} calls at once.")


DEFAULT_LIMITS = AnswerLimits()


@dataclass(slots=True)
class _Call:
    """Call whose fragments are being received."""

    index: int
    id: str = ""
    name: str = ""
    arguments: TextBuffer = field(default_factory=TextBuffer)
    chars: int = 0
    """Characters of its arguments."""
    end: str = ""
    """Last character of its arguments that is no space."""
    extra: object = None


class AnswerParser:
    """Parser of one streamed answer. Call `feed` (or `feed_completion`), then `finish`, then `answer`.

    Every method raises `ModelError` for data that cannot be a whole answer.
    """

    def __init__(self, refused: Callable[[object], ModelError], limits: AnswerLimits = DEFAULT_LIMITS) -> None:
        """Start before the first byte. `refused` converts the error object that a server sent instead of a chunk."""
        self._refused = refused
        self._limits = limits
        self._events = EventSplitter(limits.chunk_bytes)
        self._text = TextBuffer()
        self._text_chars = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._argument_chars = 0
        self._looked_chars = 0
        self._reasoning: dict[str, TextBuffer] = {}
        self._details: list[dict[str, Any]] = []
        self._block: dict[str, list[str]] = {}  # fragments added to the last of them, by key
        self._reasoning_chars = 0
        self._usage = Usage()
        self._finish_reason = ""
        self._done = False
        self._began = False

    @property
    def began(self) -> bool:
        """Return True once an event was received."""
        return self._began

    @property
    def complete(self) -> bool:
        """Return True once the server marked the answer as finished; only usage may follow."""
        return bool(self._finish_reason)

    @property
    def done(self) -> bool:
        """Return True once the server marked the stream as ended."""
        return self._done

    # --- input --------------------------------------------------------------------------------

    def feed(self, data: bytes) -> str:
        """Parse the next bytes of the event stream and return the text that they added."""
        try:
            events = self._events.feed(data)
        except EventTooLong:
            most = self._limits.chunk_bytes
            raise ModelError(f"The model's server sent an event of more than {most:,} bytes.") from None
        return self._take(events)

    def end(self) -> str:
        """Mark the end of the stream; return text as `feed` does."""
        return self._take(self._events.end())

    def feed_completion(self, body: bytes) -> str:
        """Parse a whole completion from a server that does not stream, and return its text."""
        completion = _parsed(body)
        before = len(self._text)
        self._chunk(completion)
        if not self._finish_reason and completion.get("choices"):
            self._finish_reason = "stop"  # the JSON is complete, so the answer is too
        return self._text.since(before)

    def _take(self, events: list[bytes]) -> str:
        before = len(self._text)
        self._began = self._began or bool(events)
        for event in events:
            if self._done:
                break
            if event.strip() == b"[DONE]":
                self._done = True
            elif event:
                self._chunk(_parsed(event))
        return self._text.since(before)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            raise self._refused(chunk["error"])
        if usage := as_object(chunk.get("usage")):
            self._usage = _usage(usage)
        for choice in as_objects(chunk.get("choices")):
            if choice.get("index") in (None, 0):
                self._choice(choice)
                if usage := as_object(choice.get("usage")):  # sent here by Moonshot
                    self._usage = _usage(usage)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = as_object(choice.get("delta")) or as_object(choice.get("message"))
        texts = [_content(part) for name in ("content", "refusal") if (part := delta.get(name))]
        calls = as_objects(delta.get("tool_calls"))
        if any(texts) or calls:
            self._finish_reason = ""  # an answer that continues after its end has not ended
        for text in texts:
            self._add_text(text)
        for call in calls:
            self._add_call(call)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(part := delta.get(name), str) and part:
                self._count_reasoning(len(part))
                self._reasoning.setdefault(name, TextBuffer()).add(part)
        for detail in as_objects(delta.get("reasoning_details")):
            self._add_detail(detail)
        if isinstance(reason := choice.get("finish_reason"), str) and reason != "null":
            self._finish_reason = reason or self._finish_reason

    def _add_text(self, text: str) -> None:
        self._text_chars += len(text)
        self._limits.check_text(self._text_chars)
        self._text.add(text)

    # --- calls --------------------------------------------------------------------------------

    def _add_call(self, delta: dict[str, Any]) -> None:
        function = as_object(delta.get("function"))
        name, call_id = as_text(function.get("name")), as_text(delta.get("id"))
        arguments = _arguments(function.get("arguments"))
        call = self._call_for(delta.get("index"), name, call_id, arguments)
        call.id = call.id or call_id
        if name and name != call.name:  # most send it once, some in every fragment, a few in pieces
            call.name = (call.name + name)[: 2 * NAMED_AT_MOST]  # a character may be two halves of a surrogate pair
        call.chars += len(arguments)
        call.end = arguments.rstrip()[-1:] or call.end
        call.extra = delta.get("extra_content") or call.extra
        self._argument_chars += _A_FRAGMENT + len(name) + len(arguments)
        self._limits.check_arguments(self._argument_chars)
        call.arguments.add(arguments)

    def _call_for(self, index: object, name: str, call_id: str, arguments: str) -> _Call:
        """Return the call that a fragment belongs to, or start one.

        Some servers give every parallel call the index 0, or none: then a name with a new id starts a call.
        Without ids, a name with arguments starts one if the earlier arguments are complete.
        """
        if isinstance(index, int):
            known = self._by_index.get(index)
            begins = known is None or bool(name and call_id and known.id and call_id != known.id)
            if known and name and arguments and not call_id and not known.id:
                begins = self._is_whole(known)
        else:
            known = self._calls[-1] if self._calls else None
            begins = known is None or bool(name and (not call_id or call_id != known.id))
        if known is not None and not begins:
            return known
        self._limits.check_calls(len(self._calls) + 1)
        call = _Call(index=index if isinstance(index, int) else len(self._calls))
        self._calls.append(call)
        self._by_index[call.index] = call
        return call

    def _is_whole(self, call: _Call) -> bool:
        """Return True if its arguments are a complete JSON object.

        Each check parses all arguments so far, so their total is limited to `_LOOKED_AT_MOST`.
        """
        if call.end != "}":
            return False
        self._looked_chars += call.chars
        if self._looked_chars > _LOOKED_AT_MOST:
            return False
        try:
            return isinstance(json.loads(str(call.arguments)), dict)
        except (ValueError, RecursionError):
            return False

    # --- reasoning ----------------------------------------------------------------------------

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Join fragments of one block (same type and index); blocks keep their order."""
        last = self._details[-1] if self._details else None
        if last is None or "index" not in detail or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._end_block()
            self._details.append(dict(detail))
            self._count_reasoning(_A_BLOCK + sum(len(value) for value in detail.values() if isinstance(value, str)))
            return
        self._count_reasoning(_A_FRAGMENT)
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str):
                self._block.setdefault(key, [last[key]]).append(value)
                self._count_reasoning(len(value))
            elif value is not None:
                last[key] = value

    def _end_block(self) -> None:
        for key, parts in self._block.items():
            self._details[-1][key] = "".join(parts)
        self._block.clear()

    def _count_reasoning(self, chars: int) -> None:
        self._reasoning_chars += chars
        self._limits.check_reasoning(self._reasoning_chars)

    # --- the end ------------------------------------------------------------------------------

    def finish(self) -> str:
        """Check that the answer is whole; return text to append. Call once, after the last bytes."""
        reason = self._finish_reason
        if not reason:
            raise ModelError("The model's stream ended before its answer was whole.", cure="Ask again.", retryable=True)
        if reason in _BROKEN:
            raise ModelError(f"The model broke off its answer ({reason}).", cure="Ask again.", retryable=True)
        if reason in ("tool_calls", "function_call") and not self._calls:
            raise ModelError("The model's server announced a call and sent none.", cure="Ask again.", retryable=True)
        if reason == "content_filter":
            raise filtered()
        before = len(self._text)
        if reason in _CUT:
            refuse_useless_cut(calls=bool(self._calls), text=before > 0)
        for text in (self._text, *(call.arguments for call in self._calls), *self._reasoning.values()):
            text.end()
        if reason in _CUT:
            self._text.add(CUT_NOTE)
        return self._text.since(before)

    def answer(self, model: str, taken: Collection[str]) -> Answer:
        """Return the finished answer of `model`; its call ids are unique, also among `taken`."""
        ordered = sorted(self._calls, key=lambda call: call.index)  # stable: calls of one index keep their order
        ids = unique_ids([call.id for call in ordered], taken)
        calls = tuple(
            call_of(call_id, mended(call.name), str(call.arguments)) for call_id, call in zip(ids, ordered, strict=True)
        )
        pairs = zip(ids, ordered, strict=True)
        opaque = self._opaque({call_id: {"extra_content": call.extra} for call_id, call in pairs if call.extra})
        return Answer(text=str(self._text), calls=calls, model=model, usage=self._usage, opaque=opaque)

    def _opaque(self, extras: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {name: str(text) for name, text in self._reasoning.items()}
        self._end_block()
        if self._details and _is_json(self._details):
            own["reasoning_details"] = self._details
        if extras and _is_json(extras):
            own[CALL_EXTRAS] = extras
        return {OPAQUE: own} if own else {}


def filtered() -> ModelError:
    """Return the error of an answer stopped by the provider's content filter."""
    return ModelError(
        "The provider's content filter stopped the answer.", cure="Ask in other words.", about_request=True
    )


def refuse_useless_cut(*, calls: bool, text: bool) -> None:
    """Raise `ModelError` for an answer at its output limit without a usable part."""
    cure = "Ask for less at once, or use a model with a higher output limit."
    if calls:
        words = "The model reached its output limit in the middle of a call; nothing was run."
        raise ModelError(words, cure=cure, about_request=True)
    if not text:
        words = "The model reached its output limit before it said anything."
        raise ModelError(words, cure=cure, about_request=True)


def beyond(words: str) -> ModelError:
    """Return the error of an answer beyond its limits."""
    return ModelError(words, cure="Ask for less at once.", about_request=True)


def unique_ids(ids: list[str], taken: Collection[str]) -> list[str]:
    """Keep usable ids; a missing, repeated or overlong one becomes `call_<n>`, the first that is free."""
    seen = set(taken)
    made: list[str] = []
    n = 0
    for raw in ids:
        call_id = raw if raw.isascii() and raw.isprintable() and len(raw) <= _ID_CHARS else ""
        while not call_id or call_id in seen:
            n += 1
            call_id = f"call_{n}"
        seen.add(call_id)
        made.append(call_id)
    return made


def _is_json(value: object) -> bool:
    """Return True if a value is strict JSON: Python reads NaN and 1e999, which a server would refuse."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _has_too_many_parts(data: bytes) -> bool:
    if _parts(data) <= _PARTS_AT_MOST:  # as nearly always
        return False
    return _parts(_TEXTS.sub(b"", data)) > _PARTS_AT_MOST


def _parts(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _parsed(data: bytes) -> dict[str, Any]:
    if _has_too_many_parts(data):
        raise ModelError(f"The model's server sent a chunk of more than {_PARTS_AT_MOST:,} parts.")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or is_too_deep(data):
        raise ModelError("The model's server sent something that is not a chunk of an answer.", retryable=True)
    return cast("dict[str, Any]", value)


def _content(value: object) -> str:
    """Return a text, or the text parts of a list, which some servers send."""
    if isinstance(value, str):
        return value
    return "".join(as_text(part.get("text")) for part in as_objects(value) if part.get("type") == "text")


def _arguments(value: object) -> str:
    """Return arguments as JSON text; some servers send the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _usage(usage: dict[str, Any]) -> Usage:
    details = as_object(usage.get("prompt_tokens_details"))
    return Usage(
        input_tokens=tokens(usage.get("prompt_tokens")),
        output_tokens=tokens(usage.get("completion_tokens")),
        # The fields of OpenAI and most others, of DeepSeek, and of Moonshot.
        cached_tokens=tokens(details.get("cached_tokens"))
        or tokens(usage.get("prompt_cache_hit_tokens"))
        or tokens(usage.get("cached_tokens")),
    )


def tokens(value: object) -> int:
    """Return a provider's token count within bounds; 0 for any value but a number."""
    return min(max(0, value), _TOKENS_AT_MOST) if isinstance(value, int) else 0
