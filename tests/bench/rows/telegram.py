"""Rows: the measurements of the test channel, repeated on Telegram's wire; the floor is a bare loop on it."""

from __future__ import annotations

from tests.bench import measure
from tests.bench.figures import Figure
from tests.bench.rows.crash import killed, killed_answering
from tests.bench.rows.crowd import crowded
from tests.bench.rows.turns import (
    CPU_DECIDED,
    OPERATOR_DECIDED,
    SANDBOXES,
    allowed_shell,
    compared,
    lengthened,
    shelled,
)
from tests.bench.telegram import (
    floor_words,
    run_fake,
    run_telegram_daemon,
    run_telegram_floor,
    telegram_daemon,
)
from tests.bench.world import WITHIN_S, Bench, Watcher, pid_of, run_bare
from tests.support.telegram import FakeTelegram


async def operator(bench: Bench) -> list[Figure]:
    """A turn without a model."""
    async with run_telegram_daemon(bench) as daemon, run_telegram_floor(bench) as floor:
        name = "telegram, operator turn"
        return await compared(name, bench.counts, daemon, floor, times=6, decided=OPERATOR_DECIDED)


async def model(bench: Bench) -> list[Figure]:
    """A turn with a model of 0 ms that answers in 8 chunks."""
    async with run_telegram_daemon(bench, model=True) as daemon, run_telegram_floor(bench, model=True) as floor:
        return await compared("telegram, model turn", bench.counts, daemon, floor, times=6, decided=CPU_DECIDED)


async def shell(bench: Bench) -> list[Figure]:
    """A turn with one allowed call of the shell, less the turn without it, in each sandbox."""
    figures: list[Figure] = []
    for sandbox in SANDBOXES:
        async with run_telegram_daemon(bench, allowed_shell(sandbox)) as daemon:
            figures.append(await shelled("telegram", bench.counts, daemon, sandbox))
    return figures


async def long_chat(bench: Bench) -> list[Figure]:
    """The last turns of a long chat against the first turns of new ones."""
    async with run_telegram_daemon(bench, model=True) as daemon:
        return await lengthened("telegram", bench.counts, daemon)


async def chats(bench: Bench) -> list[Figure]:
    """All write at once to a model of 500 ms; then more chats; memory before and after."""
    async with run_telegram_daemon(bench, model=True) as daemon, run_telegram_floor(bench, model=True) as floor:
        return await crowded("telegram", bench.counts, daemon, floor)


async def kill(bench: Bench) -> list[Figure]:
    """Killed with messages in flight, and once more while answers are."""
    async with run_telegram_daemon(bench, model=True) as life:
        figures = await killed("telegram", bench.counts, life)
        return figures + await killed_answering("telegram", bench.counts, life)


async def ready(bench: Bench) -> list[Figure]:
    """CPU seconds from exec to the first poll, with children."""
    spent: list[float] = []
    bare: list[float] = []
    for _ in range(bench.counts.starts):
        async with run_fake(Watcher()) as telegram:
            daemon = telegram_daemon(bench, telegram.api_root, model=True)
            try:
                await daemon.start({"DRAGOMAN_LOG__LEVEL": "info"}, ready=False)
                spent.append(await _at_first_poll(telegram, pid_of(daemon)))
            finally:
                await daemon.kill()
        async with run_fake(Watcher()) as telegram:
            words = floor_words(bench, telegram.api_root, model=True)
            async with run_bare("tests.bench.telegram_floor", *words) as pid:
                bare.append(await _at_first_poll(telegram, pid))
    return [
        Figure(
            what="telegram and openai model, first poll",
            value=measure.p50(spent),
            unit="s of CPU",
            floor=measure.p50(bare),
            budget=0.6,
        )
    ]


async def _at_first_poll(telegram: FakeTelegram, pid: int) -> float:
    await telegram.until(lambda: bool(telegram.calls("getUpdates")), WITHIN_S)
    return measure.cpu_with_children_s(pid)
