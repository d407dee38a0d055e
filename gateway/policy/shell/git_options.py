"""Options of `git` in front of its subcommand. Pure; used by `walking`, `taking` and `gateway.policy.rules`."""

from __future__ import annotations

from collections.abc import Sequence

_VALUED = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_SETTINGS = ("--config-env", "--exec-path")


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
