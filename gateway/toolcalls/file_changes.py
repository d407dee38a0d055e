"""Changes of workspace files: known contents, a journal of each change, and undo. Used by `execution` and `decide`.

The journal of a step is a file beside the session's outputs, out of reach of tools. It names each file with the hash
of its old and its new content; both contents are stored beside it before the first file changes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from gateway.domain.file_changes import NEW_FILE_MODE, ChangeOutcome, FileChange, FileChangeKind, Undo, content_hash
from gateway.domain.ids import SessionId, TurnId
from gateway.errors import BadRequest, DragomanError, NotFound
from gateway.ports import KeyValue
from gateway.toolcalls.files import WorkspaceFiles, file_mode, read_file, remove_file, replace_file

SEEN_FOR = timedelta(days=30)
"""Time for which the content of a file counts as known to a session."""
JOURNALS = 200
"""Journals that stay; older changes cannot be taken back."""
UNDO_BYTES = 20 * 2**20
"""Bytes of old contents that are stored for the changes of one turn."""
READ_BYTES = 64 * 2**20
"""Bytes of the largest file that is hashed."""
_ENDING = ".json"
_NEW = ".new"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One file of a journal."""

    path: str
    before: str
    """SHA-256; empty for a file that did not exist."""
    after: str
    """SHA-256; empty for a file that is removed."""
    kept: bool
    """True if the old content is stored."""
    mode: int = NEW_FILE_MODE
    """Permissions for a new file."""
    old_mode: int = NEW_FILE_MODE
    """Permissions that the file had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    """Changes of one step."""

    stem: str
    seq: int
    """Grows with each journal of the session."""
    turn: str
    undoes: str
    entries: tuple[_Entry, ...]


def _unheard(_path: str, _kind: FileChangeKind) -> None:
    """Notify nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFileChanges:
    """`ports.FileChanges` of one call."""

    key_value: KeyValue
    workspace: Path
    folder: Path
    """Folder of the session's journals."""
    session: SessionId
    epoch: int
    turn: TurnId
    n: int
    tell: Callable[[str, FileChangeKind], None] = _unheard
    """Callback with path and kind of each change that was made."""

    @property
    def _namespace(self) -> str:
        return f"seen/{self.session}/{self.epoch}"

    @property
    def _stem(self) -> str:
        return f"{self.turn}-{self.n}"

    async def seen(self, path: str) -> str:
        """Return the SHA-256 of the content that this session knows of a file; empty when it knows none."""
        return await self.key_value.get(self._namespace, self._name(path)) or ""

    async def saw(self, path: str, data: bytes) -> None:
        """Record a content that was read."""
        await self._record(self._name(path), content_hash(data))

    async def undo(self) -> Undo | None:
        """Return the changes that take back those of the last turn with changes."""
        return await asyncio.to_thread(_undo, self.folder)

    async def apply(self, changes: Sequence[FileChange], *, undoes: str = "") -> None:
        """Store a journal, then change the files."""
        files = WorkspaceFiles(self.workspace)
        named = [("/".join(files.new_parts(change.path)), change) for change in changes]
        await asyncio.to_thread(self._begin, named, undoes)
        await self.resume()

    async def resume(self) -> None:
        """Change the files of this call's journal that still have their old content."""
        entries = await asyncio.to_thread(self._complete)
        for entry in entries:
            await self._record(entry.path, entry.after)
            self.tell(entry.path, _kind(entry))

    async def outcome(self) -> ChangeOutcome:
        """Return the outcome of this call's changes."""
        return await asyncio.to_thread(self._outcome)

    async def _record(self, name: str, sha: str) -> None:
        await self.key_value.put(self._namespace, name, sha, SEEN_FOR)

    def _name(self, path: str) -> str:
        return "/".join(WorkspaceFiles(self.workspace).parts(path))

    # --- in a thread --------------------------------------------------------------------------

    def _begin(self, named: Sequence[tuple[str, FileChange]], undoes: str) -> None:
        """Check that every file is as it was seen, and store the journal with old and new contents."""
        checked = [(name, change, self._current(name)) for name, change in named]
        changed = [name for name, change, data in checked if content_hash(data) != change.before]
        if changed:
            raise _changed(changed[0])
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = sorted(_names(self.folder))
        left = UNDO_BYTES - _kept_bytes(self.folder, self.turn)
        entries: list[_Entry] = []
        contents: dict[str, bytes] = {}
        for n, (name, change, data) in enumerate(checked):
            kept = data is not None and len(data) <= left
            if data is not None and kept:
                left -= len(data)
                contents[f"{self._stem}-{n}.before"] = data
            if change.data is not None:
                contents[f"{self._stem}-{n}.after"] = change.data
            entries.append(
                _Entry(
                    path=name,
                    before=change.before,
                    after=content_hash(change.data),
                    kept=kept or data is None,
                    mode=change.mode,
                    old_mode=NEW_FILE_MODE if data is None else file_mode(self.workspace, tuple(name.split("/"))),
                )
            )
        seq = next((one for one, stem in names if stem == self._stem), names[-1][0] + 1 if names else 1)
        journal = _Journal(stem=self._stem, seq=seq, turn=self.turn, undoes=undoes, entries=tuple(entries))
        contents[_name(seq, self._stem)] = json.dumps(asdict(journal)).encode()
        _store(self.folder, contents)
        others = [one for one in names if one[1] != self._stem]
        for old_seq, stem in others[: max(0, len(others) + 1 - JOURNALS)]:
            _remove(self.folder, old_seq, stem)

    def _complete(self) -> tuple[_Entry, ...]:
        """Change the files that still have their old content. Drop a journal of which nothing can be done any more."""
        journal = self._own()
        if journal is None:
            return ()
        now = [content_hash(self._current(entry.path)) for entry in journal.entries]
        wrong = [one.path for one, sha in zip(journal.entries, now, strict=True) if sha not in (one.before, one.after)]
        if wrong:
            if not any(sha == one.after for one, sha in zip(journal.entries, now, strict=True)):
                _remove(self.folder, journal.seq, journal.stem)
            raise _changed(wrong[0])
        for n, (entry, sha) in enumerate(zip(journal.entries, now, strict=True)):
            parts = tuple(entry.path.split("/"))
            if sha == entry.after:
                continue
            if entry.after:
                data = (self.folder / f"{self._stem}-{n}.after").read_bytes()
                replace_file(self.workspace, parts, data, entry.mode)
            else:
                remove_file(self.workspace, parts)
        for n in range(len(journal.entries)):
            (self.folder / f"{self._stem}-{n}.after").unlink(missing_ok=True)
        return journal.entries

    def _outcome(self) -> ChangeOutcome:
        journal = self._own()
        if journal is None:
            return ChangeOutcome.NONE
        now = [(content_hash(self._current(entry.path)), entry) for entry in journal.entries]
        if all(sha == entry.after for sha, entry in now):
            return ChangeOutcome.DONE
        if not all(sha in (entry.before, entry.after) for sha, entry in now):
            return ChangeOutcome.UNKNOWN
        return ChangeOutcome.NONE if all(sha == entry.before for sha, entry in now) else ChangeOutcome.PART

    def _own(self) -> _Journal | None:
        """Return the journal of this call, or None when there is none."""
        names = [_name(seq, stem) for seq, stem in _names(self.folder) if stem == self._stem]
        return _read(self.folder / names[0]) if names else None

    def _current(self, name: str) -> bytes | None:
        """Return the content of a file, or None when there is none. Raises `BadRequest` for what is no regular file."""
        try:
            return read_file(self.workspace, tuple(name.split("/")), READ_BYTES)
        except NotFound:
            return None


def _kind(entry: _Entry) -> FileChangeKind:
    if not entry.after:
        return FileChangeKind.REMOVED
    return FileChangeKind.CHANGED if entry.before else FileChangeKind.ADDED


def _changed(path: str) -> BadRequest:
    return BadRequest(f"`{path}` changed meanwhile; nothing more was changed.", cure="Read it again, then edit again.")


def _undo(folder: Path) -> Undo | None:
    journals = sorted(_journals(folder), key=lambda one: one.seq)
    undone = {one.undoes for one in journals if one.undoes}
    made = [one for one in journals if not one.undoes and one.turn not in undone]
    if not made:
        return None
    turn = made[-1].turn
    back: dict[str, FileChange] = {}
    for journal in (one for one in made if one.turn == turn):
        for n, entry in enumerate(journal.entries):
            first = back.get(entry.path)
            if first is not None:
                back[entry.path] = replace(first, before=entry.after)
                continue
            if not entry.kept:
                hint = "Restore it from a backup or from version control."
                raise BadRequest(f"The old content of `{entry.path}` was too large to keep.", cure=hint)
            old = (folder / f"{journal.stem}-{n}.before").read_bytes() if entry.before else None
            back[entry.path] = FileChange(path=entry.path, before=entry.after, data=old, mode=entry.old_mode)
    return Undo(turn=turn, changes=tuple(one for one in back.values() if content_hash(one.data) != one.before))


def _name(seq: int, stem: str) -> str:
    return f"{seq:08}.{stem}{_ENDING}"


def _names(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield number and stem of each journal. They stand in its name, so that an edit reads no journal but its own."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            seq, dot, stem = name.removesuffix(_ENDING).partition(".")
            if dot and name.endswith(_ENDING) and seq.isdecimal():
                yield int(seq), stem


def _journals(folder: Path) -> Iterator[_Journal]:
    for seq, stem in _names(folder):
        if (journal := _read(folder / _name(seq, stem))) is not None:
            yield journal


def _read(path: Path) -> _Journal | None:
    """Return a journal, or None when there is none. A damaged one counts as none: it was never complete."""
    try:
        found = json.loads(path.read_bytes())
        entries = tuple(_Entry(**entry) for entry in found.pop("entries"))
        return _Journal(**found, entries=entries)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _kept_bytes(folder: Path, turn: str) -> int:
    """Return the bytes of old contents that are stored for a turn."""
    with os.scandir(folder) as found:
        return sum(
            one.stat(follow_symlinks=False).st_size
            for one in found
            if one.name.endswith(".before") and one.name.rsplit("-", 2)[0] == turn
        )


def _remove(folder: Path, seq: int, stem: str) -> None:
    """Remove a journal with its contents; contents without a journal stand for nothing."""
    (folder / _name(seq, stem)).unlink(missing_ok=True)
    for name in os.listdir(folder):
        if name.rpartition("-")[0] == stem and name.endswith((".before", ".after")):
            (folder / name).unlink(missing_ok=True)


def _store(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write private files durably, each whole or not at all, and in this order.

    All are written before the first is flushed: then one flush of the disk mostly does for all of them.
    """
    try:
        with ExitStack() as opened:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            files: list[int] = []
            for name, data in contents.items():
                files.append(os.open(folder / f"{name}{_NEW}", flags, 0o600))
                stream = opened.enter_context(os.fdopen(files[-1], "wb"))
                stream.write(data)
                stream.flush()
            for file in files:
                os.fsync(file)
        for name in contents:
            os.replace(folder / f"{name}{_NEW}", folder / name)
    except OSError as error:
        raise DragomanError(f"The change could not be recorded: {error}.", cure="Free space on the disk.") from error
