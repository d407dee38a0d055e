"""Reader of text files named in the configuration. They are read at load, so that a mistake stops the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from config.reading import Path as Key
from config.reading import TableReader
from config.values import Flaw

MOST_BYTES = 65_536
"""Most bytes of the files of one key: all of it goes into every prompt."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Reader of files by path, relative to `folder`, the configuration file's; None without a configuration file."""

    folder: Path | None

    def read(self, paths: Sequence[str], key: Key, reader: TableReader) -> str:
        """Return the texts of one key's files, in order, with an empty line between; the reader collects problems."""
        found: list[str] = []
        left = MOST_BYTES
        for n, path in enumerate(paths):
            try:
                data = self._bytes(path, left)
                found.append(_text(data, path))
            except Flaw as flaw:
                reader.flaw((*key, n) if len(paths) > 1 else key, flaw)
                continue
            left -= len(data)
        return "\n\n".join(filter(None, found))

    def _bytes(self, path: str, most: int) -> bytes:
        place = Path(path)
        if not place.is_absolute():
            if self.folder is None:
                raise Flaw(f"{path} is relative, and there is no configuration file beside it", "Write a whole path")
            place = self.folder / place
        try:
            # Checked first: opening a named pipe would block until something writes to it.
            if place.is_dir():
                raise Flaw(f"{place} is a folder", "Name the text files in it")
            if place.exists() and not place.is_file():
                raise Flaw(f"{place} is not a file", "Name a text file")
            with place.open("rb") as file:
                data = file.read(most + 1)
        except FileNotFoundError:
            raise Flaw(f"there is no file {place}", "Create it, or correct the path") from None
        except OSError as error:
            what = f"{place} cannot be read ({error.strerror})"
            raise Flaw(what, "Make it a file that the daemon can read") from None
        if len(data) > most:
            what = f"with {place} it is more than {MOST_BYTES // 1024} KB in all"
            raise Flaw(what, "Shorten it: all of it goes into every prompt")
        return data


def _text(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Flaw(f"{path} is not UTF-8 text (byte {error.start})", "Save it as UTF-8") from None
    if "\0" in text:
        raise Flaw(f"{path} is not UTF-8 text (there is a zero byte in it)", "Save it as UTF-8")
    return text.strip()
