"""Acts of people in a workspace: each changes it and tells the app, as their own Slack would."""

from __future__ import annotations

import html
import re
import uuid
from collections.abc import Iterable
from typing import Any

from tests.support.slack.app import App, Delivery
from tests.support.slack.checks import Json
from tests.support.slack.telling import Teller
from tests.support.slack.world import Channel, File, Shown, Workspace

_ADDRESS = re.compile(r"https?://[^\s<>]+")
_NAME = re.compile(r"@([a-z][a-z0-9_.-]*)")
_PARTS = re.compile(
    r"<@(?P<user>[UW]\w+)>|<(?P<url>https?://[^>|]+)>|(?P<text>(?:(?!<@[UW]\w+>|<https?://).)+)", re.DOTALL
)


def rich_text(wire: str) -> list[Json]:
    """The blocks that Slack's own editor makes of a message."""
    elements: list[Json] = []
    for match in _PARTS.finditer(wire):
        if match["user"]:
            elements.append({"type": "user", "user_id": match["user"]})
        elif match["url"]:
            elements.append({"type": "link", "url": html.unescape(match["url"])})
        else:
            elements.append({"type": "text", "text": html.unescape(match["text"])})
    if not elements:
        return []
    section = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": uuid.uuid4().hex[:5], "elements": [section]}]


class People:
    """The side of the people; `FakeSlack` has it."""

    world: Workspace
    app: App
    teller: Teller

    # --- who and where ---

    def person(
        self, user: str, name: str = "", *, guest: str = "", team: str = "", bot: bool = False, **fields: Any
    ) -> Json:
        """A person as `users.info` shows them; made once. `guest`: "multi" or "single" (channels). `team`: another
        workspace, for somebody who comes by Slack Connect."""
        known = self.world.people.get(user)
        if known is not None:
            known |= fields
            return known
        name = name or user.lower()
        home = team or self.world.team
        made: Json = {
            "id": user,
            "team_id": home,
            "name": name,
            "real_name": name.title(),
            "deleted": False,
            "tz": "Europe/Amsterdam",
            "profile": {"real_name": name.title(), "display_name": name, "team": home},
            "is_admin": False,
            "is_owner": False,
            "is_restricted": guest in ("multi", "single"),
            "is_ultra_restricted": guest == "single",
            "is_bot": bot,
            "is_app_user": False,
            **({"is_stranger": True} if team else {}),
            **fields,
        }
        self.world.people[user] = made
        return made

    def channel(
        self,
        id: str,
        name: str = "",
        *,
        members: Iterable[str] = (),
        private: bool = False,
        shared: bool = False,
        with_bot: bool = True,
    ) -> str:
        """A channel; the bot is in it unless told otherwise. `shared`: with another workspace. Returns its id."""
        everyone = {*members, *([self.world.bot] if with_bot else [])}
        for user in everyone:
            self.person(user)
        kind = "group" if private else "channel"
        made = Channel(id=id, name=name or id.lower(), kind=kind, members=everyone, shared=shared)
        self.world.channels[id] = made
        return id

    def group_direct(self, id: str, members: Iterable[str]) -> str:
        """A direct conversation of several people and the bot (`mpim`); returns its id."""
        self.channel(id, f"mpdm-{id.lower()}", members=members, private=True)
        self.world.channels[id].kind = "mpim"
        return id

    def direct(self, user: str) -> str:
        """The direct conversation of a person and the bot; returns its id."""
        self.person(user)
        return self.world.direct(user).id

    @property
    def mention_of_bot(self) -> str:
        """The bot's name as it goes over the wire."""
        return f"<@{self.world.bot}>"

    # --- messages ---

    def say(
        self,
        user: str,
        text: str,
        *,
        channel: str = "",
        thread: Shown | str = "",
        raw: bool = False,
        broadcast: bool = False,
        **more: Any,
    ) -> Shown:
        """Write as a person, in the direct conversation unless a channel is named. `raw`: as it goes over the wire;
        else `&<>` are escaped, and addresses and `@names` become what Slack makes of them. `more`: fields of the
        message."""
        if text.startswith("/") and not raw:
            raise AssertionError("Slack takes this for a command of its own: use slash(), or begin with a mention")
        place = self._place(user, channel)
        wire = text if raw else self._wire(text)
        shown = Shown(
            channel=place.id,
            ts=self.world.ts(),
            by=user,
            wire=wire,
            blocks=rich_text(wire),
            thread=thread.ts if isinstance(thread, Shown) else thread,
            broadcast=broadcast,
            more={"client_msg_id": str(uuid.uuid4()), **self._origin(user), **more},
        )
        if shown.thread and shown.thread in place.assistant_threads:
            shown.more["assistant_thread"] = {"action_token": uuid.uuid4().hex}
        if broadcast:
            shown.subtype = "thread_broadcast"
        return self._said(shown)

    def mention(self, user: str, text: str, *, channel: str, thread: Shown | str = "", **more: Any) -> Shown:
        """Write to the bot by name."""
        return self.say(user, f"@{self._name(self.world.bot)} {text}", channel=channel, thread=thread, **more)

    def attach(
        self,
        user: str,
        content: bytes = b"data",
        *,
        name: str = "file.bin",
        text: str = "",
        channel: str = "",
        thread: Shown | str = "",
        mimetype: str = "application/octet-stream",
    ) -> Shown:
        """Send a file as a person."""
        place = self._place(user, channel)
        file = File(id=self.world.new_id("F"), name=name, user=user, content=content, mimetype=mimetype, complete=True)
        self.world.files[file.id] = file
        wire = self._wire(text)
        shown = Shown(channel=place.id, ts=self.world.ts(), by=user, wire=wire, blocks=rich_text(wire), files=[file])
        shown.subtype, shown.thread = "file_share", thread.ts if isinstance(thread, Shown) else thread
        shown.more = {"client_msg_id": str(uuid.uuid4()), **self._origin(user)}
        file.shares.append((place.id, shown.ts))
        return self._said(shown)

    def other_bot_says(self, text: str, *, channel: str, thread: str = "") -> Shown:
        """Another app's message."""
        self.person("U0OTHER", "otherbot", bot=True)
        more: Json = {"bot_id": "B0OTHER", "app_id": "A0OTHER", "username": "otherbot"}
        shown = Shown(channel=channel, ts=self.world.ts(), by="U0OTHER", wire=text, thread=thread, more=more)
        shown.subtype = "bot_message"
        return self._said(shown)

    def edit(self, message: Shown, text: str) -> str:
        """Change what a person wrote; returns the event's id."""
        before = self.world.payload(message)
        message.history.append(message.text)
        message.edits += 1
        message.wire = self._wire(text)
        message.blocks, message.edited_ts = rich_text(message.wire), self.world.ts()
        return self.teller.changed(message, before)

    def unfurl(self, message: Shown) -> str:
        """Slack adds a preview: the app hears of a change that no person made. Returns the event's id."""
        before = self.world.payload(message)
        message.more = {**message.more, "attachments": [{"id": 1, "title": "A page", "fallback": "A page"}]}
        return self.teller.changed(message, before)

    def delete(self, message: Shown) -> str:
        """Take back what a person wrote; returns the event's id."""
        before = self.world.payload(message)
        message.deleted = True
        return self.teller.deleted(message, before)

    def react(self, user: str, message: Shown, name: str = "thumbsup") -> str:
        """React as a person; returns the event's id."""
        message.reactions.setdefault(name, set()).add(user)
        item = {"type": "message", "channel": message.channel, "ts": message.ts}
        about: Json = {"user": user, "reaction": name, "item": item, "item_user": message.by}
        return self.teller.event({"type": "reaction_added", **about, "event_ts": self.world.ts()})

    def _said(self, shown: Shown) -> Shown:
        if shown.thread and shown.thread not in self.world.channels[shown.channel].messages:
            raise LookupError(f"no message {shown.thread} to answer in a thread")
        self.world.put(shown)
        shown.event_id = self.teller.message(shown)
        return shown

    def _place(self, user: str, channel: str) -> Channel:
        self.person(user)
        if not channel:
            return self.world.direct(user)
        place = self.world.channels[channel]
        if user not in place.members:
            raise LookupError(f"{user} is not in {channel}: people write where they are members")
        return place

    def _origin(self, user: str) -> Json:
        """Return a message's fields for somebody from another workspace: https://docs.slack.dev/apis/slack-connect."""
        person = self.person(user)
        home: str = person["team_id"]
        if home == self.world.team:
            return {}
        profile = {**person["profile"], "name": person["name"], "is_restricted": person["is_restricted"]}
        profile["is_ultra_restricted"] = person["is_ultra_restricted"]
        return {"team": home, "user_team": home, "source_team": home, "user_profile": profile}

    def _name(self, user: str) -> str:
        return self.person(user)["name"]

    def _wire(self, text: str) -> str:
        escaped = html.escape(text, quote=False)
        linked = _ADDRESS.sub(lambda match: f"<{match[0]}>", escaped)
        by_name = {person["name"]: id for id, person in self.world.people.items()}
        return _NAME.sub(lambda match: f"<@{by_name[match[1]]}>" if match[1] in by_name else match[0], linked)

    # --- the agent view, the assistant panel and the app's home ---

    def open_agent(self, user: str, *, looking_at: str = "") -> str:
        """Open the conversation with the agent: no thread begins by that. Returns the event's id."""
        return self.open_home(user, "messages", **self._context(looking_at))

    def look_around(self, user: str, channel: str) -> str:
        """Look at a channel beside the agent: https://docs.slack.dev/reference/events/app_context_changed."""
        event = {"type": "app_context_changed", "channel": self.direct(user), "user": user}
        return self.teller.event({**event, **self._context(channel), "event_ts": self.world.ts()})

    def press_stop(self, by: str, root: Shown, **other: Any) -> str:
        """Press Slack's own stop button in a thread: https://docs.slack.dev/reference/events/agent_session_stopped.

        `other`: fields in place of those of the event. Returns the event's id.
        """
        where: Json = {"channel": root.channel, "thread_ts": root.thread or root.ts, "streaming_message_ts": []}
        event: Json = {"type": "agent_session_stopped", "user": by, **where, "event_ts": self.world.ts()}
        return self.teller.event(event | other)

    def _context(self, channel: str) -> Json:
        entity = {"type": "slack#/types/channel_id", "value": channel, "team_id": self.world.team}
        return {"context": {"entities": [entity]} if channel else {}}

    def open_assistant(self, user: str, *, looking_at: str = "") -> Shown:
        """Open the assistant panel: a new thread. Returns its first message, whose ts is the thread."""
        if self.app.agent:
            raise LookupError("an app with the agent view has no assistant panel: use open_agent()")
        place = self.world.channels[self.direct(user)]
        root = Shown(channel=place.id, ts=self.world.ts(), by=self.world.bot, wire="New Assistant Thread")
        root.thread, root.subtype = root.ts, "assistant_app_thread"
        place.assistant_threads.add(root.ts)
        place.messages[root.ts] = root
        self._about_assistant("assistant_thread_started", user, root, looking_at)
        return root

    def pick_prompt(self, user: str, root: Shown, title: str) -> Shown:
        """Press one of the suggested prompts: its message is said in a thread, whatever it begins with."""
        prompts = self.world.prompts.get((root.channel, "" if self.app.agent else root.ts), [])
        [message] = [prompt["message"] for prompt in prompts if prompt["title"] == title]
        return self.say(user, message, channel=root.channel, thread=root, raw=True)

    def look_elsewhere(self, user: str, root: Shown, channel: str) -> str:
        """Go to another channel while the panel is open; returns the event's id."""
        return self._about_assistant("assistant_thread_context_changed", user, root, channel)

    def _about_assistant(self, kind: str, user: str, root: Shown, looking_at: str) -> str:
        context = {"channel_id": looking_at, "team_id": self.world.team, "enterprise_id": None} if looking_at else {}
        thread = {"user_id": user, "context": context, "channel_id": root.channel, "thread_ts": root.ts}
        return self.teller.event({"type": kind, "assistant_thread": thread, "event_ts": self.world.ts()})

    def open_home(self, user: str, tab: str = "home", **more: Any) -> str:
        """Look at the app's page; returns the event's id."""
        about = {"user": user, "channel": self.direct(user), "tab": tab, **more, "event_ts": self.world.ts()}
        return self.teller.event({"type": "app_home_opened", **about})

    # --- comings and goings ---

    def invite_bot(self, channel: str, by: str) -> str:
        """Bring the bot into a channel; returns the event's id."""
        self.world.channels[channel].members.add(self.world.bot)
        about = {
            "user": self.world.bot,
            "channel": channel,
            "channel_type": "C",
            "team": self.world.team,
            "inviter": by,
        }
        return self.teller.event({"type": "member_joined_channel", **about, "event_ts": self.world.ts()})

    def remove_bot(self, channel: str) -> None:
        """Throw the bot out of a channel."""
        self.world.channels[channel].members.discard(self.world.bot)

    def archive(self, channel: str) -> None:
        """Close a channel for good."""
        self.world.channels[channel].archived = True

    # --- anything at all ---

    def send_raw(self, event: Any, **fields: Any) -> str:
        """Any event at all, subscribed or not; `fields` replace those around it. Returns its id."""
        return self.teller.raw(event, **fields)

    def send_payload(self, payload: Any, kind: str = "events_api") -> Delivery:
        """Any whole payload at all; `kind` as in an envelope."""
        delivery = Delivery(kind, payload)
        self.app.tell(delivery)
        return delivery

    def replay(self, count: int = 1, *, attempt: int = 0, reason: str = "") -> None:
        """Deliver the last events of the app again, marked as retries if an attempt is named."""
        self.app.replay(count, attempt=attempt, reason=reason)
