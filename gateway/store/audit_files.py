"""Files of the audit: its rows with the head that they end in. Used by `dragoman audit export` and `compare`.

A program with write access to the store can recompute its whole audit. A file kept elsewhere shows that: the store must
still hold the row that the file ends with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.audit import AuditHead, AuditMark, AuditRow
from gateway.errors import StoreDamaged, StoreError
from gateway.store.codec import dump_json
from gateway.store.copying import AuditVerifier, path_of, refuse_other
from gateway.store.decode import audit_row_of
from gateway.store.kernel.audit import mark_of, text_of
from gateway.store.records import Record
from gateway.system.flushing import flush

_CALL = ("seq", "at", "session", "turn", "n", "lane", "tool", "action_sha")
_WHY = ("because", "wait", "grant", "rule", "decided_by", "sandbox", "node")
NAMES = (*_CALL, *_WHY, "prev_hash", "hash")
"""Values of a row by name, as they are stored: `at` in microseconds since 1970, UTC."""
NOT_WHOLE = "Keep a copy of the store, and look at deploy/RUNBOOK.md (Was anything run that nobody allowed?)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The rows of a file or of a store, and the head that they end in."""

    head: AuditHead
    removed: AuditMark | None
    """The row that they follow; None when the first one is the first of all."""

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return self.head.seq - (0 if self.removed is None else self.removed.seq)


class AuditReader(Protocol):
    """A store whose audit is read."""

    def removed_audit(self) -> AuditMark | None:
        """Return the last row that was removed."""
        ...

    def audit(self, removed: AuditMark | None) -> Iterator[Record]:
        """Yield the rows behind that one in their order. Raises `StoreError` when some are removed meanwhile."""
        ...


@contextmanager
def _audit_of(url: str) -> Generator[AuditReader]:
    """Read the audit of a store, which may be in use."""
    if path := path_of(url):
        from gateway.store.sqlite.copying import read_file

        with read_file(path) as snapshot:
            yield snapshot
        return
    refuse_other(url)
    from gateway.store.redis.copying import copy_of

    with copy_of(url) as copy:
        yield copy


def export_audit(url: str, path: str) -> Exported:
    """Write all rows to a new file (0600), a JSON object a line, and their head. Raises `StoreError`.

    Nothing is written when the audit is not whole. The file begins with the row that was removed last, if one was.
    """
    if os.path.lexists(path):
        raise StoreError(f"{path} exists already.", cure="Name a file that does not exist, or move this one away.")
    made = Path(f"{path}.partial")
    try:
        made.unlink(missing_ok=True)
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file, _audit_of(url) as snapshot:
            chain = AuditVerifier(snapshot.removed_audit())
            if chain.removed is not None:
                file.write(f'{{"removed":{text_of(chain.removed)}}}\n')
            for record in snapshot.audit(chain.removed):
                _follow(chain, audit_row_of(tuple(record.values)))
                file.write(dump_json(dict(zip(NAMES, record.values, strict=True))) + "\n")
            _end(chain)
            file.write(dump_json({"rows": chain.head.seq, "head": chain.head.hash}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
        flush(made.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}.", cure="Name a file where there is room and you may write."
        ) from error
    finally:
        made.unlink(missing_ok=True)
    return Exported(head=chain.head, removed=chain.removed)


def compare_audit(url: str, path: str) -> tuple[Exported, Exported]:
    """Return the extent of a file, and of the store now. Raises `StoreError` when one is not whole, or they differ.

    The store may hold more rows: those came after the file. It may hold fewer: those were removed behind an export.
    """
    kept = _read(path)
    end = kept.head.seq
    with _audit_of(url) as snapshot:
        chain = AuditVerifier(snapshot.removed_audit())
        if chain.head.seq > end:
            raise StoreError(
                f"The store holds nothing of {path}: all up to row {chain.head.seq} was removed behind a later export.",
                cure="Compare it with the file of a later export.",
            )
        at_kept = chain.head.hash if chain.head.seq == end else ""
        for record in snapshot.audit(chain.removed):
            _follow(chain, audit_row_of(tuple(record.values)))
            if chain.head.seq == end:
                at_kept = chain.head.hash
        _end(chain)
    if end > chain.head.seq:
        raise StoreDamaged(f"The store ends at row {chain.head.seq}; {path} knows {end}.", cure=NOT_WHOLE)
    if at_kept != kept.head.hash:
        raise StoreDamaged(f"The rows of the store are not those of {path}: it was rewritten.", cure=NOT_WHOLE)
    return kept, Exported(head=chain.head, removed=chain.removed)


def _read(path: str) -> Exported:
    """Verify a file alone. Raises `StoreError`."""
    chain, end = AuditVerifier(), dict[str, Any]()
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                found = json.loads(line)
                if "head" in found:
                    end = found
                elif "removed" in found:
                    chain = AuditVerifier(mark_of(dump_json(found["removed"])))
                else:
                    _follow(chain, audit_row_of(tuple(found[name] for name in NAMES)))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", cure="Name a file of an export.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no export of an audit.", cure="Name a file of `dragoman audit export`.") from error
    if (end.get("rows"), end.get("head")) != (chain.head.seq, chain.head.hash):
        raise StoreError(f"{path} is not whole: its rows do not end in its head.", cure="Take another copy of it.")
    return Exported(head=chain.head, removed=chain.removed)


def _follow(chain: AuditVerifier, row: AuditRow) -> None:
    with _with_cure():
        chain.add([row])


def _end(chain: AuditVerifier) -> None:
    with _with_cure():
        chain.end()


@contextmanager
def _with_cure() -> Generator[None]:
    try:
        yield
    except StoreDamaged as error:
        raise StoreDamaged(error.message, cure=NOT_WHOLE) from error
