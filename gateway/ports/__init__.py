"""Protocols between the rooms, at most ten methods each, each written for its caller. Import from here; the files only
group them.
"""

from __future__ import annotations

from gateway.ports.channels import (
    COOKIE,
    ArtifactKind,
    Auth,
    Channel,
    ChannelContext,
    ChannelHost,
    ChannelKeyValue,
    CommandInfo,
    Credential,
    Endpoint,
    HttpChannel,
    Progress,
    SignIns,
    Sink,
    WebApi,
    Welcome,
    WithAccounts,
)
from gateway.ports.clock import Clock
from gateway.ports.intake import Control, ControlEffect, Intake, Waiting
from gateway.ports.models import Model, Models
from gateway.ports.store import Accounts, Audit, EventBus, KeyValue, Node, Outbox, Queries, Store, Sweeps
from gateway.ports.tools import (
    EgressProxy,
    Output,
    ProcessEnd,
    SandboxSession,
    StatefulTool,
    Subsessions,
    Task,
    ToolContext,
    ToolHost,
    TurnedAway,
)
from gateway.ports.turns import Children, TurnJournal, TurnQueue, UsageStore

__all__ = [
    "COOKIE",
    "Accounts",
    "ArtifactKind",
    "Audit",
    "Auth",
    "Channel",
    "ChannelContext",
    "ChannelHost",
    "ChannelKeyValue",
    "Children",
    "Clock",
    "CommandInfo",
    "Control",
    "ControlEffect",
    "Credential",
    "EgressProxy",
    "Endpoint",
    "EventBus",
    "HttpChannel",
    "Intake",
    "KeyValue",
    "Model",
    "Models",
    "Node",
    "Outbox",
    "Output",
    "ProcessEnd",
    "Progress",
    "Queries",
    "SandboxSession",
    "SignIns",
    "Sink",
    "StatefulTool",
    "Store",
    "Subsessions",
    "Sweeps",
    "Task",
    "ToolContext",
    "ToolHost",
    "TurnJournal",
    "TurnQueue",
    "TurnedAway",
    "UsageStore",
    "Waiting",
    "WebApi",
    "Welcome",
    "WithAccounts",
]
