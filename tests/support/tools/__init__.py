"""Small tools that a daemon under test loads by `[tools.<name>] module`."""
