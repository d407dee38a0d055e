"""Threads of the Redis store: each runs transitions in batches and sends every batch as one request.

All callers of a batch share one commit, as in the SQLite store. A batch that read what another node has changed since
runs again. Callers only wait: cancelling one loses its result, never half of its work.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.resources import files
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import redis

from gateway.domain.events import NODES, SLOTS, TURNS, NodesChanged
from gateway.domain.ids import InboundId, mint
from gateway.domain.text import one_line
from gateway.errors import StoreError
from gateway.store.decode import UNREADABLE
from gateway.store.kernel import losses
from gateway.store.kernel.part import Missing, Part
from gateway.store.redis import connection
from gateway.store.redis.batch import Batch, BatchCache, Question, Stored
from gateway.store.redis.clock import ServerClock
from gateway.store.redis.commit import CHANGED, COPYING, Word, Writes, arguments, take_in
from gateway.store.redis.events import LIVE, RedisEventBus
from gateway.store.redis.folds import expanded
from gateway.store.redis.life import Lives, Lost, SharedKnowledge
from gateway.store.redis.long_queues import sections_in
from gateway.store.redis.next_slots import leaves_slots
from gateway.store.redis.replicas import WaitCommand
from gateway.store.redis.rows import SESSION, UNNUMBERED, BareRow, kind_of, named_by
from gateway.store.redis.source import NotFirst, RedisSource, SeveralMissing
from gateway.store.write_queue import QueueEntry, WaitingClaims, WriteEntry, deliver, goes_on_waiting
from gateway.system.logging_setup import log

T = TypeVar("T")

BATCH = 64
"""Maximum transitions in one commit."""
TOGETHER = 3
"""Attempts of a batch as a whole; then each transition is committed alone, so that none waits for the others."""
ATTEMPTS = 50
"""Attempts of a transition whose rows other nodes keep changing."""
MISSES = 8
"""Runs of a transition that may end with a missing row. What others of its batch miss too is loaded together."""


class Minted:
    """New ids of one transition: the same ones in each of its runs."""

    def __init__(self) -> None:
        """Start with none."""
        self._ids: list[str] = []

    def __iter__(self) -> Minted:
        """Begin again with the first id."""
        self._next = 0
        return self

    def __next__(self) -> str:
        """Return the next id."""
        if self._next == len(self._ids):
            self._ids.append(mint(""))
        self._next += 1
        return self._ids[self._next - 1]


class RedisPart(Part):
    """A part whose rows get their revisions with the commit: no id can hold one."""

    def message_id(self, ord_: int) -> InboundId:
        """Return a new id."""
        del ord_
        return InboundId(self.mint("i"))


@dataclass(slots=True, eq=False)
class Entry(WriteEntry):
    """A transition, and its ids."""

    minted: Minted = field(default_factory=Minted)


class OwnEntry(Entry):
    """A transition of the thread itself, for which nobody waits."""

    def settle(self) -> None:
        """Notify nobody."""


class RedisThread:
    """A thread with one connection and its queue of transitions. `None` in the queue ends it."""

    def __init__(
        self,
        url: str,
        prefix: str,
        lane: str,
        clock: ServerClock,
        events: RedisEventBus,
        known: SharedKnowledge,
        *,
        waiting: WaitCommand | None,
        guesses: bool,
    ) -> None:
        """Take the address, the prefix of all keys, the name of the lane of this thread's commits, and the life.

        `waiting`: how each commit waits for replicas. `guesses`: take rows for absent that mostly are. A wrong guess
        costs a commit in vain.
        """
        self._guesses = guesses
        self._url, self._prefix, self._clock, self._events = url, prefix, clock, events
        line = connection.Line()
        self._client: Any = connection.connect(url, line)
        text = files("gateway.store.redis").joinpath("lua/commit.lua").read_text()
        self._commit_script = connection.Script(self._client, text)
        self._keys = [f"{prefix}{name}" for name in ("rev", f"lane:{lane}", COPYING, CHANGED, "meta")]
        self._waiting = waiting
        self._lives = Lives(self._client, line, url, prefix, clock, known)
        self._number = 0
        self._kept = BatchCache()
        self.turns, self.slots = WaitingClaims(), WaitingClaims()
        """Claims that wait for turns and for slots."""
        events.call(TURNS, self.turns.look_again)
        events.call(SLOTS, self.slots.look_again)
        self._handed: list[Entry] = []
        """Waiting claims that ran on the work of the present batch."""
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        self._deferred: deque[Entry] = deque()
        self._thread = threading.Thread(target=self._serve, name=f"store-redis-{lane}", daemon=True)
        self._closed = False
        self._thread.start()

    async def submit(self, transition: Callable[[Part], T]) -> T:
        """Run a transition and return its result once it is stored. Raises its exception, or `StoreError`."""
        entry = self._entry(transition)
        self._queue.put(entry)
        return await entry.future

    async def claim(self, claims: WaitingClaims, work: Callable[[Part], list[T]], most: int, wait_s: float) -> list[T]:
        """Run a claim. One that takes nothing waits, and runs in the commit that brings something.

        The result is empty after `wait_s` seconds, and when there may be something that no commit here brought.
        """
        entry = self._entry(work)
        entry.result, entry.claims, entry.most = [], claims, most
        return await claims.claim(entry, self._queue.put, wait_s)

    def _entry(self, work: Callable[[Part], Any]) -> Entry:
        if self._closed:
            raise StoreError("The store is closed.", cure="Start the daemon again.")
        loop = asyncio.get_running_loop()
        return Entry(work, loop, loop.create_future())

    async def close(self) -> None:
        """Finish queued work and end the thread. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    # --- in the thread ----------------------------------------------------------------------

    def _serve(self) -> None:
        ended = False
        while not ended or self._deferred:
            entries, ends = self._next_batch(wait=not ended)
            ended |= ends
            if entries:
                try:
                    self._settle_in_life(entries)
                except redis.RedisError as error:
                    self._fail(entries, connection.failure(error, self._url))
                except Exception as error:  # noqa: BLE001 - the callers get it; the thread continues
                    self._fail(entries, error)
        self.turns.look_again()
        self.slots.look_again()
        self._client.close()

    def _next_batch(self, *, wait: bool) -> tuple[list[Entry], bool]:
        """Return the next entries, those that were deferred first, and whether the queue has ended."""
        entries: list[Entry] = []
        while self._deferred and len(entries) < BATCH:
            entries.append(self._deferred.popleft())
        while len(entries) < BATCH:
            try:
                entry = self._queue.get() if wait and not entries else self._queue.get_nowait()
            except Empty:
                break
            if entry is None:
                return entries, True
            entries.append(entry)
        return [entry for entry in entries if not entry.future.cancelled()], False

    def _fail(self, entries: Sequence[Entry], error: BaseException) -> None:
        failed = [entry for entry in (*entries, *self._handed) if entry not in self._deferred]
        for entry in failed:
            entry.error, entry.touched = error, None
        self._kept, self._handed = BatchCache(), []
        deliver([entry for entry in failed if not goes_on_waiting(entry)], QueueEntry.settle)

    def _settle_in_life(self, entries: list[Entry]) -> None:
        """Run a batch in the life that the store has now. Raises `StoreError` when it is not the store any more."""
        while True:
            try:
                self._until_answered(self._lives.look)
                if self._lives.known.voids:
                    self._take_back(entries[0].loop)
                self._count_again(entries[0].loop)
                if self._lives.is_in_doubt:
                    self._check_life()
                self._settle(entries)
            except Lost as lost:
                self._kept = BatchCache()
                self._look_themselves()
                self._lives.follow(lost.found)
            else:
                return

    def _check_life(self) -> None:
        """Raise `Lost` unless the store is again the one that the node joined."""
        head = self._lives.head(0, 0, asks_time=False)
        self._call(arguments(Batch(self._kept), Writes(), head, self._prefix, self._events.freed()))
        self._lives.believe()

    def _take_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """Void what a store that lost changes must not act on, once for each of its lives. Raises `Lost`."""
        for transition in losses.taking_back(self._lives.known.number, self._lives.lost()):
            while self._alone(transition, loop):
                pass
        self._lives.clear()
        loop.call_soon_threadsafe(self._events.publish, NODES, NodesChanged())

    def _count_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raise the count of a loss that another node began a life for, where this one knows of more. Raises `Lost`."""
        if (lost := self._lives.lost_at_least()) > 0:
            self._alone(partial(losses.count_again, life=self._lives.known.number, revisions=lost), loop)
            loop.call_soon_threadsafe(self._events.publish, NODES, NodesChanged())
        self._lives.counted()

    def _alone(self, transition: Callable[[Part], int], loop: asyncio.AbstractEventLoop) -> int:
        """Run a transition of the thread itself."""
        entry = OwnEntry(transition, loop, loop.create_future())
        self._settle([entry])
        if entry.error is not None:
            raise entry.error
        return entry.result

    def _settle(self, entries: list[Entry]) -> None:
        """Run a batch until no other node came between its reads and its commit. Raises `Lost`."""
        certain = frozenset[str]()
        for attempt in range(ATTEMPTS):
            if attempt >= TOGETHER:
                self._deferred.extendleft(reversed(entries[1:]))
                del entries[1:]
            batch, writes = Batch(self._kept, certain), Writes()
            source = RedisSource(batch, partial(self._load, batch), guesses=self._guesses)
            done, deferred, revisions = self._run_all(entries, source, writes)
            if attempt == 0:
                revisions = self._hand_out(done, source, writes, self._clock.now(), revisions)
            changed = self._commit(batch, writes, [*done, *self._handed], revisions)
            if not changed:
                self._deferred.extendleft(reversed(deferred))
                self._kept.trim()
                settled, self._handed = [*done, *self._handed], []
                deliver([entry for entry in settled if not goes_on_waiting(entry)], self._announce)
                return
            certain |= changed
            self._look_themselves()
        raise StoreError("Other nodes kept changing what this request needs.", cure="Say again what was refused.")

    def _look_themselves(self) -> None:
        """Let claims that ran on what was not written return empty; the next ones read the index."""
        for entry in self._handed:
            entry.result, entry.error, entry.touched = [], None, None
        deliver(self._handed, QueueEntry.settle)
        self._handed = []

    def _run_all(
        self, entries: Sequence[Entry], source: RedisSource, writes: Writes
    ) -> tuple[list[Entry], list[Entry], int]:
        """Run the entries on one view. Return those that ran, those that must wait, and the last revision."""
        done, deferred, rev, pending = list[Entry](), list[Entry](), UNNUMBERED, list(entries)
        now = self._clock.now()
        for misses in range(MISSES, -1, -1):
            source.misses = misses
            missed, left = list[Missing](), list[Entry]()
            for place, entry in enumerate(pending):
                try:
                    rev = self._run(entry, source, writes, now, rev)
                    done.append(entry)
                except NotFirst:
                    deferred.append(entry)
                except Missing as missing:
                    missed += missing.each if isinstance(missing, SeveralMissing) else [missing]
                    left.append(entry)
                    if entry is entries[0]:  # it alone may ask indexes: it runs before the others change something
                        left += pending[place + 1 :]
                        break
            if not missed:
                break
            self._load(source.batch, *missed)
            pending = left
            if not source.named_the_time:  # rows that were loaded just now may be younger than the time before
                now = self._clock.now()
        return done, deferred, rev

    def _hand_out(self, done: Sequence[Entry], source: RedisSource, writes: Writes, now: datetime, rev: int) -> int:
        """Run waiting claims on the work of this batch, in the same commit; return the revision after that."""
        touched = [entry.touched for entry in done if entry.touched is not None]
        source.only_new = True
        if turns := [one for one in touched if one.turns_due]:
            rev, handed = self._hand_out_to(self.turns, source, writes, now, rev)
            if handed and not source.leaves_turns(now):
                for one in turns:
                    one.turns_due = False
        if slots := [one for one in touched if one.slots_due]:
            rev, handed = self._hand_out_to(self.slots, source, writes, now, rev)
            if handed and not leaves_slots(source, now):
                for one in slots:
                    one.slots_due = False
        return rev

    def _hand_out_to(
        self, claims: WaitingClaims, source: RedisSource, writes: Writes, now: datetime, rev: int
    ) -> tuple[int, bool]:
        """Run claims until one has taken all. Return the revision after that, and whether any claim took part.

        A claim that needs rows that are not at hand waits on.
        """
        handed = False
        while (entry := claims.next()) is not None:
            assert isinstance(entry, Entry), "it was queued here"
            self._handed.append(entry)
            before = source.batch.conditions()
            try:
                rev = self._run(entry, source, writes, now, rev)
            except (Missing, NotFirst):
                source.batch.restore(before)
                return rev, False
            handed = True
            if entry.error is not None or len(entry.result) < entry.most:
                break
        return rev, handed

    def _run(self, entry: Entry, source: RedisSource, writes: Writes, now: datetime, rev: int) -> int:
        """Run one transition; return the revision after it. Raises `Missing` and `NotFirst`."""
        part = RedisPart(source, now, rev, minted=iter(entry.minted))
        part.life, part.back_since = self._lives.known.number, self._lives.back_since
        entry.error = entry.touched = None
        try:
            entry.result = entry.work(part)
            take_in(part, source, writes)
        except (Missing, NotFirst):
            raise
        except Exception as error:  # noqa: BLE001 - the caller gets it, the others are not concerned
            entry.error = error
            return rev
        source.may_ask = not source.batch.changed
        entry.touched = part.touched
        return part.rev

    def _load(self, batch: Batch, *missed: Missing) -> None:
        """Load missing rows, with those that are read next, and answers."""
        keys = list(dict.fromkeys(str(key) for one in missed if one.rows == "row" for key in one.key))
        asked: list[Question] = [tuple(one.key) for one in missed if one.rows == "answer"]
        asked += [question for one in missed if one.rows == "answers" for question in one.key]
        for question, answer in zip(asked, self._ask(asked), strict=True):
            batch.answers[question] = answer
        while keys:
            batch.loads += 1
            found = [self._stored(key, value) for key, value in zip(keys, self._mget(keys), strict=True)]
            batch.loaded.update(zip(keys, found, strict=True))
            batch.damaged.update(key for key, stored in zip(keys, found, strict=True) if stored.damage)
            for key, stored in zip(keys, found, strict=True):
                self._kept.put(key, stored)
            named = [one for key, stored in zip(keys, found, strict=True) for one in named_by(key, stored.at_least)]
            keys = [key for key in dict.fromkeys(named) if batch.known(key) is None]

    def _ask(self, asked: Sequence[Question]) -> list[Any]:
        if not asked:
            return []
        commands = [(name, f"{self._prefix}{key}", *rest) for name, key, *rest in asked]

        def ask() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()

        return self._until_answered(ask)

    def _mget(self, keys: Sequence[str]) -> list[str | None]:
        return expanded(keys, self._mget_stored(keys), self._mget_stored)

    def _mget_stored(self, keys: Sequence[str]) -> list[str | None]:
        named = [self._prefix + key for key in keys]
        return self._until_answered(lambda: self._client.mget(named))

    def _stored(self, key: str, value: str | None) -> Stored:
        if value is None:
            return Stored(None)
        stamp, space, text = value.partition(" ")
        try:
            self._lives.saw(int(stamp) + 1)
            sections = sections_in(text) if kind_of(key) is SESSION else ()
            return Stored(kind_of(key).load(int(stamp), text), f"{stamp} ", len(value), sections)
        except UNREADABLE as error:
            log("store").error("a row cannot be read", row=one_line(key, 100), why=type(error).__name__)
            damage, bare = type(error).__name__, _bare(key, stamp, text)
            return Stored(None, f"{stamp}{space}", len(value), damage=damage, bare=bare)

    def _commit(self, batch: Batch, writes: Writes, done: Sequence[Entry], revisions: int) -> frozenset[str]:
        """Write a batch. Return which of the rows that it read have changed: then nothing is written."""
        is_check = not batch.changed and not writes.commands and self._waiting is None
        if is_check and batch.is_of_one_moment:
            return frozenset()
        needs = max(1, revisions - UNNUMBERED)
        if not is_check:
            self._number += 1
        if message := self._events.wake(done):
            writes.commands.append(("PUBLISH", LIVE, message))
        freed = self._events.freed()
        head = self._lives.head(0 if is_check else self._number, needs, asks_time=self._clock.is_old())
        words: list[Word] = arguments(batch, writes, head, self._prefix, freed)
        asked_at = self._clock.monotonic()
        status, base, seconds, micros, has_freed, *changed = self._call(words)
        if seconds:
            self._clock.set(int(seconds), int(micros), asked_at)
        if status == "changed":
            keys = frozenset(key.removeprefix(self._prefix) for key in changed)
            for key in keys:
                self._kept.drop(key)
            return keys
        if not is_check:
            self._lives.wrote(f"{self._number} {base} {has_freed}", int(base) + needs)
        self._kept.take_in(batch, int(base))
        for entry in done:
            if entry.touched is not None and has_freed == "1" and writes.freed:
                entry.touched.slots_due = True
        return frozenset()

    def _call(self, words: list[Word]) -> list[str]:
        """Return the answer of the commit script. Raises `Lost`."""
        answer = self._until_answered(lambda: self._send(words))
        if answer[0] == "lost":
            raise Lost(answer[5])
        self._lives.agreed()
        return answer

    def _until_answered(self, command: Callable[[], T]) -> T:
        return self._lives.until_answered(command, lambda: self._closed)

    def _send(self, words: list[Word]) -> list[str]:
        self._lives.look()
        if self._waiting is None:
            return self._commit_script.call(self._keys, words)
        answer, waited = self._commit_script.call_and(self._waiting.command, self._keys, words)
        self._waiting.check(waited)
        return answer

    def _announce(self, entry: QueueEntry) -> None:
        if entry.touched is not None:
            self._events.publish_locally(entry.touched)
        entry.settle()


def _bare(key: str, stamp: str, text: str) -> BareRow | None:
    """Return a damaged row without its payloads; None when they are not the damage."""
    try:
        return kind_of(key).load_bare(int(stamp), text) if kind_of(key).bare else None
    except UNREADABLE:
        return None
