"""Floor on Telegram: a bare loop that polls, asks the model once, or nobody, and answers. It stores nothing.

`python -m tests.bench.telegram_floor --api-root URL --token TOKEN [--model URL]`; it prints a line when it begins.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

import aiohttp

from tests.bench.floor import ask

POLL_S = 50


async def serve(bot: str, model: str) -> None:
    """Answer until killed."""
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    offset = 0
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, asyncio.TaskGroup() as group:
        while True:
            updates = await _call(client, f"{bot}/getUpdates", {"offset": offset, "timeout": POLL_S})
            for update in updates:
                offset = update["update_id"] + 1
                if "message" in update:
                    work = _answer(client, bot, model, update["message"])
                    group.create_task(work, name=f"update {update['update_id']}")


async def _answer(client: aiohttp.ClientSession, bot: str, model: str, message: dict[str, Any]) -> None:
    text = await ask(client, model, message["text"])
    await _call(client, f"{bot}/sendMessage", {"chat_id": message["chat"]["id"], "text": text})


async def _call(client: aiohttp.ClientSession, url: str, parameters: dict[str, Any]) -> Any:
    async with client.post(url, json=parameters) as response:
        return (await response.json())["result"]


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-root", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--model", default="")
    options = parser.parse_args()
    asyncio.run(serve(f"{options.api_root}/bot{options.token}", options.model))


if __name__ == "__main__":
    main()
