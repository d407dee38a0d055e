"""Spec of the tool `browser`: risk, availability, and the timeout of each action."""

from __future__ import annotations

from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import (
    ApprovalMode,
    Availability,
    Effect,
    Risk,
    SandboxPolicy,
    SubjectKind,
    ToolSpec,
)

SPEC = ToolSpec(
    name="browser",
    description=(
        "Use web pages. `open` first; `snapshot` gives each element a ref ([ref=e12]) for the other actions. "
        "Where no ref fits, a place of a `screenshot` does. Another host is stopped: `open` it, a person is asked."
    ),
    risk=Risk.NETWORK,
    effect=Effect.UNSAFE,
    availability=Availability.MAIN,
    timeout_s=60.0,
    max_timeout_s=300.0,
    actions={
        "open": 60.0,
        "snapshot": 30.0,
        "click": 60.0,
        "hover": 30.0,
        "drag": 60.0,
        "type": 60.0,
        "select": 30.0,
        "press": 30.0,
        "scroll": 30.0,
        "wait": 60.0,
        "back": 60.0,
        "tabs": 30.0,
        "screenshot": 30.0,
        "pdf": 60.0,
        "text": 30.0,
        "download": 300.0,
        "upload": 60.0,
        "evaluate": 30.0,
        "resize": 30.0,
        "dialog": 60.0,
        "close": 30.0,
    },
    sandbox=SandboxPolicy.AUTO,
    network=None,
    positional="action",
    shows="url",
    approval={"dm": ApprovalMode.DENY, "non-main": ApprovalMode.DENY},
    settings=BrowserSettings,
    needs="playwright",
    extra="browser",
    subjects=frozenset({SubjectKind.HOST, SubjectKind.PATH}),
    indexed=True,
)
