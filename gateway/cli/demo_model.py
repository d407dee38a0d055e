"""Model server of `dragoman demo`: OpenAI-compatible chat completions on loopback, in its own thread.

Small on purpose, as an example of such a server: a prompt in, an answer streamed word by word.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Self, cast

from gateway.cli.demo_script import Saying, next_saying

NAME = "demo"
_WORD_S = 0.03
"""Seconds between words, so that the streaming is visible."""
_MOST_BYTES = 10 * 2**20
"""Largest request body in bytes."""


class DemoModel:
    """The model server, as a context manager. Answers any model name and requires no key."""

    def __init__(self, word_s: float = _WORD_S) -> None:
        """Bind a free port on loopback."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.word_s = word_s
        # Polls for shutdown ten times a second: the default would delay Ctrl-C by half a second.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="demo model", daemon=True)

    @property
    def base_url(self) -> str:
        """The value for `[model] base_url`."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        """Start the server thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop the server; an answer in flight is cut."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    word_s = _WORD_S

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(place, handler)
        self.ids = count(1)


class _Handler(BaseHTTPRequestHandler):
    timeout = 60

    def do_POST(self) -> None:
        """Answer one request; the connection closes after the answer."""
        if not _is_here(self.headers.get("Host", "")):
            self.send_error(403, "This server answers only to its own address")
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
            if not 0 <= size <= _MOST_BYTES:
                self.send_error(413, f"A request has 0 to {_MOST_BYTES} bytes")
                return
            asked: dict[str, Any] = json.loads(self.rfile.read(size))
            tools = {str(tool["function"]["name"]) for tool in asked.get("tools") or ()}
            said = next_saying(asked["messages"], tools)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.send_error(400, f"This is not a chat completions request: {type(error).__name__}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            server = cast("_Server", self.server)
            for event in _events(said, server.ids):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                time.sleep(server.word_s)
            self.wfile.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass  # the client disconnected: /stop

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the daemon."""


def _is_here(host: str) -> bool:
    """Return whether a Host header names this machine. A web page whose own name points here would send that name."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return name.lower() in ("127.0.0.1", "localhost", "[::1]")


def _events(said: Saying, ids: Iterable[int]) -> Iterable[Mapping[str, Any]]:
    yield _chunk({"role": "assistant", "content": ""})
    for word in re.findall(r"\s*\S+", said.text):
        yield _chunk({"content": word})
    for index, (call, number) in enumerate(zip(said.calls, ids, strict=False)):
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        delta = {"index": index, "id": f"call_{number}", "type": "function", "function": function}
        yield _chunk({"tool_calls": [delta]})
    yield _chunk({}, finish="tool_calls" if said.calls else "stop")
    yield {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": len(said.text.split())}}


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
