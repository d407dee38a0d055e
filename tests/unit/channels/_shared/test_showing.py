"""Synchronisation of messages with the parts of a slot, from any state and after any failure."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from channels._shared.showing import DIGESTS_KEPT, Digests, MessageSync
from gateway.errors import SendFailed, SendOutcome


@dataclass(frozen=True)
class Text:
    """A part; what begins with `!` fits no message that is there."""

    digest: str


@dataclass(slots=True, kw_only=True)
class Board(MessageSync[Text]):
    """A place whose messages are numbered; those in `gone` cannot be changed, and the platform fails when told to."""

    there: dict[str, str] = field(default_factory=dict[str, str])
    gone: set[str] = field(default_factory=set[str])
    fails: str = ""
    did: list[str] = field(default_factory=list[str])

    def _key(self, message: str) -> str:
        return f"here/{message}"

    async def _create(self, at: int, part: Text) -> str:
        self._fail("create")
        message = str(101 + len(self.there))
        self.there[message] = part.digest
        self.digests.put(self._key(message), part.digest)
        self.did.append(f"make {message} for {at}")
        return message

    async def _change(self, message: str, part: Text, *, known: bool) -> bool:
        self._fail("change")
        if message in self.gone or part.digest.startswith("!"):
            return False
        self.there[message] = part.digest
        self.digests.put(self._key(message), part.digest)
        self.did.append(f"change {message}{'' if known else ', not known'}")
        return True

    async def _delete(self, message: str) -> None:
        self._fail("delete")
        self.there.pop(message, None)
        self.digests.drop(self._key(message))
        self.did.append(f"delete {message}")

    def _fail(self, act: str) -> None:
        if self.fails == act:
            raise SendFailed("no", outcome=SendOutcome.RETRY)


@dataclass
class Told:
    """`ports.Progress`."""

    ids: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    async def __call__(self, message_ids: tuple[str, ...]) -> None:
        self.ids.append(message_ids)


def parts(*digests: str) -> list[Text]:
    return [Text(digest) for digest in digests]


@pytest.fixture
def board() -> Board:
    return Board(digests=Digests())


@pytest.fixture
def told() -> Told:
    return Told()


async def test_missing_parts_are_added_and_reported_but_the_last(board: Board, told: Told) -> None:
    assert await board.show(parts("a", "b", "c"), (), told) == ("101", "102", "103")
    assert told.ids == [("101",), ("101", "102")]
    assert board.did == ["make 101 for 0", "make 102 for 1", "make 103 for 2"]


async def test_a_showing_goes_on_where_one_was_interrupted(board: Board, told: Told) -> None:
    await board.show(parts("a"), (), told)
    assert await board.show(parts("a", "b"), ("101",), told) == ("101", "102")
    assert board.did == ["make 101 for 0", "make 102 for 1"], "what is shown already is not sent"


async def test_changed_part_is_edited_and_a_surplus_part_deleted(board: Board, told: Told) -> None:
    await board.show(parts("a", "b", "c"), (), told)
    told.ids.clear()
    assert await board.show(parts("a", "x"), ("101", "102", "103"), told) == ("101", "102")
    assert board.did[3:] == ["change 102", "delete 103"]
    assert told.ids == []
    assert await board.show([], ("101", "102"), told) == ()
    assert board.there == {}


async def test_unknown_messages_are_edited_after_a_restart(told: Told) -> None:
    board = Board(digests=Digests(), there={"101": "a"})
    assert await board.show(parts("a"), ("101",), told) == ("101",)
    assert board.did == ["change 101, not known"]


async def test_uneditable_part_is_replaced_before_it_is_deleted(board: Board, told: Told) -> None:
    await board.show(parts("a", "b"), (), told)
    board.gone = {"101"}
    told.ids.clear()
    assert await board.show(parts("x", "b"), ("101", "102"), told) == ("103", "102")
    assert board.did[2:] == ["make 103 for 0", "delete 101"]
    assert told.ids == [("103", "102")]


async def test_replacement_stays_when_it_cannot_be_deleted(board: Board, told: Told) -> None:
    await board.show(parts("a"), (), told)
    board.gone, board.fails = {"101"}, "delete"
    assert await board.show(parts("x"), ("101",), told) == ("102",)
    with pytest.raises(SendFailed):
        await board.show([], ("102",), told)


async def test_a_beginning_grows_in_the_messages_that_are_there(board: Board, told: Told) -> None:
    await board.show(parts("a"), (), told)
    assert await board.grow(parts("ab"), ("101",)) == ("101",)
    assert board.did == ["make 101 for 0", "change 101"]


@pytest.mark.parametrize("grown", [parts(), parts("ab", "c"), parts("!ab")])
async def test_a_beginning_makes_no_message(board: Board, told: Told, grown: list[Text]) -> None:
    await board.show(parts("a"), (), told)
    with pytest.raises(SendFailed) as caught:
        await board.grow(grown, ("101",))
    assert (caught.value.outcome, caught.value.creating) == (SendOutcome.DEAD, False)
    assert list(board.there) == ["101"]


def test_the_oldest_digests_are_forgotten() -> None:
    digests = Digests()
    for n in range(DIGESTS_KEPT + 1):
        digests.put(str(n), "a")
        digests.put("used", "b")
    digests.drop("7")
    assert (digests.get("0"), digests.get("7"), digests.get("used"), digests.get("8")) == ("", "", "b", "a")
