"""Static files of the page, read once from the package, under one content hash. Served by `adapter`."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, normpath
from typing import Final

TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
ENTRY: Final = "app.js"
STALE: Final = "stale.js"
"""Script that reloads a page of another version; therefore served under every version."""
FOR_EVER: Final = "public, max-age=31536000, immutable"
ASK_EACH_TIME: Final = "no-cache"
NEVER_KEEP: Final = "no-store"
_REFERENCE = re.compile(r'((?:src|href)="/static)/')
_IMPORT = re.compile(r'\b(?:from|import)\s*"(\.{1,2}/[^"]+)"')
_VERSION = re.compile(r"([0-9a-f]{16})/(.+)")
_PRELOADS = "<!-- modules -->"
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/[ \t]*\n", re.MULTILINE | re.DOTALL)
"""Documentation comment on lines of its own; the browser has no use for it."""
_FOREIGN = "vendor/"
"""Folder of the libraries of others, served as they are."""


@dataclass(frozen=True, slots=True)
class Asset:
    """File as served."""

    body: bytes
    content_type: str
    etag: str


class Assets:
    """Files below `static/`.

    The version is part of the path, so that modules find each other by relative imports within it.
    """

    def __init__(self) -> None:
        """Read all files."""
        self._files: dict[str, Asset] = {}
        self._read(files("gateway.server.page").joinpath("static"), "")
        tags = "".join(f"{name} {asset.etag}\n" for name, asset in sorted(self._files.items()))
        self.version: Final = hashlib.sha256(tags.encode()).hexdigest()[:16]
        self.imports: Final = self._below(ENTRY)
        """Imports of each module, in the order of first import, starting with the entry module."""
        self.index: Final = _asset("index.html", self._index().encode())

    def find(self, path: str) -> tuple[Asset, str] | None:
        """Return the file at this path below `/static/` and its `Cache-Control`; only files read at start exist.

        Under another version only the script `STALE` exists.
        """
        versioned = _VERSION.fullmatch(path)
        version, name = versioned.groups() if versioned else ("", path)
        if versioned and version != self.version and name != STALE:
            return None
        cache = FOR_EVER if version == self.version else NEVER_KEEP if version else ASK_EACH_TIME
        asset = self._files.get(name)
        return None if asset is None else (asset, cache)

    def _index(self) -> str:
        """Return the page with versioned file paths and a preload link for every module."""
        body = self._files["index.html"].body.decode()
        links = "\n".join(f'<link rel="modulepreload" href="/static/{name}">' for name in self.imports)
        return _REFERENCE.sub(rf"\1/{self.version}/", body.replace(_PRELOADS, links))

    def _below(self, entry: str) -> dict[str, list[str]]:
        """Return a module's transitive imports, itself first."""
        found: dict[str, list[str]] = {}
        waiting = [entry]
        while waiting:
            name = waiting.pop(0)
            if name in found:
                continue
            text = self._files[name].body.decode()
            found[name] = [normpath(f"{dirname(name)}/./{to}").lstrip("/") for to in _IMPORT.findall(text)]
            waiting += found[name]
        return found

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                self._read(entry, f"{prefix}{entry.name}/")
            else:
                name = f"{prefix}{entry.name}"
                self._files[name] = _asset(name, _served(name, entry.read_bytes()))


@cache
def page_assets() -> Assets:
    """Return the files of the page. Read once: no process serves others."""
    return Assets()


def _served(name: str, body: bytes) -> bytes:
    """Return a file as it is sent: our modules without their documentation, a seventh of the first load."""
    if name.startswith(_FOREIGN) or not name.endswith(".js"):
        return body
    return _COMMENT.sub("", body.decode()).encode()


def _asset(name: str, body: bytes) -> Asset:
    suffix = "." + name.rpartition(".")[2]
    kind = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return Asset(body=body, content_type=kind + charset, etag=hashlib.sha256(body).hexdigest()[:16])
