"""Stands in for a model's server: speaks OpenAI-compatible chat completions, and answers from a script.

In a test: `async with ScriptedModel(replies=[Reply(text="Hi")]) as server:` and ask `server.base_url`.
As a program: `python -m tests.support.model_server --port 0 --script file.json`; the first line it prints is
`{"port": …, "base_url": …}`. While it runs, `GET /_log` lists the requests and `POST /_script` adds replies and rules.

A script is `{"replies": [Reply…], "models": {name: [Reply…]}, "rules": [{"text": regex, …, "reply": Reply}…]}`, where a
Reply, and what a rule can ask for, have the fields in `tests/support/model/scripts.py`. A question takes the first rule
that fits, else the next of the replies for the model it asks, else the next of all replies, else it is echoed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from tests.support.model.nonsense import HUGE, MANY
from tests.support.model.scripts import (
    Answering,
    Call,
    Nonsense,
    Outcome,
    Question,
    Reply,
    Rule,
    Script,
    UsageFigures,
    unmarked,
)
from tests.support.model.server import Asked, ScriptedModel
from tests.support.model.wire import count_events

__all__ = [
    "HUGE",
    "MANY",
    "Answering",
    "Asked",
    "Call",
    "Nonsense",
    "Outcome",
    "Question",
    "Reply",
    "Rule",
    "Script",
    "ScriptedModel",
    "UsageFigures",
    "count_events",
    "unmarked",
]


async def _serve(port: int, script: Script, api_key: str | None) -> None:
    async with ScriptedModel(api_key=api_key, port=port) as server:
        server.add(script)
        sys.stdout.write(json.dumps({"port": server.port, "base_url": server.base_url}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An OpenAI-compatible model server that answers from a script.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--script", type=Path, help="a JSON file; without it every question is echoed")
    parser.add_argument("--api-key", help="the only key that is let in")
    options = parser.parse_args()
    script = Script.model_validate_json(options.script.read_bytes()) if options.script else Script()
    try:
        asyncio.run(_serve(options.port, script, options.api_key))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
