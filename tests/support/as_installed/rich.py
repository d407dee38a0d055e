"""In the place of `rich`, which is not installed with the daemon but comes with developers' tools."""

from __future__ import annotations

raise ImportError("not a part of an installed daemon")
