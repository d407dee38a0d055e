"""Rows: a search beside bare ripgrep, an edit of a long file, a long page, and the finder of tools. In this process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from agent_tools import edit, grep
from agent_tools._files.ripgrep import OUTPUT_BYTES, program
from agent_tools._web import reader
from gateway.domain.ids import SessionId, TurnId
from gateway.domain.tools import Preview, SandboxMode
from gateway.ports import ProcessText
from gateway.sandbox import Confinement, Containment, ProcessLimits, probe, run_contained
from gateway.store.memory import MemoryStore
from gateway.system.redaction import Redactor
from gateway.toolcalls.file_changes import CallFileChanges
from gateway.toolcalls.output import OutputBuffer
from gateway.toolcalls.processes import Beginning
from gateway.toolcalls.tool_index import search
from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.world import Bench
from tests.support.calls import BareCall
from tests.support.clock import FakeClock
from tests.unit.gateway.toolcalls.test_tool_index import QUESTIONS, real

ROUNDS = 30
FILES, LINES = 500, 10_000
GREP_MS, EDIT_MS, FOUND, PAGE_MS = 10.0, 20.0, 90.0, 300.0
PAGE_BYTES = 1_000_000
DURABLE_WRITES = 5
"""Limit of an edit on a slow disk, as a multiple of one durable write of the file."""


class _Call(BareCall):
    """A call whose programs run in the sandbox and whose changes are journalled."""

    def __init__(self, folder: Path, containment: Containment) -> None:
        super().__init__(folder / "workspace")
        self._containment = containment
        self._folder, self._store = folder / "changes", MemoryStore(FakeClock())
        self.output = OutputBuffer(folder / "output", "step.txt", FakeClock(), Redactor())
        self.n = 0

    @property
    def changes(self) -> CallFileChanges:
        return CallFileChanges(
            key_value=self._store, workspace=self.cwd, folder=self._folder, session=SessionId("main:ann"), epoch=0,
            turn=TurnId("t1"), n=self.n,
        )  # fmt: skip

    async def read(self, argv: Sequence[str], most: int, *, cwd: Path | None = None) -> ProcessText:
        output = Beginning(most)
        ended = await run_contained(
            argv, within=Confinement(mode=SandboxMode.BASIC), workspace=self.cwd, cwd=cwd or self.cwd, output=output,
            containment=self._containment, limits=ProcessLimits(), readable=[Path(argv[0])],
        )  # fmt: skip
        return ProcessText(exit_code=ended.exit_code, data=bytes(output.data), cut=output.cut)


def _call(bench: Bench, containment: Containment) -> _Call:
    folder = bench.new_folder()
    (folder / "workspace").mkdir()
    return _Call(folder, containment)


async def _ms(done: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """Return the median milliseconds of something, after a first time."""
    await done()
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await done()
        found.append((time.perf_counter() - began) * 1_000)
    return measure.p50(found)


async def searches(bench: Bench) -> list[Figure]:
    """Median milliseconds of a search beyond bare ripgrep in the same sandbox. They take turns."""
    call = _call(bench, await probe())
    for n in range(FILES):
        (call.cwd / f"{n:03}.txt").write_text("a line of text\n" * 200 + ("the timeout\n" if n % 10 == 0 else ""))
    bare, whole, beyond = list[float](), list[float](), list[float]()
    argv = [program(), "--json", "--sort", "path", "-e", "timeout", "./"]
    for _ in range(ROUNDS):
        bare.append(await _took(call.read(argv, OUTPUT_BYTES)))
        whole.append(await _took(grep.run(call, grep.Args(pattern="timeout"))))
        beyond.append(whole[-1] - bare[-1])
    return [
        Figure(
            what=f"grep in {FILES} files, p50", value=measure.p50(whole[1:]), unit="ms", floor=measure.p50(bare[1:])
        ),
        Figure(
            what="grep beyond bare rg and its sandbox, p50", value=measure.p50(beyond[1:]), unit="ms", budget=GREP_MS
        ),
    ]


async def _took(done: Awaitable[object]) -> float:
    """Return the milliseconds of something."""
    began = time.perf_counter()
    await done
    return (time.perf_counter() - began) * 1_000


async def edits(bench: Bench) -> list[Figure]:
    """Median milliseconds of the preview of an edit in a long file, and of the edit."""
    call = _call(bench, await probe())
    file = call.cwd / "long.py"
    file.write_text("".join(f"value_{n} = {n}\n" for n in range(LINES)))
    await call.changes.saw("long.py", file.read_bytes())
    number = iter(range(1_000_000))

    async def change() -> None:
        n = next(number)
        old = "value_5000 = 5000" if n == 0 else f"value_5000 = x{n - 1}"
        args = edit.Args(path="long.py", old=old + "\n", new=f"value_5000 = x{n}\n")
        call.n, call.prepared = n, {}
        shown = await edit.prepare(call, args)
        assert isinstance(shown, Preview)
        call.prepared = shown.state
        began = time.perf_counter()
        await edit.run(call, args)
        runs.append((time.perf_counter() - began) * 1_000)

    async def written() -> None:
        """Write the file durably, as its journal is: the old text, the new one, what is to be done, and the file."""
        await asyncio.to_thread(_written, call.cwd.parent / "floor", file.read_bytes())

    runs: list[float] = []
    both = await _ms(change)
    return [
        Figure(what=f"edit of {LINES:,} lines, with its preview, p50", value=both, unit="ms"),
        Figure(
            what=f"edit of {LINES:,} lines, p50",
            value=measure.p50(runs),
            unit="ms",
            floor=await _ms(written),
            budget=EDIT_MS,
            times=DURABLE_WRITES,
        ),
    ]


def long_page() -> str:
    """Return a page of one megabyte."""
    line = '<p class="c{n}">The price of pears <a href="/{n}">rose</a> <b>again</b> in week {n}.</p>\n'
    page = "<html><head><title>Prices</title></head><body><article>"
    return page + "".join(line.format(n=n) for n in range(PAGE_BYTES // 90)) + "</article></body></html>"


async def pages(_bench: Bench) -> list[Figure]:
    """Median CPU milliseconds of the text of a page of one megabyte, in a reader that read one before."""
    page = long_page()
    found: list[float] = []
    for _ in range(ROUNDS // 3):
        began = time.process_time()
        reader.read_html(page.encode(), "markdown", "https://example.org/")
        found.append((time.process_time() - began) * 1_000)
    what = f"page of {len(page) / 1e6:.1f} MB, {page.count('<'):,} tags, CPU p50"
    return [Figure(what=what, value=measure.p50(found[1:]), unit="ms", budget=PAGE_MS)]


def _written(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


async def finder(_bench: Bench) -> list[Figure]:
    """Percentage of the questions for which the right tool is among the first eight."""
    offers = real()
    asked = [(question, name) for name, questions in QUESTIONS.items() for question in questions]
    found = [name in [one.name for one in search(question, offers)[:8]] for question, name in asked]
    value = 100 * sum(found) / len(found)
    return [
        Figure(
            what=f"tools found in the first 8 of {len(asked)} searches",
            value=value,
            unit="%",
            budget=FOUND,
            at_least=True,
        )
    ]
