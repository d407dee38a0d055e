"""Choice between photo and document, by the header of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels.telegram.limits import PHOTO_BYTES
from channels.telegram.pictures import is_photo
from tests.support.proof import examples
from tests.unit.channels.telegram.pictures import jpeg, png, webp


def photo(folder: Path, data: bytes, size: int = 0) -> bool:
    path = folder / "file"
    path.write_bytes(data)
    return is_photo(path, size or len(data))


@pytest.mark.parametrize(
    "data",
    [
        png(),
        jpeg(),
        jpeg(before=0),
        webp(b"VP8X"),
        webp(b"VP8L"),
        webp(b"VP8 "),
        png(9_000, 1_000),
        png(100, 5),
        png(5, 100),
        jpeg(476, 9_520),
    ],
)
def test_pictures_are_photos(tmp_path: Path, data: bytes) -> None:
    assert photo(tmp_path, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG",
        png()[:20],
        jpeg()[:60_000],
        jpeg(before=1)[:60_012],
        jpeg(before=0)[:8],
        b"\xff\xd8" + b"\xff\xe1\x00\x02" * 1_000,
        b"\xff\xd8\xff\xe1\x00\x00",
        b"\xff\xd8" + bytes(100),
        webp(b"VP8X")[:26],
        webp(b"ALPH"),
        b"GIF89a" + bytes(100),
        b"%PDF-1.7",
        b"<svg/>",
        png(9_001, 1_000),
        png(101, 5),
        jpeg(5, 101),
        webp(b"VP8L", 10_000, 600),
        png(0, 0),
        png(2**31, 2**31),
    ],
)
def test_everything_else_is_a_file(tmp_path: Path, data: bytes) -> None:
    assert not photo(tmp_path, data)


def test_a_large_picture_is_a_file(tmp_path: Path) -> None:
    assert photo(tmp_path, png(), PHOTO_BYTES)
    assert not photo(tmp_path, png(), PHOTO_BYTES + 1)


def test_missing_file_is_no_photo(tmp_path: Path) -> None:
    assert not is_photo(tmp_path / "gone", 10)
    assert not is_photo(tmp_path, 10)


@pytest.mark.by_the_clock  # each on the disk, within Hypothesis' deadline
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([b"", png()[:16], b"\xff\xd8", b"\xff\xd8\xff\xc0", webp(b"VP8X")[:16]]), st.binary(max_size=200)
)
def test_any_bytes_are_judged(tmp_path: Path, start: bytes, rest: bytes) -> None:
    assert photo(tmp_path, start + rest, 200) in (True, False)
