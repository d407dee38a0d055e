"""Output buffer: nothing is lost silently, memory stays flat, the disk may fail."""

from __future__ import annotations

import os
import resource
import stat
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.tools import ResultStatus, ToolResult
from gateway.system.redaction import Redactor
from gateway.toolcalls.output import (
    CODE_CHARS,
    COPY_BYTES,
    COPY_NOTE,
    FILE_BYTES,
    FILE_NOTE,
    HALF_BYTES,
    HALF_LINES,
    HINT_CHARS,
    LIVE_CHARS,
    LIVE_TAIL_BYTES,
    TEXT_CHARS,
    OutputBuffer,
    bounded,
)
from tests.support.clock import FakeClock
from tests.support.proof import examples


class Shown:
    """Live text as a viewer receives it."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, str]] = []

    def __call__(self, start: int, text: str) -> None:
        self.pieces.append((start, text))

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "output"


def buffer(folder: Path, clock: FakeClock | None = None, shown: Shown | None = None) -> OutputBuffer:
    return OutputBuffer(folder, "step-1.txt", clock or FakeClock(), Redactor(), shown)


def test_short_output_is_all_there_and_makes_no_file(folder: Path) -> None:
    out = buffer(folder)
    out.write(b"one\n")
    out.write("zwei ☃\n".encode())
    out.close()
    assert out.text() == "one\nzwei ☃\n"
    assert (out.dropped_bytes, out.full_output, folder.exists()) == (0, "", False)


@pytest.mark.parametrize(
    ("data", "dropped"),
    [
        (b"", 0),
        (b"x" * 2 * HALF_BYTES, 0),
        (b"x" * (2 * HALF_BYTES + 1), 1),
        (b"y\n" * 2 * HALF_LINES, 0),
        (b"y\n" * 2 * HALF_LINES + b"y", 2),
        (b"y\n" * 2 * HALF_LINES + b"y\n", 2),
    ],
)
def test_the_limits_are_exact(folder: Path, data: bytes, dropped: int) -> None:
    out = buffer(folder)
    out.write(data)
    out.close()
    assert out.dropped_bytes == dropped
    assert bool(out.full_output) == bool(dropped)


def test_long_output_keeps_both_ends_and_a_private_file(folder: Path) -> None:
    lines = [f"line {number}\n".encode() for number in range(30_000)]
    out = buffer(folder)
    for line in lines:
        out.write(line)
    out.close()
    kept = out.text().splitlines()
    assert kept[:HALF_LINES] == [f"line {number}" for number in range(HALF_LINES)]
    assert kept[HALF_LINES] == f"… {out.dropped_bytes:,} bytes left out …"
    assert kept[HALF_LINES + 1 :] == [f"line {number}" for number in range(30_000 - HALF_LINES, 30_000)]
    assert out.full_output == "step-1.txt"
    file = folder / out.full_output
    assert file.read_bytes() == b"".join(lines)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_character_is_split_where_something_is_left_out(folder: Path) -> None:
    out = buffer(folder)
    out.write(b"x" + "☃".encode() * 40_000)
    out.close()
    head, marker, tail = out.text().split("\n")
    assert head == "x" + "☃" * ((HALF_BYTES - 1) // 3)
    assert marker.startswith("… ")
    assert set(tail) == {"☃"}
    assert len(tail) == HALF_BYTES // 3


def test_a_call_that_is_run_again_replaces_its_file(folder: Path) -> None:
    for letter in (b"a", b"b"):
        out = buffer(folder)
        out.write(letter * 60_000)
        out.close()
    assert (folder / "step-1.txt").read_bytes() == b"b" * 60_000


def test_a_link_in_the_place_of_the_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "step-1.txt").symlink_to(tmp_path / "victim")
    out = buffer(folder)
    out.write(b"a" * 60_000)
    out.close()
    assert out.full_output == ""
    assert not (tmp_path / "victim").exists()


def test_a_flood_stays_flat_and_its_file_is_capped(folder: Path) -> None:
    shown = Shown()
    clock = FakeClock()
    out = buffer(folder, clock, shown)
    chunk = b"a line of a flood that does not end\n" * 1820
    out.write(chunk * 4)
    tracemalloc.start()
    for _ in range(200 * 2**20 // len(chunk)):
        out.write(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    out.close()
    assert peak < 1_000_000
    assert len(out.text()) < 2 * HALF_BYTES + 100
    assert (folder / out.full_output).stat().st_size == FILE_BYTES + len(FILE_NOTE.encode())
    assert out.dropped_bytes > 200_000_000


def test_a_disk_that_cannot_be_written_does_not_fail_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    out = buffer(tmp_path / "file" / "below")
    out.write(b"z" * 100_000)
    out.write(b"end")
    out.close()
    assert out.full_output == ""
    assert out.text().endswith("zend")
    assert out.dropped_bytes == 100_003 - 2 * HALF_BYTES


def test_full_disk_keeps_the_call_and_removes_the_file(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = buffer(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, hard))  # EFBIG stands for ENOSPC: the same path
    try:
        for _ in range(10):
            out.write(b"z" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    out.write(b"end")
    out.close()
    assert (out.full_output, os.listdir(folder)) == ("", [])
    assert out.text().endswith("zend")


def test_closing_twice_is_safe_and_later_words_are_still_kept(folder: Path) -> None:
    shown = Shown()
    out = buffer(folder, shown=shown)
    out.write(b"a" * 60_000)
    out.close()
    out.close()
    out.write(b"last words")
    assert out.text().endswith("last words")
    assert (folder / "step-1.txt").stat().st_size == 60_000


# --- live -----------------------------------------------------------------------------------


def test_live_text_waits_for_whole_characters(folder: Path) -> None:
    shown = Shown()
    out = buffer(folder, shown=shown)
    snowman = "☃".encode()
    out.write(b"a\n" + snowman[:1])
    out.write(snowman[1:] + b"b\n" + snowman[:2])
    out.close()
    assert shown.pieces == [(0, "a\n"), (2, "☃b\n"), (5, "\ufffd")]


def test_a_flood_is_shown_once_a_second_by_its_end(folder: Path) -> None:
    shown, clock = Shown(), FakeClock()
    out = buffer(folder, clock, shown)
    out.write(b"x\n" * (LIVE_CHARS // 2))
    out.write(b"y\n" * 50_000)
    out.write(b"y\n" * 50_000)
    assert len(shown.pieces) == 1
    clock.advance(1)
    out.write(b"z\n")
    start, text = shown.pieces[1]
    assert start + len(text) == LIVE_CHARS + 200_002
    assert text.strip() == "y\n" * text.count("y") + "z"
    out.write("☃".encode() * 2)
    assert len(shown.pieces) == 2
    out.close()
    assert shown.pieces[2] == (LIVE_CHARS + 200_002, "☃☃")


# --- secrets --------------------------------------------------------------------------------

SECRET = "123456789:AAExampleExampleExampleExample_tok"


def of_secret(folder: Path, shown: Shown | None = None) -> OutputBuffer:
    return OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor([SECRET]), shown)


@pytest.mark.parametrize("at", range(1, len(SECRET)))
@pytest.mark.parametrize("apart", ["|", ""])
def test_a_secret_that_comes_in_two_pieces_is_not_shown(folder: Path, at: int, apart: str) -> None:
    """By itself, and with the words around it."""
    shown = Shown()
    out = of_secret(folder, shown)
    printed = f"The token is {apart}{SECRET[:at]}|{SECRET[at:]}{apart} and that is all.\n|Bye"
    for piece in printed.split("|"):
        out.write(piece.encode())
    out.close()
    assert "".join(text for _, text in shown.pieces) == "The token is [hidden] and that is all.\nBye"
    assert [start for start, _ in shown.pieces] == [
        sum(len(text) for _, text in shown.pieces[:n]) for n in range(len(shown.pieces))
    ]


@pytest.mark.parametrize("at", range(1, len(SECRET)))
@pytest.mark.parametrize("pad", ["x", "x "])
def test_a_secret_that_is_cut_in_two_is_not_there(folder: Path, at: int, pad: str) -> None:
    out = of_secret(folder)
    before = (pad * HALF_BYTES)[-(HALF_BYTES - at) :]
    after = (pad * HALF_BYTES)[: HALF_BYTES - at]
    out.write((before + SECRET + pad * 90_000 + SECRET + after).encode())
    out.close()
    head, _, tail = out.text().partition(" bytes left out …\n")
    assert not {head[n : n + 4] for n in range(len(head))} & {SECRET[n : n + 4] for n in range(at - 3)}
    assert not any(tail.startswith(SECRET[-n:]) for n in range(4, len(SECRET)))


def test_long_word_is_not_scanned_with_each_letter(folder: Path) -> None:
    class Counting(Redactor):
        looks = 0

        def pending(self, text: str, *, by_lines: bool = False) -> int:
            self.looks += 1
            return super().pending(text, by_lines=by_lines)

    redactor, shown = Counting([SECRET]), Shown()
    out = OutputBuffer(folder, "step-1.txt", FakeClock(), redactor, shown)
    for _ in range(20_000):
        out.write(b"x")
    out.close()
    assert "".join(text for _, text in shown.pieces) == "x" * 20_000
    assert redactor.looks < 10


@pytest.mark.parametrize("at", range(1, len(SECRET)))
def test_a_secret_is_not_in_the_file_either(folder: Path, at: int) -> None:
    """It is handed out on the page. Bytes that are no text stay as they are."""
    out = of_secret(folder)
    before, after = b"\xff\x00 x\n" * HALF_BYTES, b"\xc3 bye " + SECRET[:-1].encode()
    for piece in (before + SECRET[:at].encode(), SECRET[at:].encode() + after):
        out.write(piece)
    out.close()
    assert (folder / out.full_output).read_bytes() == before + b"[hidden]" + after


def test_secret_within_another_is_redacted_in_the_file(folder: Path) -> None:
    longer = SECRET + "-and-more"
    out = OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor([SECRET, longer]))
    for piece in (b"x\n" * HALF_BYTES + SECRET.encode(), b"-and-more ", SECRET.encode(), b"-and-mo", b"o"):
        out.write(piece)
    out.close()
    written = (folder / out.full_output).read_text()
    assert written.endswith("x\n[hidden] [hidden]-and-moo")


@pytest.mark.parametrize("pad", [3_900, 4_080, 4_096, 9_000])
def test_a_secret_in_the_middle_of_a_long_line_is_not_shown(folder: Path, pad: int) -> None:
    shown = Shown()
    out = OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor([SECRET]), shown)
    out.write(f" {'x' * 3_000}{SECRET}{'y' * pad}".encode())
    out.write(b" end\n")
    out.close()
    assert "".join(text for _, text in shown.pieces) == f" {'x' * 3_000}[hidden]{'y' * pad} end\n"


@pytest.mark.whole("64 MB; a full file that ends with its note stays")
def test_file_full_within_a_secret_has_nothing_of_it(folder: Path) -> None:
    out = of_secret(folder)
    out.write(b"x" * (FILE_BYTES - len(SECRET) + 1) + SECRET.encode())
    out.close()
    assert (folder / out.full_output).read_bytes()[-200:].endswith(f"xx{FILE_NOTE}".encode())


@pytest.mark.whole("64 MB; a flood whose file is capped stays, and secrets that are cut anywhere else")
def test_a_file_that_is_full_ends_with_its_note(folder: Path) -> None:
    out = of_secret(folder)
    out.write(b"x" * (FILE_BYTES - len(SECRET)) + (SECRET[:-1] + "|" + SECRET).encode())
    out.write(SECRET.encode())
    out.close()
    assert (folder / out.full_output).read_bytes()[-200:].endswith(f"x{SECRET[:-1]}|{FILE_NOTE}".encode())


def test_flood_that_starts_within_a_secret_hides_its_end(folder: Path) -> None:
    shown, clock = Shown(), FakeClock()
    out = OutputBuffer(folder, "step-1.txt", clock, Redactor([SECRET]), shown)
    out.write(b"x\n" * LIVE_CHARS)
    clock.advance(1)
    out.write((SECRET + "\n" + "y\n" * ((LIVE_TAIL_BYTES - 20) // 2)).encode())
    out.close()
    assert SECRET[-10:] not in "".join(text for _, text in shown.pieces)


@pytest.mark.parametrize("stray", [b"\x80", b"\x80" * 40, b"\x80\xff"])
def test_bytes_that_are_no_text_do_not_cut_a_secret_in_a_flood(folder: Path, stray: bytes) -> None:
    """They are no characters where these are counted, and are one each where they are shown."""
    shown, clock = Shown(), FakeClock()
    out = OutputBuffer(folder, "step-1.txt", clock, Redactor([SECRET]), shown)
    out.write(b"x\n" * LIVE_CHARS)
    for _ in range(2):
        clock.advance(1)
        out.write(SECRET.encode() + stray + b" bye\n")
    out.close()
    told = "".join(text for _, text in shown.pieces[1:])
    assert SECRET[1:] not in told
    assert told.count("[hidden]") == told.count("bye") == 2


def test_a_character_that_comes_in_two_pieces_of_a_flood_is_one(folder: Path) -> None:
    """A secret with one in it was shown but for that one."""
    secret = "Pässwort-der-Datenbank"
    shown, clock = Shown(), FakeClock()
    out = OutputBuffer(folder, "step-1.txt", clock, Redactor([secret]), shown)
    out.write(b"x\n" * LIVE_CHARS)
    for text in (f"password: {secret}\n", "日本 ok\n"):
        data = text.encode()
        cut = next(n for n, byte in enumerate(data) if byte >= 0x80) + 1
        for piece in (data[:cut], data[cut:]):
            clock.advance(1)
            out.write(piece)
    for piece in ("𐍈".encode()[:3], "𐍈".encode()[3:]):
        clock.advance(1)
        out.write(piece)
    out.write(b"end \xe6")
    out.close()
    assert "".join(text for _, text in shown.pieces[1:]) == "password: [hidden]\n日本 ok\n𐍈end \ufffd"


def test_the_end_of_a_secret_of_many_lines_is_not_there(folder: Path) -> None:
    """The kept end begins with a line, and that may be one of a key."""
    lines = [f"{n:02d}MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" for n in range(20)]
    out = OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor(["\n".join(lines)]))
    out.write(("head\n" * 1_500 + "\n".join(lines) + "\n" + "tail\n" * (HALF_LINES - 10)).encode())
    out.close()
    assert not [line for line in lines if line in out.text()]
    assert out.text().endswith("\ntail\n")


# --- properties -----------------------------------------------------------------------------


def repeated(piece: bytes, times: int) -> bytes:
    return piece * times


def encoded(piece: str, times: int) -> bytes:
    return piece.encode() * times


some_bytes = st.binary(max_size=50)
many_bytes = st.builds(repeated, st.binary(min_size=1, max_size=4), st.integers(0, 20_000))
many_characters = st.builds(encoded, st.text(min_size=1, max_size=3), st.integers(0, 9_000))
many_lines = st.builds(repeated, st.just(b"\n"), st.integers(0, 1_500))
pieces: st.SearchStrategy[list[bytes]] = st.lists(some_bytes | many_bytes | many_characters | many_lines, max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(written=pieces)
def test_kept_output_is_head_and_tail_of_the_written(tmp_path_factory: pytest.TempPathFactory,
                                                           written: list[bytes]) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("output")
    out = buffer(folder)
    for piece in written:
        out.write(piece)
    out.close()
    everything = b"".join(written)
    text, dropped = out.text(), out.dropped_bytes
    if not dropped:
        assert text == everything.decode(errors="replace")
        assert os.listdir(folder) == []
        return
    assert (folder / out.full_output).read_bytes() == everything
    kept = len(everything) - dropped
    assert kept <= 2 * HALF_BYTES
    marker = f"… {dropped:,} bytes left out …\n"
    head, _, tail = text.partition(marker)
    assert everything.decode(errors="replace").startswith(head.rstrip("\n\ufffd"))
    assert everything.decode(errors="replace").endswith(tail.lstrip("\ufffd"))
    assert head.count("\n") <= HALF_LINES + 1
    assert len(tail.splitlines()) <= HALF_LINES or tail.count("\n") <= HALF_LINES


@settings(max_examples=examples(150), deadline=None)
@given(text=st.text(max_size=3_000), times=st.integers(1, 60), cut=st.integers(1, 70_000))
def test_chunks_do_not_matter(tmp_path_factory: pytest.TempPathFactory, text: str, times: int, cut: int) -> None:
    everything = (text * times).encode()
    folder = tmp_path_factory.mktemp("output")
    whole, shown = buffer(folder / "a"), Shown()
    whole.write(everything)
    parts = buffer(folder / "b", shown=shown)
    cut = max(cut, len(everything) // 200 + 1)
    for start in range(0, len(everything), cut):
        parts.write(everything[start : start + cut])
    whole.close()
    parts.close()
    assert parts.text() == whole.text()
    assert parts.dropped_bytes == whole.dropped_bytes
    if len(text) * times <= LIVE_CHARS:
        assert shown.text == text * times
        assert [start for start, _ in shown.pieces] == offsets(shown)


def offsets(shown: Shown) -> list[int]:
    found: list[int] = []
    at = 0
    for _, text in shown.pieces:
        found.append(at)
        at += len(text)
    return found


# --- every result ---------------------------------------------------------------------------------


def test_the_words_of_any_result_are_bounded() -> None:
    found = bounded(ToolResult(status=ResultStatus.DENIED, text="a" * 200_000 + "z", code="c" * 999, hint="h" * 99_999))

    assert (len(found.text) <= TEXT_CHARS, len(found.code), len(found.hint)) == (True, CODE_CHARS, HINT_CHARS)
    assert (found.text[0], found.text[-1]) == ("a", "z")
    assert f"… {found.dropped_bytes:,} bytes left out …" in found.text


@pytest.mark.parametrize("text", ["", "x" * TEXT_CHARS])
def test_a_result_within_the_bounds_stays_the_same(text: str) -> None:
    result = ToolResult(status=ResultStatus.OK, text=text, code="c" * CODE_CHARS, hint="h" * HINT_CHARS)

    assert bounded(result) is result


def test_a_copy_on_a_full_disk_is_given_up_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    full = os.open("/dev/full", os.O_WRONLY)
    out = OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor(), copy=lambda _name: full)
    out.write(b"z" * 100_000)
    out.close()

    assert (out.has_copy, out.full_output) == (False, "step-1.txt")
    assert (folder / "step-1.txt").stat().st_size == 100_000
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(full)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "cut"), [(COPY_BYTES, False), (COPY_BYTES + 1, True), (FILE_BYTES + 1, True)])
def test_the_copy_is_made_at_the_end_and_capped(folder: Path, tmp_path: Path, size: int, cut: bool) -> None:
    copy, made = tmp_path / "copy", list[str]()

    def open_copy(name: str) -> int:
        made.append(name)
        return os.open(copy, os.O_WRONLY | os.O_CREAT)

    out = OutputBuffer(folder, "step-1.txt", FakeClock(), Redactor(), copy=open_copy)
    out.write(b"z" * size)
    assert (made, out.has_copy) == ([], False)
    out.close()
    out.close()

    assert (made, out.has_copy, out.copy_is_cut) == (["step-1.txt"], True, cut)
    assert copy.read_bytes() == b"z" * COPY_BYTES + (COPY_NOTE.encode() if cut else b"")
