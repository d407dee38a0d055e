"""One workspace: its people, conversations and files, and what a message looks like on the wire."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.slack.blocks import elements_of, texts_of
from tests.support.slack.checks import Json, Refusal

TRIGGER_LIVES_S = 3.0
"""https://docs.slack.dev/interactivity/handling-user-interaction: a `trigger_id` is good for three seconds, once."""


@dataclass(slots=True, kw_only=True)
class File:
    """A file: announced, uploaded, shared."""

    id: str
    name: str
    user: str
    content: bytes | None = None
    length: int = 0
    title: str = ""
    mimetype: str = "application/octet-stream"
    deleted: bool = False
    shares: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Channel and ts of each message that shows it."""
    complete: bool = False
    more: Json = field(default_factory=dict[str, Any])
    """Further fields on the wire, or others."""

    def payload(self, root: str, team: str) -> Json:
        """As it stands in a message: https://docs.slack.dev/reference/objects/file-object."""
        if self.deleted:
            return {"id": self.id, "mode": "tombstone"}
        url = f"{root}/files-pri/{team}-{self.id}"
        return {
            "id": self.id,
            "name": self.name,
            "title": self.title or self.name,
            "mimetype": self.mimetype,
            "filetype": self.name.rpartition(".")[2] or "binary",
            "user": self.user,
            "user_team": team,
            "mode": "hosted",
            "size": len(self.content or b""),
            "is_external": False,
            "url_private": f"{url}/{self.name}",
            "url_private_download": f"{url}/download/{self.name}",
            "file_access": "visible",
            **self.more,
        }


@dataclass(slots=True, kw_only=True)
class Shown:
    """One message as people see it."""

    channel: str
    ts: str
    by: str
    """The user id of whoever wrote it; the bot's own for its messages."""
    wire: str
    """The `text` as it goes over the wire; people do not see it where there are blocks."""
    blocks: list[Json] = field(default_factory=list[Json])
    markdown: str = ""
    """Text given as `markdown_text`, or streamed."""
    thread: str = ""
    """The ts of the thread's first message; empty outside threads."""
    subtype: str = ""
    metadata: Json | None = None
    files: list[File] = field(default_factory=list[File])
    only_for: str = ""
    """The user who alone sees it: an ephemeral message."""
    streaming: bool = False
    broadcast: bool = False
    edits: int = 0
    edited_ts: str = ""
    deleted: bool = False
    history: list[str] = field(default_factory=list[str])
    """The texts it had before."""
    pinned: bool = False
    reactions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    event_id: str = ""
    """Of a message by people: the event that told the app."""
    more: Json = field(default_factory=dict[str, Any])
    """Further fields on the wire."""

    @property
    def text(self) -> str:
        """Return the text that people read."""
        parts = [self.markdown] if self.markdown else []
        parts += texts_of(self.blocks)
        return "\n".join(parts) if parts else self.wire

    @property
    def buttons(self) -> list[Json]:
        """All buttons in order, each with the `block_id` of its block."""
        return [
            {**element, "block_id": block.get("block_id", "")}
            for block in self.blocks
            for element in elements_of(block)
            if element.get("type") == "button"
        ]

    @property
    def labels(self) -> list[str]:
        """The labels of all buttons."""
        return [button["text"]["text"] for button in self.buttons]

    def button(self, label_or_value: str) -> Json:
        """The one button whose label contains this, or whose value or action id is it."""
        every = self.buttons
        exact = [b for b in every if label_or_value in (b.get("value"), b.get("action_id"), b["text"]["text"])]
        found = exact or [b for b in every if label_or_value in b["text"]["text"]]
        if len(found) != 1:
            raise LookupError(f"{len(found)} buttons {label_or_value!r} on message {self.ts}, which has {self.labels}")
        return found[0]

    def picture(self, bot: str) -> str:
        """One readable line or more."""
        marks = [self.ts, "bot" if self.by == bot else self.by]
        marks += [f"in {self.thread}"] if self.thread else []
        marks += [f"only for {self.only_for}"] if self.only_for else []
        marks += [f"{self.edits} edits"] if self.edits else []
        marks += ["DELETED"] if self.deleted else []
        marks += ["streaming"] if self.streaming else []
        marks += [f"file {file.name} ({len(file.content or b'')} B)" for file in self.files]
        marks += [f":{name}: {len(users)}" for name, users in self.reactions.items() if users]
        row = "".join(f" [{label}]" for label in self.labels)
        return f"  {' · '.join(marks)}: {self.text!r}{row}"


@dataclass(slots=True, kw_only=True)
class Channel:
    """A conversation: `C…` public or private, `D…` direct, `G…` of several people."""

    id: str
    name: str = ""
    kind: str = "channel"
    """As in `channel_type` of events: channel, group (private), im, mpim."""
    members: set[str] = field(default_factory=set[str])
    shared: bool = False
    """True for Slack Connect."""
    archived: bool = False
    topic: str = ""
    messages: dict[str, Shown] = field(default_factory=dict[str, Shown])
    ephemerals: list[Shown] = field(default_factory=list[Shown])
    assistant_threads: set[str] = field(default_factory=set[str])

    @property
    def scope_kind(self) -> str:
        """The first word of scopes about it."""
        return {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}[self.kind]


@dataclass(slots=True)
class Trigger:
    """Leave to open one modal for one person."""

    user: str
    at_s: float
    used: bool = False


@dataclass(slots=True)
class View:
    """A modal before a person."""

    id: str
    user: str
    view: Json
    hash: str
    open: bool = True
    errors: dict[str, str] = field(default_factory=dict[str, str])
    """Errors under the inputs of a refused form, by block."""

    @property
    def text(self) -> str:
        """Return the text of it that the person reads."""
        return "\n".join([*texts_of(self.view["title"]), *texts_of(self.view["blocks"])])

    @property
    def inputs(self) -> list[Json]:
        """Its input blocks."""
        return [block for block in self.view["blocks"] if block["type"] == "input"]


@dataclass(slots=True)
class Workspace:
    """Everything of one workspace that calls change."""

    team: str
    bot: str
    """The bot's user id."""
    bot_id: str
    app_id: str
    domain: str = "acme"
    people: dict[str, Json] = field(default_factory=dict[str, Json])
    channels: dict[str, Channel] = field(default_factory=dict[str, Channel])
    files: dict[str, File] = field(default_factory=dict[str, File])
    triggers: dict[str, Trigger] = field(default_factory=dict[str, Trigger])
    views: dict[str, View] = field(default_factory=dict[str, View])
    statuses: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    """By channel and thread: every status that was set, an empty one for "gone"."""
    sessions: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    """By channel and thread: every status that an agent's session was given."""
    titles: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    prompts: dict[tuple[str, str], list[Json]] = field(default_factory=dict[tuple[str, str], list[Json]])
    scopes: set[str] = field(default_factory=set[str])
    root: str = ""
    """Address of the fake."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _last_us: int = 0

    def ts(self) -> str:
        """A new timestamp: the time now, and never the same twice."""
        self._last_us = max(self._last_us + 1, time.time_ns() // 1000)
        return f"{self._last_us // 1_000_000}.{self._last_us % 1_000_000:06}"

    def new_id(self, letter: str) -> str:
        """A new id such as `F0001K`."""
        return f"{letter}{next(self.ids):04}{self.team[1:]}"

    # --- messages ---

    def put(self, shown: Shown) -> Shown:
        """Show a new message; an answer of the bot in a thread ends its status there, as in earnest."""
        self.channels[shown.channel].messages[shown.ts] = shown
        if shown.by == self.bot:
            self.end_status(shown.channel, shown.thread)
        return shown

    def end_status(self, channel: str, thread: str) -> None:
        """Take the status of a thread away."""
        statuses = self.statuses.get((channel, thread))
        if statuses and statuses[-1]:
            statuses.append("")

    def payload(self, shown: Shown, *, metadata: bool = True) -> Json:
        """A message as it goes over the wire: https://docs.slack.dev/reference/events/message."""
        mine = shown.by == self.bot
        body: Json = {"type": "message", **({"subtype": shown.subtype} if shown.subtype else {})}
        body |= {"user": shown.by, "ts": shown.ts, "text": shown.wire, "team": self.team}
        if mine:
            body |= {"bot_id": self.bot_id, "app_id": self.app_id, "bot_profile": self._bot_profile()}
        if shown.blocks or shown.markdown:
            marked = [{"type": "markdown", "text": shown.markdown, "block_id": "md"}] if shown.markdown else []
            body["blocks"] = [*marked, *shown.blocks]
        if shown.thread:
            body["thread_ts"] = shown.thread
            root = self.channels[shown.channel].messages.get(shown.thread)
            if root is not None and root is not shown:
                body["parent_user_id"] = root.by
        if shown.files:
            body |= {"files": [f.payload(self.root, self.team) for f in shown.files], "upload": False}
        if shown.edits:
            body["edited"] = {"user": shown.by, "ts": shown.edited_ts}
        if shown.metadata:
            kept = {"event_type": shown.metadata["event_type"]}
            body["metadata"] = shown.metadata if metadata else kept
        if shown.reactions:
            body["reactions"] = [
                {"name": name, "users": sorted(users), "count": len(users)}
                for name, users in shown.reactions.items()
                if users
            ]
        return {**body, **shown.more}

    def _bot_profile(self) -> Json:
        return {"id": self.bot_id, "app_id": self.app_id, "name": "dragoman", "team_id": self.team, "deleted": False}

    # --- what a call names ---

    def channel(self, name: str, *, member: bool = True) -> Channel:
        """The conversation that a call means, when the bot may act there. Raises `Refusal`."""
        if name.startswith("#") or (name and not name[0].isupper()):
            raise Refusal("channel_not_found", surprise=f"{name!r} is a name: only ids stay the same")
        channel = self.channels.get(name)
        if channel is None or (channel.kind != "channel" and self.bot not in channel.members):
            raise Refusal("channel_not_found")
        if member and self.bot not in channel.members:
            raise Refusal("not_in_channel")
        return channel

    def open_channel(self, name: str) -> Channel:
        """… when the bot may write there."""
        channel = self.channel(name)
        if channel.archived:
            raise Refusal("is_archived")
        return channel

    def message(self, channel: Channel, ts: str) -> Shown:
        """The message that a call is about. Raises `Refusal`."""
        message = channel.messages.get(ts)
        if message is None or message.deleted:
            raise Refusal("message_not_found")
        return message

    def thread(self, channel: Channel, p: Json, name: str = "thread_ts") -> str:
        """The thread that a call means; empty for none. Raises `Refusal` for one that people could not find."""
        ts: str = p.get(name, "")
        if not ts:
            return ""
        root = channel.messages.get(ts)
        if root is None:  # one that was taken back still has its thread
            raise Refusal("thread_not_found", surprise=f"no message {ts} in {channel.id} to answer in a thread")
        if root.thread and root.thread != ts:
            raise Refusal("thread_not_found", surprise=f"{ts} is itself a reply: name the thread's first message")
        return ts

    def scope(self, wanted: str) -> None:
        """Raise `Refusal` when the bot's token lacks a scope."""
        if wanted not in self.scopes:
            raise Refusal("missing_scope", needed=wanted, provided=",".join(sorted(self.scopes)))

    def direct(self, user: str) -> Channel:
        """The direct conversation of a person and the bot; made when it is not there yet."""
        id = f"D{user[1:]}"
        if id not in self.channels:
            self.channels[id] = Channel(id=id, kind="im", members={user, self.bot})
        return self.channels[id]

    def trigger(self, user: str) -> str:
        """Leave to open a modal, from now on for three seconds."""
        id = f"{next(self.ids)}.{self.team}.{user.lower()}"
        self.triggers[id] = Trigger(user, time.monotonic())
        return id
