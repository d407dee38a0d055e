from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.slack import FakeSlack, faults

ANN = "U0ANN"
GENERAL = "C0CC"


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack().serve() as server:
        server.person(ANN, "ann")
        server.channel(GENERAL, "general", members=[ANN])
        server.channel("C0OUT", "outside", members=[ANN], with_bot=False)
        server.channel("C0SECRET", "secret", members=[ANN], private=True, with_bot=False)
        yield server


class Api:
    """A client over plain HTTP."""

    def __init__(self, slack: FakeSlack, session: aiohttp.ClientSession) -> None:
        self.slack = slack
        self.session = session

    async def __call__(self, method: str, /, token: str = "", **arguments: Any) -> dict[str, Any]:
        form = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
        headers = {"Authorization": f"Bearer {token or self.slack.bot_token}"}
        async with self.session.post(self.slack.api_root + method, data=form, headers=headers) as response:
            assert response.status == 200
            return await response.json()

    async def ok(self, method: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self(method, **arguments)
        assert answer["ok"], answer
        return answer


@pytest.fixture
async def api(slack: FakeSlack) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(slack, session)


# --- tokens and scopes ---


async def test_tokens_are_missing_wrong_revoked_or_of_another_kind(slack: FakeSlack, api: Api) -> None:
    async with api.session.post(slack.api_root + "auth.test") as response:
        assert await response.json() == {"ok": False, "error": "not_authed"}
    assert (await api("auth.test", token="xoxb-nobody"))["error"] == "invalid_auth"
    assert (await api("auth.test", token=slack.app_token))["error"] == "not_allowed_token_type"
    assert (await api("apps.connections.open"))["error"] == "not_allowed_token_type"
    me = await api.ok("auth.test")
    assert (me["team_id"], me["user_id"], me["bot_id"]) == ("T0AA", slack.bot, "B0BOT0AA")
    slack.revoked = "token_revoked"
    assert (await api("auth.test"))["error"] == "token_revoked"
    assert slack.surprises == []


async def test_a_missing_scope_is_named(slack: FakeSlack, api: Api) -> None:
    slack.world.scopes = {"im:history", "reactions:write"}
    answer = await api("chat.postMessage", channel=GENERAL, text="x")
    assert answer == {
        "ok": False,
        "error": "missing_scope",
        "needed": "chat:write",
        "provided": "im:history,reactions:write",
    }
    assert (await api("conversations.history", channel=GENERAL))["needed"] == "channels:history"


@pytest.mark.parametrize("way", ["json", "form", "query"])
async def test_arguments_come_in_every_way(slack: FakeSlack, api: Api, way: str) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "*Hé*"}}]
    texts = {"channel": GENERAL, "text": "Hé", "blocks": json.dumps(blocks)}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    url = slack.api_root + "chat.postMessage"
    request = {
        "json": lambda: api.session.post(url, json={**texts, "blocks": blocks}, headers=headers),
        "form": lambda: api.session.post(url, data={**texts, "token": slack.bot_token}),
        "query": lambda: api.session.post(url, params=texts, headers=headers),
    }[way]
    async with request() as response:
        answer = await response.json()

    assert answer["ok"], answer
    [shown] = slack.shown(GENERAL)
    assert (shown.ts, shown.wire, shown.text, shown.by) == (answer["ts"], "Hé", "*Hé*", slack.bot)
    assert slack.surprises == []


# --- refusals ---

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat.postMessage", {"channel": "C0NONE", "text": "x"}, "channel_not_found"),
    ("chat.postMessage", {"channel": "C0SECRET", "text": "x"}, "channel_not_found"),
    ("chat.postMessage", {"channel": "C0OUT", "text": "x"}, "not_in_channel"),
    ("chat.postMessage", {"channel": GENERAL}, "no_text"),
    ("chat.postMessage", {"channel": GENERAL, "text": " "}, "no_text"),
    ("chat.postMessage", {"channel": GENERAL, "markdown_text": "x" * 12_001}, "msg_too_long"),
    ("chat.postMessage", {"channel": GENERAL, "markdown_text": "x", "text": "y"}, "markdown_text_conflict"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "blocks": "{"}, "invalid_blocks_format"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "metadata": "["}, "invalid_metadata_format"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "metadata": {"event_type": ""}}, "invalid_metadata_format"),
    ("chat.update", {"channel": GENERAL, "ts": "1.2", "text": "x"}, "message_not_found"),
    ("chat.delete", {"channel": GENERAL, "ts": "1.2"}, "message_not_found"),
    ("chat.postEphemeral", {"channel": GENERAL, "user": "U0EVE", "text": "x"}, "user_not_in_channel"),
    ("chat.startStream", {"channel": GENERAL}, "invalid_arguments"),
    ("chat.appendStream", {"channel": GENERAL, "ts": "1.2", "markdown_text": "x"}, "message_not_found"),
    ("conversations.info", {"channel": "C0SECRET"}, "channel_not_found"),
    ("conversations.history", {"channel": "C0OUT"}, "not_in_channel"),
    ("conversations.history", {"channel": GENERAL, "oldest": "yesterday"}, "invalid_ts_oldest"),
    ("conversations.history", {"channel": GENERAL, "cursor": "?"}, "invalid_cursor"),
    ("conversations.replies", {"channel": GENERAL, "ts": "1.2"}, "thread_not_found"),
    ("conversations.open", {"users": "U0NONE"}, "user_not_found"),
    ("users.info", {"user": "U0NONE"}, "user_not_found"),
    ("reactions.add", {"channel": GENERAL, "timestamp": "1.2", "name": "eyes"}, "message_not_found"),
    ("views.open", {"view": {}, "trigger_id": "1"}, "invalid_arguments"),
    ("assistant.threads.setStatus", {"channel_id": GENERAL, "thread_ts": "1.2", "status": "x"}, "invalid_thread_ts"),
    ("files.getUploadURLExternal", {"filename": "a", "length": 0}, "missing_argument"),
    ("files.completeUploadExternal", {"files": [{"id": "F0"}], "channel_id": GENERAL}, "file_not_found"),
]
SURPRISING: list[tuple[str, dict[str, Any], str]] = [
    ("chat.postMessage", {"channel": GENERAL, "text": "x" * 40_001}, "cuts it at 40,000"),
    ("chat.postMessage", {"channel": "#general", "text": "x"}, "is a name"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "thread": "1.2"}, "no argument 'thread'"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "thread_ts": "1.2"}, "no message 1.2"),
    ("chat.postMessage", {"channel": GENERAL, "text": "x", "link_names": True}, "link_names"),
    ("chat.postMessage", {"channel": GENERAL, "blocks": [{"type": "divider"}]}, "blocks without `text`"),
    ("chat.meMessage", {}, "no such method"),
]


@pytest.mark.parametrize(("method", "arguments", "error"), REFUSED)
async def test_call_refused_by_slack_is_refused(
    slack: FakeSlack, api: Api, method: str, arguments: dict[str, Any], error: str
) -> None:
    assert (await api(method, **arguments))["error"] == error
    assert slack.shown(GENERAL) == []
    assert slack.surprises == []


@pytest.mark.parametrize(("method", "arguments", "surprise"), SURPRISING)
async def test_call_refused_by_the_fake_alone_is_a_surprise(
    slack: FakeSlack, api: Api, method: str, arguments: dict[str, Any], surprise: str
) -> None:
    assert not (await api(method, **arguments))["ok"]
    assert slack.shown(GENERAL) == []
    [said] = slack.surprises
    assert surprise in said


# --- messages ---


async def test_a_message_is_edited_and_taken_away_by_its_author_alone(slack: FakeSlack, api: Api) -> None:
    theirs = slack.say(ANN, "mine", channel=GENERAL)
    assert (await api("chat.update", channel=GENERAL, ts=theirs.ts, text="x"))["error"] == "cant_update_message"
    assert (await api("chat.delete", channel=GENERAL, ts=theirs.ts))["error"] == "cant_delete_message"

    ts = (await api.ok("chat.postMessage", channel=GENERAL, text="one"))["ts"]
    assert (await api("chat.update", channel=GENERAL, ts=ts, text="x" * 4_001))["error"] == "msg_too_long"
    await api.ok("chat.update", channel=GENERAL, ts=ts, text="x" * 4_000)
    await api.ok("chat.update", channel=GENERAL, ts=ts, text="two")
    [shown] = slack.shown(GENERAL)
    assert (shown.text, shown.edits, shown.history[0]) == ("two", 2, "one")
    await api.ok("chat.delete", channel=GENERAL, ts=ts)
    assert slack.shown(GENERAL) == []
    assert (await api("chat.update", channel=GENERAL, ts=ts, text="x"))["error"] == "message_not_found"


async def test_thread_keeps_together_and_has_metadata_on_request(slack: FakeSlack, api: Api) -> None:
    root = slack.say(ANN, "a question", channel=GENERAL)
    metadata = {"event_type": "slot", "event_payload": {"slot": "s1"}}
    ts = (await api.ok("chat.postMessage", channel=GENERAL, text="a", thread_ts=root.ts, metadata=metadata))["ts"]
    assert not (await api("chat.postMessage", channel=GENERAL, text="b", thread_ts=ts))["ok"]
    assert "itself a reply" in slack.surprises.pop()

    assert [m.text for m in slack.shown(GENERAL, root.ts)] == ["a"]
    whole = await api.ok("conversations.replies", channel=GENERAL, ts=root.ts, include_all_metadata="true")
    assert [m["ts"] for m in whole["messages"]] == [root.ts, ts]
    assert whole["messages"][1]["metadata"] == metadata
    short = await api.ok("conversations.replies", channel=GENERAL, ts=root.ts)
    assert short["messages"][1]["metadata"] == {"event_type": "slot"}
    assert [m["ts"] for m in (await api.ok("conversations.history", channel=GENERAL))["messages"]] == [root.ts]


async def test_history_is_read_by_time_and_in_pages(slack: FakeSlack, api: Api) -> None:
    stamps = [(await api.ok("chat.postMessage", channel=GENERAL, text=str(n)))["ts"] for n in range(5)]
    first = await api.ok("conversations.history", channel=GENERAL, limit=2)
    assert [m["text"] for m in first["messages"]] == ["4", "3"]
    cursor = first["response_metadata"]["next_cursor"]
    second = await api.ok("conversations.history", channel=GENERAL, limit=2, cursor=cursor)
    assert [m["text"] for m in second["messages"]] == ["2", "1"]
    later = await api.ok("conversations.history", channel=GENERAL, oldest=stamps[2])
    assert [m["text"] for m in later["messages"]] == ["4", "3"]
    since = await api.ok("conversations.history", channel=GENERAL, oldest=stamps[2], inclusive=True)
    assert [m["text"] for m in since["messages"]] == ["4", "3", "2"]


async def test_a_stream_grows_and_ends_once(slack: FakeSlack, api: Api) -> None:
    root = slack.say(ANN, "go", channel=GENERAL)
    start = {"channel": GENERAL, "thread_ts": root.ts, "markdown_text": "one"}
    assert (await api("chat.startStream", **start))["error"] == "missing_recipient_team_id"
    assert (await api("chat.startStream", **start, recipient_team_id="T0AA"))["error"] == "missing_recipient_user_id"
    ts = (await api.ok("chat.startStream", **start, recipient_team_id="T0AA", recipient_user_id=ANN))["ts"]
    stream = {"channel": GENERAL, "ts": ts}
    assert (await api("chat.appendStream", **stream, markdown_text="x" * 12_001))["error"] == "msg_too_long"
    await api.ok("chat.appendStream", **stream, markdown_text=" two")
    assert (await api("chat.update", **stream, text="x"))["error"] == "streaming_state_conflict"
    [shown] = slack.shown(GENERAL, root.ts)
    assert (shown.text, shown.streaming) == ("one two", True)
    await api.ok("chat.stopStream", **stream, markdown_text=" three", metadata={"event_type": "s", "event_payload": {}})
    assert (shown.text, shown.streaming, shown.history) == ("one two three", False, ["one", "one two"])
    for method in ("chat.appendStream", "chat.stopStream"):
        assert (await api(method, **stream, markdown_text="x"))["error"] == "message_not_in_streaming_state"
    assert slack.surprises == []


async def test_ephemeral_message_is_for_one_person_and_unchangeable(slack: FakeSlack, api: Api) -> None:
    ts = (await api.ok("chat.postEphemeral", channel=GENERAL, user=ANN, text="only you"))["message_ts"]
    assert [note.text for note in slack.notes(ANN)] == ["only you"]
    assert slack.shown(GENERAL) == []
    assert (await api("chat.update", channel=GENERAL, ts=ts, text="x"))["error"] == "message_not_found"


async def test_a_persons_id_is_their_direct_conversation(slack: FakeSlack, api: Api) -> None:
    answer = await api.ok("chat.postMessage", channel=ANN, text="hello")
    assert answer["channel"] == "D0ANN" == (await api.ok("conversations.open", users=ANN))["channel"]["id"]
    assert (await api.ok("conversations.info", channel="D0ANN"))["channel"]["user"] == ANN


async def test_guests_and_strangers_are_distinguished_by_users_info(slack: FakeSlack, api: Api) -> None:
    slack.person("U0GUEST", guest="single")
    slack.person("U0FAR", team="T0FAR")
    guest = (await api.ok("users.info", user="U0GUEST"))["user"]
    far = (await api.ok("users.info", user="U0FAR"))["user"]
    assert (guest["is_restricted"], guest["is_ultra_restricted"], guest["team_id"]) == (True, True, "T0AA")
    assert (far["is_stranger"], far["team_id"]) == (True, "T0FAR")


async def test_reactions_are_given_once(slack: FakeSlack, api: Api) -> None:
    message = slack.say(ANN, "hello", channel=GENERAL)
    eyes = {"channel": GENERAL, "timestamp": message.ts, "name": "eyes"}
    await api.ok("reactions.add", **eyes)
    assert await slack.see_reaction(message, "eyes") == "eyes"
    assert (await api("reactions.add", **eyes))["error"] == "already_reacted"
    assert (await api("reactions.add", **{**eyes, "name": ":eyes:"}))["error"] == "invalid_name"
    await api.ok("reactions.remove", **eyes)
    assert (await api("reactions.remove", **eyes))["error"] == "no_reaction"


async def test_pins_are_set_once(slack: FakeSlack, api: Api) -> None:
    message = slack.say(ANN, "hello", channel=GENERAL)
    pin = {"channel": GENERAL, "timestamp": message.ts}
    await api.ok("pins.add", **pin)
    assert message.pinned
    assert (await api("pins.add", **pin))["error"] == "already_pinned"
    assert (await api("pins.add", **{**pin, "timestamp": "1.2"}))["error"] == "message_not_found"


# --- files ---


async def test_a_file_is_announced_uploaded_shared_and_fetched(slack: FakeSlack, api: Api) -> None:
    answer = await api.ok("files.getUploadURLExternal", filename="a.txt", length=3)
    done: dict[str, Any] = {
        "files": [{"id": answer["file_id"], "title": "A"}],
        "channel_id": GENERAL,
        "initial_comment": "here",
    }
    assert (await api("files.completeUploadExternal", **done))["error"] == "file_not_found"
    async with api.session.post(answer["upload_url"], data=b"four") as response:
        assert response.status == 400
    assert "4 bytes where 3 were announced" in slack.surprises.pop()
    async with api.session.post(answer["upload_url"], data=b"abc") as response:
        assert await response.text() == "OK - 3"
    await api.ok("files.completeUploadExternal", **done)
    assert (await api("files.completeUploadExternal", **done))["error"] == "access_denied"

    [shown] = slack.shown(GENERAL)
    assert (shown.text, shown.files[0].content, shown.files[0].title) == ("here", b"abc", "A")
    info = (await api.ok("files.info", file=answer["file_id"]))["file"]
    assert info["shares"] == {"public": {GENERAL: [{"ts": shown.ts}]}}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    async with api.session.get(info["url_private_download"], headers=headers) as response:
        assert await response.read() == b"abc"
    async with api.session.get(info["url_private_download"]) as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert "Sign in" in await response.text()


# --- the assistant panel ---


async def test_the_panel_has_status_title_and_prompts(slack: FakeSlack, api: Api) -> None:
    root = slack.open_assistant(ANN)
    thread = {"channel_id": "D0ANN", "thread_ts": root.ts}
    await api.ok("assistant.threads.setStatus", **thread, status="is thinking…")
    await api.ok("assistant.threads.setTitle", **thread, title="About")
    prompts = [{"title": "One", "message": "What is one?"}]
    await api.ok("assistant.threads.setSuggestedPrompts", **thread, prompts=prompts)
    assert not (await api("assistant.threads.setSuggestedPrompts", **thread, prompts=prompts * 5))["ok"]
    await api.ok("chat.postMessage", channel="D0ANN", thread_ts=root.ts, text="hello")
    assert slack.statuses("D0ANN", root.ts) == ["is thinking…", ""]
    assert slack.world.titles["D0ANN", root.ts] == "About"
    assert slack.world.prompts["D0ANN", root.ts] == prompts

    plain = slack.say(ANN, "beside the panel")
    other = {"channel_id": "D0ANN", "thread_ts": plain.ts}
    assert (await api("assistant.threads.setTitle", **other, title="x"))["error"] == "invalid_thread_ts"
    await api.ok("assistant.threads.setStatus", **other, status="is thinking…")


# --- faults and limits ---


async def test_faults_say_whether_the_call_acted(slack: FakeSlack, api: Api) -> None:
    post = {"channel": GENERAL, "text": "x"}

    def script(fault: faults.Fault) -> None:
        slack.script(lambda call: fault)

    for fault, acts in [
        (faults.cut(), True),
        (faults.torn(), True),
        (faults.drop(), False),
        (faults.page(502), False),
        (faults.broken(), False),
        (faults.error("fatal_error"), False),
    ]:
        before = len(slack.shown(GENERAL))
        script(fault)
        with pytest.raises((aiohttp.ClientError, AssertionError)):
            await api.ok("chat.postMessage", **post)
        assert len(slack.shown(GENERAL)) - before == acts
        assert slack.calls("chat.postMessage")[-1].acted == acts


async def test_bans_and_tiers_answer_429_with_a_time(slack: FakeSlack, api: Api) -> None:
    async def status(**arguments: Any) -> tuple[int, str | None]:
        headers = {"Authorization": f"Bearer {slack.bot_token}"}
        url = slack.api_root + "chat.postMessage"
        async with api.session.post(url, json={"text": "x", **arguments}, headers=headers) as response:
            if response.status == 429:
                assert await response.json() == {"ok": False, "error": "ratelimited"}
            return response.status, response.headers.get("Retry-After")

    slack.ban(30, method="chat.postMessage", channel=GENERAL)
    assert await status(channel=GENERAL) == (429, "30")
    assert await status(channel=ANN) == (200, None)
    assert [call.channel for call in slack.during_ban] == [GENERAL]

    slack.hub.pace.posts_per_s, slack.hub.pace.burst = 1, 2
    answers = [await status(channel="D0ANN") for _ in range(3)]
    assert answers == [(200, None), (200, None), (429, "2")]
    assert len(slack.hub.pace.over) == 1
    slack.hub.pace.posts_per_s, slack.hub.pace.tiers = 0, 0.001
    assert [await status(channel="D0ANN") for _ in range(2)] == [(200, None), (429, "60")]


async def test_two_workspaces_share_a_server_and_nothing_else(slack: FakeSlack, api: Api) -> None:
    other = slack.another_workspace("T0BB")
    other.channel("C0XX")
    answer = await Api(other, api.session).ok("chat.postMessage", channel="C0XX", text="there")
    assert [m.ts for m in other.shown("C0XX")] == [answer["ts"]]
    assert (await api("chat.postMessage", channel="C0XX", text="x"))["error"] == "channel_not_found"
    assert [call.team for call in slack.log] == ["T0BB", "T0AA"]
    assert len(slack.calls()) == len(other.calls()) == 1
