"""Judge of a soak: compares messages, showings and runs with the stored rows. It counts faults and goes on.

`tests/fault/oracle.py` judges single sessions and raises; after an hour one wants to know all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gateway.domain.ids import SessionId
from gateway.domain.messages import Received
from gateway.domain.slots import Slot, SlotKind, SlotState
from gateway.domain.steps import Step
from gateway.domain.tools import ResultStatus
from gateway.domain.turns import ENDED, Turn, TurnState
from gateway.domain.views import Item
from gateway.domain.waits import Wait, WaitKind, WaitState
from gateway.store import open_store
from gateway.system.clock import SystemClock
from tests.fault.day import one_line
from tests.fault.oracle import Evidence, the_audit_is_whole, the_model_was_asked_properly
from tests.fault.rig import lines_of
from tests.fault.slack_rig import judge_places
from tests.fault.telegram_rig import judge_chats
from tests.soak.bars import CALLBACK_MS, Bar
from tests.soak.people import CONTROL, People
from tests.soak.samples import session_ids
from tests.soak.script import file_of
from tests.soak.weather import Weather
from tests.soak.world import World
from tests.support.proof import LOST, RAN_TWICE, TWICE

PAGE = 1_000
"""Rows that are read at once."""
OPEN = frozenset({WaitState.OPEN, WaitState.APPROVED})
SEEN, SEEN_CHARS = 3, 6_000
"""So many of what misses are shown, and so much of each."""
T = TypeVar("T")


async def rows_of_all(state: Path) -> dict[str, list[Item]]:
    """Every row of every session of a stopped daemon, those of sub-sessions too, by session and in order."""
    database = state / "dragoman.db"
    store = open_store(f"sqlite://{database}", SystemClock())
    found: dict[str, list[Item]] = {}
    try:
        for session in session_ids(database):
            rows = await store.changes(SessionId(session), 0, PAGE)
            every = list(rows.rows)
            while rows.more:
                rows = await store.changes(SessionId(session), every[-1].rev, PAGE)
                every += rows.rows
            found[session] = [row.item for row in sorted(every, key=lambda row: row.ord)]
        await the_audit_is_whole(store)
    finally:
        await store.close()
    return found


@dataclass(slots=True, kw_only=True)
class Judge:
    """Everything that is known of a soak that has ended."""

    world: World
    people: People
    weather: Weather
    rows: Mapping[str, Sequence[Item]]
    asked_badly: Sequence[str]
    """Questions to the model whose calls and results did not match."""
    found: list[Bar] = field(default_factory=list[Bar])

    def bars(self) -> list[Bar]:
        """Every figure, with its bar."""
        self._messages()
        self._turns()
        self._commands()
        self._slots()
        self._telegram()
        self._slack()
        self._strangers()
        self._daemon()
        return self.found

    def counts(self) -> dict[str, int]:
        """Return the count of everything."""
        steps = [step for step in self._of(Step) if step.call is not None]
        results = Counter(str(step.result.status) for step in steps if step.result is not None)
        turns = Counter(str(turn.state) for turn in self._of(Turn))
        return {
            "messages": sum(map(len, self.people.said.values())),
            "presses": self.people.presses,
            "sessions": len(self.rows),
            "sub-sessions": sum(session.startswith("child:") for session in self.rows),
            "seconds until the slowest start was ready": round(max(self.world.births_s)),
            "slots": len(self._of(Slot)),
            "answers refused by the model": self.world.script.refused,
            **{f"turns {state}": count for state, count in sorted(turns.items())},
            **{f"calls {status}": count for status, count in sorted(results.items())},
            **dict(sorted(self.weather.happened.items())),
        }

    # --- what people wrote ------------------------------------------------------------------------

    def _messages(self) -> None:
        """Each is stored once, in the order in which it was said where the platform keeps it."""
        said = Counter((session, text) for session, texts in self.people.said.items() for text in texts)
        got = Counter(
            (session, one.message.text)
            for session, items in self.rows.items()
            if not session.startswith("child:")
            for one in _only(Received, items)
            if not one.context and one.message.text not in CONTROL
        )
        self._bar(LOST, list((said - got).elements()), of=said.total())
        twice = [*(got - said).elements(), *self._answered_twice()]
        self._bar(TWICE, twice, of=said.total())
        late = [session for session, texts in self._in_order() if texts != sorted(texts)]
        self._bar("conversations whose messages are stored in another order", late, of=len(self.rows))

    def _in_order(self) -> Iterator[tuple[str, list[int]]]:
        """Of each session on Telegram, whose updates are in order: the numbers of its messages as they are stored."""
        for session, items in self.rows.items():
            texts = [one.message.text for one in _only(Received, items) if one.message.event_key and not one.context]
            if "telegram" in session:
                yield session, [int(match[1]) for text in texts if (match := re.match(r"#(\d+) ", text))]

    def _answered_twice(self) -> list[object]:
        """Answers beyond one for each answer of the model."""
        answers = Counter((slot.turn, slot.n) for slot in self._of(Slot) if slot.kind is SlotKind.ANSWER)
        return [answer for answer, count in answers.items() for _ in range(count - 1)]

    def _turns(self) -> None:
        """Each has ended, with last words unless somebody stopped it; each message was given to one."""
        turns = {turn.id: turn for turn in self._of(Turn)}
        self._bar("turns that have not ended", [t for t in turns.values() if t.state not in ENDED], of=len(turns))
        answered = {slot.turn for slot in self._of(Slot) if slot.kind is SlotKind.ANSWER}
        silent = [t for t in turns.values() if t.state is not TurnState.STOPPED and t.id not in answered]
        self._bar("turns without an answer", silent, of=len(turns))
        received = [one for one in self._of(Received) if not one.context and one.message.text not in CONTROL]
        stopped = {turn.id for turn in turns.values() if turn.state is TurnState.STOPPED}
        ignored = [one for one in received if one.turn is None or (one.given is None and one.turn not in stopped)]
        self._bar("messages that no turn was given", ignored, of=len(received))
        self._bar("questions to the model whose calls and results do not match", list(self.asked_badly))

    # --- what was run -----------------------------------------------------------------------------

    def _commands(self) -> None:
        """Check calls: allowed ones ran once, others never did, and each call has its result."""
        calls = [step for step in self._of(Step) if step.call is not None]
        self._bar("calls left without a result", [one for one in calls if one.result is None], of=len(calls))
        shells = [(one, _file_of(one)) for one in calls if one.call is not None and one.call.tool == "shell"]
        ran = {name: len(lines_of(self.world.daemon.state, name)) for _, name in shells}
        self._bar(RAN_TWICE, [name for name, times in ran.items() if times > 1], of=len(ran))
        waits = {(one.turn, one.n): one for one in self._of(Wait) if one.kind is WaitKind.APPROVAL}
        odd = [one for one, name in shells if not _as_decided(one, waits.get((one.turn, one.n)), ran[name])]
        self._bar("commands that ran otherwise than decided", odd, of=len(shells))
        self._bar("approvals that are still open", [one for one in waits.values() if one.state in OPEN], of=len(waits))

    # --- what was shown ---------------------------------------------------------------------------

    def _slots(self) -> None:
        slots = self._of(Slot)
        unsent = [one for one in slots if one.state is not SlotState.SENT]
        self._bar("messages that were not sent", unsent, of=len(slots))

    def _telegram(self) -> None:
        """Each slot stands in its chat, whole, once; what was on its way at a death or a cut may stand there again."""
        slots = self._shown_on("telegram")
        moments = [*self.world.deaths, *(call.at_s for call in self.weather.cuts)]
        again = self._shown(lambda: judge_chats(self.world.telegram, slots, moments), "Telegram")
        marked = len(again)
        self.found.append(
            Bar(what="shown again and marked, of what was on its way, a death or a cut", value=marked, bar=len(moments))
        )
        chats = self.world.telegram.chats.all
        left = {(one.chat, one.id) for one in again}  # nobody knows its id, and what its buttons do was decided
        cards = [card for chat in chats for card in self.world.telegram.shown(chat) if card.buttons]
        open_cards = [(one.chat, one.id, one.text) for one in cards if (one.chat, one.id) not in left]
        self._bar("cards on Telegram that can still be pressed", open_cards)

    def _slack(self) -> None:
        """The same on Slack, which can be asked what became of a message: nothing stands there again."""
        slack, slots = self.world.slack, self._shown_on("slack")
        again = self._shown(lambda: judge_places({"main": slack}, slots), "Slack")
        surplus = [one.text for one in again if one.channel != "D0EVE"]
        self._bar("shown twice on Slack", surplus, of=len(slots))
        shown = [one for place in slack.world.channels for one in slack.shown(place)]
        self._bar("cards on Slack that can still be pressed", [one.ts for one in shown if one.buttons])
        self._bar("what Slack gave up telling", [one for one in slack.app.lost if one.retried])

    def _shown(self, judged: Callable[[], list[T]], where: str) -> list[T]:
        """Check the messages shown besides; a broken promise is a figure."""
        try:
            again = judged()
        except (AssertionError, LookupError) as error:
            self._bar(f"what {where} shows otherwise than it is stored", [str(error)])
            return []
        self._bar(f"what {where} shows otherwise than it is stored", [])
        return again

    def _strangers(self) -> None:
        """One line each; once more, marked, at most where it was on its way."""
        telegram, slack = self.world.telegram, self.world.slack
        lines = {
            who: [one.text for one in (slack.shown(who) if who.startswith("D") else telegram.shown(int(who)))]
            for who in self.people.strangers
        }
        odd = {who: texts for who, texts in lines.items() if not one_line(texts)}
        self._bar("strangers that were told otherwise than once", list(odd.items()), of=len(lines))

    # --- the daemon itself ------------------------------------------------------------------------

    def _daemon(self) -> None:
        log, rig = self.world.daemon.log, self.world.rig
        self._bar("what the platforms found odd", [*self.world.telegram.surprises, *rig.slack.surprises])
        secrets = [*rig.secrets().values(), *rig.env.values()]
        self._bar("secrets in the log", [one[:4] for one in secrets if len(one) > 8 and one in log])
        self._bar("tracebacks in the log", re.findall(r"Traceback.{0,400}", log))
        ms, what = max(self.world.callbacks, default=(0.0, "none"))
        callback = Bar(what="longest callback of its loop", value=ms, bar=CALLBACK_MS, unit="ms of CPU", see=what)
        self.found.append(callback)

    def _bar(self, what: str, odd: Sequence[object], of: int | None = None) -> None:
        """Nothing may be odd."""
        see = "; ".join(str(one)[:SEEN_CHARS] for one in odd[:SEEN])
        self.found.append(Bar(what=what, value=len(odd), bar=0, of=of, see=see))

    def _of(self, kind: type[T]) -> list[T]:
        return [one for items in self.rows.values() for one in _only(kind, items)]

    def _shown_on(self, channel: str) -> list[Slot]:
        """Return the shown slots of a platform, without withdrawn ones, such as the beginning of a broken answer that
        another model gave again.
        """
        mine = [slot for slot in self._of(Slot) if slot.conversation.channel == channel]
        return [slot for slot in mine if slot.text or slot.waits or slot.file]


def _only(kind: type[T], items: Sequence[object]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def _file_of(step: Step) -> str:
    """Return the file in which the command of a call leaves its line."""
    return file_of(str(json.loads(step.call.arguments)["command"])) if step.call is not None else ""


def _as_decided(step: Step, wait: Wait | None, times: int) -> bool:
    """By its result: `ok` and what failed by itself ran once, what is unknown at most once, everything else never."""
    if step.result is None or wait is None:
        return step.result is not None and times == 0
    ran = wait.state is WaitState.CONSUMED
    match step.result.status:
        case ResultStatus.OK:
            return ran and times == 1
        case ResultStatus.UNKNOWN | ResultStatus.CANCELLED | ResultStatus.TIMEOUT | ResultStatus.ERROR:
            return times <= int(ran)
        case _:
            return not ran and times == 0


def asked_badly(bodies: Sequence[dict[str, object]]) -> list[str]:
    """Of these questions to the model: those whose calls and results do not match, and why."""
    found: list[str] = []
    for body in bodies:
        try:
            the_model_was_asked_properly(Evidence(said=(), ran={}, frames=(), asked=[body], page=(), items=()))
        except (AssertionError, IndexError) as error:
            found.append(str(error)[:300])
    return found
