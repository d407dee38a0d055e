"""The page's own files, read once from the package, each with a hash that names its version."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_REFERENCE = re.compile(r'((?:src|href)=")/static/([^"?#]+)(")')


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served."""

    body: bytes
    content_type: str
    etag: str


class Assets:
    """All files below `static/`."""

    def __init__(self) -> None:
        """Read them."""
        self._files: dict[str, Asset] = {}
        self._read(files("channels.web").joinpath("static"), "")
        index = self._files["index.html"]
        body = _REFERENCE.sub(self._with_version, index.body.decode())
        self.index = _asset("index.html", body.encode())

    def get(self, path: str) -> Asset | None:
        """Return the file at this path below `static/`; only what was read at start exists."""
        return self._files.get(path)

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                self._read(entry, f"{prefix}{entry.name}/")
            else:
                name = f"{prefix}{entry.name}"
                self._files[name] = _asset(name, entry.read_bytes())

    def _with_version(self, match: re.Match[str]) -> str:
        asset = self._files.get(match.group(2))
        version = f"?v={asset.etag}" if asset else ""
        return f"{match.group(1)}/static/{match.group(2)}{version}{match.group(3)}"


def _asset(name: str, body: bytes) -> Asset:
    suffix = "." + name.rpartition(".")[2]
    kind = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return Asset(body=body, content_type=kind + charset, etag=hashlib.sha256(body).hexdigest()[:16])
