"""Options of `git`: those in front of its subcommand, and those with a command that it runs. Pure.

Used by `walking`, `taking`, `unwrapping` and `gateway.policy.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

_VALUED = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_SETTINGS = ("--config-env", "--exec-path")
_COMMANDS = ("--exec", "--extcmd", "--upload-pack", "--receive-pack", "--open-files-in-pager")
"""Long options with a command. Any beginning of them counts."""
_COMMAND_LETTERS: Mapping[str, str] = MappingProxyType({"rebase": "x", "difftool": "x", "clone": "u", "grep": "O"})
"""Short options of that kind, by subcommand."""
_RUNNERS = frozenset({("bisect", "run"), ("submodule", "foreach")})


def configures_git(words: Sequence[str]) -> bool:
    """Return whether a command gives `git` settings or programs of its own, with which any subcommand may do more."""
    if words[0] != "git":
        return False
    args = iter(words[1:])
    for word in args:
        if not word.startswith("-"):
            return False
        if word == "-c" or word.startswith(_SETTINGS):
            return True
        if word in _VALUED:
            next(args, None)
    return False


def subcommand_of(args: Sequence[str]) -> Sequence[str]:
    """Return the words of `git` from its subcommand on."""
    while args and args[0].startswith("-"):
        args = args[2 if args[0] in _VALUED or args[0] in ("-c", *_SETTINGS) else 1 :]
    return args


def goes_elsewhere(args: Sequence[str]) -> bool:
    """Return whether options in front of the subcommand name another folder, so that paths stand in that one."""
    own = args[: len(args) - len(subcommand_of(args))]
    return any(word == "-C" or word.startswith(("--git-dir", "--work-tree")) for word in own)


def commands_given(args: Sequence[str]) -> Sequence[str] | None:
    """Return the commands that options of `git` hold, for it to run; None when it is given none.

    One that stands in words of its own is not among them.
    """
    args = subcommand_of(args)
    if not args:
        return None
    name, words = args[0], args[1:]
    first = next((word for word in words if not word.startswith("-")), None)
    letter = _COMMAND_LETTERS.get(name)
    runs, found = name == "filter-branch" or (name, first) in _RUNNERS, list[str]()
    for word in words:
        option, _, value = word.partition("=")
        if word.startswith("--"):
            if len(option) <= len("--e") or not any(one.startswith(option) for one in _COMMANDS):
                continue
        elif letter is not None and word.startswith("-") and letter in word:
            value = word.partition(letter)[2]
        else:
            continue
        runs = True
        if value:
            found.append(value)
    return found if runs else None
