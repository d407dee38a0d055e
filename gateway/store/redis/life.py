"""Lives of a store on Redis: how a node notices that the server lost what it had acknowledged. Used by `worker`.

Each commit carries the life and the highest revision that its node knows. A server that knows less has lost the
difference. The first node that hears of it begins another life.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from typing import Any, TypeVar

import redis

from gateway.domain.durability import Reached, StoreTerms
from gateway.errors import StoreError
from gateway.store.codec import from_us, to_us
from gateway.store.redis.clock import ServerClock
from gateway.store.redis.connection import Line, Script, failure, refuses_writes, shown, until_answered
from gateway.store.redis.durability import promise_of, weaker
from gateway.system.logging_setup import log

T = TypeVar("T")

LIFE, LOST, SERVER, SINCE = "life", "lost", "server", "since"
"""Fields of the store's description: its life, and revisions that were lost before that; the id of the history that the
server has, and when a node first met it."""
HAD, ENDED = "had", "ended"
"""Fields as well, of the last loss: the revision that the server had then, and the life that it had."""
RUN, ORIGIN = "run", "origin"
"""Fields as well: the id of that server's process; and whether a server was written to itself, or by its primary."""
COPIED = "copied"
"""Origin in a replica. A server that nodes write to has `own` there; its primary never sends that one."""
JUMP = 1_000_000
"""Revisions that a new life leaves out: more than the nodes knew and the server lost."""
_VOIDS = "!"
NOWHERE = Reached()
_LOG = log("store")
_TAKES_BACK = StoreError(
    "The store lost its last changes; approvals and leases of the time before are being taken back.",
    cure="Wait: work goes on by itself.",
)
TIMES_ASKED = 5
"""Times that a new connection asks for the time. The quickest answer counts: one to a commit is late by an fsync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of one store, written `<store>.<number>`."""

    store: str
    """Id that the store was given when it was begun."""
    number: int
    voids: bool = False
    """True while leases and approvals of the previous life are voided; nothing else is written."""

    def __str__(self) -> str:
        """Return its stored form."""
        return f"{self.store}.{self.number}{_VOIDS if self.voids else ''}"

    def after(self, found: Life) -> Life:
        """Return the life that follows both of them."""
        return Life(store=self.store, number=max(self.number, found.number) + 1, voids=True)

    def cleared(self) -> Life:
        """Return this life once everything is taken back."""
        return Life(store=self.store, number=self.number)


def life_of(text: str) -> Life:
    """Return a life of its stored form."""
    store, _, number = text.removesuffix(_VOIDS).rpartition(".")
    return Life(store=store, number=int(number), voids=text.endswith(_VOIDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Knowledge of a thread that each of its commits carries."""

    life: str
    lane: str
    """Name of the thread's lane, under which the store keeps its last request."""
    number: int
    """Number of this request; 0: it only checks."""
    needs: int
    """Revisions of its rows."""
    told: int
    """The highest revision that the node knows."""
    left: int
    """The revision that the last request of the thread left."""
    asks_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHistory:
    """History of a server's data, as replicas know it. A new one begins when it starts, when it takes over, and also
    with its first replica, and an hour after its last.
    """

    id: str
    before: str
    """The one that it took over; only zeros for none."""

    @property
    def is_first(self) -> bool:
        """Return whether it took over none since it started."""
        return not self.before.strip("0")


class Lost(Exception):
    """The server knows another life than this node, or fewer revisions."""

    def __init__(self, found: str) -> None:
        """Take the life that the server has; empty for none."""
        super().__init__(found)
        self.found = found


class SharedKnowledge:
    """Knowledge of the store that all threads of a node share."""

    def __init__(self, life: Life, terms: StoreTerms, accepts: StoreTerms, noted: Reached = NOWHERE) -> None:
        """Take the life that the store has, what the server may lose, and what another one may, as it was written.

        `noted`: how far the store was when this node noted it last. A server that knows less has lost the difference.
        """
        self.life = life if life.number >= noted.life else Life(store=life.store, number=noted.life)
        self.terms, self.accepts, self.noted = terms, accepts, noted
        self.back_since: datetime | None = None
        """First sight of a server that had restarted or taken over; None for never."""
        self.trouble: StoreError | None = None
        """Why the store is not the one that it joined; None while it is."""
        self.threads: list[Lives] = []
        """Its threads: each writes only its own."""
        self._waits: dict[Lives, tuple[StoreError, bool]] = {}
        """Why a thread waits, and whether it does until a write is done."""

    @property
    def waits_for(self) -> StoreError | None:
        """Return why a thread waits: for the server, or for what a loss makes void; None while none does."""
        waits = next((why for why, _ in list(self._waits.values())), None)
        return waits or (_TAKES_BACK if any(one.known.voids for one in self.threads) else None)

    def wait_for(self, why: StoreError, thread: Lives, *, to_write: bool) -> None:
        """Note why a thread waits, and log it once. `to_write`: until it has written something."""
        known = self.waits_for
        self._waits[thread] = why, to_write
        if known is None or known.cure != why.cure:
            _LOG.warning("the store waits", why=why.message, cure=why.cure)

    def go_on(self, thread: Lives, *, wrote: bool) -> None:
        """Note that a thread got an answer, or wrote something: then writes are taken from all, who may make none."""
        if not self._waits:
            return
        waits = list(self._waits.items())
        over = [one for one, (_, to_write) in waits if (wrote if to_write else one is thread)]
        for one in over:
            self._waits.pop(one, None)
        if over and not self._waits:
            _LOG.info("the store goes on")

    @property
    def told(self) -> int:
        """Return the highest revision that the node knows, from this life of its process or noted before."""
        return max(self.noted.revision, *(one.told for one in self.threads))

    @property
    def reached(self) -> Reached:
        """Return the store's progress, for a note."""
        life, revision = max((one.known.number, one.sure) for one in self.threads)
        return max(self.noted, Reached(life=life, revision=revision), key=lambda one: (one.life, one.revision))


class Lives:
    """Knowledge of one thread about the life of the store."""

    def __init__(
        self, client: Any, line: Line, url: str, prefix: str, clock: ServerClock, shared: SharedKnowledge
    ) -> None:
        """Take the thread's connection, the prefix of all keys, the store's clock, and what the node knows."""
        self._client, self._line, self._url, self._clock, self._shared = client, line, url, clock, shared
        self._keys = [f"{prefix}meta", f"{prefix}rev"]
        self._script = Script(client, files("gateway.store.redis").joinpath("lua/life.lua").read_text())
        self.known = shared.life
        """The life in which this thread works."""
        self._told_before: tuple[int, int] | None = None
        """The number of the life before this one, and the highest revision of it; None once that was counted."""
        if shared.noted.life < shared.life.number:
            self._told_before = shared.noted.life, shared.noted.revision
        self.told, self._lane, self._left, self._is_new = 0, "", 0, False
        """The highest revision that this thread knows."""
        self.sure = 0
        """Highest revision of the life that it knows."""
        shared.threads.append(self)

    @property
    def is_in_doubt(self) -> bool:
        """Return whether the store was another one when a thread of this node wrote last."""
        return self._shared.trouble is not None

    def believe(self) -> None:
        """Note that the store is the one that the node joined."""
        self._shared.trouble = None

    @property
    def back_since(self) -> datetime | None:
        """Return the time at which a server that had restarted or taken over was first seen."""
        return self._shared.back_since

    def until_answered(self, command: Callable[[], T], is_closed: Callable[[], bool] = lambda: False) -> T:
        """Call a command that may be repeated, until Redis answers or has been away for too long."""
        answer = until_answered(command, is_closed=is_closed, before_again=self._cut)
        self._shared.go_on(self, wrote=False)
        return answer

    def _cut(self, error: redis.RedisError) -> None:
        """Note why there is no answer, and close the connection. The next one may be to another server."""
        self._shared.wait_for(failure(error, self._url), self, to_write=refuses_writes(error))
        self._line.is_cut = True
        self._client.connection_pool.disconnect()

    def look(self) -> None:
        """Look whether another server answers than before, after each cut. Raises `Lost`, and `redis.RedisError`.

        What it does not know can be in nobody's memory: the next life begins, unless the terms say that it knows all.
        """
        was_cut = self._line.is_cut
        while self._line.is_cut:
            about = self._client.info("replication")
            server = ServerHistory(id=str(about.get("master_replid", "")), before=str(about.get("master_replid2", "")))
            life, known, since = self._client.hmget(self._keys[0], LIFE, SERVER, SINCE)
            self._shared.back_since = from_us(int(since)) if since else None
            if server.id in ("", known):
                self._line.is_cut, self._is_new = False, True
            elif life is None:
                raise Lost("")
            else:
                self._meet(server, known)
        for _ in range(TIMES_ASKED if was_cut else 0):
            asked_at = self._clock.monotonic()
            seconds, micros = self._client.time()
            self._clock.set(seconds, micros, asked_at)

    def _meet(self, server: ServerHistory, known: str | None) -> None:
        """Take a server that nobody met before for the store's. Raises `Lost`, and `StoreError` for a weaker one."""
        run = str(self._client.info("server").get("run_id", ""))
        if known is None:
            self._client.hset(self._keys[0], mapping={SERVER: server.id, RUN: run})
            return
        known_run, origin = self._client.hmget(self._keys[0], RUN, ORIGIN)
        is_same = run == known_run != ""  # and has another history, as with its first replica
        was_away = is_same and server.before == known  # as a replica, and got nothing meanwhile
        took_over = origin == COPIED or not (server.is_first or was_away)
        terms = self._shared.terms
        now = promise_of(self._client, self._url, self._shared.accepts)
        until_now = replace(terms, durability=weaker(terms.durability, now))
        keeps = until_now.keeps(restarted=server.is_first and not is_same, took_over=took_over)
        following = self.known if keeps else self.known.after(self.known)
        found = self._send(self.known, following, 0 if keeps else JUMP, server.id, run)
        self._shared.terms = replace(terms, durability=now)
        if found != str(self.known):
            raise Lost(found)

    def head(self, number: int, needs: int, *, asks_time: bool) -> Head:
        """Return the head of a commit, before its lists. `number` 0: it only checks."""
        return Head(
            life=str(self.known),
            lane=self._lane,
            number=number,
            needs=needs,
            told=self._shared.told,
            left=self._left,
            asks_time=asks_time or (number > 0 and self._is_new),
        )

    def saw(self, rev: int) -> None:
        """Note that the server had this revision."""
        self.told = max(self.told, rev)

    def agreed(self) -> None:
        """Note that the server has the life that is known: so what was read before is of it."""
        self.sure = self.told

    def wrote(self, lane: str, rev: int) -> None:
        """Note the server's record of this thread's last request, and its revision."""
        self._lane, self._left, self._is_new = lane, rev, False
        self.saw(rev)
        self.agreed()
        self._shared.go_on(self, wrote=True)

    def follow(self, found: str) -> None:
        """Go on in the life that was found, or in the next one when the store lost something in this one.

        Raises `StoreError` when it is not the store that the node joined.
        """
        life = self._same_store(found)
        if life.number < self.known.number or life == self.known:
            life = self._same_store(self._change(life, self.known.after(life), JUMP))
        if life.number > self.known.number:
            self._told_before = self.known.number, self.sure
        self.known, self._lane = life, ""

    def lost(self) -> int:
        """Return how many revisions were lost before this life, as far as is known."""
        return int(self._ask(lambda: self._client.hget(self._keys[0], LOST)) or 0)

    def lost_at_least(self) -> int:
        """Return how many revisions this thread alone knows to be lost before this life; 0 once they are counted."""
        if self._told_before is None:
            return 0
        number, told = self._told_before
        had, ended = self._ask(lambda: self._client.hmget(self._keys[0], HAD, ENDED))
        if had is None or life_of(ended).number > number:
            return 0
        return told - int(had) - JUMP * (number - life_of(ended).number)

    def counted(self) -> None:
        """Note that the thread's revisions of earlier lives have been counted."""
        self._told_before = None

    def clear(self) -> None:
        """Let the nodes work in this life. Raises `Lost` when another node did, or began one more."""
        now = self._change(self.known, self.known.cleared(), 0)
        if now != str(self.known.cleared()):
            raise Lost(now)
        self.known = self.known.cleared()

    def _change(self, life: Life, following: Life, jump: int) -> str:
        return str(self._ask(lambda: self._send(life, following, jump)))

    def _send(self, life: Life, following: Life, jump: int, server: str = "", run: str = "") -> str:
        left_out = JUMP * (self.known.number - life.number)
        at = to_us(self._clock.now())
        words = [str(life), str(following), self._shared.told, jump, server, at, run, max(left_out, 0)]
        return str(self._script.call(self._keys, words))

    def _ask(self, command: Callable[[], Any]) -> Any:
        """Ask until Redis answers: each request may be repeated."""
        return self.until_answered(command)

    def _same_store(self, found: str) -> Life:
        if not found:
            error = StoreError(
                f"The store in Redis at {shown(self._url)} was emptied while this node worked on it.",
                cure="Restore a backup (`dragoman restore`), or accept the loss; then start all daemons again.",
            )
        elif (life := life_of(found)).store == self.known.store:
            return life
        else:
            error = StoreError(
                f"The store in Redis at {shown(self._url)} is another one than this node worked on.",
                cure="If that is meant, start all daemons again; otherwise correct store.url.",
            )
        self._shared.trouble = error
        raise error
