"""Lives of a store on Redis: whom a thread takes for the server that it knows."""

from __future__ import annotations

from typing import Any

from gateway.domain.durability import StoreTerms
from gateway.store.redis.clock import ServerClock
from gateway.store.redis.connection import Line
from gateway.store.redis.life import Life, Lives, SharedKnowledge
from tests.support.clock import FakeClock

LIFE = Life(store="s1", number=3)


class Silent:
    """A client of a server that does not say which history it has."""

    def info(self, section: str) -> dict[str, Any]:
        assert section == "replication"
        return {"role": "master"}

    def hmget(self, key: str, *names: str) -> list[str | None]:
        assert (key, *names) == ("{dragoman}:meta", "life", "server", "since")
        return [str(LIFE), "another", None]

    def time(self) -> tuple[int, int]:
        return (1, 0)


def test_a_server_that_says_nothing_is_the_one_that_is_known() -> None:
    """Its commits tell what it lost."""
    line, known = Line(), SharedKnowledge(LIFE, StoreTerms(), StoreTerms())
    lives = Lives(Silent(), line, "redis://here:1/0", "{dragoman}:", ServerClock(FakeClock()), known)
    lives.look()
    assert (line.is_cut, lives.known, lives.back_since) == (False, LIFE, None)
