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
from gateway.ports.models import Model
from gateway.ports.store import (
    Accounts,
    Control,
    ControlEffect,
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
from gateway.ports.tools import Ended, Output, ToolContext

__all__ = [
    "Accounts",
    "Auth",
    "Channel",
    "ChannelContext",
    "Clock",
    "CommandInfo",
    "Control",
    "ControlEffect",
    "Desk",
    "Desks",
    "Ended",
    "Endpoint",
    "Helm",
    "HttpChannel",
    "Intake",
    "Lanes",
    "Live",
    "Memory",
    "Model",
    "Node",
    "Notes",
    "Outbox",
    "Output",
    "Progress",
    "Sink",
    "Steps",
    "Store",
    "Sweeps",
    "ToolContext",
    "Views",
    "Welcome",
]
