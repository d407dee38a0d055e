"""Judgement of the parts of a script: which ones only read inside the workspace. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from gateway.policy.shell.committed import may_print_secrets
from gateway.policy.shell.parsing import parse
from gateway.policy.shell.places import (
    OF_THE_SYSTEM,
    OPTIONS_AT_MOST,
    is_history,
    is_secret,
    leaves,
    may_be_secret,
    may_name_secrets,
    names_sources,
    paths_in,
    resolved,
)
from gateway.policy.shell.reading_table import (
    FIND_NEVER,
    HARMLESS_VARIABLES,
    READERS,
    SED_OPTIONS,
    SED_SCRIPT,
    SPECIAL_VARIABLES,
    Reader,
)
from gateway.policy.shell.script import PartKind, Script, ScriptPart, WorkingFolder
from gateway.policy.shell.unwrapping import asks_version
from gateway.policy.shell.walking import names_read

ANYWHERE = WorkingFolder()
"""Place of a script when nothing is known about it."""
SED_AT_MOST = 500
"""Most characters of a script for `sed` that is read."""
_STANDARD = frozenset({"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin"})
_GIT_GLOBAL = frozenset({"--no-pager", "-P", "--no-optional-locks"})
_ARITHMETIC = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
_GIT_READERS = READERS["git"].subcommands
_CHECKS_SIGNATURES = re.compile(r"%[-+ ]?G|%\(\*?signature\b|(?:^|=)[-*]*signature(?::|\Z)")
"""Words of formats and sort keys with which `git` checks signatures."""
_RG_GLOBS = frozenset({"-g", "--glob"})
_DATE_VALUES = ("-d", "--date")


def read_only(script: Script, place: WorkingFolder = ANYWHERE) -> bool:
    """Return whether a script does nothing but read files of the workspace that hold no secrets, and print."""
    found = readers(script.text, place)
    return bool(found) and all(found)


@lru_cache(maxsize=64)
def readers(text: str, place: WorkingFolder = ANYWHERE) -> tuple[bool, ...]:
    """Return for each part of a script whether it only reads. None does where a part cannot be known."""
    script = parse(text)
    known = script.plain and not script.why_ask
    return tuple(known and harmless(part, place) for part in script.parts)


@lru_cache(maxsize=64)
def changes_nothing(text: str, place: WorkingFolder = ANYWHERE) -> bool:
    """Return whether a script does nothing but read, though it may print secret files that it does not name.

    Such a script is asked about (`git diff`, `grep -r x .`). A preset that only reads permits it.
    """
    script = parse(text)
    known = script.plain and not script.why_ask and bool(script.parts)
    return known and all(harmless(part, place) or _shows(part, place) for part in script.parts)


def harmless(part: ScriptPart, place: WorkingFolder = ANYWHERE) -> bool:
    """Return whether a part of a plain script only reads."""
    if part.why_ask or part.expands:
        return False
    match part.kind:
        case PartKind.COMMAND:
            return is_standard(part.program) and _command_reads(part, place)
        case PartKind.READ:
            return not part.globs and _may_read(part.words[0], part.folders, place)
        case PartKind.ASSIGNMENT:
            return _assigns_nothing_special(part)
        case _:
            return False


def _shows(part: ScriptPart, place: WorkingFolder) -> bool:
    """Return whether a command changes nothing. It may print any file."""
    if part.kind is not PartKind.COMMAND or part.why_ask or part.expands or part.globs or not is_standard(part.program):
        return False
    program, args = part.words[0], part.words[1:]
    if program == "git":
        return _git_shows(args, part, place)
    reader = None if program in _OWN_RULES else READERS.get(program)
    return reader is not None and _reads(reader, args, part, place, anywhere=True)


def is_standard(program: str) -> bool:
    """Return whether a program is found by its name, or stands in a folder of the system."""
    folder, slash, _ = program.rpartition("/")
    return not slash or folder in _STANDARD


def _assigns_nothing_special(part: ScriptPart) -> bool:
    name = part.words[0]
    if part.exported:
        return HARMLESS_VARIABLES.fullmatch(name) is not None
    return name.isidentifier() and name.isascii() and SPECIAL_VARIABLES.fullmatch(name) is None


def _command_reads(part: ScriptPart, place: WorkingFolder) -> bool:
    program, args = part.words[0], part.words[1:]
    if 0 in part.globs:
        return False
    if asks_version(part.program, args):
        return True
    if program in _OWN_RULES:
        return (not part.globs or program == "rg") and _OWN_RULES[program](args, part, place)
    reader = READERS.get(program)
    return reader is not None and _reads(reader, args, part, place)


def _find_reads(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    return not any(FIND_NEVER.fullmatch(word) for word in args) and _paths_are_fine(args, part.folders, place)


def _cd_reads(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    return len(args) == 1 and not args[0].startswith("-") and _paths_are_fine(args, part.folders, place)


def _compares(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    return not _ARITHMETIC.intersection(args) and _paths_are_fine(args, part.folders, place)


def _git_reads(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    own = _git_command(args)
    return _git_shows(args, part, place) and not (own and may_print_secrets(own[0], own[1:]))


def _git_command(args: Sequence[str]) -> Sequence[str]:
    """Return the words from the subcommand on, behind options that change nothing."""
    while args and args[0] in _GIT_GLOBAL:
        args = args[1:]
    return args


def _git_shows(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    """Return whether `git` changes nothing and is given no secret file, though it may print some."""
    args = _git_command(args)
    if any(_CHECKS_SIGNATURES.search(word) for word in args):
        return False  # by a program that the configuration names
    reader = _GIT_READERS.get(args[0]) if args else None
    if reader is not None and reader.contents and may_name_secrets(_without_patterns(reader, args[1:])):
        return False
    return _reads(READERS["git"], args, part, place)


def _rg_reads(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    """Return whether `rg` only reads: a pattern of files that it is given finds hidden ones, too."""
    kept: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _RG_GLOBS or (equals and name == "-g"):
            kept.append(word)
        elif not names_sources((value if equals else next(words, "")).removeprefix("!")):
            return False
    return _reads(READERS["rg"], kept, part, place)


def _reads(
    reader: Reader, args: Sequence[str], part: ScriptPart, place: WorkingFolder, *, anywhere: bool = False
) -> bool:
    """Return whether a reader's command with these words only reads. `anywhere`: also all of the workspace."""
    if not _words_are_fine(reader, args):
        return False
    if reader.subcommands:
        name = args[0] if args and (args[0] in reader.subcommands or not args[0].startswith("-")) else ""
        below = reader.subcommands.get(name)
        return below is not None and _reads(below, args[1:] if name else args, part, place)
    if part.globs and not _globs_are_fine(reader, part):
        return False
    if not anywhere and _is_recursive(reader, args) and not _reads_below(reader, args, part, place):
        return False
    return not reader.paths or _paths_are_fine(_without_patterns(reader, args), part.folders, place)


def _words_are_fine(reader: Reader, args: Sequence[str]) -> bool:
    """Return whether no word is an option that does more, nor an operand too many."""
    if reader.only is not None and not all(reader.only.fullmatch(word) for word in args):
        return False
    operands = 0
    for word in args:
        if not word.startswith("-") or word == "-":
            operands += 1
        elif word.startswith("--"):
            if _is_never(word, reader.never_long):
                return False
        elif (
            len(word) > OPTIONS_AT_MOST
            or any(letter in reader.never for letter in word[1:])
            or _is_never(word, reader.never_long)
        ):
            return False
    return reader.operands is None or operands <= reader.operands


def _is_never(word: str, never: Iterable[str]) -> bool:
    name = word.partition("=")[0]
    return len(name) > 2 and any(one.startswith(name) or name.startswith(one) for one in never)


def _globs_are_fine(reader: Reader, part: ScriptPart) -> bool:
    """Return whether names of files in place of a wildcard change nothing: they might be options, or hold secrets."""
    words = [part.words[at] for at in part.globs]
    may_be_option = bool(reader.never or reader.never_long) or reader.operands is not None
    if may_be_option and any(word[0] in "*?[" for word in words):
        return False
    if reader.operands is not None or reader.only is not None:
        return False
    return not reader.contents or not any(may_be_secret(word) for word in words)


def _is_recursive(reader: Reader, args: Sequence[str]) -> bool:
    for word in args:
        if word.startswith("--"):
            if _is_never(word, reader.recursive_long):
                return True
        elif word.startswith("-") and any(letter in reader.recursive for letter in word[1:]):
            return True
    return False


def _reads_below(reader: Reader, args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    """Return whether a recursive command reads folders below the workspace, not all of it: that may hold secrets."""
    if all(names_sources(name) for name in names_read(part.words)):
        return True
    if "--" in args and any(word.startswith("-") for word in args[args.index("--") + 1 :]):
        return False
    values = [word.partition("=")[2] for word in args if word.startswith("--") and "=" in word]
    if any("." in (resolved(word, part.folders, place) or ()) for word in (*args, *values)):
        return False
    return any(not word.startswith("-") for word in _without_patterns(reader, _without_values(reader, args)))


def _without_values(reader: Reader, args: Sequence[str]) -> list[str]:
    """Return the words without those that may be the value of the option in front of them."""
    kept: list[str] = []
    before = ""
    for word in args:
        valued = before[:1] == "-" and before[:2] != "--" and before[-1] in reader.valued
        valued |= before[:2] == "--" and "=" not in before and _is_never(before, reader.valued_long)
        if not valued or word.startswith("-"):
            kept.append(word)
        before = word
    return kept


def _without_patterns(reader: Reader, args: Sequence[str]) -> list[str]:
    """Return the words that may be paths."""
    left = reader.patterns
    if left and any(_gives_pattern(reader, word) for word in args):
        left = 0
    kept: list[str] = []
    for word in args:
        if left and not word.startswith("-"):
            left -= 1
        else:
            kept.append(word)
    return kept


def _gives_pattern(reader: Reader, word: str) -> bool:
    if word.startswith("--"):
        return _is_never(word, ("--regexp", "--file"))
    return word.startswith("-") and any(letter in reader.pattern_options for letter in word[1:])


def _paths_are_fine(words: Sequence[str], folders: Sequence[str] | None, place: WorkingFolder) -> bool:
    return all(_may_read(path, folders, place) for word in words for path in paths_in(word))


def _may_read(path: str, folders: Sequence[str] | None, place: WorkingFolder) -> bool:
    return path in OF_THE_SYSTEM or not (is_secret(path) or is_history(path) or leaves(path, folders, place))


def _sed_reads(args: Sequence[str], part: ScriptPart, place: WorkingFolder) -> bool:
    scripts: list[str] = []
    files: list[str] = []
    words = iter(args)
    for word in words:
        if word == "-e":
            scripts.append(next(words, ""))
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("-") and word != "-":
            if not SED_OPTIONS.fullmatch(word):
                return False
        else:
            files.append(word)
    if not scripts:
        scripts, files = files[:1], files[1:]
    known = all(one and len(one) <= SED_AT_MOST and SED_SCRIPT.fullmatch(one) for one in scripts)
    return bool(scripts) and known and _paths_are_fine(files, part.folders, place)


def _date_reads(args: Sequence[str], _part: ScriptPart, _place: WorkingFolder) -> bool:
    """Return whether `date` only prints: an operand without `+` would set the clock."""
    before = ""
    for word in args:
        if not word.startswith(("-", "+")) and before not in _DATE_VALUES:
            return False
        before = word
    return _words_are_fine(READERS["date"], [word for word in args if word.startswith("-")])


_OWN_RULES: Mapping[str, Callable[[Sequence[str], ScriptPart, WorkingFolder], bool]] = MappingProxyType(
    {
        "find": _find_reads,
        "sed": _sed_reads,
        "cd": _cd_reads,
        "date": _date_reads,
        "git": _git_reads,
        "rg": _rg_reads,
        "[[": _compares,
    }
)
"""Commands whose words need more than the table."""
