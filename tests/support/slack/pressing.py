"""Presses, submissions and commands of people (interactivity), and their effect on the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.slack.app import App, Delivery
from tests.support.slack.blocks import check_view
from tests.support.slack.checks import Json, Refusal, as_object
from tests.support.slack.messages import ResponseUrl, respond
from tests.support.slack.places import view_payload
from tests.support.slack.telling import Teller
from tests.support.slack.world import Shown, View, Workspace


@dataclass(slots=True, eq=False)
class Pressed:
    """One press, submission or command."""

    user: str
    trigger: str
    delivery: Delivery

    @property
    def done(self) -> bool:
        """Return True once the app acknowledged it, or its time is up."""
        return self.delivery.done

    @property
    def acknowledged(self) -> bool:
        """Return True if the app took it in time."""
        return self.delivery.acknowledged


@dataclass(slots=True)
class Hooks:
    """The response URLs of one workspace."""

    given: dict[str, ResponseUrl] = field(default_factory=dict[str, ResponseUrl])


class Pressing:
    """The pressing side of the people; `FakeSlack` has it."""

    world: Workspace
    app: App
    teller: Teller
    hooks: Hooks
    troubles: list[str]

    def press(self, user: str, message: Shown, label_or_value: str, *, forged: str | None = None) -> Pressed:
        """Press a button by its label, value or action id. `forged`: send this value, which no button has."""
        if message.only_for not in ("", user):
            raise LookupError(f"{user} does not see this: it is for {message.only_for} only")
        channel = self.world.channels[message.channel]
        if user not in channel.members:
            raise LookupError(f"{user} is not in {channel.id}")
        button = dict(message.button(label_or_value))
        if forged is not None:
            button["value"] = forged
        about = self.teller.about_user(user, "block_actions")
        container = {"type": "message", "message_ts": message.ts, "channel_id": channel.id}
        about |= {
            "container": {**container, "is_ephemeral": bool(message.only_for)},
            "channel": {"id": channel.id, "name": channel.name or "directmessage"},
            "state": {"values": {}},
            "response_url": self._hook(channel.id, user, message),
            "actions": [{**button, "action_ts": self.world.ts()}],
        }
        if not message.only_for:
            about["message"] = self.world.payload(message)
        return self._tell(user, "interactive", about, self._trouble(user, "a triangle beside the button"))

    def press_raw(self, user: str, payload: Json) -> Pressed:
        """Any interactive payload at all, laid over the usual one."""
        about = {**self.teller.about_user(user, "block_actions"), **payload}
        return self._tell(user, "interactive", about, self._trouble(user, "a triangle beside the button"))

    def _tell(self, user: str, kind: str, about: Json, on_done: Callable[[Delivery], None]) -> Pressed:
        if not self.app.interactive and kind == "interactive":
            raise AssertionError("the app's interactivity is off: nobody can press anything")
        return Pressed(user, about["trigger_id"], self.teller.interaction(kind, about, on_done))

    def _trouble(self, user: str, what: str) -> Callable[[Delivery], None]:
        def done(delivery: Delivery) -> None:
            if not delivery.acknowledged:
                self.troubles.append(f"{user} sees {what}: {delivery.tries[-1].reason}")

        return done

    def _hook(self, channel: str, user: str, message: Shown | None) -> str:
        id = self.world.new_id("R")
        self.hooks.given[id] = ResponseUrl(channel, user, message, time.monotonic())
        return f"{self.world.root}/response/{self.world.team}/{id}"

    # --- commands ---

    def slash(self, user: str, text: str = "", *, channel: str = "", command: str = "/dragoman") -> Pressed:
        """Type a command; in a thread people cannot (https://docs.slack.dev/interactivity/implementing-slash-commands)."""
        if command not in self.app.commands:
            raise AssertionError(f"{command} is not a command of the app; it has {sorted(self.app.commands)}")
        place = self.world.channels[channel] if channel else self.world.direct(user)
        person = self.world.people.get(user, {})
        form: Json = {
            "token": "verification-token",
            "team_id": self.world.team,
            "team_domain": self.world.domain,
            "channel_id": place.id,
            "channel_name": place.name or "directmessage",
            "user_id": user,
            "user_name": person.get("name", user.lower()),
            "command": command,
            "text": text,
            "api_app_id": self.app.id,
            "is_enterprise_install": "false",
            "response_url": self._hook(place.id, user, None),
            "trigger_id": self.world.trigger(user),
        }

        def done(delivery: Delivery) -> None:
            if not delivery.acknowledged:
                self.troubles.append(f"{user} sees {command} failed with the error “operation_timeout”")
            elif delivery.answer:
                self._answered(place.id, user, delivery.answer)

        return self._tell(user, "slash_commands", form, done)

    def _answered(self, channel: str, user: str, answer: Any) -> None:
        content = as_object(answer) or {"text": str(answer)}
        try:
            respond(self.teller, ResponseUrl(channel, user, None, time.monotonic()), content)
        except Refusal as why:
            self.troubles.append(f"{user} sees that the app answered nonsense: {why.error} {why.messages}")

    # --- modals ---

    def modal(self, user: str) -> View | None:
        """The modal before a person, the youngest if there are several."""
        every = [view for view in self.world.views.values() if view.user == user and view.open]
        return every[-1] if every else None

    def submit(self, view: View, values: dict[str, str | None] | None = None) -> Pressed:
        """Fill in a modal by action or block id, and send it off. What is not given stays as it is."""
        assert view.open, "the modal is closed"
        about = self.teller.about_user(view.user, "view_submission")
        about |= {"view": view_payload(self.teller, view, _filled(view, values or {})), "response_urls": []}

        def done(delivery: Delivery) -> None:
            if not delivery.acknowledged:
                self.troubles.append(f"{view.user} sees “We had some trouble connecting. Try again?” in the modal")
            else:
                self._submitted(view, delivery.answer)

        return self._tell(view.user, "interactive", about, done)

    def close_modal(self, view: View) -> Pressed | None:
        """Close a modal; the app hears of it if it asked to."""
        view.open = False
        if not view.view.get("notify_on_close"):
            return None
        about = self.teller.about_user(view.user, "view_closed")
        del about["trigger_id"]
        about |= {"view": view_payload(self.teller, view), "is_cleared": False}
        return Pressed(view.user, "", self.teller.interaction("interactive", about, lambda delivery: None))

    def _submitted(self, view: View, answer: Any) -> None:
        """https://docs.slack.dev/surfaces/modals#updating_response."""
        said = as_object(answer) or {}
        action = said.get("response_action")
        view.errors = {}
        if action == "errors":
            blocks = {block.get("block_id") for block in view.inputs}
            errors: dict[str, str] = said.get("errors") or {}
            if not errors or not errors.keys() <= blocks:
                self.troubles.append(f"{view.user} sees that the app's answer fits no input: {sorted(errors)}")
            view.errors = errors
        elif action == "update":
            check_view(said["view"])
            view.view = said["view"]
        else:
            if action not in (None, "clear") or (answer and not said):
                self.troubles.append(f"{view.user} sees that the app answered nonsense: {answer!r}")
            view.open = False


def _filled(view: View, values: dict[str, str | None]) -> Json:
    state: Json = {}
    left = dict(values)
    for block in view.inputs:
        element = block["element"]
        names = [name for name in (element.get("action_id"), block.get("block_id")) if name in left]
        given = left.pop(names[0]) if names else element.get("initial_value")
        if not given and not block.get("optional"):
            raise LookupError(f"Slack would not send it: {block['label']['text']!r} is empty")
        if given and not element.get("min_length", 0) <= len(given) <= element.get("max_length", 3_000):
            raise LookupError(f"Slack would not send it: {block['label']['text']!r} is too short or too long")
        cell = {element.get("action_id", "?"): {"type": element["type"], "value": given}}
        state[block.get("block_id", "?")] = cell
    if left:
        raise LookupError(f"the modal has no inputs {sorted(left)}")
    return state
