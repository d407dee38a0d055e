"""Commands behind wrappers: which command runs in the end, and under which readings rules find it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.policy.shell.git_options import commands_given
from gateway.policy.shell.programs import HARMLESS_ARGUMENTS, RUNNERS, SHELLS, WRAPPERS, Wrapper, is_interpreter
from gateway.policy.shell.reading_table import READERS, VERSION_WORDS, VERSIONED

WORDS_AT_MOST = 200
"""Words of one command that are compared as other commands."""
CHARS_AT_MOST = 4_096
"""Characters of a command whose parts are compared as other commands."""
LEVELS_AT_MOST = 10
"""Wrappers around one command that are taken off."""
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")


@dataclass(slots=True, kw_only=True)
class Unwrapped:
    """Command without its wrappers."""

    start: int = 0
    """Position of the word at which the innermost command begins."""
    forms: list[str] = field(default_factory=list[str])
    """Readings for deny and ask rules."""
    suspects: list[str] = field(default_factory=list[str])
    scripts: list[str] = field(default_factory=list[str])
    """Texts that a shell runs, to be parsed as well."""
    why_ask: str = ""
    too_long: bool = False
    """True when there are more readings than are compared."""

    def ask(self, reason: str) -> None:
        """Note a reason, unless there is one."""
        self.why_ask = self.why_ask or reason


def base_name(program: str) -> str:
    """Return the last part of a program's path."""
    return program.rpartition("/")[2] or program


def unwrap(words: Sequence[str], dynamic: frozenset[int]) -> Unwrapped:
    """Take the wrappers off a command. `words`: unquoted; `dynamic`: positions of those that are known only later."""
    found = Unwrapped()
    for _ in range(LEVELS_AT_MOST):
        rest = words[found.start :]
        _note_forms(found, rest)
        program = base_name(rest[0])
        if found.start in dynamic:
            found.ask("The program is known only when it runs.")
            return found
        wrapper = WRAPPERS.get(program)
        if wrapper is None or (program == "command" and rest[1:2] in (["-v"], ["-V"])):
            _innermost(found, program, rest, dynamic)
            return found
        inner = _inner(wrapper, rest)
        if inner is None:
            _unread(found, program, rest)
            return found
        if any(found.start <= at < found.start + inner for at in dynamic):
            found.ask(f"The options of {program} are known only when it runs.")
            _note_suffixes(found, rest, found.forms)
        if wrapper.changes:
            found.ask(wrapper.changes)
        if inner >= len(rest):  # a wrapper alone, such as `env`
            return found
        if program == "flock" and _script_of(found, rest[inner:]):
            return found
        found.start += inner
    found.ask("It has too many wrappers.")
    found.too_long = True
    return found


def _note_forms(found: Unwrapped, rest: Sequence[str]) -> None:
    """Note a command as written and with its program's base name."""
    tail = rest[1:]
    name = base_name(rest[0])
    if name != rest[0]:
        found.forms.append(" ".join([rest[0], *tail]))
    found.forms.append(" ".join([name, *tail]))


def _inner(wrapper: Wrapper, rest: Sequence[str]) -> int | None:
    """Return the index of a wrapper's command; None when its options are not known."""
    at, skip = 1, wrapper.skip
    while at < len(rest):
        word = rest[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and word != "-":
            step = _option(wrapper, word)
            if step is None:
                return None
            at += step
        elif wrapper.assigns and ASSIGNMENT.match(word):
            at += 1
        else:
            break
    at += skip
    while wrapper.assigns and at < len(rest) and ASSIGNMENT.match(rest[at]):
        at += 1
    return min(at, len(rest))


def _option(wrapper: Wrapper, word: str) -> int | None:
    """Return how many words an option of a wrapper takes; None when it is not known."""
    if wrapper.numbers and word.lstrip("-").isdigit():
        return 1
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        if name in wrapper.valued_long:
            return 1 if equals else 2
        return 1 if name in wrapper.flags_long else None
    for n, letter in enumerate(word[1:], 1):
        if letter in wrapper.valued:
            return 1 if n < len(word) - 1 else 2
        if letter not in wrapper.flags:
            return None
    return 1


def _innermost(found: Unwrapped, program: str, rest: Sequence[str], dynamic: frozenset[int]) -> None:
    """Read a command that is no wrapper."""
    if asks_version(rest[0], rest[1:]):
        return
    if program in SHELLS:
        found.ask("It runs a script of its own.")
        if not _script_of(found, rest[1:]):
            _note_suffixes(found, rest, found.forms)
    elif program == "eval":
        found.ask("It runs its arguments as a script.")
        found.scripts.append(" ".join(rest[1:]))
        _note_suffixes(found, rest, found.forms)
    elif is_interpreter(program):
        found.ask("It runs code that is not read here.")
        _note_suffixes(found, rest, found.suspects)
    elif program in RUNNERS:
        found.ask("It runs other commands in a way that is not read here.")
        _note_suffixes(found, rest, found.forms)
    elif program == "git" and (given := commands_given(rest[1:])) is not None:
        found.ask("It runs commands that git is given.")
        found.scripts.extend(given)
        _note_suffixes(found, rest, found.forms)
    elif program in ("find", "fd", "fdfind"):
        _found_files(found, rest)
    elif program not in HARMLESS_ARGUMENTS and program not in READERS:
        _note_suffixes(found, rest, found.suspects)


def asks_version(program: str, args: Sequence[str]) -> bool:
    """Return whether a program, as written, only prints its version."""
    return (program in VERSIONED and tuple(args) in VERSION_WORDS) or [program, *args] == ["go", "version"]


def _script_of(found: Unwrapped, rest: Sequence[str]) -> bool:
    """Note the script after `-c`, and return whether there is one."""
    for at, word in enumerate(rest[:-1]):
        if not word.startswith(("-", "+")):
            break
        if not word.startswith("--") and "c" in word:
            found.scripts.append(next((one for one in rest[at + 1 :] if not one.startswith(("-", "+"))), ""))
            return True
    return False


def _found_files(found: Unwrapped, rest: Sequence[str]) -> None:
    """Note what `find` does to the files that it finds: run a command, or delete them as `rm` does."""
    places = [word for word in rest[1:] if not word.startswith("-")]
    for at, word in enumerate(rest):
        if word in (*_FIND_RUNS, "-x", "-X", "--exec", "--exec-batch"):
            found.ask("It runs a command for each file that it finds.")
            inner = rest[at + 1 :]
            end = next((n for n, one in enumerate(inner) if one in (";", "+")), None)
            if inner[:end]:
                deeper = unwrap(inner[:end], frozenset())
                found.forms.extend(deeper.forms)
                found.suspects.extend(deeper.suspects)
                found.scripts.extend(deeper.scripts)
                found.too_long = found.too_long or deeper.too_long
        elif word == "-delete":
            found.ask("It deletes the files that it finds.")
            found.forms.append(f"rm {places[0] if places else '.'}")


def _unread(found: Unwrapped, program: str, rest: Sequence[str]) -> None:
    found.ask(f"The options of {program} are not known, so its command is not either.")
    _note_suffixes(found, rest, found.forms)


def _note_suffixes(found: Unwrapped, rest: Sequence[str], into: list[str]) -> None:
    """Note each run of words to the end of the command: one of them may be the command that runs."""
    if len(rest) > WORDS_AT_MOST or sum(map(len, rest)) > CHARS_AT_MOST:
        found.ask("It is too long to be compared with rules.")
        found.too_long = True
        return
    for at in range(1, len(rest)):
        words = " ".join(rest[at:]).split()
        if words:
            into.append(" ".join([base_name(words[0]), *words[1:]]))
