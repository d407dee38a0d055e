"""From a payload of Slack to its meaning: a message, a press, an opened view, or a refusal. Pure; never raises.

Events, presses, forms and slash commands come in one shape each, over a socket or by HTTP; `read` tells them apart.
What a payload cannot say by itself, the account finds out first: `about` names whom and what to ask after.
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
QUOTED_AT_MOST = 1000
NAME_AT_MOST = 64
HANDLE_AT_MOST = 2000
DELETED = "(this message was deleted)"
"""What a message says that was taken away before anybody read it."""
SLACKBOT = "USLACKBOT"
STOP = "/stop"

_SAID = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes of a message in which a person says something."""
_ENDS = frozenset({"app_uninstalled", "tokens_revoked"})
_PANEL = frozenset({"assistant_thread_started", "assistant_thread_context_changed"})
"""Events of the assistant view, which apps from before the agent view still have."""
_STOPPED = "agent_session_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the bot is, as `auth.test` says, and the account that it is in the configuration."""

    account: str
    team: str
    user: str
    """The bot's own user id, by which it is mentioned."""
    name: str = "dragoman"
    app: str = ""
    """The app's id; empty while it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known besides a payload. What is not known is as if it were not so."""

    member: bool = False
    """Whoever speaks is a full member of this workspace: no guest, nobody of another organisation."""
    certain: bool = True
    """False: Slack does not say now whether they are one."""
    name: str = ""
    """How the person is called in the workspace."""
    takes_part: bool = False
    """The bot takes part in the thread: it was mentioned there, or has answered."""
    direct: str = ""
    """The bot's own direct conversation with the person; for a command, which may come from any place."""
    commands: Collection[str] = field(default_factory=frozenset[str])
    """The gateway's commands, without `/`: `/dragoman status` is `/status`, `/dragoman what is new?` a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whom and what a payload is about, as far as it can be told without reading it."""

    user: str
    channel: str = ""
    thread: str = ""
    at: float = math.inf
    """When the message was written, in seconds, by Slack's clock; a command bears no time."""
    command: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackPress:
    """A button press, or a form with a reason, and where whoever pressed can be told what came of it."""

    press: Press
    user: str
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A press that wants a reason: open the form (`blocks.reason_form`) with `trigger`, within 3 s."""

    press: Press
    user: str
    channel: str
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A press of Slack's own stop button: `/stop`, given in the thread that has the button."""

    message: Inbound


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Somebody opened the direct conversation; `thread` is new in the assistant view, and empty in the agent view."""

    channel: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Somebody looks at something else in Slack. Nothing is done or stored: it comes at each step of a person."""

    at: str
    """The kind of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEnded:
    """The app was removed from the workspace, or its token was revoked."""

    why: str


Meaning: TypeAlias = Inbound | SlackPress | Asking | Stopping | Opened | Looked | AccessEnded | Refused


class _Unusable(Exception):
    """Well formed, and not a person's message or press."""

    def __init__(self, reason: RefusedReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def about(payload: object) -> About | None:
    """Say whom to ask Slack about before `read`; None when nobody speaks whom it would know. Never raises."""
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


def read(payload: object, me: Identity, now: datetime, known: Known = Known()) -> Meaning:
    """Say what a payload means to `me`: any JSON value is taken. `now`: nothing was sent later than that."""
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
    """Write it as ASCII, so that whatever stands in it can be stored. The old verification token is left out."""
    told = {**cast("dict[str, object]", payload), "token": ""} if isinstance(payload, dict) else payload
    return as_ascii(told, most)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reading of one payload. Every method raises `Malformed` and `_Unusable`."""

    me: Identity
    now: datetime
    known: Known

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
        """Refuse what another workspace or another app is told. In a shared channel `team_id` may be either side's."""
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
        """Read a message. `said` is the message itself: the event, or what an edit tells of."""
        user = self._person(said)
        channel, ts = event.id("channel", "CDG"), said.ts("ts")
        direct = channel.startswith("D") and event.text("channel_type", most=20) in ("", "im")
        named = mentioned or inbound_text.names(said.text("text"), self.me.user)
        thread = said.maybe_ts("thread_ts").removeprefix(ts)  # what began a thread was not said in it
        addressed = direct or named or (bool(thread) and self._takes_part(said))
        if addressed and not direct:
            thread = thread or ts  # what is begun in a channel goes on in a thread of its own
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
        """Return who wrote a message, who must be a person, writing without the help of an app."""
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
        # It may be given between two people, where the bot is not: the answer goes to the bot's own conversation.
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
        """Return the workspace of whoever pressed; the one that it happened in must be ours."""
        told = payload.maybe("team")
        place = "" if told is None else told.text("id", most=64)
        team = who.maybe_id("team_id", "TE") or place
        if not team or self.me.team not in (place, team):
            raise _Unusable(RefusedReason.UNKNOWN, "of another workspace")
        return team

    def _stop(self, payload: SlackFields, event: SlackFields) -> Stopping:
        """Read a press of the stop button. Slack says in it whose session it is by the thread."""
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
    """Return the workspace of whoever wrote. `user_team` stands there when it is another one's account."""
    for place in (said, event):
        found = place.maybe_id("user_team", "TE") or place.maybe_id("team", "TE") or place.maybe_id("source_team", "TE")
        if found:
            return found
    return payload.id("team_id", "TE")


def _pressed_at(payload: SlackFields) -> tuple[str, str, str]:
    """Return the channel, the message and its thread: none for a message that others answered in one."""
    container, message = payload.object("container"), payload.maybe("message")
    channel, at = container.id("channel_id", "CDG"), container.ts("message_ts")
    thread = container.maybe_ts("thread_ts") or ("" if message is None else message.maybe_ts("thread_ts"))
    return channel, at, "" if thread == at else thread


def _quoted(said: SlackFields) -> str:
    """Return what of somebody else's was passed on with a message."""
    for one in said.objects("attachments", most=100):
        if one.flag("is_share") or one.flag("is_msg_unfurl"):
            return inbound_text.plain(one.text("text") or one.text("fallback"))[:QUOTED_AT_MOST]
    return ""


def _safe(key: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "?" for c in key[:40])
