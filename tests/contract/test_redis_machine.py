"""The state machine on Redis: after each of its moves the store in memory shows the same, and every promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from gateway.ports import Store
from gateway.store import open_store
from tests.contract.test_store_machine import RULES_A_RUN, StoreMachine
from tests.support.faulty_store import Faults
from tests.support.redis_server import RedisServer


@pytest.mark.parametrize(
    "runs", [2, pytest.param(200, marks=[pytest.mark.whole("two runs stay"), pytest.mark.timeout(3600)])]
)
def test_redis_agrees_with_memory(runs: int, redis_server: RedisServer) -> None:
    class Machine(StoreMachine):
        """The same moves on Redis."""

        def _durable(self, faults: Faults) -> Store:
            """Open it under a prefix of its own. No fault is put into it here: kills of the server do that."""
            return open_store(f"{redis_server.url}?prefix={Path(self.folder.name).name}", self.clock)

    StoreMachine.moves.clear()
    run_state_machine_as_test(
        Machine,
        settings=settings(StoreMachine.TestCase.settings, max_examples=runs, stateful_step_count=RULES_A_RUN),
    )
    assert sum(StoreMachine.moves) >= runs * RULES_A_RUN // 2
