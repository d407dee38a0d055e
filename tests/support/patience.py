"""Patience of tests with what comes in the end. No part of the path of a message."""

from __future__ import annotations

PATIENCE_S = 60.0
"""Seconds that tests wait for what takes a moment on a quiet machine: beside other load it takes many times as long.

No bound of behaviour: a test that judges seconds names its own.
"""
