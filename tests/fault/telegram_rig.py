"""Rig of the fault tests of Telegram: a daemon on its wire, and the judge of the shown messages.

`oracle` judges the rows of a session. Here those rows are compared with the chats themselves: a message there that
belongs to no slot was shown twice.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from gateway.domain.ids import NodeId
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.views import Item
from gateway.store import open_store
from gateway.system.failpoints import ENVIRONMENT
from tests.fault.oracle import (
    Evidence,
    every_call_has_one_result,
    every_turn_ended_with_one_answer,
    nothing_is_lost,
    order_is_kept,
    tell,
    the_model_was_asked_properly,
    what_was_allowed_ran_once,
)
from tests.fault.rig import health, unsent, until, until_quiet
from tests.support.clock import FakeClock
from tests.support.daemon import Daemon
from tests.support.model_server import Rule, ScriptedModel
from tests.support.patience import PATIENCE_S
from tests.support.proof import RAN_TWICE, figure
from tests.support.telegram import TOKEN, Call, FakeTelegram, Shown
from tests.support.telegram.faults import SHOWING

ANN, JOE, BOB, EVE = 1001, 1002, 2002, 6666
"""Two owners, a friend who may write, and a stranger."""
SECRET = "webhook-secret_of-a-test"
RESENT = "(re-sent)"
DOES = "▸"
"""Prefix of the status line of a turn."""
CREATES = ("sendMessage", "sendDocument")
ON_ITS_WAY_S = 0.3
"""So long after a refusal a call may still arrive that was written before it was known."""
CONFIG = """
[owners]
ann = ["telegram:1001"]
joe = ["telegram:1002"]
[limits]
messages_per_minute = 0
[people]
allow = [{friends}]
[chats]
allow = [{chats}]
[sessions]
approval_expiry_main = "{expiry}"
[model]
name = "openai:scripted"
base_url = "{model}"
[tools.shell]
permission = "always"
{shell}
{telegram}
"""
ONE_BOT = """
[channels.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
api_root = "{api_root}"
mode = "{mode}"
{secret}
[channels.telegram.limits]
{limits}
"""


@dataclass(slots=True, kw_only=True)
class Wire:
    """A daemon, its bot on Telegram and its model. What it is configured with can change between two lives."""

    daemon: Daemon
    telegram: FakeTelegram
    model: ScriptedModel
    channel: str
    """The table of the channel."""
    friends: Sequence[int | str]
    """Users of Telegram; or whole principals of another channel, whose table is added to `channel`."""
    chats: Sequence[int] = ()
    """Groups that may use it."""
    expiry: str = "1h"
    shell: str = ""
    """More keys of the shell's table."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    line: AsyncExitStack = field(default_factory=AsyncExitStack)
    """While it is open, Telegram can be reached."""
    deaths: list[float] = field(default_factory=list[float])
    """When it was dead by `kill -9` and its next life began, in seconds of `time.monotonic()`."""
    buried: int = 0
    """Deaths after which a life began."""

    async def start(self, armed: str = "", *, ready: bool = True) -> None:
        """Begin a life, with fail points armed."""
        if len(self.deaths) == self.buried + 1:  # what was on its way may have arrived after the death was seen
            self.deaths[-1] = time.monotonic()
        self.buried = len(self.deaths)
        self.daemon.config = CONFIG.format(
            friends=", ".join(f'"{f"telegram:{one}" if isinstance(one, int) else one}"' for one in self.friends),
            chats=", ".join(f'"telegram:{chat}"' for chat in self.chats),
            expiry=self.expiry,
            model=self.model.base_url,
            shell=self.shell,
            telegram=self.channel,
        )
        await self.daemon.start({**self.env, ENVIRONMENT: armed}, ready=ready)

    async def hang_up(self) -> None:
        """Nobody listens where Telegram was: connections are refused."""
        await self.line.aclose()

    async def connect(self) -> None:
        """Telegram can be reached, at its old address."""
        await self.line.enter_async_context(self.telegram.serve())

    async def kill(self) -> None:
        """End this life as by `kill -9`."""
        await self.daemon.kill()
        self.deaths.append(time.monotonic())

    async def killed(self) -> None:
        """Wait until a fail point ends this life."""
        assert await self.daemon.died() == -signal.SIGKILL
        self.deaths.append(time.monotonic())

    async def settled(self, within_s: float = PATIENCE_S) -> None:
        """Wait until every update is confirmed and nothing is queued, running, parked or due."""
        try:
            await self.telegram.until(lambda: not self.telegram.updates.pending(), within_s)
        except TimeoutError:
            pending, log = self.telegram.updates.pending(), self.daemon.log[-4000:]
            raise AssertionError(f"{len(pending)} updates are not confirmed: {pending[:2]}\n{log}") from None
        await until_quiet(self.daemon, within_s)
        await self.all_sent(within_s)

    async def all_sent(self, within_s: float = PATIENCE_S) -> None:
        """Wait until no slot is due or being sent. The figures in /metrics leave out the latter."""
        await until(lambda: not self.unsent(), within_s)

    def unsent(self) -> list[tuple[str, str]]:
        """Conversation and text of the slots that are due or being sent now."""
        return unsent(self.daemon)

    async def health(self) -> tuple[int, str]:
        """Return the answer of /readyz."""
        return await health(self.daemon)


@asynccontextmanager
async def wire(
    folder: Path,
    *,
    mode: str = "polling",
    friends: Sequence[int | str] = (BOB,),
    chats: Sequence[int] = (),
    rules: Sequence[Rule] = (),
    limits: str = "",
    channel: str = "",
) -> AsyncGenerator[Wire]:
    """Everything but the daemon's first life. In the end no secret stands in a log and nothing odd was sent.

    `channel`: another table of the channel, in which `{api_root}` is filled in.
    """
    async with ScriptedModel(rules=rules) as model, AsyncExitStack() as line:
        telegram = await line.enter_async_context(FakeTelegram().serve())
        secret = 'webhook_secret = "env:TELEGRAM_WEBHOOK_SECRET"' if mode == "webhook" else ""
        daemon = Daemon(folder=folder, warm=True)
        found = Wire(
            daemon=daemon,
            telegram=telegram,
            model=model,
            channel=(channel or ONE_BOT).format(api_root=telegram.api_root, mode=mode, secret=secret, limits=limits),
            friends=friends,
            chats=chats,
            line=line,
            env={
                "TELEGRAM_BOT_TOKEN": TOKEN,
                "TELEGRAM_WEBHOOK_SECRET": SECRET,
                "DRAGOMAN_HTTP__PUBLIC_URL": daemon.url,
            },
        )
        try:
            yield found
        finally:
            await daemon.kill()
        assert telegram.surprises == []
        assert [one for one in (TOKEN.partition(":")[2], SECRET) if one in daemon.log] == []


# --- the store ----------------------------------------------------------------------------------


async def age(state: Path, downtime: timedelta) -> None:
    """Let a killed daemon have been away for so long: it said last that long ago that it lives."""
    then = FakeClock(datetime.now(UTC) - downtime)
    store = open_store(f"sqlite://{state / 'dragoman.db'}", then)
    try:
        await store.alive(NodeId("aged#1"))
    finally:
        await store.close()


def slots_of(rows: Mapping[str, Sequence[Item]], channel: str = "telegram") -> list[Slot]:
    """All slots that a channel shows, session by session, in the order in which they were stored."""
    found = [item for items in rows.values() for item in items if isinstance(item, Slot)]
    return [slot for slot in found if slot.conversation.channel == channel]


# --- the judge ----------------------------------------------------------------------------------


class Asks(Protocol):
    """Counts of requests to the model."""

    @property
    def model(self) -> ScriptedModel:
        """The model."""
        ...


def judge_sessions(
    rows: Mapping[str, Sequence[Item]], said: Mapping[str, Sequence[str]], ran: Mapping[str, int], wire: Asks
) -> None:
    """Every promise about rows, for each session of which `said` tells what people wrote."""
    asked = [one.body for one in wire.model.requests]
    for evidence in _evidence(rows, said, ran, asked):
        nothing_is_lost(evidence)
        order_is_kept(evidence)
        every_turn_ended_with_one_answer(evidence)
        every_call_has_one_result(evidence)
        what_was_allowed_ran_once(evidence)
        the_model_was_asked_properly(evidence)


def tell_sessions(
    fault: str, rows: Mapping[str, Sequence[Item]], said: Mapping[str, Sequence[str]], ran: Mapping[str, int]
) -> None:
    """State the figures of all these sessions."""
    for evidence in _evidence(rows, said, {}, ()):
        tell(fault, evidence)
    if ran:
        figure(fault, RAN_TWICE, sum(count > 1 for count in ran.values()), 0, of=len(ran))


def _evidence(
    rows: Mapping[str, Sequence[Item]],
    said: Mapping[str, Sequence[str]],
    ran: Mapping[str, int],
    asked: Sequence[dict[str, Any]],
) -> Iterator[Evidence]:
    for session, texts in said.items():
        yield Evidence(said=texts, ran=ran, frames=(), asked=asked, page=(), items=rows.get(session, ()))


def judge_chats(telegram: FakeTelegram, slots: Sequence[Slot], deaths: Sequence[float] = ()) -> list[Shown]:
    """Each slot is shown whole, in its chat, in order; return what else stands there.

    That is only what was on its way when the daemon died (`Wire.deaths`), at most one in a conversation at each death,
    and it was shown again, marked.
    """
    owned: set[tuple[int, int]] = set()
    for slot in slots:
        assert slot.state is SlotState.SENT, slot
        assert slot.sent_version == slot.version, slot
        messages = _messages(telegram, slot)
        assert messages, slot
        assert not owned & {(one.chat, one.id) for one in messages}, "two slots in one message"
        owned |= {(one.chat, one.id) for one in messages}
        if slot.kind is not SlotKind.CARD and "`" not in slot.text:
            assert words("".join(one.text for one in messages)) == words(slot.text), slot
    _in_order(telegram, slots)
    surplus = [one for chat in _chats(slots) for one in telegram.shown(chat) if (one.chat, one.id) not in owned]
    on_their_way = {chat: _on_their_way(telegram, chat, deaths) for chat in {one.chat for one in surplus}}
    for one in surplus:
        assert one.id in on_their_way[one.chat], (one.id, one.text, telegram.picture(one.chat))
        assert _was_marked(telegram, one), (one.id, one.text, telegram.picture(one.chat))
    return surplus


def calls_in_bans(log: Sequence[Call]) -> list[Call]:
    """Calls that show something in a chat while a ban held that its bot had been told of."""
    refused = [call for call in log if call.status == 429]

    def banned(call: Call) -> bool:
        return any(
            call.chat == ban.chat
            and ban.answered_s + ON_ITS_WAY_S < call.at_s < ban.answered_s + retry_after_s(ban) - ON_ITS_WAY_S
            for ban in refused
        )

    return [call for call in log if call.method in SHOWING and banned(call)]


def retry_after_s(call: Call) -> float:
    """For how long a call was refused."""
    return float(call.answer["parameters"]["retry_after"])


def words(text: str) -> str:
    """Letters and digits alone, without the mark of a repetition: what is left of a text however it is formatted."""
    return re.sub(r"[\W_]+", "", text.replace(RESENT, ""))


def _messages(telegram: FakeTelegram, slot: Slot) -> list[Shown]:
    shown = telegram.chats.all[int(slot.conversation.chat)].messages
    found = [shown[int(one)] for one in slot.message_ids]
    assert not any(one.deleted for one in found), slot
    return found


def _chats(slots: Sequence[Slot]) -> Collection[int]:
    return {int(slot.conversation.chat) for slot in slots}


def _in_order(telegram: FakeTelegram, slots: Sequence[Slot]) -> None:
    """In a chat the slots of one session stand in the order in which they were stored."""
    of_session: dict[tuple[str | None, str], list[Slot]] = {}
    for slot in slots:
        of_session.setdefault((slot.session, slot.conversation.chat), []).append(slot)
    for (_, chat), mine in of_session.items():
        firsts = [_messages(telegram, slot)[0].id for slot in mine]
        assert firsts == sorted(firsts), telegram.picture(int(chat))


def _on_their_way(telegram: FakeTelegram, chat: int, deaths: Sequence[float]) -> set[int]:
    """The messages that a chat, or each topic of it, got last before each death."""
    made = [call.at_s for call in telegram.calls(chat=chat) if call.acted and call.method in CREATES]
    messages = telegram.shown(chat, deleted=True)
    assert len(made) == len(messages)
    every = list(zip(made, messages, strict=True))
    last = [{one.thread: one.id for at_s, one in every if at_s <= death} for death in deaths]
    return {id for ids in last for id in ids.values()}


def _was_marked(telegram: FakeTelegram, orphan: Shown) -> bool:
    """Return True if a marked copy is below it, or was when it was made: a status may have changed."""
    after = [one for one in telegram.shown(orphan.chat) if one.id > orphan.id]
    first = [one.history[0] if one.history else one.text for one in after]
    begins = "" if orphan.text.startswith(DOES) else words(_decided(orphan.text))[:40]
    return any(RESENT in text and begins in words(_decided(text)) for text in first)


def _decided(text: str) -> str:
    """A card's text with its headings as they are once it is decided, when it may be shown again."""
    return re.sub(r" wants to [a-z ]+", "", text)
