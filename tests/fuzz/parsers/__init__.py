"""All parsers of foreign data, by name. A new one is added here and gets a folder in `corpus/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Protocol

from tests.fuzz.engine import Parser
from tests.fuzz.parsers import (
    approval_text,
    command,
    config_file,
    control_request,
    http_headers,
    model_answer,
    model_error,
    preset_file,
    shell_script,
    slack_answer,
    slack_markdown,
    slack_payload,
    slack_request,
    slack_socket,
    stored_row,
    telegram_answer,
    telegram_markdown,
    telegram_update,
    tool_arguments,
    tool_schema,
    transcript_data,
    web_frame,
)


class _Module(Protocol):
    @property
    def __name__(self) -> str: ...

    @property
    def READS(self) -> Sequence[ModuleType]: ...

    @property
    def WORDS(self) -> Sequence[bytes]: ...

    def target(self, data: bytes) -> None: ...


def _parser(module: _Module) -> Parser:
    name = module.__name__.rpartition(".")[2]
    return Parser(name=name, target=module.target, reads=module.READS, words=module.WORDS)


PARSERS: Mapping[str, Parser] = {
    one.name: one
    for one in map(
        _parser,
        (
            *(telegram_update, telegram_answer, slack_payload, slack_request, slack_socket, slack_answer, web_frame),
            *(model_answer, model_error, tool_schema, tool_arguments, control_request, command, approval_text),
            *(
                transcript_data,
                http_headers,
                config_file,
                preset_file,
                stored_row,
                telegram_markdown,
                slack_markdown,
                shell_script,
            ),
        ),
    )
}
