"""Preflight of `dragoman check`: tries the start-up steps that leave no trace. `machine_checks` has the rest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

from config.load import Loaded
from gateway.app.channel_loader import import_channels, redactor_of
from gateway.app.core import models_of
from gateway.app.run import outbound_client
from gateway.app.state import KEY, read_key
from gateway.errors import DragomanError
from gateway.llm.operator import Operator
from gateway.server.control_server import check_place
from gateway.server.control_wire import socket_path
from gateway.store import check_store
from gateway.system.clock import SystemClock
from gateway.toolcalls.workspaces import Workspaces


def refusals(loaded: Loaded) -> Iterator[DragomanError]:
    """Yield the errors of a start: of the state folder, the store, the owner's channels and the models."""
    yield from _tried(lambda: _state_key(loaded))
    yield from _tried(lambda: check_place(socket_path(loaded.state)))
    yield from _tried(Workspaces(loaded.state, loaded.shared).look)
    yield from _tried(lambda: _store(loaded))
    yield from _tried(lambda: import_channels(loaded.channels))
    yield from _tried(lambda: asyncio.run(_models(loaded)))


def _tried(look: Callable[[], None]) -> Iterator[DragomanError]:
    try:
        look()
    except DragomanError as error:
        yield error


def _store(loaded: Loaded) -> None:
    check_store(loaded.settings.store.url, loaded.settings.store.terms)


def _state_key(loaded: Loaded) -> None:
    if os.path.lexists(loaded.state / KEY):
        read_key(loaded.state)


async def _models(loaded: Loaded) -> None:
    async with outbound_client() as client:
        models = models_of(loaded, Operator(dict), redactor_of(loaded), client, SystemClock())
        await models.close()
