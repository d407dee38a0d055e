"""A small Slack on loopback for tests: Web API, Socket Mode, Events API, strict as the real one, and people's side."""

from __future__ import annotations

from tests.support.slack import faults
from tests.support.slack.faults import Call, Fault
from tests.support.slack.pressing import Pressed
from tests.support.slack.server import FakeSlack
from tests.support.slack.sockets import Socket
from tests.support.slack.world import File, Shown, View

__all__ = ["Call", "FakeSlack", "Fault", "File", "Pressed", "Shown", "Socket", "View", "faults"]
