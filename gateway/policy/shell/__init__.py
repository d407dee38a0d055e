"""Shell scripts as rules see them: parsed into parts, each unwrapped, and judged. Used by `gateway.policy`.

The judgement is a convenience for people; the sandbox is the boundary (decision 49).

- Text to parts: `parsing` makes a `script`; `lexing` reads it a second time; `characters` finds look-alike ones.
- Behind a wrapper: `unwrapping`, with the `programs` that run others.
- Unasked in main: `reading`, with its `reading_table` of commands; `places` says what is outside or secret.
- Files without a name in the text: `walking` (the folder itself), `gathering` (whole folders), `taking` (by git, which
  `committed` and `git_options` know); `folders` compares them with rules.
- For people: `verdicts` on the card, `always` for what a grant may remember.
"""

from __future__ import annotations

from gateway.policy.shell.always import rule_for_always
from gateway.policy.shell.parsing import parse
from gateway.policy.shell.places import is_secret
from gateway.policy.shell.reading import changes_nothing, harmless, read_only, readers
from gateway.policy.shell.script import PartKind, Script, ScriptPart, WorkingFolder
from gateway.policy.shell.verdicts import LINES_AT_MOST, part_verdicts

__all__ = [
    "LINES_AT_MOST",
    "PartKind",
    "Script",
    "ScriptPart",
    "WorkingFolder",
    "changes_nothing",
    "harmless",
    "is_secret",
    "parse",
    "part_verdicts",
    "read_only",
    "readers",
    "rule_for_always",
]
