from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.pictures import PICTURES_OF_PEOPLE, any_in, with_pictures
from gateway.domain.ids import CallId
from gateway.domain.prompts import CallResult, Image, Message, UserText
from gateway.domain.steps import Answer
from gateway.domain.tools import PICTURE_BYTES, Picture
from tests.support.makers import result

MARK = "00c0ffee00c0ffee"
PNG = b"\x89PNG\r\n\x1a\n"


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


def test_pictures_of_the_last_four_results_are_in_call_order(folder: Path) -> None:
    plain = CallResult(call=CallId("plain"), tool="shell", result=result("text"))
    asked = [UserText(text="go"), Answer(text="Looking.")]
    shots = [shot("a", "0.png"), shot("b", "1.png", "2.png"), plain, shot("c", "3.png"), shot("d", "4.png")]
    before = (*asked, *shots, shot("e", "5.png"))
    found = with_pictures(before, folder, None, MARK)

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


def test_unreadable_picture_is_named_and_the_rest_given(folder: Path) -> None:
    (folder / "large.png").write_bytes(b"x" * (PICTURE_BYTES + 1))
    (folder / "empty.png").write_bytes(b"")
    (folder / "link.png").symlink_to(folder / "0.png")
    (folder / "folder.png").mkdir()
    names = ["gone.png", "large.png", "empty.png", "link.png", "folder.png", "../0.png", "0\x00.png", "0.png"]
    (found,) = with_pictures([shot("a", *names)], folder, None, MARK)

    assert isinstance(found, CallResult)
    assert found.images == (Image(media_type="image/png", data=b"picture 0"),)
    lines = found.result.text.splitlines()
    assert lines[0] == "a"
    assert len([line for line in lines if "cannot be given" in line]) == len(names) - 1
    assert "[The picture large.png cannot be given: it is larger than 10 MB.]" in lines
    assert "[The picture gone.png cannot be given: it is not there any more.]" in lines


def test_other_kinds_of_files_are_not_given(folder: Path) -> None:
    (found,) = with_pictures([shot("a", "0.png", media_type="text/html")], folder, None, MARK)

    assert isinstance(found, CallResult)
    assert (found.images, "of a kind" in found.result.text) == ((), True)


def test_without_pictures_nothing_is_read(folder: Path) -> None:
    assert not any_in([UserText(text="hi"), shot("a")])
    assert any_in([shot("a", "0.png")])


# --- pictures of people -------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    inbox = tmp_path / "workspace" / "inbox"
    inbox.mkdir(parents=True)
    for n in range(6):
        (inbox / f"{n}.png").write_bytes(PNG + f"{n}".encode())
    return inbox.parent


def photos(*names: str, media_type: str = "image/png") -> UserText:
    return UserText(text="look", data="told", pictures=tuple(Picture(file=n, media_type=media_type) for n in names))


def names(found: tuple[Message, ...]) -> list[list[str]]:
    return [[image.name for image in one.images] for one in found if isinstance(one, UserText)]


def test_last_four_pictures_of_people_are_given_in_order(folder: Path, workspace: Path) -> None:
    before = (photos("inbox/0.png", "inbox/1.png"), photos("inbox/2.png", "inbox/3.png"), UserText(text="hm"))
    found = with_pictures((*before, photos("inbox/4.png")), folder, workspace, MARK)

    assert names(found) == [["inbox/1.png"], ["inbox/2.png", "inbox/3.png"], [], ["inbox/4.png"]]
    assert [one.data for one in users(found)] == ["told", "told", "", "told"]
    assert sum(map(len, names(found))) == PICTURES_OF_PEOPLE
    assert users(found)[3].images == (Image(media_type="image/png", data=PNG + b"4", name="inbox/4.png"),)


def test_all_pictures_of_the_last_message_are_given(folder: Path, workspace: Path) -> None:
    """An album of six, and nothing of what was sent before it."""
    album = [f"inbox/{n}.png" for n in range(6)]
    found = with_pictures((photos("inbox/0.png"), photos(*album), UserText(text="hm")), folder, workspace, MARK)

    assert names(found) == [[], album, []]


def test_pictures_of_a_session_that_moved_are_said_to_be_gone(folder: Path, tmp_path: Path) -> None:
    """Its new workspace is empty: it has no inbox either."""
    (moved := tmp_path / "moved").mkdir()
    (found,) = users(with_pictures([photos("inbox/0.png", "inbox/1.png")], folder, moved, MARK))

    assert found.images == ()
    says = "[{mark} The picture inbox/{n}.png cannot be shown to you: it is not there any more.]"
    assert found.data.split("\n\n") == ["told", *(says.format(mark=MARK, n=n) for n in (0, 1))]


def users(found: tuple[Message, ...]) -> list[UserText]:
    return [one for one in found if isinstance(one, UserText)]


def test_pictures_of_calls_and_of_people_are_counted_apart(folder: Path, workspace: Path) -> None:
    found = with_pictures(
        [photos("inbox/0.png"), *(shot(f"{n}", f"{n}.png") for n in range(5))], folder, workspace, MARK
    )

    assert (names(found), [len(one) for one in given(found)]) == ([["inbox/0.png"]], [0, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("inbox/gone.png", "not there any more"),
        ("inbox/link.png", "not there any more"),
        ("inbox/large.png", "larger than 10 MB"),
        ("inbox/text.png", "something else stands in its place"),
        ("inbox/empty.png", "it is empty"),
        ("linked/0.png", "not there any more"),
        ("../workspace/inbox/0.png", "its name"),
        ("/etc/passwd", "its name"),
        ("inbox/../../x", "its name"),
    ],
)
def test_removed_or_replaced_picture_is_named_and_not_given(folder: Path, workspace: Path, name: str, why: str) -> None:
    (workspace / "linked").symlink_to(workspace / "inbox")
    inbox = workspace / "inbox"
    (inbox / "link.png").symlink_to(inbox / "0.png")
    (inbox / "large.png").write_bytes(PNG + b"x" * PICTURE_BYTES)
    (inbox / "text.png").write_bytes(b"no picture")
    (inbox / "empty.png").write_bytes(b"")
    (found,) = users(with_pictures([photos(name)], folder, workspace, MARK))

    assert found.images == ()
    before, note = found.data.split("\n\n")
    assert (before, note.startswith(f"[{MARK} The picture {name} cannot be shown to you: ")) == ("told", True)
    assert why in note


def test_pictures_of_people_are_not_given_without_a_workspace(folder: Path) -> None:
    (found,) = users(with_pictures([photos("inbox/0.png")], folder, None, MARK))

    assert (found.images, "cannot be shown" in found.data) == ((), True)
    assert any_in([photos("inbox/0.png")])
