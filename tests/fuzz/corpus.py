"""Kept inputs of each parser: `corpus/<parser>/<hash>`, a long one packed as `<hash>.z`."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
KEPT_BYTES = 4096
"""A longer input is packed: what is slow is long, and says the same again and again."""
KEPT_AT_MOST = 40
"""Files of one parser."""
LONGEST = 65_536


def read(parser: str) -> list[bytes]:
    """Return every input that is kept for a parser, in the order of their names."""
    files = sorted(file for file in (FOLDER / parser).glob("*") if file.is_file())
    return [zlib.decompress(file.read_bytes()) if file.suffix == ".z" else file.read_bytes() for file in files]


def keep(parser: str, data: bytes) -> Path:
    """Write an input beside the others; return where. Twice is safe."""
    packed = len(data) > KEPT_BYTES
    file = FOLDER / parser / (hashlib.sha256(data).hexdigest()[:16] + (".z" if packed else ""))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(zlib.compress(data, 9) if packed else data)
    return file
