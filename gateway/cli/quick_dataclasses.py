"""Dataclasses with closures as methods, for a quick start on Python 3.11 and 3.12. Used by `imports`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any

_Fields = Sequence["dataclasses.Field[Any]"]


@contextmanager
def quick_dataclasses() -> Generator[None]:
    """Make dataclasses in this block without compiling source text for each of five methods of each class.

    Python compiles six methods a class, a fifth of a start's CPU; Python 3.13 compiles them together. Only `__init__`
    is left to the compiler. The classes are used like any others: tests compare them.
    """
    ours = {
        "_cmp_fn": _equal(getattr(dataclasses, "_cmp_fn", None)),
        "_frozen_get_del_attr": _frozen,
        "_hash_fn": _hash,
        "_repr_fn": _repr,
    }
    kept = {name: getattr(dataclasses, name, None) for name in ours}
    if sys.version_info >= (3, 13) or None in kept.values():
        yield
        return
    try:
        for name, made in ours.items():
            setattr(dataclasses, name, made)
        yield
    finally:
        for name, made in kept.items():
            setattr(dataclasses, name, made)


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads these fields of an object as a tuple."""
    if not names:
        return lambda self: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda self: (read(self),)


def _repr(fields: _Fields, _: dict[str, Any]) -> Callable[[Any], str]:
    names = [field.name for field in fields]

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return recursive_repr()(__repr__)


def _hash(fields: _Fields, _: dict[str, Any]) -> Callable[[Any], int]:
    values = _values([field.name for field in fields])

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _equal(others: Any) -> Callable[..., Any]:
    """Return a maker of `__eq__`; `others` makes the comparisons of an order."""

    def made(name: str, op: str, self_tuple: str, other_tuple: str, globals: dict[str, Any]) -> Any:
        if name != "__eq__":
            return others(name, op, self_tuple, other_tuple, globals=globals)
        values = _values([one.removeprefix("self.") for one in self_tuple.strip("()").split(",") if one])

        def __eq__(self: Any, another: object) -> bool:
            return values(self) == values(another) if another.__class__ is self.__class__ else NotImplemented

        return __eq__

    return made


def _frozen(cls: type, fields: _Fields, _: dict[str, Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    names = frozenset(field.name for field in fields)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
