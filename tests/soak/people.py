"""People of a soak: their messages, requests and presses. They do not know that the daemon dies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.soak.script import KINDS, OF_OWNERS, command_of
from tests.soak.world import (
    ANN,
    ANN_ON_SLACK,
    BOB,
    BREAD,
    CAT,
    EVE,
    FRIENDS,
    GROUP,
    JOE,
    KITCHEN,
    STRANGERS,
    WINE,
    World,
)
from tests.support.slack import Shown as SlackShown

CONTROL = ("/status", "/stop", "/new", "/help", "/approvals", "/usage", "/tools", "/sessions", "/tree")
RARE_CONTROL = 0.03
BY_HAND = 0.03
"""The share of messages that are `/shell …`."""
STRANGE = 0.04
"""… that are by strangers."""
MURMURED = 0.04
"""… that people of a group say to each other."""
LOOKS_EVERY_S = 0.4
PRESSES_AGAIN_S = 6.0
"""A press that was lost with a connection: whoever still sees the button presses again."""
LAST_SHOWN = 60
IGNORED, DENIED = 0.2, 0.15
"""Shares of the buttons that nobody presses, and of those that say no."""
THREAD_OF = 12
"""Messages after which a thread ends and another one begins."""
TAKEN_WITHIN_S = 180.0
Way = Callable[[str, str], None]
"""Says a text of this kind somewhere."""


@dataclass(slots=True, kw_only=True)
class People:
    """Everybody who writes. `times`: how much faster than people they look and press; `going`: while it is set they
    write.
    """

    world: World
    chance: random.Random
    per_s: float
    times: float = 1.0
    going: asyncio.Event = field(default_factory=asyncio.Event)
    said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By session, without control commands."""
    commands: list[str] = field(default_factory=list[str])
    """Commands given to `/shell`."""
    strangers: set[str] = field(default_factory=set[str])
    """Chat ids of people who wrote without permission."""
    insisting: int = 0
    """Words on the page that are not accepted yet."""
    presses: int = 0
    _number: int = 0
    _thread: SlackShown | None = None
    _fates: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    _pressed: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    async def write(self) -> None:
        """Write until cancelled, at random moments."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.chance.expovariate(self.per_s))
                await self.going.wait()
                self._write(group)

    def _write(self, group: asyncio.TaskGroup) -> None:
        draw = self.chance.random()
        for share, act in (
            (RARE_CONTROL, self._command),
            (BY_HAND, self._by_hand),
            (STRANGE, self._strange),
            (MURMURED, self._murmur),
        ):
            draw -= share
            if draw < 0:
                act()
                return
        self._ask(group)

    # --- what they say ----------------------------------------------------------------------------

    def _ask(self, group: asyncio.TaskGroup) -> None:
        """Somebody wants something."""
        (kind,) = self.chance.choices([*KINDS], [*KINDS.values()])
        places = [self._ann, self._joe, self._ann_on_slack]
        if kind not in OF_OWNERS:
            places += [self._friend, self._friend, self._friend, self._topic, self._bob, self._kitchen]
        if kind != "file" and self.chance.random() < 0.15:
            self._on_the_page(group, self._text(kind))
            return
        self.chance.choice(places)(self._text(kind), kind)

    def _text(self, kind: str) -> str:
        self._number += 1
        return f"#{self._number} {kind}"

    def _ann(self, text: str, kind: str) -> None:
        self._on_telegram("main:ann", ANN, text, kind)

    def _joe(self, text: str, kind: str) -> None:
        self._on_telegram("main:joe", JOE, text, kind)

    def _friend(self, text: str, kind: str) -> None:
        who = self.chance.choice(FRIENDS)
        self._on_telegram(f"dm:telegram/main/{who}", who, text, kind)

    def _on_telegram(self, session: str, who: int, text: str, kind: str) -> None:
        self._said(session, text)
        if kind == "file":
            content = self.chance.randbytes(self.chance.randint(100, 200_000))
            self.world.telegram.attach(who, "document", content, caption=text, name="notes.bin")
        else:
            self.world.telegram.say(who, text)

    def _topic(self, text: str, kind: str) -> None:
        """In the group, to the bot."""
        topic, who = self.chance.choice((BREAD, WINE)), self.chance.choice(FRIENDS)
        self._said(f"chat:telegram/main/{GROUP}/{topic}", text)
        self.world.telegram.say(who, f"@dragoman_test_bot {text}", chat=GROUP, topic=topic)

    def _ann_on_slack(self, text: str, kind: str) -> None:
        self._on_slack("main:ann", ANN_ON_SLACK, text, kind)

    def _bob(self, text: str, kind: str) -> None:
        who = self.chance.choice((BOB, CAT))
        self._on_slack(f"dm:slack/main/D{who[1:]}", who, text, kind)

    def _on_slack(self, session: str, who: str, text: str, kind: str) -> None:
        self._said(session, text)
        if kind == "file":
            content = self.chance.randbytes(self.chance.randint(100, 200_000))
            self.world.slack.attach(who, content, name="notes.bin", text=text)
        else:
            self.world.slack.say(who, text)

    def _kitchen(self, text: str, kind: str) -> None:
        """In a thread of the channel."""
        slack = self.world.slack
        if self._number % THREAD_OF == 0:
            self._thread = None
        shown = slack.mention(self.chance.choice((BOB, CAT)), text, channel=KITCHEN, thread=self._thread or "")
        self._thread = self._thread or shown
        self._said(f"chat:slack/main/{KITCHEN}/{self._thread.ts}", text)

    def _on_the_page(self, group: asyncio.TaskGroup, text: str) -> None:
        self._said("main:joe", text)
        group.create_task(self._insist(text), name=f"joe's page: {text}")

    async def _insist(self, text: str) -> None:
        """Say it until it is taken: a store that is held by others refuses in words."""
        page, taken = self.world.page, False
        self.insisting += 1
        while not taken:
            taken = bool((await page.answered(await page.say(text), TAKEN_WITHIN_S))["ok"])
            await asyncio.sleep(0 if taken else 0.3)
        self.insisting -= 1

    def _command(self) -> None:
        """A control command; nobody stops others often."""
        text = self.chance.choice(CONTROL)
        self.world.telegram.say(self.chance.choice((ANN, JOE, *FRIENDS)), text)

    def _by_hand(self) -> None:
        """A command, asked for without the model."""
        self._number += 1
        command = command_of(f"{self._number}")
        self.commands.append(command)
        self._said("main:ann", f"/shell {command}")
        self.world.telegram.say(ANN, f"/shell {command}")

    def _strange(self) -> None:
        if self.chance.random() < 0.2:
            self.world.slack.say(EVE, "let me in")
            self.strangers.add("D0EVE")
            return
        who = self.chance.choice(STRANGERS)
        self.world.telegram.say(who, "let me in")
        self.strangers.add(str(who))

    def _murmur(self) -> None:
        """To the others in the group."""
        topic = self.chance.choice((BREAD, WINE))
        self.world.telegram.say(self.chance.choice(FRIENDS), "the oven is hot", chat=GROUP, topic=topic)

    def _said(self, session: str, text: str) -> None:
        self.said.setdefault(session, []).append(text)

    # --- what they press --------------------------------------------------------------------------

    async def press(self) -> None:
        """Decide about what is asked: allow, deny, or let it expire. Until cancelled."""
        telegram, slack = self.world.telegram, self.world.slack
        while True:
            for who in (ANN, JOE):
                for card in telegram.shown(who)[-LAST_SHOWN:]:
                    buttons = [(one["text"], one.get("callback_data", "")) for row in card.buttons for one in row]
                    for data in self._chosen("telegram", buttons):
                        telegram.press(who, card, data)
            for card in slack.shown(f"D{ANN_ON_SLACK[1:]}")[-LAST_SHOWN:]:
                buttons = [(one["text"]["text"], one["value"]) for one in card.buttons]
                for data in self._chosen("slack", buttons):
                    slack.press(ANN_ON_SLACK, card, data)
            await self._on_page()
            await asyncio.sleep(LOOKS_EVERY_S / self.times)

    async def _on_page(self) -> None:
        """Joe decides some of what his page shows."""
        page = self.world.page
        for row in page.of("approval", state="open"):
            verbs = [f"{button['verb']}" for button in row.get("buttons", []) if button["verb"] in ("once", "deny")]
            fate = self._fate(("page", str(row["id"])))
            if fate.lower() in verbs and self.chance.random() < 0.1 and self._due(("page", str(row["id"]))):
                await page.press(page.handles[row["id"], fate.lower()])

    def _chosen(self, where: str, buttons: Sequence[tuple[str, str]]) -> list[str]:
        """Return the next button to press of a card's buttons, given as label and data."""
        found: list[str] = []
        for number, (label, data) in enumerate(buttons):
            if "Once" in label and (fate := self._fate((where, data))):
                wanted = next(data for label, data in buttons[number:] if label.endswith(fate))
                found += [wanted] if self._due((where, data)) else []
        return found

    def _fate(self, key: tuple[str, str]) -> str:
        draw = self.chance.random()
        fate = "" if draw < IGNORED else "Deny" if draw < IGNORED + DENIED else "Once"
        return self._fates.setdefault(key, fate)

    def _due(self, key: tuple[str, str]) -> bool:
        """Return True if a press is due: now, or once more because the button is still there."""
        now = time.monotonic()
        again_s = PRESSES_AGAIN_S / self.times
        if now - self._pressed.get(key, -again_s) < again_s:
            return False
        self._pressed[key] = now
        self.presses += 1
        return True
