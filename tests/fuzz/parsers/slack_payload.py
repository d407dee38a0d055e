"""Payloads from Slack, over a socket or by HTTP: each has exactly one meaning, whatever bolt makes of it."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache
from typing import Any, cast

from channels._shared import fields as all_fields
from channels.slack import blocks, bolt_dispatch, fields, ids, inbound, inbound_text, webhook
from channels.slack.bans import Bans
from channels.slack.bolt_dispatch import BoltDispatch
from channels.slack.inbound import AccessEnded, Asking, Identity, Looked, Opened, PersonFacts, SlackPress, Stopping
from channels.slack.request import SlackClient
from channels.slack.webhook import SlackAck
from gateway.domain.messages import Inbound, Refused
from tests.fuzz import givens

READS = (all_fields, blocks, bolt_dispatch, fields, ids, inbound, webhook, inbound_text)
WORDS = (
    *(b"event_callback", b"block_actions", b"view_submission", b"message_changed", b"message_deleted", b"app_mention"),
    *(b"authorizations", b"team_id", b"api_app_id", b"event", b"message", b"previous_message", b"user", b"channel"),
    *(b"thread_ts", b"1795248720.000100", b"deleted_ts", b"edited", b"<@U0BOT>", b"<@U0BOT|dragoman>", b"&lt;"),
    *(b"<!date^1^{date}|x>", b"<http://a.example|a.example>", b"<mailto:a@b.example|x>", b"subtype", b"bot_id"),
    *(b"actions", b"action_id", b"deny_reason", b"private_metadata", b"state", b"values", b"attachments", b"files"),
    *(
        b"is_share",
        b"command",
        b"trigger_id",
        b"assistant_thread",
        b"agent_session_stopped",
        b"ssl_check",
        b"url_verification",
        b"payload=",
    ),
    *(b"response_urls", b"function_data", b"bot_access_token", b"inputs", b"is_enterprise_install", b"enterprise"),
    b"agent_session_stopped",
)
ME = Identity(account="main", team="T0AA", user="U0BOT", name="dragoman", app="A0DD")
KNOWN = (
    PersonFacts(),
    PersonFacts(member=True, name="Ann \u202e", takes_part=True, direct="D0AA", commands=frozenset({"status"})),
)


def target(data: bytes) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded"):
        payload = webhook.payload(data, kind)
        _check(payload)
    payload = webhook.payload(data, "application/json")
    taken = asyncio.run(_by_door(payload))
    assert taken == [json.loads(json.dumps(payload))] if _written(payload) else len(taken) == 1


def _check(payload: object) -> None:
    about = inbound.about(payload)
    assert about is None or (about.user and about.channel)
    for known in KNOWN:
        meaning = inbound.read(payload, ME, givens.NOW, known)
        assert inbound.read(payload, ME, givens.NOW, known) == meaning or about is None
        _check_meaning(meaning)


def _check_meaning(meaning: inbound.Meaning) -> None:
    match meaning:
        case Inbound():
            givens.check_message(meaning)
        case SlackPress() | Asking():
            givens.check_press(meaning.press)
        case Stopping():
            givens.check_message(meaning.message)
        case Opened():
            assert meaning.channel
        case Looked():
            assert meaning.at
        case AccessEnded():
            assert meaning.why
        case Refused():
            givens.check_refused(meaning)


def _written(payload: object) -> bool:
    try:
        return json.loads(json.dumps(payload)) == payload
    except (ValueError, RecursionError):
        return False


async def _by_door(payload: object) -> list[object]:
    taken: list[object] = []
    made, listeners = _door()
    listeners.append(taken)
    logging.disable()
    try:
        answer = await made.answer(payload)
    finally:
        logging.disable(logging.NOTSET)
        listeners.clear()
    assert answer.stored
    told = cast("dict[str, Any]", payload).get("type") if isinstance(payload, dict) else None
    return [payload] if told == "url_verification" and not taken else taken


@cache
def _door() -> tuple[BoltDispatch, list[list[object]]]:
    listeners: list[list[object]] = []

    async def take(payload: object) -> SlackAck:
        listeners[-1].append(payload)
        return SlackAck(stored=True)

    bans = Bans("main", givens.NoNotes(), givens.CLOCK)
    client = SlackClient("xoxb-1", "http://127.0.0.1:9/api/", cast("Any", None), givens.passed, bans)
    return BoltDispatch("main", client, take), listeners
