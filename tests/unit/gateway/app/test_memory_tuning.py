"""Allocator settings are per process, so each test runs a process of its own.

It loads the module without its package, which imports the daemon: 0.9 s of CPU.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.app import memory_tuning

ALONE = """
import importlib.util, sys

def load():
    found = importlib.util.spec_from_file_location("tuning", {file!r})
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module

tuning = load()
"""
HEAPS = """
import ctypes, tempfile, threading
assert not {set_up} or tuning.set_up_heap()
barrier = threading.Barrier(4)

def work():
    kept = [bytes(10_000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
with tempfile.TemporaryFile() as told:
    file = ctypes.c_void_p(libc.fdopen(told.fileno(), b"w"))
    libc.malloc_info(0, file)
    libc.fflush(file)
    told.seek(0)
    print(told.read().count(b"<heap nr="))
"""
KEPT = """
import os
from pathlib import Path
assert not {set_up} or tuning.set_up_heap()

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

bytes(25_000_000)  # a file, read and forgotten: from then on glibc by itself keeps pieces of that size
before = resident_mb()
pieces = [b"x" * 2_000_000 for _ in range(15)]
last = b"x" * 100_000
del pieces
print(round(resident_mb() - before))
"""

NAMED = """
import os, sys
from pathlib import Path

# Without its package also because the names of a daemon's modules may have doubled the table already.
assert tuning.set_up_heap()
kept = [sys.intern(f"name {{n}} of a daemon") for n in range(24_000)]  # with those of Python 24,000 to 43,690
if {set_up}:
    tuning.make_room_for_names()

def resident_kb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

before = most = resident_kb()
for n in range(100_000):
    sys.intern(f"part {{n}} of a path")
    if not n % 1_000:
        most = max(most, resident_kb())
print(most - before)
"""
FOUND = """
import asyncio, weakref

class Ring:
    def __init__(self):
        self.me = self

async def main():
    tidy = asyncio.create_task(tuning.keep_tidy(0.01))
    left = weakref.ref(Ring())
    assert left() is not None
    while left() is not None:
        await asyncio.sleep(0.01)
    tidy.cancel()

asyncio.run(asyncio.wait_for(main(), 20))
print(0)
"""
AT_REST = """
import gc
there = [[n] for n in range(50_000)]
tuning.freeze_existing_objects()
print(len(gc.get_objects()))
"""

READ = """
import asyncio, fcntl, os, socket
if {set_up}:
    tuning.read_less_at_once()

class Reader(asyncio.Protocol):
    lengths = []

    def data_received(self, data):
        self.lengths.append(len(data))

    def eof_received(self):
        self.lengths.append(0)

async def main():
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    far.send(bytes(150_000))
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(into, bytes(150_000))
    far.close()
    os.close(into)
    await loop.create_connection(Reader, sock=near)
    pipe, _ = await loop.connect_read_pipe(Reader, os.fdopen(out, "rb"))
    while Reader.lengths.count(0) < 2:
        await asyncio.sleep(0.01)
    assert sum(Reader.lengths) == 300_000
    pipe.close()
    print(sorted(Reader.lengths)[-2])

asyncio.run(asyncio.wait_for(main(), 20))
"""


def said(program: str, *, set_up: bool = True) -> int:
    text = (ALONE + program).format(set_up=set_up, file=memory_tuning.__file__)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=True)
    return int(done.stdout)


def test_all_threads_share_one_heap() -> None:
    assert said(HEAPS, set_up=False) > 1
    assert said(HEAPS, set_up=True) == 1


@pytest.mark.whole("measures a process of its own; the shared heap stays")
def test_large_freed_memory_returns_to_the_system() -> None:
    assert said(KEPT, set_up=False) >= 20
    assert said(KEPT, set_up=True) <= 2


@pytest.mark.whole("measures a process of its own; the shared heap stays")
def test_names_that_come_and_go_take_no_more_room_later() -> None:
    assert said(NAMED, set_up=False) > 700  # KiB
    assert said(NAMED, set_up=True) < 300


@pytest.mark.whole("measures a process of its own; the shared heap stays")
def test_garbage_is_found_while_nothing_new_comes() -> None:
    assert said(FOUND) == 0


def test_objects_of_the_start_are_not_scanned_by_the_collector() -> None:
    assert said(AT_REST) < 1_000


@pytest.mark.whole("measures a process of its own; the shared heap stays")
def test_socket_and_pipe_reads_allocate_at_most_16_kib() -> None:
    assert said(READ, set_up=False) > 1 << 14
    assert said(READ, set_up=True) == 1 << 14
