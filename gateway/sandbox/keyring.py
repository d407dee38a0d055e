"""Private kernel keyring for each contained program. `tree` joins one before it starts a child process.

A child process inherits the session keyring of the thread that started it. A login session's keyring holds
tickets, tokens and keys of encrypted folders, and no namespace separates it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType

from gateway.errors import BadRequest

_SYSCALLS: Mapping[str, int] = MappingProxyType(
    {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
)
"""System call number of `keyctl` by machine, for 64-bit processes."""
_JOIN_SESSION_KEYRING = 1
_NO_KEYS_HERE = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})
"""Errors of a kernel or container without keyrings. A program started there cannot use one either."""


@contextmanager
def own_keyring() -> Generator[None]:
    """Give programs started in the body a new, empty session keyring; afterwards the thread has another empty one.

    The thread does not return to its earlier keyring: the kernel has no call for that.
    Raises `BadRequest` when the kernel refuses a new one. Does nothing on a machine that is not in the table.
    """
    if (error := _join()) and error not in _NO_KEYS_HERE:
        raise BadRequest(
            f"The program could not be given a keyring of its own: {os.strerror(error)}.",
            cure="Try again in a minute, or raise the limit kernel.keys.maxkeys of this machine.",
        )
    try:
        yield
    finally:
        _join()  # so that programs started later find no keys of this one


def _join() -> int:
    """Join a new session keyring; return the error's number, 0 for none."""
    join = _call()
    if join is None:
        return errno.ENOSYS
    return ctypes.get_errno() if join(_JOIN_SESSION_KEYRING) < 0 else 0


@cache
def _call() -> Callable[[int], int] | None:
    """Return `keyctl` for an operation without arguments; None where its number is unknown. Kept: it takes 0.1 ms."""
    number = _SYSCALLS.get(os.uname().machine)
    if sys.platform != "linux" or number is None or struct.calcsize("P") != 8:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    return lambda operation: call(ctypes.c_long(number), ctypes.c_long(operation), None)
