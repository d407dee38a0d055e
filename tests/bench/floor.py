"""Floor on the test channel: a bare loop that asks the model once, or nobody, and answers. It stores nothing.

`python -m tests.bench.floor --port PORT [--model URL]`; it prints a line when it is connected.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp


async def serve(port: int, model: str) -> None:
    """Answer until the platform closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4_194_304)
    seq = itertools.count()
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, asyncio.TaskGroup() as group:
        while line := await reader.readline():
            frame = json.loads(line)
            if frame["op"] == "event":
                group.create_task(_answer(frame, writer, client, model, seq), name=f"event {frame['key']}")


async def _answer(
    event: dict[str, Any], writer: asyncio.StreamWriter, client: aiohttp.ClientSession, model: str, seq: Iterator[int]
) -> None:
    _write(writer, {"op": "ack", "key": event["key"], "accepted": True})
    text = await ask(client, model, event["text"])
    said = {"op": "send", "seq": next(seq), "chat": event["chat"], "kind": "answer", "text": text}
    _write(writer, {**said, "rows": [], "repeated": False})
    await writer.drain()


async def ask(client: aiohttp.ClientSession, model: str, text: str) -> str:
    """Return the model's answer, or a fixed text without a model."""
    if not model:
        return "No model is attached."
    question = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": text}]}
    answer = ""
    async with asyncio.timeout(60), client.post(f"{model}/chat/completions", json=question) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    answer += choice["delta"].get("content") or ""
    return answer


def _write(writer: asyncio.StreamWriter, frame: dict[str, Any]) -> None:
    writer.write(json.dumps(frame).encode() + b"\n")


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="")
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.model))


if __name__ == "__main__":
    main()
