"""Loader of hooks: gives each configured program or function the form that `toolcalls` runs. Used by `app.wiring`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from config.plugins import package_hook
from gateway.domain.hooks import HookConfig
from gateway.sandbox import Containment, ProcessLimits
from gateway.system.redaction import Redactor
from gateway.toolcalls.hook_programs import ask_program
from gateway.toolcalls.hooks import Hook, Hooks


def load_hooks(
    configured: Sequence[HookConfig], containment: Containment, limits: ProcessLimits, redactor: Redactor
) -> Hooks:
    """Return the configured hooks. `limits`: those of a program. Raises `ConfigError` when a package is gone."""
    return Hooks(hooks=[_hook(one, containment, limits) for one in configured], redactor=redactor)


def _hook(one: HookConfig, containment: Containment, limits: ProcessLimits) -> Hook:
    ask: Callable[[Mapping[str, Any]], Awaitable[object]]
    if one.command:
        ask = partial(ask_program, one.command, containment=containment, limits=limits)
    else:
        ask = package_hook(one.package)
    return Hook(name=one.name, event=one.event, tools=one.tools, ask=ask)
