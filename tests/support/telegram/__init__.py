"""A small Telegram on loopback for tests: its Bot API, strict about what the real one refuses, and people's side."""

from __future__ import annotations

from tests.support.telegram import faults
from tests.support.telegram.faults import Call, Fault
from tests.support.telegram.server import TOKEN, FakeTelegram
from tests.support.telegram.world import Shown, Toast

__all__ = ["TOKEN", "Call", "FakeTelegram", "Fault", "Shown", "Toast", "faults"]
