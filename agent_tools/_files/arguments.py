"""Arguments that several file tools take, with the other names that models know them by."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AliasChoices, Field

TEXT_CHARS = 1_000_000
"""Characters of the longest text of an argument."""

FilePath: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=4096, validation_alias=AliasChoices("path", "filePath", "file_path"))
]
_OLD = AliasChoices("old", "oldString", "old_string")
_NEW = AliasChoices("new", "newString", "new_string")
OldText: TypeAlias = Annotated[str, Field(max_length=TEXT_CHARS, validation_alias=_OLD)]
NewText: TypeAlias = Annotated[str, Field(max_length=TEXT_CHARS, validation_alias=_NEW)]
OldTextOrNone: TypeAlias = Annotated[str | None, Field(max_length=TEXT_CHARS, validation_alias=_OLD)]
NewTextOrNone: TypeAlias = Annotated[str | None, Field(max_length=TEXT_CHARS, validation_alias=_NEW)]
ReplaceAll: TypeAlias = Annotated[bool, Field(validation_alias=AliasChoices("replace_all", "replaceAll"))]
