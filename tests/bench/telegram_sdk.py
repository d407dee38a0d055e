"""Floor of the rate rows: python-telegram-bot as it comes. It receives only, or sends.

`python -m tests.bench.telegram_sdk --api-root URL --token TOKEN [--send COUNT --to FIRST_CHAT --chats CHATS]`; it
prints a line when it begins.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from telegram import Bot
from telegram.ext import ApplicationBuilder, MessageHandler, filters

from tests.bench.world import ANSWER

AT_ONCE = 64
"""As many as the daemon sends side by side."""


async def hear(token: str, root: str) -> None:
    """Take updates until killed."""
    application = ApplicationBuilder().token(token).base_url(f"{root}/bot").build()
    application.add_handler(MessageHandler(filters.ALL, _nothing))
    async with application:
        await application.start()
        assert application.updater is not None
        await application.updater.start_polling()
        _begun()
        await asyncio.Event().wait()


async def _nothing(update: object, context: Any) -> None:
    """Ignore a message."""


async def send(token: str, root: str, count: int, chats: range) -> None:
    """Send so many messages, then wait to be killed."""
    async with Bot(token, base_url=f"{root}/bot") as bot:
        _begun()
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            for one in range(AT_ONCE):
                group.create_task(_sender(bot, numbers, chats), name=f"sender {one}")
        await asyncio.Event().wait()


async def _sender(bot: Bot, numbers: Iterator[int], chats: range) -> None:
    for number in numbers:
        await bot.send_message(chats[number % len(chats)], ANSWER)


def _begun() -> None:
    sys.stdout.write("connected\n")
    sys.stdout.flush()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-root", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--send", type=int, default=0)
    parser.add_argument("--to", type=int, default=0)
    parser.add_argument("--chats", type=int, default=1)
    options = parser.parse_args()
    if options.send:
        chats = range(options.to, options.to + options.chats)
        asyncio.run(send(options.token, options.api_root, options.send, chats))
    else:
        asyncio.run(hear(options.token, options.api_root))


if __name__ == "__main__":
    main()
