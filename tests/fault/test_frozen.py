"""F03 with one machine: the daemon is frozen for longer than its lease (a laptop's lid, a paused container)."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from gateway.domain.messages import Received
from gateway.domain.turns import Turn
from tests.fault.model_rig import Crowd, crowd, once, shell
from tests.fault.oracle import Evidence, tell, tell_shown
from tests.fault.rig import lines_of, stored, until, until_quiet
from tests.support.model_server import Reply, Rule
from tests.support.proof import figure, times

FROZEN_S = times(16.0, 40.0)
"""A lease is 15 s."""
MOVING_S = 10.0
SLOW = Reply(text="This takes a while. " * 4, chunks=16, delay_s=0.1)
RULES = [
    once(SLOW, text="^ann: go"),
    once(Reply(calls=(shell("echo x >> ran; sleep 1"),)), text="^bob: go", results=0),
    Rule(reply=Reply(text="You said: {text}")),
]


def send(people: Crowd, what: signal.Signals) -> None:
    """A signal for the daemon."""
    assert people.daemon.process is not None
    people.daemon.process.send_signal(what)


@pytest.mark.whole("waits 17 s; test_two_apps suspends a machine for as long")
@pytest.mark.timeout(60 + int(FROZEN_S))
async def test_frozen_for_longer_than_its_lease(tmp_path: Path) -> None:
    """It goes on by itself: a streaming answer, a running command, and what people wrote meanwhile, each once."""
    async with crowd(tmp_path, ["ann", "bob"], RULES) as people:
        await people.start()
        for who in people.people:
            await people.say(who, "go")
        await people.until_asked("ann")
        await until(lambda: lines_of(people.daemon.state, "ran"))
        send(people, signal.SIGSTOP)
        await people.post("ann", "ann: meanwhile")
        await asyncio.sleep(FROZEN_S)
        send(people, signal.SIGCONT)
        began = time.monotonic()
        await people.see("ann", "You said: ann: meanwhile")
        figure("F03", "from the end of the frost to the answer", time.monotonic() - began, times(20, MOVING_S), "s")
        await until_quiet(people.daemon)
        assert await people.daemon.stop() == 0
        for who, said in (("ann", ["ann: go", "ann: meanwhile"]), ("bob", ["bob: go"])):
            items = await stored(people.daemon.state, f"main:{who}")
            ran = {"ran": len(lines_of(people.daemon.state, "ran"))} if who == "bob" else {}
            evidence = Evidence(said=said, ran=ran, frames=(), asked=(), page=(), items=items, in_flight=2)
            tell("F03", evidence)
            assert all(one.ended_at is not None for one in evidence.of(Turn))
            assert [one.message.text for one in evidence.of(Received)] == said
        tell_shown(
            "F03", Evidence(said=(), ran={}, frames=people.platform.log, asked=(), page=(), items=(), in_flight=2)
        )
