"""Tells an app what happens in one of its workspaces: the payloads of events and of interactivity."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from tests.support.slack.app import EVENT_SCOPES, App, Delivery
from tests.support.slack.checks import Json
from tests.support.slack.world import Channel, Shown, Workspace

_CHANNEL_EVENT = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}


class Teller:
    """The workspace's line to the app."""

    def __init__(self, world: Workspace, app: App) -> None:
        self.world = world
        self.app = app
        self.echo = True
        """True if the app gets its own messages back, as from the real Slack; benchmarks may do without."""
        self._events = itertools.count(1)

    # --- events ---

    def event(self, event: Json, name: str = "", *, shared: bool = False) -> str:
        """Tell of an event, if the app asked for its kind and may hear of it; return its id, empty if not told."""
        name = name or event["type"]
        scope = EVENT_SCOPES.get(name, "")
        if name not in self.app.subscribed or (scope and scope not in self.world.scopes):
            self.app.not_told.append(
                f"{name}: {'no scope ' + scope if name in self.app.subscribed else 'not asked for'}"
            )
            return ""
        return self.raw(event, shared=shared)

    def raw(self, event: Any, *, shared: bool = False, **fields: Any) -> str:
        """Tell of any event at all; `fields` replace those around it. Returns the event id."""
        event_id: str = fields.get("event_id") or f"Ev{next(self._events):08}{self.world.team[1:]}"
        payload: Json = {
            "token": "verification-token",
            "team_id": self.world.team,
            "context_team_id": self.world.team,
            "context_enterprise_id": None,
            "api_app_id": self.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(time.time()),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": self.world.team,
                    "user_id": self.world.bot,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": shared,
            "event_context": f"4-{event_id}",
            **fields,
        }
        self.app.tell(Delivery("events_api", payload))
        return event_id

    def message(self, shown: Shown) -> str:
        """Tell of a new message; a mention is told twice, as a message and as a mention. Returns the event id."""
        if shown.by == self.world.bot and not self.echo:
            return ""
        channel = self.world.channels[shown.channel]
        body = {**self.world.payload(shown), **self._where(channel, shown.ts)}
        event_id = self._told(channel, body)
        if f"<@{self.world.bot}>" in shown.wire and channel.kind != "im" and shown.by != self.world.bot:
            mention = {key: value for key, value in body.items() if key not in ("subtype", "channel_type")}
            event_id = self.event({**mention, "type": "app_mention"}, shared=channel.shared) or event_id
        return event_id

    def changed(self, shown: Shown, before: Json) -> str:
        """Tell of an edit."""
        return self._about(shown, "message_changed", {"message": self.world.payload(shown), "previous_message": before})

    def deleted(self, shown: Shown, before: Json) -> str:
        """Tell that a message is gone."""
        return self._about(shown, "message_deleted", {"deleted_ts": shown.ts, "previous_message": before})

    def _about(self, shown: Shown, subtype: str, more: Json) -> str:
        if shown.by == self.world.bot and not self.echo:
            return ""
        channel, ts = self.world.channels[shown.channel], self.world.ts()
        body: Json = {"type": "message", "subtype": subtype, "hidden": True, "ts": ts, **more}
        return self._told(channel, {**body, **self._where(channel, ts)})

    def _told(self, channel: Channel, body: Json) -> str:
        if self.world.bot not in channel.members:
            return ""
        return self.event(body, f"message.{_CHANNEL_EVENT[channel.kind]}", shared=channel.shared)

    def _where(self, channel: Channel, ts: str) -> Json:
        return {"channel": channel.id, "event_ts": ts, "channel_type": channel.kind}

    # --- interactivity ---

    def interaction(self, kind: str, payload: Json, on_done: Callable[[Delivery], None]) -> Delivery:
        """Tell of a press, a submitted modal or a command; `kind` as in an envelope."""
        delivery = Delivery(kind, payload, on_done)
        self.app.tell(delivery)
        return delivery

    def about_user(self, user: str, kind: str) -> Json:
        """Return the common part of every interactive payload."""
        person = self.world.people.get(user, {})
        return {
            "type": kind,
            "user": {
                "id": user,
                "username": person.get("name", ""),
                "name": person.get("name", ""),
                "team_id": person.get("team_id", self.world.team),
            },
            "api_app_id": self.app.id,
            "token": "verification-token",
            "trigger_id": self.world.trigger(user),
            "team": {"id": self.world.team, "domain": self.world.domain},
            "enterprise": None,
            "is_enterprise_install": False,
        }
