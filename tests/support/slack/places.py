"""The methods about conversations, people, reactions, the assistant panel, modals and the token itself."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from tests.support.slack.blocks import check_view
from tests.support.slack.checks import Json, Refusal, odd
from tests.support.slack.telling import Teller
from tests.support.slack.world import TRIGGER_LIVES_S, Channel, Shown, View

PROMPTS_AT_MOST = 4
"""https://docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts."""
_PAGE_AT_MOST = 999
_STAMP = re.compile(r"\d{1,10}(\.\d{1,6})?")


def auth_test(team: Teller, p: Json) -> Json:
    """Whose token it is."""
    world = team.world
    return {
        "url": f"https://{world.domain}.slack.com/",
        "team": world.domain.title(),
        "user": world.people[world.bot]["name"],
        "team_id": world.team,
        "user_id": world.bot,
        "bot_id": world.bot_id,
        "is_enterprise_install": False,
    }


# --- conversations ---------------------------------------------------------------------------------


def info(team: Teller, p: Json) -> Json:
    """Return a conversation's facts."""
    channel = team.world.channel(p["channel"], member=False)
    team.world.scope(f"{channel.scope_kind}:read")
    return {"channel": _payload(team, channel)}


def _payload(team: Teller, channel: Channel) -> Json:
    """https://docs.slack.dev/reference/objects/conversation-object."""
    kind, bot = channel.kind, team.world.bot
    body: Json = {"id": channel.id, "created": 1_700_000_000, "is_archived": channel.archived, "updated": 0}
    body |= {
        "is_im": kind == "im",
        "is_mpim": kind == "mpim",
        "is_group": False,
        "is_channel": kind in ("channel", "group"),
    }
    if kind == "im":
        return {**body, "user": next(iter(channel.members - {bot}), ""), "is_org_shared": False}
    topic = {"value": channel.topic, "creator": "", "last_set": 0}
    return {
        **body,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_private": kind != "channel",
        "is_member": bot in channel.members,
        "is_general": False,
        "is_shared": channel.shared,
        "is_ext_shared": channel.shared,
        "is_org_shared": False,
        "topic": topic,
        "purpose": {**topic, "value": ""},
        "context_team_id": team.world.team,
    }


def open_direct(team: Teller, p: Json) -> Json:
    """The direct conversation with somebody."""
    users = [user for user in p.get("users", "").split(",") if user]
    if p.get("channel"):
        channel = team.world.channel(p["channel"])
    elif not users:
        raise Refusal("users_list_not_supplied")
    elif len(users) > 1:
        raise odd("this fake opens direct conversations with one person only")
    elif users[0] not in team.world.people or team.world.people[users[0]].get("deleted"):
        raise Refusal("user_not_found")
    else:
        channel = team.world.direct(users[0])
    body = _payload(team, channel) if p.get("return_im") else {"id": channel.id}
    return {"channel": body}


def history(team: Teller, p: Json) -> Json:
    """The messages of a conversation, the newest first, without answers in threads."""
    channel = _readable(team, p)
    top = [m for m in channel.messages.values() if not m.thread or m.thread == m.ts or m.broadcast]
    return _page(team, p, list(reversed(top)), default=100)


def replies(team: Teller, p: Json) -> Json:
    """A thread, its first message first."""
    channel = _readable(team, p)
    root = channel.messages.get(p["ts"])
    if root is None or root.deleted:
        raise Refusal("thread_not_found")
    root = channel.messages.get(root.thread, root) if root.thread else root
    thread = [m for m in channel.messages.values() if m is root or m.thread == root.ts]
    return _page(team, p, thread, default=1_000)


def _readable(team: Teller, p: Json) -> Channel:
    channel = team.world.channel(p["channel"])
    team.world.scope(f"{channel.scope_kind}:history")
    return channel


def _page(team: Teller, p: Json, every: Sequence[Shown], *, default: int) -> Json:
    for name in ("oldest", "latest"):
        if p.get(name) and not _STAMP.fullmatch(p[name]):
            raise Refusal(f"invalid_ts_{name}")
    limit = p.get("limit", default)
    if not 1 <= limit <= _PAGE_AT_MOST + 1:
        raise Refusal("invalid_limit")
    oldest, latest = float(p.get("oldest") or 0), float(p.get("latest") or 1e12)
    within = p.get("inclusive", False)
    found = [m for m in every if not m.deleted and _between(float(m.ts), oldest, latest, within=within)]
    start = _cursor(p)
    whole = p.get("include_all_metadata", False)
    messages = [team.world.payload(m, metadata=whole) for m in found[start : start + limit]]
    more = len(found) > start + limit
    body: Json = {"messages": messages, "has_more": more, "pin_count": 0}
    return {**body, "response_metadata": {"next_cursor": f"next:{start + limit}"}} if more else body


def _between(at: float, oldest: float, latest: float, *, within: bool) -> bool:
    return oldest <= at <= latest if within else oldest < at < latest


def _cursor(p: Json) -> int:
    cursor: str = p.get("cursor", "")
    if cursor and not re.fullmatch(r"next:\d+", cursor):
        raise Refusal("invalid_cursor")
    return int(cursor.removeprefix("next:") or 0)


def user_info(team: Teller, p: Json) -> Json:
    """Return a user's facts."""
    person = team.world.people.get(p["user"])
    if person is None:
        raise Refusal("user_not_found")
    return {"user": person}


# --- reactions -------------------------------------------------------------------------------------


def _reacted(team: Teller, p: Json) -> set[str]:
    channel = team.world.open_channel(p.get("channel", ""))
    message = team.world.message(channel, p.get("timestamp", ""))
    name: str = p["name"]
    if not re.fullmatch(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?", name):
        raise Refusal("invalid_name")
    return message.reactions.setdefault(name, set())


def add_reaction(team: Teller, p: Json) -> Json:
    """The bot reacts."""
    users = _reacted(team, p)
    if team.world.bot in users:
        raise Refusal("already_reacted")
    users.add(team.world.bot)
    return {}


def remove_reaction(team: Teller, p: Json) -> Json:
    """… and takes it back."""
    users = _reacted(team, p)
    if team.world.bot not in users:
        raise Refusal("no_reaction")
    users.remove(team.world.bot)
    return {}


def add_pin(team: Teller, p: Json) -> Json:
    """Pin a message to its channel: https://docs.slack.dev/reference/methods/pins.add."""
    message = team.world.message(team.world.open_channel(p["channel"]), p["timestamp"])
    if message.pinned:
        raise Refusal("already_pinned")
    message.pinned = True
    return {}


# --- the agent view, and the assistant panel of apps from before it ---------------------------------


def _thread(team: Teller, p: Json, *, assistant: bool = True) -> tuple[str, str]:
    channel = team.world.channel(p["channel_id"])
    root = channel.messages.get(p.get("thread_ts", ""))
    if root is None or root.deleted or (assistant and root.ts not in channel.assistant_threads):
        raise Refusal("invalid_thread_ts", detail="Thread not found")
    return channel.id, root.ts


def set_status(team: Teller, p: Json) -> Json:
    """Set the bot's status, shown until it answers there. Any thread has one, not the panel's alone."""
    if len(p.get("loading_messages", [])) > 10:
        raise Refusal("invalid_arguments", "[ERROR] no more than 10 items allowed [json-pointer:/loading_messages]")
    team.world.statuses.setdefault(_thread(team, p, assistant=False), []).append(p["status"])
    return {}


def set_title(team: Teller, p: Json) -> Json:
    """Set the thread's title in the panel's history."""
    team.world.titles[_thread(team, p)] = p["title"]
    return {}


def set_prompts(team: Teller, p: Json) -> Json:
    """Set the prompts for a person."""
    prompts = p["prompts"]
    if not 1 <= len(prompts) <= PROMPTS_AT_MOST:
        raise Refusal("invalid_arguments", f"[ERROR] 1 to {PROMPTS_AT_MOST} items allowed [json-pointer:/prompts]")
    for prompt in prompts:
        if not isinstance(prompt, dict) or prompt.keys() != {"title", "message"}:
            raise Refusal("invalid_arguments", "[ERROR] a prompt is a title and a message [json-pointer:/prompts]")
    if team.app.agent:
        if p.get("thread_ts"):
            raise odd("with the agent view, prompts for a thread are shown nowhere, and Slack does not say so")
        team.world.prompts[team.world.channel(p["channel_id"]).id, ""] = prompts
    else:
        team.world.prompts[_thread(team, p)] = prompts
    return {}


SESSION_STATUSES = frozenset({"active", "processing", "suspended", "closed"})


def set_session(team: Teller, p: Json) -> Json:
    """Set the state of an agent's session: https://docs.slack.dev/reference/methods/agents.sessions.setStatus."""
    if p["status"] not in SESSION_STATUSES:
        raise Refusal("invalid_arguments", "[ERROR] must be a status of a session [json-pointer:/status]")
    if not team.app.agent:
        raise Refusal("not_authorized")
    place = _thread(team, p, assistant=False)
    team.world.sessions.setdefault(place, []).append(p["status"])
    if p["status"] != "processing":
        team.world.end_status(*place)
    return {"status": p["status"]}


# --- modals ----------------------------------------------------------------------------------------


def open_view(team: Teller, p: Json) -> Json:
    """Open a modal for the person whose trigger it is."""
    check_view(p["view"])
    trigger = team.world.triggers.get(p.get("trigger_id") or p.get("interactivity_pointer") or "")
    if trigger is None:
        raise Refusal("invalid_trigger_id")
    if time.monotonic() - trigger.at_s > TRIGGER_LIVES_S:
        raise Refusal("expired_trigger_id")
    if trigger.used:
        raise Refusal("exchanged_trigger_id")
    trigger.used = True
    view = View(team.world.new_id("V"), trigger.user, _named(team, p["view"]), _hash(team))
    team.world.views[view.id] = view
    return {"view": view_payload(team, view)}


def update_view(team: Teller, p: Json) -> Json:
    """Replace what a modal shows."""
    check_view(p["view"])
    wanted = p.get("external_id")
    every = team.world.views
    view = every.get(p.get("view_id", "")) or next(
        (v for v in every.values() if wanted and v.view.get("external_id") == wanted), None
    )
    if view is None or not view.open:
        raise Refusal("not_found")
    if p.get("hash", view.hash) != view.hash:
        raise Refusal("hash_conflict")
    view.view, view.hash = _named(team, p["view"]), _hash(team)
    return {"view": view_payload(team, view)}


def _named(team: Teller, view: Json) -> Json:
    """Slack gives every block and input an id."""
    named: list[Json] = []
    for block in view["blocks"]:
        element = {"element": {"action_id": team.world.new_id("a"), **block["element"]}} if "element" in block else {}
        named.append({"block_id": team.world.new_id("b"), **block, **element})
    return {**view, "blocks": named}


def _hash(team: Teller) -> str:
    return team.world.ts() + ".hash"


def view_payload(team: Teller, view: View, values: Json | None = None) -> Json:
    """A view as Slack gives it back: https://docs.slack.dev/reference/views."""
    empty: Json = {"private_metadata": "", "callback_id": "", "external_id": "", "submit": None, "close": None}
    return {
        "id": view.id,
        "team_id": team.world.team,
        **empty,
        **view.view,
        "state": {"values": values or {}},
        "hash": view.hash,
        "root_view_id": view.id,
        "previous_view_id": None,
        "app_id": team.app.id,
        "bot_id": team.world.bot_id,
        "app_installed_team_id": team.world.team,
    }
