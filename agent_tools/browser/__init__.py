"""The tool `browser`: pages of the web, for a session at a time, in a Chromium that is shared and enclosed.

`arguments` says what a call may be and what it reaches, `tool` runs it. Nothing here imports playwright before a call
runs.
"""

from __future__ import annotations

import os

from agent_tools.browser.arguments import SPEC, Args, reach, schema
from agent_tools.browser.finding import find_chromium
from agent_tools.browser.settings import BrowserSettings
from agent_tools.browser.tool import BrowserTool
from gateway.ports import StatefulTool, ToolHost

__all__ = ["SPEC", "Args", "keep", "look", "reach", "schema"]


def keep(place: ToolHost) -> StatefulTool:
    """Make the tool. Nothing is started before its first call."""
    return BrowserTool(place)


def look(settings: BrowserSettings) -> str:
    """Say what it will run. Raises `NotFound` with the cure when that is not there."""
    return f"Chromium is {find_chromium(settings.executable, os.environ)}"
