"""Subjects of the rows: a daemon or a floor as a child process, on a chat platform of its own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from tests.support.daemon import ROOT, Daemon
from tests.support.model_server import Call, Reply, Rule, ScriptedModel
from tests.support.platform import FakePlatform

OWNER = "1001"
SLOW = "slow"
"""Prefix of a question about which the model thinks for `SLOW_S`."""
SLOW_S = 0.5
ANSWER = "Here is an answer of a usual length, in a few words that come one after the other. " * 3
STREAM = "stream"
"""Prefix of a question whose answer takes `Counts.stream_s`."""
STREAM_EVENTS_A_S = 10
THE_END = "the end"
LONG = "long"
"""Prefix of a question whose answer is long Markdown; `LONGEST`: so long that it is sent as a file;
`DENSE`: a list that is almost sent as one."""
LONGEST = "longest"
DENSE = "dense"
LONG_S = 2.0
TYPED = "typed"
"""Prefix of a question whose answer comes in `TYPED_EVENTS` over `TYPED_S`: long enough to be streamed."""
TYPED_S = 1.6
TYPED_EVENTS = 32
LOOK = "look"
"""Prefix of a question that the model answers after `CALLS` calls of one answer; `GLANCE`: after one."""
GLANCE = "glance"
CALLS = 4
SPAWN = "spawn"
"""Prefix of a question that the model gives to `CHILDREN` sub-sessions before it answers."""
CHILDREN = 3
GRAPH = "graph"
"""Prefix of a question that the model gives to a workflow; it thinks about each step for `SLOW_S`."""
GRAPH_LAYERS = (1, 4, 4, 1)
"""Steps of each layer of it; a step needs all of the layer before."""
MARKDOWN = """
## A heading with *emphasis*, `code` and a [link](https://example.org/a_(b)?c=d)

A paragraph with **bold _and italic_ words**, a name @somebody, 5 * 3 * 2, snake_case_names, ümläuts, 👩‍👩‍👧 pictures.

- one point, with `inline` code
  1. a numbered one below it, ~~struck out~~
     > and a quotation **in it**
- [ ] something to be done

```python
def answer(question: str) -> str:  # code goes as it is: **not bold**
    return question * 2
```

| column | another one |
| --- | ---: |
| `cell` | 1,234 |

"""
WITHIN_S = 60.0
SETTLE_S = 0.005
"""A pause after each exchange: what is still written down about it is not part of the next one."""

CONFIG = """
[owners]
ann = ["test:1001"]
[limits]
messages_per_minute = 0
[people]
allow = ["test:*"]
[store]
url = "{store}"
[channels.test]
module = "{module}"
port = {port}
{rest}
"""
WITH_MODEL = """
[model]
name = "openai:scripted"
base_url = "{url}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of repetitions."""

    turns: int = 100
    warm: int = 10
    long_chat: int = 200
    chats: int = 200
    more_chats: int = 50
    in_flight: int = 50
    waits: int = 10_000
    commits: int = 600
    starts: int = 5
    updates: int = 2_000
    sends: int = 1_000
    stream_s: float = 10.0
    agent_turns: int = 30
    """Turns with calls, children or a streamed answer."""
    pages: int = 20
    """Times that the browser opens, reads and shows a page."""
    grown: tuple[int, ...] = (10, 1_000, 10_000)
    """Sessions that there are, and turns that are queued."""
    long: tuple[int, ...] = (10, 100, 1_000, 10_000)
    """Messages that a session has."""
    spawned: tuple[int, ...] = (10, 1_000)
    """Sub-sessions that a session has had."""


TINY = Counts(
    turns=5,
    warm=2,
    long_chat=10,
    chats=5,
    more_chats=2,
    in_flight=3,
    waits=20,
    commits=40,
    starts=1,
    updates=30,
    sends=100,
    stream_s=1.5,
    agent_turns=2,
    pages=2,
    grown=(2, 20),
    long=(2, 60),
    spawned=(2, 20),
)  # enough to see that a row still runs


class Platform(Protocol):
    """Interface of a platform for the people of a bench."""

    async def say(self, user: str, text: str) -> object:
        """Write as a person, in the direct chat; returns at once."""
        ...


@dataclass(slots=True)
class Watcher:
    """Observer of every answer that the platform is asked to show; for the test platform it is the `answer_send`."""

    seen: list[tuple[str, float, bool]] = field(default_factory=list[tuple[str, float, bool]])
    """To whom, when, and whether it is marked as a repetition."""
    waiting: dict[str, asyncio.Future[float]] = field(default_factory=dict[str, asyncio.Future[float]])

    def __call__(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Note it; the answer is always that it was shown."""
        if frame["op"] == "send" and frame["kind"] == "answer":
            self.saw(frame["chat"].removeprefix("d"), repeated=frame["repeated"])
        return {}

    def saw(self, user: str, *, repeated: bool) -> None:
        """Note an answer that this person sees."""
        now = time.perf_counter()
        self.seen.append((user, now, repeated))
        waiter = self.waiting.pop(user, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(now)

    def expect(self, user: str) -> asyncio.Future[float]:
        """The moment of this person's next answer."""
        return self.waiting.setdefault(user, asyncio.get_running_loop().create_future())


@dataclass(slots=True, kw_only=True)
class Life:
    """A running daemon or floor, and the people who write to it."""

    platform: Platform
    watcher: Watcher
    pid: int
    daemon: Daemon | None = None
    database: Path = Path()

    async def exchange(self, text: str = "hello", user: str = OWNER) -> float:
        """Say something; return the seconds from its hand-out to the answer."""
        answered = self.watcher.expect(user)
        began = time.perf_counter()
        await self.platform.say(user, text)
        async with asyncio.timeout(WITHIN_S):
            return await answered - began

    async def exchanges(self, count: int, text: str = "hello", user: str = OWNER) -> list[float]:
        """One after the other."""
        return [seconds async for seconds in self._each(count, text, user)]

    async def _each(self, count: int, text: str, user: str) -> AsyncGenerator[float]:
        for _ in range(count):
            yield await self.exchange(text, user)
            await asyncio.sleep(SETTLE_S)

    async def at_once(self, users: Sequence[str], text: str) -> float:
        """All say the same at once; return the seconds until the last one is answered."""
        answers = [self.watcher.expect(user) for user in users]
        began = time.perf_counter()
        for user in users:
            await self.platform.say(user, text)
        async with asyncio.timeout(WITHIN_S):
            return max([await answer for answer in answers]) - began


async def interleaved(
    lives: Sequence[Life], count: int, text: str = "hello", users: Sequence[str] = (OWNER,)
) -> list[list[float]]:
    """Exchanges with each in turn, so that all meet the same machine; the seconds of each. The users take turns."""
    took: list[list[float]] = [[] for _ in lives]
    for number in range(count):
        for life, seconds in zip(lives, took, strict=True):
            seconds.append(await life.exchange(text, users[number % len(users)]))
            await asyncio.sleep(SETTLE_S)
    return took


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run of the bench."""

    folder: Path
    counts: Counts
    model: ScriptedModel
    against: Path | None = None
    """Another checkout, whose daemon is measured beside this one's."""
    _folders: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def new_folder(self) -> Path:
        """A folder for one life, on the disk that is measured."""
        path = self.folder / f"{next(self._folders):03}"
        path.mkdir()
        return path

    @asynccontextmanager
    async def run_daemon(
        self,
        config: str = "",
        *,
        model: bool = False,
        folder: Path | None = None,
        module: str = "tests.support.channel",
        channel: str = "",
        store: str = "",
    ) -> AsyncGenerator[Life]:
        """A daemon on the test channel; `config` is TOML besides, `channel` lines of the channel's table.

        `store`: the URL of another store than that of the folder.
        """
        folder, watcher = folder or self.new_folder(), Watcher()
        database = folder / "state" / "dragoman.db"
        async with FakePlatform(answer_send=watcher).serve() as platform:
            rest = channel + (WITH_MODEL.format(url=self.model.base_url) if model else "") + config
            url = store or f"sqlite://{database}"
            text = CONFIG.format(store=url, module=module, port=platform.port, rest=rest)
            daemon = Daemon(folder=folder, config=text)
            await start(daemon)
            try:
                yield Life(platform=platform, watcher=watcher, pid=pid_of(daemon), daemon=daemon, database=database)
            finally:
                await daemon.kill()

    @asynccontextmanager
    async def run_floor(self, *, model: bool = False) -> AsyncGenerator[Life]:
        """The bare loop on the same protocol."""
        watcher = Watcher()
        async with FakePlatform(answer_send=watcher).serve() as platform:
            words = ["--port", str(platform.port)] + (["--model", self.model.base_url] if model else [])
            async with run_bare("tests.bench.floor", *words) as pid:
                yield Life(platform=platform, watcher=watcher, pid=pid)


@asynccontextmanager
async def run_bare(module: str, *words: str) -> AsyncGenerator[int]:
    """Run a floor; yield its process once it has printed a line."""
    command = (sys.executable, "-m", module, *words)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_S):
            assert await process.stdout.readline(), f"{module} ended before it was connected"
        yield process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def start(daemon: Daemon, env: Mapping[str, str] | None = None) -> None:
    """Start a life as an owner would: without the tests' debug log."""
    await daemon.start({"DRAGOMAN_LOG__LEVEL": "info", **(env or {})})


def pid_of(daemon: Daemon) -> int:
    """The process of the daemon's present life."""
    assert daemon.process is not None
    return daemon.process.pid


@asynccontextmanager
async def open_bench(counts: Counts, folder: Path | None = None, against: Path | None = None) -> AsyncGenerator[Bench]:
    """A folder on the disk that is measured, and a model that answers at once, or slowly when it is asked to."""
    with TemporaryDirectory(prefix="dragoman-bench-", dir=folder) as made:
        async with ScriptedModel(rules=_rules(counts)) as model:
            yield Bench(folder=Path(made), counts=counts, model=model, against=against)


def _rules(counts: Counts) -> list[Rule]:
    """Return the model's answers, by the beginning of the question; the first rule that fits holds."""
    usual = Reply(text=ANSWER, chunks=8)
    events = max(int(counts.stream_s * STREAM_EVENTS_A_S), 1)
    stream = Reply(text="One word after the other. " * events + THE_END, chunks=events, delay_s=1 / STREAM_EVENTS_A_S)
    long = Reply(text=MARKDOWN * 12, chunks=20, delay_s=LONG_S / 20)
    return [
        Rule(text=f"^{SLOW}", reply=usual.model_copy(update={"think_s": SLOW_S})),
        Rule(text=f"^{STREAM}", reply=stream),
        Rule(text=f"^{LONGEST}", reply=long.model_copy(update={"text": MARKDOWN * 150})),
        Rule(text=f"^{LONG}", reply=long),
        Rule(
            text=f"^{DENSE}",
            reply=long.model_copy(update={"text": "1. **Step**: do `this` and _that_, then go on\n" * 350}),
        ),
        *_agent_rules(),
        *_graph_rules(usual),
        Rule(reply=usual),
    ]


def _graph_rules(usual: Reply) -> list[Rule]:
    """The call of the workflow, and the answer of each step of it."""
    layers = [[f"l{at}n{n}" for n in range(size)] for at, size in enumerate(GRAPH_LAYERS)]
    steps = [
        {"name": name, "task": f"the part {name}", "needs": layers[at - 1] if at else []}
        for at, layer in enumerate(layers)
        for name in layer
    ]
    call = Call(name="workflow", arguments=json.dumps({"steps": steps}))
    return [
        Rule(text=f"^{GRAPH}", results=0, reply=Reply(calls=(call,))),
        Rule(text=r"\bthe part l\d", reply=usual.model_copy(update={"think_s": SLOW_S})),
    ]


def _agent_rules() -> list[Rule]:
    """An answer that is worth streaming, and answers that begin with calls; after these the usual one comes."""
    typed = "One word after the other. " * TYPED_EVENTS + THE_END
    doze = [Call(name="doze", arguments=f'{{"number": {n}}}') for n in range(CALLS)]
    spawn = [Call(name="sessions_spawn", arguments=f'{{"task": "Task {n}: say hello."}}') for n in range(CHILDREN)]
    return [
        Rule(text=f"^{TYPED}", reply=Reply(text=typed, chunks=TYPED_EVENTS, delay_s=TYPED_S / TYPED_EVENTS)),
        Rule(text=f"^{LOOK}", results=0, reply=Reply(calls=tuple(doze))),
        Rule(text=f"^{GLANCE}", results=0, reply=Reply(calls=tuple(doze[:1]))),
        Rule(text=f"^{SPAWN}", results=0, reply=Reply(calls=tuple(spawn))),
    ]
