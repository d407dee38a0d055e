"""Rows of the bench, by the names that `--only` takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from tests.bench.figures import Figure
from tests.bench.rows import (
    agent,
    browser,
    crash,
    crowd,
    files,
    growth,
    idle,
    install,
    policy,
    questions,
    reading,
    redis,
    sandbox,
    slack,
    store,
    telegram,
    telegram_rates,
    turns,
    waits,
    workflow,
)
from tests.bench.world import Bench

Row: TypeAlias = Callable[[Bench], Awaitable[list[Figure]]]

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "operator": turns.operator,
        "model": turns.model,
        "shell": turns.shell,
        "long-chat": turns.long_chat,
        "chats": crowd.chats,
        "loop": crowd.loop,
        "ready": idle.ready,
        "kill": crash.kill,
        "waits": waits.waits,
        "workflow": workflow.workflow,
        "question": questions.question,
        "commits": store.commits,
        "redis": redis.transitions,
        "redis-workers": redis.workers,
        "redis-growth": redis.growth,
        "decisions": policy.decisions,
        "spawns": sandbox.spawns,
        "searches": files.searches,
        "edits": files.edits,
        "pages": files.pages,
        "reading": reading.reading,
        "finder": files.finder,
        "growth-sessions": growth.sessions,
        "growth-history": growth.history,
        "growth-children": growth.children,
        "growth-queue": growth.queue,
        "telegram-operator": telegram.operator,
        "telegram-model": telegram.model,
        "telegram-shell": telegram.shell,
        "telegram-typed": agent.typed,
        "telegram-calls": agent.calls,
        "telegram-children": agent.children,
        "telegram-fallbacks": agent.fallbacks,
        "telegram-long-chat": telegram.long_chat,
        "telegram-chats": telegram.chats,
        "telegram-ready": telegram.ready,
        "telegram-kill": telegram.kill,
        "telegram-updates": telegram_rates.updates,
        "telegram-sends": telegram_rates.sends,
        "telegram-stream": telegram_rates.stream,
        "telegram-loop": telegram_rates.loop,
        "slack-events": slack.events,
        "slack-sends": slack.sends,
        "slack-stream": slack.stream,
        "browser": browser.times,
        "browser-memory": browser.memory,
        "against": agent.against,
        "install": install.install,
    }
)
"""All but the last two are measured when nothing is named: those need `--against FOLDER` and `--install`."""
