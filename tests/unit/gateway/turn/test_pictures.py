from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.model.ids import CallId
from gateway.model.prompts import CallResult, Image, Message, UserText
from gateway.model.tools import Answer, Picture
from gateway.turn.pictures import PICTURE_AT_MOST, any_in, with_pictures
from tests.support.makers import result


def shot(name: str, *files: str, media_type: str = "image/png") -> CallResult:
    pictures = tuple(Picture(file=one, media_type=media_type) for one in files)
    return CallResult(call=CallId(name), tool="browser", result=replace(result(name), pictures=pictures))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(f"picture {n}".encode())
    return tmp_path


def given(found: tuple[Message, ...]) -> list[list[bytes]]:
    return [[image.data for image in one.images] for one in found if isinstance(one, CallResult)]


def test_the_pictures_of_the_last_four_results_that_have_some_are_given_in_call_order(folder: Path) -> None:
    plain = CallResult(call=CallId("plain"), tool="shell", result=result("text"))
    asked = [UserText(text="go"), Answer(text="Looking.")]
    shots = [shot("a", "0.png"), shot("b", "1.png", "2.png"), plain, shot("c", "3.png"), shot("d", "4.png")]
    before = (*asked, *shots, shot("e", "5.png"))
    found = with_pictures(before, folder)

    assert given(found) == [
        [],
        [b"picture 1", b"picture 2"],
        [],
        [b"picture 3"],
        [b"picture 4"],
        [b"picture 5"],
    ]
    assert [getattr(one, "call", "") for one in found] == ["", "", "a", "b", "plain", "c", "d", "e"]
    assert found[:3] == before[:3]


def test_what_cannot_be_given_is_said_and_the_rest_is_given(folder: Path) -> None:
    (folder / "large.png").write_bytes(b"x" * (PICTURE_AT_MOST + 1))
    (folder / "empty.png").write_bytes(b"")
    (folder / "link.png").symlink_to(folder / "0.png")
    (folder / "folder.png").mkdir()
    names = ["gone.png", "large.png", "empty.png", "link.png", "folder.png", "../0.png", "0\x00.png", "0.png"]
    (found,) = with_pictures([shot("a", *names)], folder)

    assert isinstance(found, CallResult)
    assert found.images == (Image(media_type="image/png", data=b"picture 0"),)
    lines = found.result.text.splitlines()
    assert lines[0] == "a"
    assert len([line for line in lines if "cannot be given" in line]) == len(names) - 1
    assert "[The picture large.png cannot be given: it is larger than 10 MB.]" in lines
    assert "[The picture gone.png cannot be given: it is not there any more.]" in lines


def test_other_kinds_of_files_are_not_given(folder: Path) -> None:
    (found,) = with_pictures([shot("a", "0.png", media_type="text/html")], folder)

    assert isinstance(found, CallResult)
    assert (found.images, "of a kind" in found.result.text) == ((), True)


def test_without_pictures_nothing_is_read(folder: Path) -> None:
    assert not any_in([UserText(text="hi"), shot("a")])
    assert any_in([shot("a", "0.png")])
