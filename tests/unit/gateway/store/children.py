"""Child processes that the store's tests start and kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from gateway.domain.routes import Accepted, WhileRunning
from gateway.domain.turns import TurnKind
from gateway.errors import StoreFull
from gateway.store.sqlite import SqliteStore, open_sqlite
from gateway.store.sqlite.opening import connect, migrate
from gateway.store.sqlite.statements import load_migrations, load_statements
from gateway.system.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.makers import inbound, route

TASKS = 16


def migrate_and_die(folder: Path) -> None:
    """For each migration statement, run a process on a separate file that is killed just before it."""
    sql, migrations = load_statements(), load_migrations()
    for number in range(sum(len(one.statements) + 1 for one in migrations)):
        pid = os.fork()
        if pid == 0:
            db = connect(str(folder / f"{number}.db"))
            db.execute(sql["journal_mode"]).fetchall()
            migrate(db, sql, migrations, dies_at(number))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        say(f"{number} {os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}")


def say(line: str) -> None:
    """Print a line for the test, unbuffered."""
    os.write(1, f"{line}\n".encode())


def dies_at(number: int) -> Callable[[str], None]:
    """Return a hook that kills this process at its n-th call, counted from 0."""
    calls = count()

    def before(_statement: str) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


async def accept_for_ever(path: str) -> None:
    """Store messages from several tasks and print each one's key once it is stored."""
    store = open_sqlite(path, SystemClock())

    async def chat(task: int) -> None:
        number = 0
        while True:
            key = f"{os.getpid()}-{task}-{number}"
            await store.accept(
                route(), inbound(key=key), TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None
            )
            say(key)
            number += 1

    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            group.create_task(chat(task), name=f"chat {task}")


async def hold(path: str) -> None:
    """Hold the store open until killed."""
    store = open_sqlite(path, SystemClock())
    say("open")
    await asyncio.Event().wait()
    await store.close()


async def fill(folder: str) -> None:
    """Fill a 3 MiB disk through a store: nothing acknowledged is lost, and writes resume once there is room."""
    path, ballast = f"{folder}/dragoman.db", Path(folder) / "ballast"
    ballast.write_bytes(b"x" * (1 << 20))
    acknowledged: list[str] = []

    async def take(store: SqliteStore, key: str, text: str) -> Accepted:
        message = inbound(text, key=key)
        found = await store.accept(route(), message, TurnKind.MODEL, running=WhileRunning.QUEUE, say_if_waiting=None)
        acknowledged.append(key)
        return found

    async def refused(store: SqliteStore, task: int) -> str:
        try:
            for number in count():
                await take(store, f"{task}-{number}", "a long story " * 100)
        except StoreFull as error:
            return str(error)
        raise AssertionError("the disk never was full")

    store = open_sqlite(path, FakeClock())
    assert all("Free space" in said for said in await asyncio.gather(*(refused(store, task) for task in range(8))))
    await asyncio.gather(*(take(store, f"more-{n}", "a long story " * 1000) for n in range(50)), return_exceptions=True)
    rows = (await store.changes(route().session, 0, 10_000)).rows
    assert len(rows) == 2 * len(acknowledged), "each a message and its turn, and nothing else"
    ballast.unlink()
    await take(store, "after", "hello")
    await store.close()
    store = open_sqlite(path, FakeClock())
    assert all([(await take(store, key, "hello")).duplicate for key in list(acknowledged)])
    await store.close()
    say("held")


if __name__ == "__main__":
    name, where = sys.argv[1:]
    if name == "migrate":
        migrate_and_die(Path(where))
    else:
        asyncio.run({"accept": accept_for_ever, "hold": hold, "fill": fill}[name](where))
