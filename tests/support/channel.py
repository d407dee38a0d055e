"""The channel `test`: a daemon loads it by configuration and talks through it to `tests.support.platform`.

`[channels.test]` with `module = "tests.support.channel"` and `port`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from gateway.domain.ids import Handle, principal
from gateway.domain.messages import Attachment, Conversation, Inbound, Press
from gateway.domain.slots import RateLimit, RenderedSlot
from gateway.errors import FetchFailed, SendFailed, SendOutcome, StoreError
from gateway.ports import ChannelContext, ChannelSpec, Progress, Sink

RECONNECT_S = 0.05


class SocketChannel:
    """`ports.Channel` over one TCP connection to the platform."""

    def __init__(self, context: ChannelContext) -> None:
        """Take the port from the settings."""
        self._context = context
        self._name = context.name
        self._port = int(cast(Mapping[str, Any], context.settings)["port"])
        self._writer: asyncio.StreamWriter | None = None
        self._seq = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    @property
    def name(self) -> str:
        """The channel's name."""
        return self._name

    async def run(self, sink: Sink) -> None:
        """Keep a connection and take what comes over it."""
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=4_194_304)
                async with asyncio.TaskGroup() as group:
                    while line := await reader.readline():
                        frame = json.loads(line)
                        if frame["op"] == "answer":
                            self._answered(frame)
                        else:
                            group.create_task(self._take(frame, sink), name=f"event {frame['key']}")
            except OSError:
                pass
            finally:
                self._lose()
            await asyncio.sleep(RECONNECT_S)

    async def _take(self, frame: dict[str, Any], sink: Sink) -> None:
        try:
            if frame["type"] == "press":
                pressed = await sink.press(self._press(frame))
                answer = {"result": pressed.result.value}
            else:
                accepted = await sink.message(self._inbound(frame))
                answer = {"accepted": accepted is not None}
        except StoreError:
            return  # not acknowledged: the platform sends it again
        await self._write({"op": "ack", "key": frame["key"], **answer})
        await self._context.fail_point("J3")

    def _inbound(self, frame: dict[str, Any]) -> Inbound:
        return Inbound(
            event_key=frame["key"],
            conversation=self._conversation(frame["chat"]),
            principal=principal(self._name, frame["user"]),
            name=f"User {frame['user']}",
            direct=frame["direct"],
            addressed=frame["addressed"],
            text=frame["text"],
            sent_at=self._context.clock.now(),
        )

    def _press(self, frame: dict[str, Any]) -> Press:
        return Press(
            event_key=frame["key"],
            conversation=self._conversation(frame["chat"]),
            principal=principal(self._name, frame["user"]),
            handle=Handle(frame["handle"]),
            reason=frame["reason"],
        )

    def _conversation(self, chat: str) -> Conversation:
        return Conversation(channel=self._name, account="bot", chat=chat)

    async def show(self, showing: RenderedSlot, progress: Progress) -> tuple[str, ...]:
        """Show a new message, or change one."""
        if ids := showing.slot.message_ids:
            await self._ask({"op": "edit", "id": ids[0], **_content(showing)})
            return ids
        answer = await self._ask({"op": "send", **_content(showing)})
        return (str(answer["id"]),)

    async def fetch(self, conversation: Conversation, file: Attachment, write: Callable[[bytes], None]) -> None:
        """There are no files here."""
        raise FetchFailed("This platform has no files.", retryable=False)

    async def typing(self, conversation: Conversation) -> None:
        """Not shown here."""

    def rate_limits(self, conversation: Conversation) -> Sequence[RateLimit]:
        """None."""
        return ()

    @property
    def streams(self) -> bool:
        """False: an answer is shown at its end."""
        return False

    def trouble(self) -> str:
        """Return the trouble of an absent platform."""
        return "" if self._writer is not None else "The platform is not connected."

    async def _ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        if self._writer is None:
            raise SendFailed("The platform is not connected.", outcome=SendOutcome.RETRY)
        seq = next(self._seq)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[seq] = future
        try:
            await self._write({"seq": seq, **frame})
            await self._context.fail_point("J17")
            async with asyncio.timeout(5):
                answer = await future
        except TimeoutError as error:
            raise SendFailed("The platform did not answer.", outcome=SendOutcome.UNCERTAIN) from error
        finally:
            self._waiting.pop(seq, None)
        if "outcome" in answer:
            raise SendFailed("The platform refused.", outcome=SendOutcome(answer["outcome"]))
        return answer

    def _answered(self, frame: dict[str, Any]) -> None:
        future = self._waiting.get(frame["seq"])
        if future is not None and not future.done():
            future.set_result(frame)

    def _lose(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SendFailed("The connection was lost.", outcome=SendOutcome.UNCERTAIN))

    async def _write(self, frame: dict[str, Any]) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(json.dumps(frame).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            return


def _content(showing: RenderedSlot) -> dict[str, Any]:
    slot = showing.slot
    return {
        "chat": slot.conversation.chat,
        "kind": slot.kind.value,
        "slot": slot.id,
        "text": showing.text,
        "repeated": slot.uncertain,
        "rows": [
            {
                "title": row.title,
                "rendered": row.wait.approval.rendered if row.wait.approval else "",
                "note": row.wait.approval.note if row.wait.approval else "",
                "facts": [list(fact) for fact in row.facts],
                "outcome": row.outcome,
                "state": row.wait.state.value,
                "buttons": [{"verb": b.verb.value, "label": b.label, "handle": b.handle} for b in row.buttons],
            }
            for row in showing.rows
        ],
    }


def factory(context: ChannelContext) -> SocketChannel:
    """Make the channel."""
    return SocketChannel(context)


CHANNEL = ChannelSpec(name="test", api=2, load=lambda: factory)
