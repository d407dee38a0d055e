"""Reader of an owner's table of expected decisions, for `dragoman rules test FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field

from config.reading import TableReader, as_error, unknown
from config.table_lines import table_lines
from config.toml_file import parse_file
from gateway.domain.rules import Verdict
from gateway.domain.sessions import SessionKind

CASES = "case"
CASES_AT_MOST = 10_000


class CaseSettings(BaseModel):
    """One `[[case]]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: Annotated[str, Field(min_length=1, max_length=100)]
    text: Annotated[str, Field(max_length=65_536)] = ""
    decision: Verdict
    kind: SessionKind = SessionKind.MAIN
    preset: Annotated[str, Field(max_length=100)] = ""
    session: Annotated[str, Field(max_length=200)] = ""
    because: Annotated[str, Field(max_length=500)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCase:
    """Expected decision about one call."""

    where: str
    """Place in the file: `cases.toml:12 (case[3])`."""
    tool: str
    text: str
    decision: str
    """`allow`, `ask` or `deny`."""
    kind: SessionKind
    preset: str
    """Name of the preset in force; empty: the default of the kind."""
    session: str
    """Stored session with its own kind, preset and grants, of the running daemon; empty: a new one of `kind`."""
    because: str
    """Text that the reason or the place of the rule must contain."""


def read_cases(file: Path) -> tuple[RuleCase, ...]:
    """Read a file of `[[case]]` tables. Raises one `ConfigError` with the line and the cure of every mistake."""
    raw, text = parse_file(file)
    lines = {CASES: table_lines(text, CASES)}
    reader = TableReader(file=str(file), variables={}, environ={}, lines=lines)
    for key in raw.keys() - {CASES}:
        reader.wrong((key,), "unknown key", unknown(key, raw[key], [CASES]))
    found = [_case(table, n, reader) for n, table in enumerate(_tables(raw.get(CASES), reader))]
    if reader.problems:
        raise as_error(reader.problems)
    return tuple(one for one in found if one is not None)


def _tables(raw: object, reader: TableReader) -> list[object]:
    tables = cast("list[object]", raw) if isinstance(raw, list) else []
    if not tables:
        reader.wrong((CASES,), "there are no cases", "Write [[case]], in double brackets, above each of them")
    elif len(tables) > CASES_AT_MOST:
        reader.wrong((CASES,), f"there are {len(tables)} cases", f"Write at most {CASES_AT_MOST} into one file")
    return tables


def _case(table: object, n: int, reader: TableReader) -> RuleCase | None:
    read = reader.model(CaseSettings, table, (CASES, n))
    if read is None:
        return None
    if read.session and (read.preset or "kind" in read.model_fields_set):
        cure = "Remove `kind` and `preset`, or `session`"
        reader.wrong((CASES, n, "session"), "a session has its own kind and preset", cure)
    return RuleCase(
        where=reader.place(CASES, n),
        tool=read.tool,
        text=read.text,
        decision=read.decision.value,
        kind=read.kind,
        preset=read.preset,
        session=read.session,
        because=read.because,
    )
