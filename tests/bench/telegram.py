"""Telegram's wire for the rows: a daemon or the bare loop, on a fake Telegram of its own in the bench's process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from channels.telegram.parts import RESENT
from tests.bench.world import WITH_MODEL, Bench, Life, Watcher, pid_of, run_bare, start
from tests.support.daemon import Daemon
from tests.support.stems import AS_INSTALLED
from tests.support.telegram import TOKEN, Call, FakeTelegram, Fault

GROUPS = range(-1_000_000_000_050, -1_000_000_000_000)
"""Groups that the bot is in."""
PEOPLE = range(5000, 5250)
"""Some who wrote to the bot before."""
CONFIG = """
[owners]
ann = ["telegram:1001"]
[limits]
messages_per_minute = 0
[people]
allow = ["telegram:*"]
[chats]
allow = [{groups}]
[store]
url = "sqlite://{folder}/state/dragoman.db"
[channels.telegram]
token = "file:{folder}/token"
api_root = "{api_root}"
[channels.telegram.limits]
per_chat_per_s = 0
per_group_per_min = 0
overall_per_s = 0
{rest}
"""


@dataclass(slots=True)
class People:
    """The people of a bench on Telegram."""

    telegram: FakeTelegram

    async def say(self, user: str, text: str) -> object:
        """Write in the direct chat."""
        return self.telegram.say(int(user), text)


@dataclass(slots=True, kw_only=True)
class TelegramLife(Life):
    """A daemon or a floor, and its Telegram."""

    telegram: FakeTelegram


def telegram_daemon(
    bench: Bench,
    api_root: str,
    config: str = "",
    *,
    model: bool,
    folder: Path | None = None,
    checkout: Path | None = None,
) -> Daemon:
    """A daemon that is not started yet, of this checkout or of another one."""
    folder = folder or bench.new_folder()
    (folder / "token").write_text(TOKEN)
    groups = ", ".join(f'"telegram:{group}"' for group in GROUPS)
    rest = (WITH_MODEL.format(url=bench.model.base_url) if model else "") + config
    text = CONFIG.format(folder=folder, groups=groups, api_root=api_root, rest=rest)
    return Daemon(folder=folder, config=text, prefix=("env", "-C", str(checkout)) if checkout else ())


def floor_words(bench: Bench, api_root: str, *, model: bool) -> list[str]:
    """The command line of the bare loop."""
    words = ["--api-root", api_root, "--token", TOKEN]
    return words + (["--model", bench.model.base_url] if model else [])


@asynccontextmanager
async def run_telegram_daemon(
    bench: Bench,
    config: str = "",
    *,
    model: bool = False,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    checkout: Path | None = None,
) -> AsyncGenerator[TelegramLife]:
    """A daemon on Telegram; `config` is TOML besides. Raises `AssertionError` when it did what the fake finds odd."""
    if checkout is not None:
        env = {**(env or {}), "PYTHONPATH": f"{AS_INSTALLED}{os.pathsep}{checkout}"}
    watcher = Watcher()
    async with run_fake(watcher) as telegram:
        daemon = telegram_daemon(bench, telegram.api_root, config, model=model, folder=folder, checkout=checkout)
        try:
            await start(daemon, env)
            yield TelegramLife(
                platform=People(telegram),
                watcher=watcher,
                pid=pid_of(daemon),
                daemon=daemon,
                database=daemon.state / "dragoman.db",
                telegram=telegram,
            )
        finally:
            await daemon.kill()
        assert telegram.surprises == []


@asynccontextmanager
async def run_telegram_floor(bench: Bench, *, model: bool = False) -> AsyncGenerator[TelegramLife]:
    """The bare loop on Telegram."""
    watcher = Watcher()
    async with run_fake(watcher) as telegram:
        words = floor_words(bench, telegram.api_root, model=model)
        async with run_bare("tests.bench.telegram_floor", *words) as pid:
            yield TelegramLife(platform=People(telegram), watcher=watcher, pid=pid, telegram=telegram)


@asynccontextmanager
async def run_fake(watcher: Watcher) -> AsyncGenerator[FakeTelegram]:
    """A Telegram with groups, whose new messages the watcher sees."""
    async with FakeTelegram().serve() as telegram:
        for group in GROUPS:
            telegram.supergroup(f"Group {-group}", chat=group)
        for person in PEOPLE:
            telegram.private(person)
        telegram.script(before=lambda call: None, after=_shown_to(watcher))
        yield telegram


def _shown_to(watcher: Watcher) -> Callable[[Call], Fault | None]:
    def after(call: Call) -> None:
        if call.method == "sendMessage" and call.acted:
            watcher.saw(str(call.chat), repeated=call.parameters["text"].startswith(RESENT))

    return after
