"""The `chat.*` methods: each takes typed arguments, changes the workspace and returns what is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.support.slack.blocks import check_blocks
from tests.support.slack.checks import Json, Refusal, as_object, markdown_of, metadata_of, odd, text_of
from tests.support.slack.telling import Teller
from tests.support.slack.world import Channel, Shown

USES_OF_A_RESPONSE_URL = 5
"""Limit within 30 minutes: https://docs.slack.dev/interactivity/handling-user-interaction#message_responses."""
_RESPONSE_URL_LIVES_S = 1_800.0


def _content(team: Teller, p: Json) -> Json:
    """Return the content of a post, checked: the fields of `Shown`."""
    if p.get("attachments"):
        raise odd("this fake shows no attachments: they are legacy")
    blocks: list[Json] = p.get("blocks") or []
    check_blocks(blocks)
    text, markdown = text_of(p), markdown_of(p)
    if not text.strip() and not blocks and not markdown:
        raise Refusal("no_text")
    if blocks and not text.strip():
        raise Refusal("no_text", surprise="blocks without `text`: notifications would be empty")
    if p.get("link_names") or p.get("parse") == "full":
        raise odd("link_names or parse=full: names in a text would become mentions")
    return {"wire": text or markdown, "blocks": _named(team, blocks), "markdown": markdown}


def _named(team: Teller, blocks: list[Json]) -> list[Json]:
    """Slack gives every block and element an id."""
    named: list[Json] = []
    for block in blocks:
        elements = [
            {"action_id": team.world.new_id("a"), **e} if e.get("type") == "button" else e
            for e in block.get("elements", [])
        ]
        named.append({"block_id": team.world.new_id("b"), **block, **({"elements": elements} if elements else {})})
    return named


def post_message(team: Teller, p: Json) -> Json:
    """A new message. A user's id as the channel is that person's direct conversation."""
    world = team.world
    if p["channel"] in world.people:
        world.scope("im:write")
        p = {**p, "channel": world.direct(p["channel"]).id}
    channel = _to_write(team, p["channel"])
    if p.get("metadata"):
        world.scope("chat:write")
    content, thread = _content(team, p), world.thread(channel, p)
    shown = _posted(team, channel, metadata=metadata_of(p), thread=thread, **content)
    shown.broadcast = p.get("reply_broadcast", False)
    return {"channel": channel.id, "ts": shown.ts, "message": world.payload(shown)}


def _to_write(team: Teller, name: str) -> Channel:
    """Public channels without the bot are open to `chat:write.public`."""
    world = team.world
    open_to_all = "chat:write.public" in world.scopes and name in world.channels
    if open_to_all and world.channels[name].kind == "channel" and not world.channels[name].archived:
        return world.channels[name]
    return world.open_channel(name)


def _posted(team: Teller, channel: Channel, **fields: Any) -> Shown:
    shown = Shown(channel=channel.id, ts=team.world.ts(), by=team.world.bot, **fields)
    team.world.put(shown)
    team.message(shown)
    return shown


def post_ephemeral(team: Teller, p: Json) -> Json:
    """A message for one person; it is in no history and cannot be edited."""
    channel = team.world.open_channel(p["channel"])
    if p["user"] not in channel.members:
        raise Refusal("user_not_in_channel")
    content, thread = _content(team, p), team.world.thread(channel, p)
    note = Shown(
        channel=channel.id, ts=team.world.ts(), by=team.world.bot, thread=thread, only_for=p["user"], **content
    )
    channel.ephemerals.append(note)
    return {"message_ts": note.ts}


def update(team: Teller, p: Json) -> Json:
    """Another content. A text alone where there are blocks is a surprise: Slack's pages differ on whether they stay."""
    shown = _own(team, p, "cant_update_message")
    if shown.streaming:
        raise Refusal("streaming_state_conflict")
    text_of(p, updating=True)
    if shown.blocks and "blocks" not in p and "text" in p:
        raise odd("a new text for a message with blocks: say which blocks, or an empty array for none")
    before = team.world.payload(shown)
    if "text" in p or "blocks" in p or "markdown_text" in p:
        content = _content(team, {key: value for key, value in p.items() if key != "ts"})
        _replaced(team, shown, content)
    elif "metadata" not in p:
        raise Refusal("no_text")
    if "metadata" in p:
        shown.metadata = metadata_of(p) or None
    team.changed(shown, before)
    return {"channel": shown.channel, "ts": shown.ts, "text": shown.wire, "message": team.world.payload(shown)}


def _replaced(team: Teller, shown: Shown, content: Json) -> None:
    shown.history.append(shown.text)
    shown.edits += 1
    shown.edited_ts = team.world.ts()
    shown.wire, shown.blocks, shown.markdown = content["wire"], content["blocks"], content["markdown"]


def _own(team: Teller, p: Json, refusal: str) -> Shown:
    """The app's own message that a call names; ephemeral ones are not found."""
    channel = team.world.channel(p["channel"])
    if channel.archived:
        raise Refusal("is_inactive")
    shown = team.world.message(channel, p["ts"])
    if shown.by != team.world.bot:
        raise Refusal(refusal)
    return shown


def delete(team: Teller, p: Json) -> Json:
    """Take a message away."""
    shown = _own(team, p, "cant_delete_message")
    before = team.world.payload(shown)
    shown.deleted = True
    team.deleted(shown, before)
    return {"channel": shown.channel, "ts": shown.ts}


# --- streams ---------------------------------------------------------------------------------------


def start_stream(team: Teller, p: Json) -> Json:
    """A message that grows. It answers somebody in a thread; outside direct conversations it says whom."""
    channel = team.world.open_channel(p["channel"])
    thread = team.world.thread(channel, p)
    if channel.kind != "im":
        if not p.get("recipient_team_id"):
            raise Refusal("missing_recipient_team_id")
        if not p.get("recipient_user_id"):
            raise Refusal("missing_recipient_user_id")
    recipient = p.get("recipient_user_id")
    if recipient and recipient not in team.world.people:
        raise Refusal("user_not_found")
    if p.get("task_display_mode", "timeline") not in ("timeline", "plan"):
        raise Refusal("invalid_arguments", "[ERROR] must be a valid enum value [json-pointer:/task_display_mode]")
    text = _streamed(p)
    shown = _posted(team, channel, wire=text, markdown=text, thread=thread, streaming=True)
    return {"channel": channel.id, "ts": shown.ts}


def _streamed(p: Json) -> str:
    """The text of one step of a stream: plain, or in chunks (https://docs.slack.dev/reference/methods/chat.appendStream)."""
    text = markdown_of(p)
    for chunk in p.get("chunks", []):
        part = as_object(chunk) or {}
        if part.get("type") not in ("markdown_text", "task_update", "plan_update"):
            raise Refusal("invalid_chunks")
        text += str(part.get("text", "")) if part["type"] == "markdown_text" else ""
    return text


def _growing(team: Teller, p: Json) -> Shown:
    shown = _own(team, p, "message_not_owned_by_app")
    if not shown.streaming:
        raise Refusal("message_not_in_streaming_state")
    return shown


def append_stream(team: Teller, p: Json) -> Json:
    """More of it."""
    shown = _growing(team, p)
    more = _streamed(p)
    if not more and not p.get("chunks"):
        raise Refusal("no_text")
    shown.history.append(shown.text)
    shown.markdown += more
    shown.wire = shown.markdown
    return {"channel": shown.channel, "ts": shown.ts}


def stop_stream(team: Teller, p: Json) -> Json:
    """The end of it, with blocks below and metadata if wanted."""
    shown = _growing(team, p)
    more = _streamed({key: value for key, value in p.items() if key != "blocks"})
    blocks: list[Json] = p.get("blocks") or []
    check_blocks(blocks)
    metadata = metadata_of(p)
    before = team.world.payload(shown)
    shown.history.append(shown.text)
    shown.markdown += more
    shown.wire, shown.blocks, shown.streaming = shown.markdown, _named(team, blocks), False
    shown.metadata = metadata or shown.metadata
    team.changed(shown, before)
    return {"channel": shown.channel, "ts": shown.ts, "message": team.world.payload(shown)}


# --- response URLs ---------------------------------------------------------------------------------


@dataclass(slots=True)
class ResponseUrl:
    """Leave to answer a press or a command without a token."""

    channel: str
    user: str
    message: Shown | None
    made_s: float
    uses: int = 0


def respond(team: Teller, hook: ResponseUrl, p: Json) -> None:
    """Carry out a post to a `response_url`. Raises `Refusal`."""
    hook.uses += 1
    if hook.uses > USES_OF_A_RESPONSE_URL:
        raise Refusal("used_url")
    if time.monotonic() - hook.made_s > _RESPONSE_URL_LIVES_S:
        raise Refusal("expired_url")
    known = {"text", "blocks", "response_type", "replace_original", "delete_original", "thread_ts", "metadata"}
    if unknown := p.keys() - known - {"unfurl_links", "unfurl_media", "mrkdwn"}:
        raise odd(f"this fake knows no field {sorted(unknown)} of an answer to a response_url")
    message = hook.message
    if p.get("delete_original") and message is not None:
        message.deleted = True
        return
    content = _content(team, p)
    if p.get("replace_original") and message is not None:
        _replaced(team, message, content)
        return
    channel = team.world.channels[hook.channel]
    shown = Shown(channel=channel.id, ts=team.world.ts(), by=team.world.bot, thread=p.get("thread_ts", ""), **content)
    if p.get("response_type") == "in_channel":
        team.world.put(shown)
        return
    shown.only_for = hook.user
    channel.ephemerals.append(shown)
