"""Dispatch of every payload: through bolt where it can parse it, else without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from channels.slack.bolt_dispatch import BoltDispatch
from channels.slack.request import SlackClient
from channels.slack.webhook import SlackAck
from tests.unit.channels.slack.scene import no_bans

TEAM, USER = {"id": "T0AA"}, {"id": "U0ANN"}
BUTTON = {"type": "button", "action_id": "once:1", "block_id": "b", "value": "h"}
KINDS: list[Any] = [
    {"type": "event_callback", "team_id": "T0AA", "event": {"type": "message", "channel": "C0CC", "user": "U0ANN"}},
    {"type": "event_callback", "team_id": "T0AA", "event": {"type": "message", "subtype": "message_changed"}},
    {"type": "event_callback", "team_id": "T0AA", "event": {"type": "tokens_revoked"}},
    {"command": "/dragoman", "text": "status", "team_id": "T0AA", "channel_id": "C0CC", "user_id": "U0ANN"},
    {"type": "block_actions", "team": TEAM, "user": USER, "actions": [BUTTON]},
    {"type": "view_submission", "team": TEAM, "user": USER, "view": {"callback_id": "deny_with_reason"}},
    {"type": "view_closed", "team": TEAM, "user": USER, "view": {"callback_id": "deny_with_reason"}},
    {"type": "shortcut", "team": TEAM, "user": USER, "callback_id": "unknown"},
]
ODD: list[Any] = [
    None,
    5,
    "text",
    [],
    {},
    {"type": None},
    {"type": "no_such_type"},
    {"type": "event_callback"},
    {"type": "event_callback", "event": None},
    {"type": "event_callback", "event": 5},
    {"type": "event_callback", "event": {"type": 5}},
    {"type": "event_callback", "event": {"type": "message"}, "authorizations": 5},
    {"type": "event_callback", "event": {"type": "message"}, "authorizations": [None]},
    {"type": "block_actions", "team": 5, "actions": None},
    {"type": "block_actions", "actions": 5},
    {"type": "view_submission", "view": None},
    {"type": "view_submission", "view": {"callback_id": 5}},
    {"command": 5},
    {"response_urls": 5},
    {"ssl_check": "1"},
]


class Taker:
    """Takes, and says what a test wants."""

    def __init__(self) -> None:
        self.taken: list[object] = []
        self.answer = SlackAck(stored=True)

    async def take(self, payload: object) -> SlackAck:
        self.taken.append(payload)
        return self.answer


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
async def door(taker: Taker) -> AsyncIterator[BoltDispatch]:
    async def passed(_: str) -> None:
        return None

    async with aiohttp.ClientSession() as session:
        # To nobody: a door asks Slack nothing.
        yield BoltDispatch(
            "main", SlackClient("xoxb-1", "http://127.0.0.1:9/api/", session, passed, no_bans()), taker.take
        )


@pytest.mark.parametrize("payload", [*KINDS, *ODD], ids=str)
async def test_every_payload_is_taken_once_and_acknowledged(door: BoltDispatch, taker: Taker, payload: object) -> None:
    answer = await door.answer(payload)
    assert answer.stored
    assert taker.taken == [payload]


@pytest.mark.parametrize("payload", [*KINDS, *ODD], ids=str)
async def test_unstored_event_is_neither_acknowledged_nor_taken_twice(
    door: BoltDispatch, taker: Taker, payload: object
) -> None:
    taker.answer = SlackAck(stored=False)
    assert not (await door.answer(payload)).stored
    assert taker.taken == [payload]


async def test_a_form_can_be_answered(door: BoltDispatch, taker: Taker) -> None:
    taker.answer = SlackAck(stored=True, body={"response_action": "clear"})
    assert (await door.answer(KINDS[5])).body == {"response_action": "clear"}


async def test_the_address_is_verified_without_anybody(door: BoltDispatch, taker: Taker) -> None:
    answer = await door.answer({"type": "url_verification", "challenge": "abc"})
    assert answer == SlackAck(stored=True, body={"challenge": "abc"})
    assert taker.taken == []


async def test_the_environments_tokens_change_nothing(taker: Taker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"):
        monkeypatch.setenv(name, "xoxb-from-the-environment")

    async def passed(_: str) -> None:
        return None

    async with aiohttp.ClientSession() as session:
        door = BoltDispatch(
            "main", SlackClient("xoxb-1", "http://127.0.0.1:9/api/", session, passed, no_bans()), taker.take
        )
        for payload in KINDS:
            assert (await door.answer(payload)).stored
    assert taker.taken == KINDS
