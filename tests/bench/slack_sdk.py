"""Floor on Slack: slack-bolt and slack_sdk as they come. It receives only, or answers, or sends.

`python -m tests.bench.slack_sdk --api-root URL --token TOKEN --app-token TOKEN [--model URL | --send COUNT --to
FIRST --chats CHATS]`; it prints a line when it begins. It stores nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from tests.bench.floor import ask
from tests.bench.world import ANSWER

AT_ONCE = 64
"""As many as the daemon sends side by side."""


async def hear(client: Any, session: aiohttp.ClientSession, app_token: str, model: str) -> None:
    """Take events until killed; answer what is said directly when there is a model."""
    app: Any = AsyncApp(client=client)

    async def heard(event: dict[str, Any]) -> None:
        if model and event.get("channel_type") == "im" and "subtype" not in event:
            text = await ask(session, model, event["text"])
            await client.chat_postMessage(channel=event["channel"], text=text)

    app.event("message")(heard)
    handler: Any = AsyncSocketModeHandler(app, app_token)
    await handler.connect_async()
    _begun()
    await asyncio.Event().wait()


async def send(client: Any, count: int, chats: range) -> None:
    """Send so many messages, then wait to be killed."""
    _begun()
    numbers = iter(range(count))
    async with asyncio.TaskGroup() as group:
        for one in range(AT_ONCE):
            group.create_task(_sender(client, numbers, chats), name=f"sender {one}")
    await asyncio.Event().wait()


async def _sender(client: Any, numbers: Iterator[int], chats: range) -> None:
    for number in numbers:
        await client.chat_postMessage(channel=f"D{chats[number % len(chats)]}", text=ANSWER)


async def serve(options: argparse.Namespace) -> None:
    """Do what the command line says, on one HTTP session: without it, the SDK connects anew for each call."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        # Any: the SDK's own types are known in part only.
        client: Any = AsyncWebClient(token=options.token, base_url=options.api_root, session=session)
        if options.send:
            await send(client, options.send, range(options.to, options.to + options.chats))
        else:
            await hear(client, session, options.app_token, options.model)


def _begun() -> None:
    sys.stdout.write("connected\n")
    sys.stdout.flush()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-root", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--app-token", required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--send", type=int, default=0)
    parser.add_argument("--to", type=int, default=0)
    parser.add_argument("--chats", type=int, default=1)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
