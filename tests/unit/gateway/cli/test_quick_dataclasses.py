from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar

import pytest

from gateway.cli.quick_dataclasses import quick_dataclasses

PARTS = ("_cmp_fn", "_frozen_get_del_attr", "_hash_fn", "_repr_fn")


def classes() -> list[type[Any]]:
    """Make one class of each kind that is used here, by the functions that are there now."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Empty:
        known: ClassVar[int] = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class One:
        self_: int = 0

    @dataclass(frozen=True)
    class Base:
        a: int
        b: list[int] = field(default_factory=list[int], compare=False)
        c: str = field(default="", repr=False)

    @dataclass(frozen=True)
    class Child(Base):
        d: int = field(default=4, hash=False)

    @dataclass(order=True)
    class Ordered:
        a: int
        b: str = "x"

    @dataclass(eq=False)
    class Alone:
        a: int = 1

    return [Empty, One, Base, Child, Ordered, Alone]


def seen(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def behaviour(cls: type[Any]) -> dict[str, Any]:
    needed = [one.name for one in dataclasses.fields(cls) if one.default is one.default_factory is dataclasses.MISSING]
    values = dict.fromkeys(needed, 1)
    one, same = cls(**values), cls(**values)
    names = [f.name for f in dataclasses.fields(cls)]
    other = cls(**{**values, **dict.fromkeys(names[:1], 2)})
    return {
        "repr": (repr(one), repr(other)),
        "equal": (one == same, one == other, one != other, one == 5, one.__eq__(5)),
        "order": seen(lambda: one < other),
        "hash": seen(lambda: hash(one) == hash(same)) if cls.__eq__ is not object.__eq__ else "its own",
        "set": seen(lambda: setattr(one, (names or ["x"])[0], 5)),
        "set another": seen(lambda: setattr(same, "another", 5)),
        "delete": seen(lambda: delattr(one, (names or ["x"])[0])),
        "names": [getattr(getattr(cls, name), "__qualname__", None) for name in ("__repr__", "__eq__", "__setattr__")],
        "replaced": repr(dataclasses.replace(same)),
        "copied": repr(copy.copy(same)),
        "fields": names,
    }


def test_quick_classes_behave_like_any_others() -> None:
    usual = [behaviour(cls) for cls in classes()]
    with quick_dataclasses():
        made = classes()
    assert [behaviour(cls) for cls in made] == usual


def test_only_inside_the_block_are_parts_replaced() -> None:
    """From Python 3.13 on, which compiles a class at once, nowhere."""
    before = [getattr(dataclasses, name, None) for name in PARTS]
    with quick_dataclasses():
        replaced = [getattr(dataclasses, name, None) for name in PARTS] != before
        assert replaced is (sys.version_info < (3, 13))
    assert [getattr(dataclasses, name, None) for name in PARTS] == before


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    again: list[Any]


def test_a_class_that_holds_itself_is_shown_once() -> None:
    with quick_dataclasses():
        made = dataclasses.make_dataclass("Shown", [("again", list[Any])], frozen=True)
    one, usual = made(again=[]), Shown(again=[])
    one.again.append(one)
    usual.again.append(usual)
    assert repr(one) == repr(usual)
    assert pickle.loads(pickle.dumps(Shown(again=[1]))) == Shown(again=[1])
    with pytest.raises(FrozenInstanceError):
        one.again = []
