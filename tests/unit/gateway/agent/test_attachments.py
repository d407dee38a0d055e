"""Attachments: bounded, stored under our own names; a failed fetch never fails the turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.agent import attachments
from gateway.agent.attachments import FILE_AT_MOST, FILES_AT_MOST, MESSAGE_AT_MOST, Attachments, ending, sniffed, stated
from gateway.domain.ids import InboundId, SessionId, main_session
from gateway.domain.messages import Attachment, FetchedFile, Received
from gateway.domain.slots import NewSlot
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.errors import DragomanError, FetchFailed, LeaseLost, StoreError
from gateway.system.redaction import HIDDEN, Redactor
from tests.support.clock import FakeClock
from tests.support.fakes import NODE, FailingStore, FakeChannel, in_background, until
from tests.support.makers import ANN, attachment, fetched
from tests.support.turns import asked, lineage, session, turn_view

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
MEGABYTE = b"\x00" * 1_000_000
LEASE = Lease(turn=turn_view().turn.id, session=main_session(ANN), node=NODE, fence=1)


class Told(FailingStore):
    """Store that records the outcome of each fetch."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(FakeClock())
        self.told: list[tuple[InboundId, tuple[FetchedFile, ...]]] = []
        self.fails: Exception | None = None

    async def record_fetched(
        self, lease: Lease, message: InboundId, files: Sequence[FetchedFile], slots: Sequence[NewSlot] = ()
    ) -> None:
        """Record the outcome, or fail."""
        assert lease == LEASE
        if self.fails is not None:
            raise self.fails
        self.told.append((message, tuple(files)))


@dataclass(slots=True)
class World:
    """Workspace, channel and store for `Attachments`."""

    folder: Path
    channel: FakeChannel = field(default_factory=FakeChannel)
    store: Told = field(default_factory=Told)
    workspaces: list[SessionId] = field(default_factory=list[SessionId])
    within_s: float = 60.0
    all_s: float = 180.0

    def workspace(self, session: SessionId) -> Path:
        """Return the workspace."""
        self.workspaces.append(session)
        return self.folder

    def made(self) -> Attachments:
        """Return the `Attachments` under test."""
        return Attachments(
            channels={"telegram": self.channel},
            workspaces=self.workspace,
            journal=self.store,
            redactor=Redactor(["hunter2hunter2"]),
            file_within_s=self.within_s,
            all_within_s=self.all_s,
            again_after_s=0,
        )

    async def fetch(self, *files: Attachment, view: TurnView | None = None) -> tuple[FetchedFile, ...]:
        """Fetch the files of one message."""
        found = await self.made().fetch(view or turn_view(inputs=[sent(*files)]), LEASE)
        return found.inputs[0].files or ()

    async def one(self, *pieces: bytes | Exception | None, name: str = "photo.png", size: int = 0) -> FetchedFile:
        """Fetch one file that arrives in these pieces."""
        self.channel.files["f1"] = pieces
        (found,) = await self.fetch(attachment(name, size=size))
        return found

    @property
    def inbox(self) -> list[str]:
        """Return the names in the inbox, partial files included."""
        return sorted(path.name for path in (self.folder / "inbox").iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return World(workspace)


def sent(*files: Attachment, id: str = "i1", given: int | None = None, context: bool = False) -> Received:
    one = asked("look", given=given)
    message = replace(one.message, attachments=files)
    return replace(one, id=InboundId(id), message=message, context=context)


# --- what is fetched ----------------------------------------------------------------------------


async def test_a_file_is_there_under_a_name_of_ours_and_private(world: World) -> None:
    found = await world.one(PNG[:5], PNG[5:], name="../../etc/passwd\x00.PnG", size=len(PNG))

    assert found == FetchedFile(path="inbox/i1-1.png", size=len(PNG), media_type="image/png")
    path = world.folder / found.path
    assert path.read_bytes() == PNG
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert world.inbox == ["i1-1.png"]


async def test_outcome_of_files_is_stored_before_it_is_used(world: World) -> None:
    world.channel.files |= {"a": [b"one"], "b": [FetchFailed("It is gone.")]}
    files = (attachment("a.txt", source="a"), attachment("b.txt", source="b", media_type="text/plain", size=9))
    view = turn_view(inputs=[sent(*files), sent(id="i2"), sent(*files, id="i3", given=0)])
    found = await world.made().fetch(view, LEASE)

    expected = (
        FetchedFile(path="inbox/i1-1.txt", size=3, media_type="text/plain"),
        FetchedFile(path="", size=9, media_type="text/plain", trouble="It is gone."),
    )
    assert world.store.told == [("i1", expected)]
    assert [one.files for one in found.inputs] == [expected, None, None]
    assert found.turn == view.turn


async def test_a_message_is_looked_at_once(world: World) -> None:
    known = replace(sent(attachment()), files=(fetched("inbox/i1-1.png"),))
    context = sent(attachment(), id="i2", context=True)
    view = turn_view(inputs=[known, context])

    assert await world.made().fetch(view, LEASE) == view
    assert (world.channel.fetched, world.store.told, world.workspaces) == ([], [], [])


async def test_a_child_has_its_files_where_its_root_has_them(world: World) -> None:
    world.channel.files["f1"] = [PNG]
    where = sent(attachment()).message.conversation
    view = turn_view(of=session(of=lineage()), inputs=[sent(attachment())], where=where)

    assert [one.path for one in await world.fetch(view=view)] == ["inbox/i1-1.png"]
    assert world.workspaces == [main_session(ANN)]


async def test_files_are_fetched_to_the_same_path_after_a_crash(world: World) -> None:
    """It came between the file and its row; a partial one of that life is gone too."""
    world.store.fails = StoreError("The store failed.")
    world.channel.files["f1"] = [PNG]
    with pytest.raises(StoreError):
        await world.fetch(attachment())
    (world.folder / "inbox" / ".i1-1.part").write_bytes(b"half")
    world.store.fails = None
    found = await world.one(PNG, b"more")

    assert (world.folder / found.path).read_bytes() == PNG + b"more"
    assert world.inbox == ["i1-1.png"]


async def test_a_lease_that_was_lost_ends_it(world: World) -> None:
    world.store.fails, world.channel.files["f1"] = LeaseLost(), [PNG]
    with pytest.raises(LeaseLost):
        await world.fetch(attachment())


# --- bounds -------------------------------------------------------------------------------------


async def test_a_file_that_says_that_it_is_too_large_is_not_asked_for(world: World) -> None:
    found = await world.one(PNG, size=FILE_AT_MOST + 1)

    assert (found.path, found.trouble) == ("", "It has more than 25 MB.")
    assert world.channel.fetched == []


async def test_a_file_that_turns_out_too_large_leaves_nothing(world: World) -> None:
    found = await world.one(*[MEGABYTE] * 26, size=3)

    assert (found.path, found.trouble) == ("", "It has more than 25 MB.")
    assert world.inbox == []
    assert (await world.one(*[MEGABYTE] * 25)).size == FILE_AT_MOST


async def test_the_files_of_a_message_have_a_limit_together(world: World) -> None:
    names = ["a", "b", "c", "d"]
    world.channel.files |= {"a": [MEGABYTE] * 25, "b": [MEGABYTE] * 20, "c": [MEGABYTE] * 6, "d": [MEGABYTE] * 5}
    found = await world.fetch(*(attachment(one, source=one) for one in names))

    assert [bool(one.path) for one in found] == [True, True, False, True]
    assert found[2].trouble == "The files of the message have more than 50 MB together."
    assert sum(one.size for one in found if one.path) == MESSAGE_AT_MOST


async def test_no_more_than_ten_files_of_a_message_are_taken(world: World) -> None:
    world.channel.files |= {str(n): [b"x"] for n in range(12)}
    found = await world.fetch(*(attachment(f"{n}.txt", source=str(n)) for n in range(12)))

    assert [bool(one.path) for one in found] == [True] * FILES_AT_MOST + [False] * 2
    assert found[-1].trouble == "Only 10 files of a message are taken."


async def test_stalled_file_is_given_up_and_the_next_one_fetched(world: World) -> None:
    world.within_s = 0.05
    world.channel.files |= {"a": [b"half", None], "b": [b"whole"]}
    found = await world.fetch(attachment("a", source="a"), attachment("b", source="b"))

    assert [(one.path, one.trouble) for one in found] == [("", "It took too long to fetch."), ("inbox/i1-2.txt", "")]
    assert world.inbox == ["i1-2.txt"]


async def test_all_of_them_together_have_a_deadline(world: World) -> None:
    world.all_s = 0.05
    world.channel.files |= {"a": [None], "b": [None]}
    async with asyncio.timeout(5):
        found = await world.fetch(attachment("a", source="a"), attachment("b", source="b"))

    assert [one.trouble for one in found] == ["It took too long to fetch."] * 2


async def test_a_turn_that_is_cut_leaves_nothing_half(world: World) -> None:
    world.channel.files["f1"] = [b"half", None]

    async def begun() -> bool:
        return world.channel.fetched == ["f1"]

    async with in_background(world.fetch(attachment())):
        await until(begun)
    assert (world.inbox, world.store.told) == ([], [])


# --- what goes wrong ----------------------------------------------------------------------------


async def test_retryable_fetch_is_repeated_from_the_beginning(world: World) -> None:
    found = await world.one(b"half", FetchFailed("Busy.", retryable=True), PNG)

    assert (world.folder / found.path).read_bytes() == PNG
    assert world.channel.fetched == ["f1", "f1"]


@pytest.mark.parametrize(
    ("pieces", "trouble", "tries"),
    [
        ((FetchFailed("It is gone."),), "It is gone.", 1),
        ((FetchFailed("Busy.", retryable=True), FetchFailed("Still busy.", retryable=True)), "Still busy.", 2),
        ((FetchFailed("No: hunter2hunter2."),), f"No: {HIDDEN}.", 1),
        ((RuntimeError("what?"),), "The channel failed to fetch it.", 1),
    ],
)
async def test_a_failure_is_a_sentence_and_no_end(
    world: World, pieces: tuple[Exception, ...], trouble: str, tries: int
) -> None:
    found = await world.one(*pieces)

    assert (found.path, found.trouble) == ("", trouble)
    assert (len(world.channel.fetched), world.inbox) == (tries, [])


async def test_a_channel_that_is_not_there_any_more_is_trouble(world: World) -> None:
    fetching = world.made()
    fetching.channels = {}
    found = await fetching.fetch(turn_view(inputs=[sent(attachment())]), LEASE)

    assert found.inputs[0].files is not None
    assert "cannot be read here" in found.inputs[0].files[0].trouble


async def test_a_full_disk_is_trouble_and_the_turn_goes_on(world: World) -> None:
    found = await world.one(OSError(28, "No space left on device"))

    assert (found.path, found.trouble) == ("", "It could not be written: the disk is full.")
    assert len(world.store.told) == 1


async def test_unusable_workspace_is_trouble_of_every_file(world: World) -> None:
    fetching = world.made()

    def nowhere(session: SessionId) -> Path:
        raise DragomanError("The workspace /secret/place cannot be used.")

    fetching.workspaces = nowhere
    found = await fetching.fetch(turn_view(inputs=[sent(attachment(), attachment())]), LEASE)

    files = found.inputs[0].files
    assert files is not None
    assert [one.trouble for one in files] == ["The workspace cannot take files: its folder cannot be used."] * 2


async def test_a_link_in_the_place_of_the_inbox_is_not_followed(world: World) -> None:
    outside = world.folder.with_name("outside")
    outside.mkdir()
    (world.folder / attachments.INBOX).symlink_to(outside)
    found = await world.one(PNG)

    assert (found.path, found.trouble.startswith("The workspace cannot take files")) == ("", True)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [".i1-1.part", "i1-1.png"])
async def test_link_in_the_place_of_a_file_is_replaced_not_followed(world: World, name: str) -> None:
    victim = world.folder.with_name("victim")
    victim.write_bytes(b"mine")
    (world.folder / attachments.INBOX).mkdir()
    (world.folder / attachments.INBOX / name).symlink_to(victim)
    found = await world.one(PNG)

    assert victim.read_bytes() == b"mine"
    path = world.folder / found.path
    assert (path.is_symlink(), path.read_bytes()) == (False, PNG)


async def test_a_folder_in_the_place_of_a_file_is_trouble(world: World) -> None:
    (world.folder / attachments.INBOX / "i1-1.png").mkdir(parents=True)
    found = await world.one(PNG)

    assert (found.path, found.trouble.startswith("It could not be written")) == ("", True)
    assert world.inbox == ["i1-1.png"]


async def test_no_descriptor_stays_open(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    await world.one(PNG)
    await world.one(FetchFailed("It is gone."))
    await world.one(*[MEGABYTE] * 26)

    assert len(os.listdir("/proc/self/fd")) == before


# --- what it is ---------------------------------------------------------------------------------

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("head", "said", "found"),
    [
        (PNG, "text/html", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image/jpeg"),
        (b"GIF87a..", "", "image/gif"),
        (b"GIF89a..", "", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt \x00", "audio/wav", "audio/wav"),
        (b"%PDF-1.7", "image/png", "application/pdf"),
        (b"PK\x03\x04..", "", "application/zip"),
        (b"PK\x03\x04..", WORD, WORD),
        (b"hello", "", "text/plain"),
        (b"hello", "image/png", "text/plain"),
        (b"<b>", "text/html; charset=utf-8", "text/html"),
        (b"{}", "application/json", "application/json"),
        ("ä".encode()[:1], "", "text/plain"),
        (b"", "", "text/plain"),
        (b"\x00\x01", "image/png", "application/octet-stream"),
        (b"\x00\x01", "text/plain", "application/octet-stream"),
        (b"\x00\x01", "video/mp4", "video/mp4"),
        (b"\x00\x01", "no type\r\nat all", "application/octet-stream"),
        (b"\xff\xfe", "", "application/octet-stream"),
    ],
)
def test_the_first_bytes_say_what_it_is_where_they_tell(head: bytes, said: str, found: str) -> None:
    assert sniffed(head, said) == found


@pytest.mark.parametrize(
    ("name", "media_type", "end"),
    [
        ("a.exe", "image/png", ".png"),
        ("a.PY", "text/plain", ".py"),
        ("a.tar.gz", "application/gzip", ".gz"),
        ("a", "text/plain", ".txt"),
        ("a.b/c", "application/zip", ".zip"),
        ("a.toolongforone", "text/plain", ".txt"),
        ("a.ü", "text/plain", ".txt"),
        ("a.", "application/octet-stream", ""),
        ("", "application/octet-stream", ""),
        ("a.sh\n", "text/plain", ".txt"),
        ("a.\x00", "video/mp4", ""),
    ],
)
def test_its_name_ends_as_its_type_or_plainly_as_its_own(name: str, media_type: str, end: str) -> None:
    assert ending(name, media_type) == end


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Image/PNG ", "image/png"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("", "application/octet-stream"),
        ("x" * 500 + "/y", "application/octet-stream"),
    ],
)
def test_a_stated_type_is_one_or_none(said: str, found: str) -> None:
    assert stated(said) == found
