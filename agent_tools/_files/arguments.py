"""Arguments that several file tools take, with the other names that models know them by, and their call scopes."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, AliasChoices, Field

from gateway.domain.tools import CallScope, Risk

TEXT_CHARS = 1_000_000
"""Characters of the longest text of an argument."""


def without_nul(text: str) -> str:
    """Return the text. Raises `ValueError` for a NUL, where the kernel would cut it; pydantic checked the Unicode."""
    if "\0" in text:
        raise ValueError("it contains a NUL character: take it out")
    return text


def read_scope(path: str) -> CallScope:
    """Return the scope of a call that reads a file, or what is beneath a folder."""
    return CallScope(risk=Risk.READ, subjects=(f"path:{path}",))


def write_scope(*paths: str) -> CallScope:
    """Return the scope of a call that changes these files."""
    return CallScope(risk=Risk.WRITE, subjects=tuple(f"path:{path}" for path in paths))


FolderPath: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(without_nul)]
SearchPattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(without_nul)]
AlsoIgnored: TypeAlias = Annotated[bool, Field(description="Search files that .gitignore names, too.")]
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
