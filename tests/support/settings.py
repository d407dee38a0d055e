"""Settings of one channel in a loaded configuration."""

from __future__ import annotations

from typing import Any

from config.load import Loaded


def settings_of(loaded: Loaded, channel: str) -> Any:
    """Return the settings of a configured channel, or None."""
    found = loaded.channels.get(channel)
    return None if found is None else found.settings
