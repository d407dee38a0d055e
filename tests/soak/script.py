"""Script of a soak's model: answers by the message, `#12 story`. It refuses now and then, as models do."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field

from tests.support.model_server import Call, Question, Reply

ASKED = re.compile(r"#(\d+(?:\.\d+)?) ([a-z]+)")
"""Number and kind of what somebody wants; the last one in a text is meant."""
SUMMARY = "You keep the memory"
"""Phrase in the system prompt that asks for a summary."""
SENTENCE = "The dough is kneaded once more, and then it rests for a while under a cloth. "
KINDS = {
    "talk": 40,
    "story": 8,
    "long": 2,
    "look": 12,
    "file": 5,
    "run": 14,
    "pair": 4,
    "nap": 3,
    "spawn": 4,
    "chore": 2,
}
"""Kinds of messages, with their weight. `file` comes with one."""
OF_OWNERS = ("spawn", "chore", "nap")
"""Kinds that only owners ask for, in their own session."""
TROUBLE = (
    (0.03, Reply(status=429, error="busy", headers={"Retry-After": "1"})),
    (0.02, Reply(status=500, error="broken")),
    (0.02, Reply(text=SENTENCE, chunks=12, cut_after=5)),
    (0.005, Reply(nonsense="html")),
    (0.005, Reply(nonsense="bad_json")),
)
"""Faults of an answer, with their probability."""
FAILS_ALL = 0.02
"""The share of requests after which all fail for a while: tries, and the fallback's too, come to an end."""
FAILS_FOR = 12


def command_of(number: str) -> str:
    """The command that somebody's wish comes to: it leaves a line in a file of its own when it runs."""
    return f"echo x >> ran-{number}"


def file_of(command: str) -> str:
    """The file that a command leaves a line in."""
    return command.partition(">> ")[2].split(";")[0].strip()


@dataclass(slots=True)
class Script:
    """Answers questions. `nap_s`: how long its longest commands take; `times`: how much faster than a model it speaks;
    `calm`: it refuses nothing.
    """

    chance: random.Random
    nap_s: int
    times: float = 1.0
    calm: bool = True
    refused: int = 0
    _failing: int = field(default=0)

    def __call__(self, question: Question) -> Reply:
        """The answer to one request."""
        trouble = None if self.calm else self._trouble()
        if trouble is not None:
            self.refused += 1
            return trouble
        if question.system.startswith(SUMMARY):
            return Reply(text=f"People want bread. {SENTENCE}")
        found = ASKED.findall(question.text)
        number, kind = found[-1] if found else ("0", "talk")
        calls = _calls(number, kind, self.nap_s)
        if calls and question.results == 0:
            return Reply(calls=calls)
        return _answer(number, kind, self.times)

    def _trouble(self) -> Reply | None:
        if self._failing:
            self._failing -= 1
            return TROUBLE[1][1]
        draw = self.chance.random()
        if draw < FAILS_ALL / FAILS_FOR:
            self._failing = FAILS_FOR
        for share, reply in TROUBLE:
            draw -= share
            if draw < 0:
                return reply
        return None


def _answer(number: str, kind: str, times: float) -> Reply:
    """Return the final answer."""
    if kind == "story":
        return Reply(text=f"The story of {number}. {SENTENCE * 12}", chunks=24, delay_s=0.12 / times)
    if kind == "long":
        return Reply(text=f"All about {number}. {SENTENCE * 110}", chunks=20, delay_s=0.02 / times)
    return Reply(text=f"So much about {number}. {SENTENCE}", chunks=4, delay_s=0.01 / times)


def _calls(number: str, kind: str, nap_s: int) -> tuple[Call, ...]:
    """Return the calls before the answer."""
    match kind:
        case "look":
            return tuple(_call("peek", what=f"{number}.{n}") for n in (1, 2))
        case "run":
            return (_call("shell", command=command_of(number)),)
        case "pair":
            return tuple(_call("shell", command=command_of(f"{number}.{n}")) for n in (1, 2))
        case "nap":
            return (_call("shell", command=f"{command_of(number)}; sleep {nap_s}"),)
        case "spawn":
            return tuple(_call("sessions_spawn", task=f"#{number}.{n} talk") for n in (1, 2))
        case "chore":
            return (_call("sessions_spawn", task=f"#{number}.1 run"),)
        case _:
            return ()


def _call(name: str, **arguments: str) -> Call:
    return Call(name=name, arguments=json.dumps(arguments))
