from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.support.slack import FakeSlack, Pressed, Shown

ANN, BEN = "U0ANN", "U0BEN"
GENERAL = "C0CC"
CARD: list[dict[str, Any]] = [
    {"type": "section", "text": {"type": "plain_text", "text": "Run this?"}},
    {
        "type": "actions",
        "block_id": "row",
        "elements": [
            {"type": "button", "text": {"type": "plain_text", "text": "Once"}, "action_id": "once", "value": "h1:once"},
            {"type": "button", "text": {"type": "plain_text", "text": "Deny"}, "action_id": "deny", "value": "h1:deny"},
        ],
    },
]
REASON: dict[str, Any] = {
    "type": "modal",
    "callback_id": "why",
    "title": {"type": "plain_text", "text": "Deny"},
    "submit": {"type": "plain_text", "text": "Send"},
    "private_metadata": "h1",
    "notify_on_close": True,
    "blocks": [
        {
            "type": "input",
            "block_id": "r",
            "label": {"type": "plain_text", "text": "Reason"},
            "element": {"type": "plain_text_input", "action_id": "reason", "max_length": 10},
        }
    ],
}


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack().serve() as server:
        server.person(ANN, "ann")
        server.channel(GENERAL, "general", members=[ANN, BEN])
        yield server


@dataclass
class App:
    """An app that takes everything that comes over one socket, answering what a test says."""

    slack: FakeSlack
    session: aiohttp.ClientSession
    got: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[Any] = field(default_factory=list[Any])
    """Acknowledgements of interactive envelopes and commands, in order; a list stands for no answer at all."""

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.slack.bot_token}"}
        async with self.session.post(self.slack.api_root + method, json=arguments, headers=headers) as response:
            return await response.json()

    async def card(self, channel: str = GENERAL) -> Shown:
        answer = await self.call("chat.postMessage", channel=channel, text="Run this?", blocks=CARD)
        return self.slack.world.channels[channel].messages[answer["ts"]]

    async def run(self) -> None:
        async with self.session.ws_connect(self.slack.line.sockets.ticket()) as socket:
            async for message in socket:
                envelope = json.loads(message.data)
                if envelope["type"] == "hello":
                    continue
                self.got.append(envelope["payload"])
                answer = self.answers.pop(0) if self.answers and envelope["accepts_response_payload"] else None
                if answer == []:
                    continue
                payload = {"payload": answer} if answer else {}
                await socket.send_json({"envelope_id": envelope["envelope_id"], **payload})


@pytest.fixture
async def app(slack: FakeSlack) -> AsyncIterator[App]:
    slack.teller.echo = False
    async with aiohttp.ClientSession() as session:
        app = App(slack, session)
        task = asyncio.create_task(app.run())
        await slack.until(lambda: bool(slack.sockets))
        yield app
        task.cancel()
        await asyncio.wait([task])


async def test_a_press_says_who_where_and_which_button(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    assert card.labels == ["Once", "Deny"]
    await slack.acknowledged(slack.press(ANN, card, "Once"))
    [payload] = app.got
    assert payload["type"] == "block_actions"
    assert payload["user"]["id"] == ANN
    assert payload["team"]["id"] == "T0AA"
    assert (payload["channel"]["id"], payload["message"]["ts"]) == (GENERAL, card.ts)
    assert payload["container"]["message_ts"] == card.ts
    [action] = payload["actions"]
    assert (action["action_id"], action["block_id"], action["value"]) == ("once", "row", "h1:once")
    await slack.acknowledged(slack.press(ANN, card, "Once", forged="h2:once"))
    assert app.got[1]["actions"][0]["value"] == "h2:once"


async def test_a_press_that_nobody_takes_is_seen_and_not_repeated(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    app.answers, slack.app.ack_within_s = [[]], 0.2
    pressed: Pressed = slack.press(ANN, card, "Deny")
    with pytest.raises(AssertionError, match="did not acknowledge"):
        await slack.acknowledged(pressed)
    assert slack.troubles == [f"{ANN} sees a triangle beside the button: timeout"]
    assert len(pressed.delivery.tries) == len(app.got) == 1


async def test_people_press_what_they_see_where_they_are(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    slack.person("U0EVE")
    with pytest.raises(LookupError, match="not in C0CC"):
        slack.press("U0EVE", card, "Once")
    with pytest.raises(LookupError, match="0 buttons 'Always'"):
        slack.press(ANN, card, "Always")
    with pytest.raises(LookupError, match="not in C0CC"):
        slack.say("U0EVE", "hello", channel=GENERAL)
    with pytest.raises(AssertionError, match="a command of its own"):
        slack.say(ANN, "/stop")


async def test_a_modal_opens_by_a_fresh_trigger_once(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    pressed = await slack.acknowledged(slack.press(ANN, card, "Deny"))
    assert (await app.call("views.open", view=REASON, trigger_id="1.2.3"))["error"] == "invalid_trigger_id"
    assert (await app.call("views.open", view=REASON, trigger_id=pressed.trigger))["ok"]
    assert (await app.call("views.open", view=REASON, trigger_id=pressed.trigger))["error"] == "exchanged_trigger_id"
    late = await slack.acknowledged(slack.press(ANN, card, "Deny"))
    slack.world.triggers[late.trigger].at_s -= 3.1
    assert (await app.call("views.open", view=REASON, trigger_id=late.trigger))["error"] == "expired_trigger_id"
    assert (await slack.see_modal(ANN, "Reason")).text == "Deny\nReason"
    assert slack.modal(BEN) is None


async def test_a_modal_is_filled_in_corrected_and_closed(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    pressed = await slack.acknowledged(slack.press(ANN, card, "Deny"))
    opened = await app.call("views.open", view=REASON, trigger_id=pressed.trigger)
    view = await slack.see_modal(ANN)
    for values in ({}, {"reason": "x" * 11}, {"reason": "x", "other": "y"}):
        with pytest.raises(LookupError):
            slack.submit(view, dict(values))

    app.answers = [{"response_action": "errors", "errors": {"r": "say more"}}]
    await slack.acknowledged(slack.submit(view, {"reason": "no"}))
    assert (view.open, view.errors) == (True, {"r": "say more"})
    update = {"view_id": view.id, "view": {**REASON, "title": {"type": "plain_text", "text": "Again"}}}
    assert (await app.call("views.update", **update, hash="old"))["error"] == "hash_conflict"
    assert (await app.call("views.update", **update, hash=opened["view"]["hash"]))["ok"]
    await slack.acknowledged(slack.submit(view, {"reason": "too risky"[:10]}))
    assert (view.open, view.errors) == (False, {})
    submitted = app.got[-1]
    assert (submitted["type"], submitted["view"]["callback_id"]) == ("view_submission", "why")
    assert submitted["view"]["private_metadata"] == "h1"
    assert submitted["view"]["state"]["values"]["r"]["reason"]["value"] == "too risky"
    assert (await app.call("views.update", **update))["error"] == "not_found"


async def test_a_modal_that_is_closed_tells_who_asked_to_know(slack: FakeSlack, app: App) -> None:
    pressed = await slack.acknowledged(slack.press(ANN, await app.card(), "Deny"))
    await app.call("views.open", view=REASON, trigger_id=pressed.trigger)
    closed = slack.close_modal(await slack.see_modal(ANN))
    assert closed is not None
    await slack.acknowledged(closed)
    assert app.got[-1]["type"] == "view_closed"


async def test_a_command_is_answered_with_the_acknowledgement(slack: FakeSlack, app: App) -> None:
    app.answers = [{"text": "status: fine"}, []]
    await slack.acknowledged(slack.slash(ANN, "status"))
    assert (app.got[0]["channel_id"], app.got[0]["text"], app.got[0]["user_id"]) == ("D0ANN", "status", ANN)
    assert (await slack.see_note(ANN)).text == "status: fine"
    slack.app.ack_within_s = 0.2
    slow = slack.slash(ANN, "status")
    await slack.until(lambda: slow.done)
    assert "operation_timeout" in slack.troubles[0]
    with pytest.raises(AssertionError, match="not a command"):
        slack.slash(ANN, command="/other")


async def test_a_response_url_answers_a_press_five_times(slack: FakeSlack, app: App) -> None:
    card = await app.card()
    await slack.acknowledged(slack.press(ANN, card, "Once"))
    url = app.got[0]["response_url"]

    async def respond(**content: Any) -> int:
        async with app.session.post(url, json=content) as response:
            return response.status

    assert await respond(text="only you") == 200
    assert (await slack.see_note(ANN)).text == "only you"
    assert await respond(text="done", replace_original=True) == 200
    assert (card.text, card.labels) == ("done", [])
    assert [await respond(text="x") for _ in range(4)] == [200, 200, 200, 404]
    assert slack.surprises == []


async def test_edits_deletions_previews_and_files_of_people(slack: FakeSlack, app: App) -> None:
    said = slack.say(ANN, "helo @dragoman", channel=GENERAL)
    slack.edit(said, "hello @dragoman")
    slack.unfurl(said)
    slack.delete(said)
    slack.attach(ANN, b"%PDF", name="a.pdf", text="read this", mimetype="application/pdf")
    await slack.until(lambda: len(app.got) == 6)
    by_kind = {e["event"].get("subtype", e["event"]["type"]): e["event"] for e in app.got}
    changes = [e["event"] for e in app.got if e["event"].get("subtype") == "message_changed"]
    assert changes[0]["message"]["text"] == f"hello <@{slack.bot}>"
    assert changes[0]["previous_message"]["text"] == f"helo <@{slack.bot}>"
    assert changes[1]["message"]["text"] == changes[1]["previous_message"]["text"]
    assert by_kind["message_deleted"]["deleted_ts"] == said.ts
    [file] = by_kind["file_share"]["files"]
    assert (file["name"], file["size"], file["mimetype"]) == ("a.pdf", 4, "application/pdf")


async def test_threads_the_panel_and_people_from_elsewhere(slack: FakeSlack, app: App) -> None:
    root = slack.say(ANN, "a question", channel=GENERAL)
    slack.say(BEN, "an answer", channel=GENERAL, thread=root)
    panel = slack.open_assistant(ANN, looking_at=GENERAL)
    slack.say(ANN, "in the panel", thread=panel)
    slack.person("U0FAR", "far", team="T0FAR")
    slack.world.channels[GENERAL].members.add("U0FAR")
    slack.say("U0FAR", "from far away", channel=GENERAL)
    await slack.until(lambda: len(app.got) == 5)
    events = [payload["event"] for payload in app.got]
    assert (events[1]["thread_ts"], events[1]["parent_user_id"]) == (root.ts, ANN)
    thread = events[2]["assistant_thread"]
    assert (thread["user_id"], thread["thread_ts"], thread["context"]["channel_id"]) == (ANN, panel.ts, GENERAL)
    assert events[3]["thread_ts"] == panel.ts
    assert (events[4]["user_team"], events[4]["source_team"]) == ("T0FAR", "T0FAR")


async def test_the_app_hears_itself_unless_told_otherwise(slack: FakeSlack, app: App) -> None:
    slack.teller.echo = True
    await app.card()
    await slack.until(lambda: len(app.got) == 1)
    event = app.got[0]["event"]
    assert (event["bot_id"], event["app_id"], event["user"]) == ("B0BOT0AA", slack.app.id, slack.bot)


async def test_removing_the_app_ends_its_token(slack: FakeSlack, app: App) -> None:
    slack.uninstall()
    await slack.until(lambda: len(app.got) == 2)
    assert {payload["event"]["type"] for payload in app.got} == {"tokens_revoked", "app_uninstalled"}
    assert (await app.call("auth.test"))["error"] == "account_inactive"


# --- manifests ---

MANIFEST: dict[str, Any] = {
    "display_information": {"name": "Dragoman"},
    "features": {"slash_commands": [{"command": "/dragoman", "description": "Commands"}]},
    "oauth_config": {"scopes": {"bot": ["chat:write", "im:history", "commands"]}},
    "settings": {
        "event_subscriptions": {"bot_events": ["message.im"]},
        "interactivity": {"is_enabled": False},
        "socket_mode_enabled": True,
    },
}


async def test_a_manifest_says_what_the_app_may_and_hears(slack: FakeSlack) -> None:
    slack.install(MANIFEST)
    assert slack.world.scopes == {"chat:write", "im:history", "commands"}
    slack.say(ANN, "heard")
    slack.say(ANN, "not heard", channel=GENERAL)
    assert [delivery.payload["event"]["text"] for delivery in slack.app.given] == ["heard"]
    with pytest.raises(AssertionError, match="interactivity is off"):
        slack.press_raw(ANN, {})


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("display_information", {"name": "x" * 36}, "1 … 35"),
        ("settings", {"socket_mode_enabled": False}, "needs a url"),
        (
            "settings",
            {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": ["app_mention"]}},
            "needs the scope",
        ),
        (
            "settings",
            {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": ["message"]}},
            "knows no events",
        ),
        ("oauth_config", {"scopes": {"bot": ["im:history", "chat:wright"]}}, "knows no scopes"),
        ("extra", {}, "unknown keys"),
        ("features", {"assistant_view": {"assistant_description": "x"}}, "have agent_view"),
        ("features", {"agent_view": {"agent_description": ""}}, "agent_description"),
        ("features", {"agent_view": {"agent_description": "x"}}, "needs the events"),
        (
            "settings",
            {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": ["assistant_thread_started"]}},
            "do not get",
        ),
        (
            "settings",
            {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": ["app_context_changed"]}},
            "without agent_view",
        ),
    ],
)
async def test_a_bad_manifest_is_refused(slack: FakeSlack, part: str, value: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        slack.install({**MANIFEST, part: value})
