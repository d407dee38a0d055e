"""The seams: Protocols of at most ten methods, each written for its caller. Import from here; the files group them."""

from __future__ import annotations

from gateway.ports.channels import (
    Auth,
    Channel,
    ChannelContext,
    CommandInfo,
    Desk,
    Desks,
    Endpoint,
    Helm,
    HttpChannel,
    Memory,
    Progress,
    Sink,
    Welcome,
)
from gateway.ports.clock import Clock
from gateway.ports.ingress import Control, ControlEffect, Waiting
from gateway.ports.models import Model, Models
from gateway.ports.store import (
    Accounts,
    Books,
    Children,
    Intake,
    Lanes,
    Live,
    Node,
    Notes,
    Outbox,
    Steps,
    Store,
    Sweeps,
    Views,
)
from gateway.ports.tools import Ended, Family, Output, Task, ToolContext

__all__ = [
    "Accounts",
    "Auth",
    "Books",
    "Channel",
    "ChannelContext",
    "Children",
    "Clock",
    "CommandInfo",
    "Control",
    "ControlEffect",
    "Desk",
    "Desks",
    "Ended",
    "Endpoint",
    "Family",
    "Helm",
    "HttpChannel",
    "Intake",
    "Lanes",
    "Live",
    "Memory",
    "Model",
    "Models",
    "Node",
    "Notes",
    "Outbox",
    "Output",
    "Progress",
    "Sink",
    "Steps",
    "Store",
    "Sweeps",
    "Task",
    "ToolContext",
    "Views",
    "Waiting",
    "Welcome",
]
