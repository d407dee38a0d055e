"""Conversion of the transcript to pydantic-ai's messages, and of its response to our answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.messages import TextPart as TheirText
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Image, ModelRequest, UserText
from gateway.domain.steps import Answer, Usage
from gateway.domain.text import mended
from gateway.domain.tools import NAMED_AT_MOST, ToolCall, call_of
from gateway.llm.json_access import as_object
from gateway.llm.openai_answer import DEFAULT_LIMITS, tokens, unique_ids
from gateway.llm.openai_payload import (
    MARKED,
    given_back,
    given_ids,
    given_name,
    image_label,
    picture_label,
    result_content,
    said,
)

OPAQUE = "library"
"""Key of this module in `Answer.opaque`: holds `thinking`, whole parts in order, and `calls`, by call id."""

_THINKING = TypeAdapter(list[ThinkingPart])


def parameters_of(request: ModelRequest) -> ModelRequestParameters:
    """Return the offered tools; the library fits their schemas to its provider."""
    tools = [
        ToolDefinition(name=offer.name, description=offer.description, parameters_json_schema=dict(offer.schema))
        for offer in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def messages_of(request: ModelRequest, *, answered_by: str) -> list[ModelMessage]:
    """Return the transcript. Reasoning goes back only to the model that gave it; `answered_by` is our name of it."""
    made: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    ids = given_ids(request, answered_by)
    system = "\n".join(filter(None, [request.system, MARKED.format(mark=request.mark) if request.mark else ""]))
    if system:
        parts.append(SystemPromptPart(content=system))
    for message in request.messages:
        match message:
            case UserText():
                parts += _person(message, request.mark)
            case CallResult():
                parts += _result(replace(message, call=ids.get(message.call, message.call)), request.mark)
            case Answer() if response := _response(message, answered_by, ids):
                made += [*_flushed(parts), response]
            case Answer():
                pass  # providers refuse an empty answer
    return [*made, *_flushed(parts)]


def _flushed(parts: list[ModelRequestPart]) -> list[ModelMessage]:
    """Remove the parts gathered so far and return them as one request; results come before texts and pictures."""
    if not parts:
        return []
    results = [part for part in parts if isinstance(part, ToolReturnPart)]
    others = [part for part in parts if not isinstance(part, ToolReturnPart)]
    parts.clear()
    return [TheirRequest(parts=[*results, *others])]


def _person(message: UserText, mark: str) -> list[ModelRequestPart]:
    text = said(message, mark)
    if not message.images:
        return [UserPromptPart(content=text)] if text.strip() else []
    content: list[UserContent] = [text]
    for image in message.images:
        content += [image_label(image, mark), _image(image)]
    return [UserPromptPart(content=content)]


def _image(image: Image) -> BinaryContent:
    return BinaryContent(data=image.data, media_type=image.media_type)


def _result(message: CallResult, mark: str) -> list[ModelRequestPart]:
    content, name = result_content(message.result, mark), given_name(message.tool)
    parts: list[ModelRequestPart] = [ToolReturnPart(tool_name=name, content=content, tool_call_id=message.call)]
    if message.images:
        pictures: list[UserContent] = []
        for n, image in enumerate(message.images, 1):
            pictures += [picture_label(message, n, mark), _image(image)]
        parts.append(UserPromptPart(content=pictures))
    return parts


def _response(answer: Answer, answered_by: str, ids: Mapping[CallId, CallId]) -> ModelResponse | None:
    own = as_object(answer.opaque.get(OPAQUE)) if answer.model == answered_by else {}
    extras = as_object(own.get("calls"))
    parts: list[ModelResponsePart] = [*_thinking(own.get("thinking"))]
    if answer.text.strip():
        parts.append(TheirText(content=answer.text))
    parts += [_call(call, ids[call.id], as_object(extras.get(call.id))) for call in answer.calls]
    return ModelResponse(parts=parts, provider_name=own.get("provider")) if parts else None


def _thinking(stored: object) -> Sequence[ThinkingPart]:
    try:
        return _THINKING.validate_python(stored or [])
    except ValidationError:  # stored by another version of the library: send the answer without its reasoning
        return []


def _call(call: ToolCall, id_: CallId, extras: Mapping[str, Any]) -> ToolCallPart:
    name = given_name(call.tool)
    return ToolCallPart(tool_name=name, args=given_back(call.arguments), tool_call_id=id_, **extras)


# --- response to answer -------------------------------------------------------------------------


def text_of(event: object) -> str:
    """Return the text that an event of the stream adds; empty for other events."""
    match event:
        case PartStartEvent(part=TheirText(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def answer_of(response: ModelResponse, name: str, request: ModelRequest, tail: str) -> Answer:
    """Return the answer of the model `name`; its call ids are unique, also among those of the request.

    Raises `ModelError` beyond the limits of an answer; halves of surrogate pairs are joined or replaced.
    """
    taken = {call.id for message in request.messages if isinstance(message, Answer) for call in message.calls}
    theirs = response.tool_calls
    DEFAULT_LIMITS.check_calls(len(theirs))
    ids = unique_ids([part.tool_call_id for part in theirs], taken)
    text = "".join(part.content for part in response.parts if isinstance(part, TheirText))
    DEFAULT_LIMITS.check_text(len(text))
    extras = {id_: found for id_, part in zip(ids, theirs, strict=True) if (found := _extras(part))}
    thinking = _thought(response)
    own: dict[str, Any] = {}
    if thinking:
        own["thinking"] = _THINKING.dump_python(thinking, mode="json")
    if extras:
        own["calls"] = extras
    if own:
        own["provider"] = response.provider_name
    used = response.usage
    usage = Usage(
        input_tokens=tokens(used.input_tokens),
        output_tokens=tokens(used.output_tokens),
        cached_tokens=tokens(used.cache_read_tokens),
    )
    opaque = {OPAQUE: own} if own else {}
    return Answer(text=mended(text) + tail, calls=_calls(theirs, ids), model=name, usage=usage, opaque=opaque)


def _calls(theirs: Sequence[ToolCallPart], ids: Sequence[str]) -> tuple[ToolCall, ...]:
    written = [_arguments(part) for part in theirs]
    DEFAULT_LIMITS.check_arguments(sum(map(len, written)))
    return tuple(
        call_of(id_, mended(part.tool_name[: 2 * NAMED_AT_MOST]), mended(arguments))
        for id_, part, arguments in zip(ids, theirs, written, strict=True)
    )


def _thought(response: ModelResponse) -> list[ThinkingPart]:
    thinking = [part for part in response.parts if isinstance(part, ThinkingPart)]
    DEFAULT_LIMITS.check_reasoning(sum(len(part.content) + len(part.signature or "") for part in thinking))
    return [replace(part, content=mended(part.content)) for part in thinking]


def _arguments(part: ToolCallPart) -> str:
    if isinstance(part.args, str) and part.args:
        return part.args
    # Not the library's encoder, which fails for half a surrogate pair.
    return json.dumps(part.args or {}, ensure_ascii=False, separators=(",", ":"))


def _extras(part: ToolCallPart) -> dict[str, Any]:
    """Return data that a provider attached to a call and requires back, such as Gemini's thought signatures."""
    found = {"id": part.id, "provider_name": part.provider_name, "provider_details": part.provider_details}
    return {key: value for key, value in found.items() if value is not None}
