"""Parser of Slack payloads: message, press, opened view or refusal. Used by `updates`; pure, never raises.

Events, presses, forms and slash commands have one shape each, by socket or HTTP; `read` distinguishes them. Facts that
are not in the payload are fetched first: `about` names the person and place to look up.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias, cast

from channels._shared.fields import as_ascii
from channels.slack import ids, inbound_text
from channels.slack.attached import attached
from channels.slack.blocks import DENY_WITH_REASON, REASON, FormPlace, verb_of
from channels.slack.fields import Malformed, SlackFields
from gateway.domain.ids import Handle
from gateway.domain.messages import REASON_AT_MOST, Inbound, Press, Refused, RefusedReason
from gateway.domain.text import plain
from gateway.domain.waits import Verb

RAW_AT_MOST = 65_536
"""Characters kept of a refused payload."""
QUOTED_AT_MOST = 1000
"""Characters kept of a quoted message."""
NAME_AT_MOST = 64
"""Characters of a person's name, at most."""
HANDLE_AT_MOST = 2000
"""Characters of a button's payload, at most."""
DELETED = "(this message was deleted)"
"""Text of a message that was deleted before it was read."""
SLACKBOT = "USLACKBOT"
STOP = "/stop"

_SAID = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes of a person's message."""
_ENDS = frozenset({"app_uninstalled", "tokens_revoked"})
_PANEL = frozenset({"assistant_thread_started", "assistant_thread_context_changed"})
"""Events of the assistant view, which apps older than the agent view still have."""
_STOPPED = "agent_session_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of the bot, from `auth.test`, and its account in the configuration."""

    account: str
    team: str
    user: str
    """The bot's own user id, used in mentions."""
    name: str = "dragoman"
    app: str = ""
    """The app's id; empty while unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonFacts:
    """Facts that are not in a payload. An unknown fact counts as false."""

    member: bool = False
    """True for a full member of this workspace: no guest, nobody of another organisation."""
    certain: bool = True
    """False while Slack does not answer whether they are a member."""
    name: str = ""
    """The person's name in the workspace."""
    takes_part: bool = False
    """True if the bot takes part in the thread: it was mentioned there, or has answered."""
    direct: str = ""
    """The bot's direct conversation with the person; for a command, which may come from any place."""
    commands: Collection[str] = field(default_factory=frozenset[str])
    """The gateway's commands, without `/`: `/dragoman status` is `/status`, `/dragoman what is new?` a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Person and place of a payload, known before it is fully parsed."""

    user: str
    channel: str = ""
    thread: str = ""
    at: float = math.inf
    """Time of the message in seconds, by Slack's clock; a command has none."""
    command: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackPress:
    """Button press or submitted reason form, and the place to report its result."""

    press: Press
    user: str
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Press that needs a reason: open the form (`blocks.reason_form`) with `trigger`, within 3 s."""

    press: Press
    user: str
    channel: str
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Press of Slack's own stop button: `/stop` in the thread of the button."""

    message: Inbound


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Opened direct conversation; `thread` is new in the assistant view, and empty in the agent view."""

    channel: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Navigation of a person in Slack. Ignored and not stored: it comes at each step of a person."""

    at: str
    """Kind of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEnded:
    """Removal of the app from the workspace, or revocation of its token."""

    why: str


Meaning: TypeAlias = Inbound | SlackPress | Asking | Stopping | Opened | Looked | AccessEnded | Refused


class _Unusable(Exception):
    """Well-formed payload that is no person's message or press."""

    def __init__(self, reason: RefusedReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def about(payload: object) -> About | None:
    """Return the person and place to look up before `read`; None if there is nobody to look up. Never raises."""
    try:
        fields = SlackFields(payload)
        if "command" in fields:
            return About(user=fields.id("user_id", "UW"), channel=fields.id("channel_id", "CDG"), command=True)
        if fields.text("type") != "event_callback":
            return None
        event = fields.object("event")
        if event.text("type", most=100) == _STOPPED:
            return _about_stop(event)
        said = event.maybe("message") or event.maybe("previous_message") or event
        if "bot_id" in said or said.text("subtype") not in _SAID:
            return None
        thread = said.maybe_ts("thread_ts")
        user, channel = said.id("user", "UW"), event.id("channel", "CDG")
        return About(user=user, channel=channel, thread=thread, at=float(said.ts("ts")))
    except Malformed:
        return None


def _about_stop(event: SlackFields) -> About:
    user, channel = event.id("user", "UW"), event.id("channel", "CDG")
    return About(user=user, channel=channel, at=float(event.ts("event_ts")))


def read(payload: object, me: Identity, now: datetime, known: PersonFacts = PersonFacts()) -> Meaning:
    """Return the meaning of a payload for `me`; accepts any JSON value. `now`: upper bound of `sent_at`."""
    reason, raw = RefusedReason.POISON, ""
    try:
        return _Reading(me, now, known).payload(SlackFields(payload))
    except _Unusable as unusable:
        reason, detail = unusable.reason, unusable.detail
    except Malformed as malformed:
        detail, raw = str(malformed), written(payload)
    key = _refused_key(payload)
    return Refused(channel=ids.CHANNEL, account=me.account, event_key=key, reason=reason, detail=detail, raw=raw)


def _refused_key(payload: object) -> str:
    try:
        return ids.event_key(SlackFields(payload).word("event_id", most=64))
    except Malformed:
        return f"h{hashlib.sha256(written(payload, most=None).encode()).hexdigest()[:32]}"


def written(payload: object, most: int | None = RAW_AT_MOST) -> str:
    """Return a payload as ASCII JSON, which can always be stored, without the old verification token."""
    cleaned = {**cast("dict[str, object]", payload), "token": ""} if isinstance(payload, dict) else payload
    return as_ascii(cleaned, most)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Parser of one payload. Every method raises `Malformed` and `_Unusable`."""

    me: Identity
    now: datetime
    known: PersonFacts

    def payload(self, payload: SlackFields) -> Meaning:
        if "command" in payload:
            return self._command(payload)
        kind = payload.text("type", most=100)
        if kind == "event_callback":
            self._of_ours(payload)
            return self._event(payload, payload.object("event"))
        if kind == "block_actions":
            return self._press(payload)
        if kind == "view_submission":
            return self._form(payload)
        if not kind:
            raise Malformed("type: text is wanted")
        raise _Unusable(RefusedReason.UNKNOWN, _safe(kind))

    def _of_ours(self, payload: SlackFields) -> None:
        """Refuse events for another workspace or app. In a shared channel `team_id` may be either side's."""
        teams = [one.text("team_id", most=64) for one in payload.objects("authorizations", most=100)]
        teams += [payload.text("team_id", most=64), payload.text("context_team_id", most=64)]
        if self.me.team not in teams:
            raise _Unusable(RefusedReason.UNKNOWN, "of another workspace")
        if self.me.app and payload.text("api_app_id", most=64) not in ("", self.me.app):
            raise _Unusable(RefusedReason.UNKNOWN, "of another app")

    def _event(self, payload: SlackFields, event: SlackFields) -> Meaning:
        kind = event.word("type", most=100)
        if kind in ("message", "app_mention"):
            return self._message_event(payload, event)
        if kind == _STOPPED:
            return self._stop(payload, event)
        if kind == "app_home_opened":
            return self._home(event)
        if kind == "app_context_changed":
            return Looked(at=kind)
        if kind in _PANEL:
            return self._panel(event, kind)
        if kind in _ENDS:
            return AccessEnded(why=kind)
        raise _Unusable(RefusedReason.UNKNOWN, _safe(kind))

    # --- messages -------------------------------------------------------------------------------

    def _message_event(self, payload: SlackFields, event: SlackFields) -> Inbound:
        subtype = event.text("subtype", most=100)
        if subtype == "message_changed":
            return self._edit(payload, event)
        if subtype == "message_deleted":
            return self._deletion(payload, event)
        if subtype in _SAID:
            return self._message(payload, event, event)
        bots = {"bot_message", "bot_add", "bot_remove"}
        raise _Unusable(RefusedReason.NOT_A_PERSON if subtype in bots else RefusedReason.UNKNOWN, _safe(subtype))

    def _message(
        self, payload: SlackFields, event: SlackFields, said: SlackFields, *, mentioned: bool = False
    ) -> Inbound:
        """Parse a message. `said` is the message itself: the event, or the message in an edit."""
        user = self._person(said)
        channel, ts = event.id("channel", "CDG"), said.ts("ts")
        direct = channel.startswith("D") and event.text("channel_type", most=20) in ("", "im")
        named = mentioned or inbound_text.names(said.text("text"), self.me.user)
        thread = said.maybe_ts("thread_ts").removeprefix(ts)  # a thread's first message is not in it
        addressed = direct or named or (bool(thread) and self._takes_part(said))
        if addressed and not direct:
            thread = thread or ts  # a conversation in a channel continues in its own thread
        team = _team(payload, event, said)
        files, unread = attached(said)
        return Inbound(
            event_key=ids.message_key(self.me.team, channel, ts),
            conversation=ids.conversation(self.me.account, channel, thread),
            principal=ids.principal(team, user),
            name=self._name(said.maybe("user_profile"), user),
            direct=direct,
            addressed=addressed,
            text=inbound_text.said_to(said.text("text"), self.me.user, self.me.name),
            sent_at=self._when(ts),
            quoted=_quoted(said),
            unread=unread,
            attachments=files,
            also_called=() if direct else ids.also_called(self.me.team, channel),
            outsider=not self.known.member or team != self.me.team,
            unsure=not self.known.certain and team == self.me.team,
        )

    def _edit(self, payload: SlackFields, event: SlackFields) -> Inbound:
        said, before = event.object("message"), event.maybe("previous_message")
        if said.text("subtype", most=100) not in _SAID:
            raise _Unusable(RefusedReason.UNKNOWN, "message_changed of no message")
        edited = said.maybe("edited")
        if edited is None or (before is not None and before.text("text") == said.text("text")):
            raise _Unusable(RefusedReason.UNKNOWN, "message_changed without a new text")  # a link was unfurled
        found = self._message(payload, event, said, mentioned=before is not None and self._names_us(before))
        return self._amended(found, ids.edit_key(self.me.team, found.conversation.chat, said.ts("ts"), edited.ts("ts")))

    def _deletion(self, payload: SlackFields, event: SlackFields) -> Inbound:
        before = event.maybe("previous_message")
        if before is None or before.text("subtype", most=100) not in _SAID:
            raise _Unusable(RefusedReason.UNKNOWN, "message_deleted of no message")
        found = self._message(payload, event, before)
        key = ids.deletion_key(self.me.team, found.conversation.chat, event.ts("deleted_ts"))
        return self._amended(replace(found, text=DELETED, quoted="", unread="", attachments=()), key)

    @staticmethod
    def _amended(found: Inbound, key: str) -> Inbound:
        return replace(found, event_key=key, edits=found.event_key)

    def _person(self, said: SlackFields) -> str:
        """Return the author of a message, who must be a person writing without an app."""
        if any(key in said for key in ("bot_id", "bot_profile", "app_id")):
            raise _Unusable(RefusedReason.NOT_A_PERSON, "a bot speaks")
        user = said.id("user", "UW")
        if user in (SLACKBOT, self.me.user):
            raise _Unusable(RefusedReason.NOT_A_PERSON, "a bot speaks")
        return user

    def _takes_part(self, said: SlackFields) -> bool:
        return self.known.takes_part or said.text("parent_user_id", most=64) == self.me.user

    def _names_us(self, said: SlackFields) -> bool:
        return inbound_text.names(said.text("text"), self.me.user)

    def _name(self, profile: SlackFields | None, user: str) -> str:
        told = "" if profile is None else profile.text("display_name") or profile.text("real_name")
        return plain(self.known.name or told)[:NAME_AT_MOST].rstrip() or user

    def _when(self, ts: str) -> datetime:
        seconds, _, fraction = ts.partition(".")
        sent = datetime.fromtimestamp(int(seconds), UTC).replace(microsecond=int(f"{fraction:0<6}"[:6]))
        return min(sent, self.now)

    # --- commands, presses, forms, views --------------------------------------------------------

    def _command(self, command: SlackFields) -> Inbound:
        if command.text("team_id", most=64) != self.me.team:
            raise _Unusable(RefusedReason.UNKNOWN, "of another workspace")
        user, channel = command.id("user_id", "UW"), command.id("channel_id", "CDG")
        direct = channel.startswith("D")
        # In a conversation of two people without the bot, the answer goes to the bot's own conversation.
        place = self.known.direct or channel if direct else channel
        text = inbound_text.unescaped(command.text("text")).strip()
        first = text.split(maxsplit=1)[0].lower() if text else ""
        if not text:
            text = "/help"
        elif first in self.known.commands:
            text = f"/{text}"
        return Inbound(
            event_key=ids.command_key(self.me.team, place, command.word("trigger_id", most=200)),
            conversation=ids.conversation(self.me.account, place),
            principal=ids.principal(self.me.team, user),
            name=plain(self.known.name or command.text("user_name"))[:NAME_AT_MOST].rstrip() or user,
            direct=direct,
            addressed=True,
            text=text,
            sent_at=self.now,
            also_called=() if direct else ids.also_called(self.me.team, channel),
            outsider=not self.known.member,
            unsure=not self.known.certain,
        )

    def _press(self, payload: SlackFields) -> SlackPress | Asking:
        action = next(iter(payload.objects("actions", most=25)), None)
        if action is None or action.text("type", most=100) != "button" or "value" not in action:
            raise _Unusable(RefusedReason.UNKNOWN, "block_actions without a button of ours")
        who = payload.object("user")
        user, team = who.id("id", "UW"), self._pressing_team(payload, who)
        channel, message, thread = _pressed_at(payload)
        name = action.word("action_id", most=255)
        press = Press(
            event_key=ids.press_key(self.me.team, channel, message, name, user, action.ts("action_ts")),
            conversation=ids.conversation(self.me.account, channel, thread),
            principal=ids.principal(team, user),
            handle=Handle(action.word("value", most=HANDLE_AT_MOST)),
        )
        if verb_of(name) is Verb.DENY_REASON:
            trigger = payload.word("trigger_id", most=200)
            return Asking(press=press, user=user, channel=channel, trigger=trigger)
        return SlackPress(press=press, user=user, channel=channel)

    def _form(self, payload: SlackFields) -> SlackPress:
        view = payload.object("view")
        if view.text("callback_id", most=255) != DENY_WITH_REASON:
            raise _Unusable(RefusedReason.UNKNOWN, "view_submission of no form of ours")
        who = payload.object("user")
        user, team = who.id("id", "UW"), self._pressing_team(payload, who)
        try:
            place = FormPlace.parse(view.word("private_metadata", most=3000))
        except ValueError:
            raise Malformed("view.private_metadata: it is not as we wrote it") from None
        values = view.object("state").object("values").object(REASON)
        reason = values.object(REASON).text("value")
        press = Press(
            event_key=ids.view_key(self.me.team, view.word("id", most=64)),
            conversation=ids.conversation(self.me.account, place.channel, place.thread),
            principal=ids.principal(team, user),
            handle=Handle(place.handle),
            reason=reason.strip()[:REASON_AT_MOST],
        )
        return SlackPress(press=press, user=user, channel=place.channel)

    def _pressing_team(self, payload: SlackFields, who: SlackFields) -> str:
        """Return the workspace of the person who pressed; the workspace of the press must be ours."""
        given = payload.maybe("team")
        place = "" if given is None else given.text("id", most=64)
        team = who.maybe_id("team_id", "TE") or place
        if not team or self.me.team not in (place, team):
            raise _Unusable(RefusedReason.UNKNOWN, "of another workspace")
        return team

    def _stop(self, payload: SlackFields, event: SlackFields) -> Stopping:
        """Parse a press of the stop button. The thread identifies the session."""
        if "user" not in event or "channel" not in event:
            raise _Unusable(RefusedReason.UNKNOWN, f"{_STOPPED} without a user and a channel")
        user, channel, ts = event.id("user", "UW"), event.id("channel", "CDG"), event.ts("event_ts")
        direct, team = channel.startswith("D"), _team(payload, event, event)
        stop = Inbound(
            event_key=ids.stop_key(self.me.team, channel, ts),
            conversation=ids.conversation(self.me.account, channel, event.maybe_ts("thread_ts")),
            principal=ids.principal(team, user),
            name=self._name(None, user),
            direct=direct,
            addressed=True,
            text=STOP,
            sent_at=self._when(ts),
            also_called=() if direct else ids.also_called(self.me.team, channel),
            outsider=not self.known.member or team != self.me.team,
            unsure=not self.known.certain and team == self.me.team,
        )
        return Stopping(message=stop)

    @staticmethod
    def _home(event: SlackFields) -> Opened | Looked:
        tab = event.text("tab", most=100)
        return Opened(channel=event.id("channel", "D")) if tab == "messages" else Looked(at="app_home_opened")

    @staticmethod
    def _panel(event: SlackFields, kind: str) -> Opened | Looked:
        thread = event.object("assistant_thread")
        channel, ts = thread.id("channel_id", "D"), thread.ts("thread_ts")
        return Opened(channel=channel, thread=ts) if kind == "assistant_thread_started" else Looked(at=kind)


# --- single fields ------------------------------------------------------------------------------


def _team(payload: SlackFields, event: SlackFields, said: SlackFields) -> str:
    """Return the author's workspace. `user_team` is present for an account of another workspace."""
    for place in (said, event):
        found = place.maybe_id("user_team", "TE") or place.maybe_id("team", "TE") or place.maybe_id("source_team", "TE")
        if found:
            return found
    return payload.id("team_id", "TE")


def _pressed_at(payload: SlackFields) -> tuple[str, str, str]:
    """Return the channel, the message and its thread; empty for the first message of a thread."""
    container, message = payload.object("container"), payload.maybe("message")
    channel, at = container.id("channel_id", "CDG"), container.ts("message_ts")
    thread = container.maybe_ts("thread_ts") or ("" if message is None else message.maybe_ts("thread_ts"))
    return channel, at, "" if thread == at else thread


def _quoted(said: SlackFields) -> str:
    """Return the text of a message that was shared with this one."""
    for one in said.objects("attachments", most=100):
        if one.flag("is_share") or one.flag("is_msg_unfurl"):
            return inbound_text.plain(one.text("text") or one.text("fallback"))[:QUOTED_AT_MOST]
    return ""


def _safe(key: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "?" for c in key[:40])
