"""Entry point of `python -m gateway`, equal to the command `dragoman`."""

from __future__ import annotations

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
