"""Machines, people and a platform in hundreds of orders, each of a seed: what must hold holds after every one.

One that does not hold is shown with its number; `DRAGOMAN_SCHEDULE` with that number plays it alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.schedule_people import Moods
from tests.fault.schedule_rig import Profile, play
from tests.support.proof import SEED, figure, seed, times

SCHEDULE = "DRAGOMAN_SCHEDULE"
SCHEDULES = times(50, 5_000, small=6)
"""Of each kind."""
BROKEN = "schedules that break a promise"
EVERY_HARM = ("suspend", "kill", "cancel", "stop", "no store")
LEASES = Profile(
    machines=(1, 2, 3),
    tools=("look", "mark", "trusted"),
    faults=EVERY_HARM,
    faults_at_most=4,
    commands=True,
    lossy=True,
)
PRESSES = Profile(
    machines=(1, 2, 2),
    messages=5,
    stops=1,
    tools=("shell", "shell", "save", "trusted"),
    faults=EVERY_HARM,
    commands=True,
    lossy=True,
)
STOPS = Profile(
    machines=(1, 2),
    stops=4,
    tools=("trusted", "shell", "look", "spawn"),
    faults=("suspend", "kill", "cancel"),
    faults_at_most=2,
    commands=True,
)
SLOTS = Profile(
    machines=(1, 2, 2),
    stops=1,
    tools=("trusted", "shell"),
    faults=EVERY_HARM,
    faults_at_most=2,
    moods=Moods(slow=100, refuses=60, waits=60, kills=10, silent=100, hangs=30),
)


@pytest.mark.timeout(60 + SCHEDULES)
def test_leases(tmp_path: Path) -> None:
    """Machines freeze past their lease, die, are cut down, stop, lose the store: turns go on elsewhere, once."""
    every_one_holds("leases", LEASES, "F03", tmp_path)


@pytest.mark.timeout(60 + SCHEDULES)
def test_presses(tmp_path: Path) -> None:
    """Approvals are pressed once, often, late, by the wrong ones, while machines fall over."""
    every_one_holds("presses", PRESSES, "F26", tmp_path)


@pytest.mark.timeout(60 + SCHEDULES)
def test_stops(tmp_path: Path) -> None:
    """/stop at any point: within a second nothing has an effect any more, and nothing begins."""
    every_one_holds("stops", STOPS, "F27", tmp_path)


@pytest.mark.timeout(60 + SCHEDULES)
def test_slots(tmp_path: Path) -> None:
    """A platform that is slow, refuses, hangs, or does not say: once each, the last version last."""
    every_one_holds("slots", SLOTS, "F17", tmp_path)


def every_one_holds(name: str, profile: Profile, fault: str, folder: Path) -> None:
    """Play them; at the first that breaks a promise show its end and how to see it again."""
    alone = os.environ.get(SCHEDULE)
    numbers = [int(alone)] if alone else range(SCHEDULES)
    for tried, number in enumerate(numbers, 1):
        world = play(f"{seed()}/{name}/{number}", profile, folder)
        if world.broken:
            again = f"{SEED}={seed()} {SCHEDULE}={number} ./run test tests/fault/test_schedules.py::test_{name}"
            sys.stdout.write(f"{world.trace()}\nThe same again: {again}\n")
            figure(fault, BROKEN, 1, 0, of=tried)
    figure(fault, BROKEN, 0, 0, of=len(numbers))


@pytest.mark.whole("the schedules stay; this one is about seeing one again")
def test_a_seed_is_one_schedule_in_every_process(tmp_path: Path) -> None:
    """Neither addresses nor hashes choose anything."""
    world = play("1/slots/1", SLOTS, tmp_path)
    script = (
        "import sys; from pathlib import Path; from tests.fault.test_schedules import SLOTS, play\n"
        "world = play('1/slots/1', SLOTS, Path(sys.argv[1])); print(world.loop.passed, len(world.acts))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    said = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=50, check=True)
    assert said.stdout.split() == [str(world.loop.passed), str(len(world.acts))]
