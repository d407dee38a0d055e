"""Commands that only read, with their flags and subcommands that do more. Data of `reading`.

A command is in this table only when all its other arguments are harmless. They write no file, change no setting, run no
program and reach no network. GNU programs take any beginning of a long option, so each beginning of a listed one counts
as it. Subcommands of git that print commits are judged in `committed`, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Way in which a command only reads."""

    never: str = ""
    """Short options that do more, anywhere in a group of them."""
    never_long: tuple[str, ...] = ()
    """Long options that do more; any beginning of them, and any text after them, counts as them."""
    operands: int | None = None
    """Most words that are no options; None: any number."""
    patterns: int = 0
    """Operands at the beginning that are no paths, such as the pattern of `grep`."""
    pattern_options: str = ""
    """Short options that give such a pattern instead."""
    paths: bool = True
    """True when words may name files."""
    contents: bool = True
    """True when it prints what is in files; False when it prints only their names and figures."""
    recursive: str = ""
    """Short options with which it reads all files below a folder."""
    recursive_long: tuple[str, ...] = ()
    valued: str = ""
    """Short options that take a value in the next word, where it matters how many operands there are."""
    valued_long: tuple[str, ...] = ()
    """Long options of that kind."""
    only: re.Pattern[str] | None = None
    """Form that each word must have; None: any."""
    subcommands: Mapping[str, Reader] = field(default_factory=dict[str, "Reader"])
    """Readers by first operand; when there are any, nothing else is read-only."""


def _all(names: str, reader: Reader) -> dict[str, Reader]:
    return dict.fromkeys(names.split(), reader)


_PLAIN = Reader()
_NAMES = Reader(contents=False)
_NO_PATHS = Reader(paths=False, contents=False)
_NO_OPERANDS = Reader(operands=0, contents=False)

_PS_WORD = re.compile(
    r"-[AaefFlLTjHwx]+|auxf?w*|axj?f?|-[opu]|--sort=[-\w,%]+|\d+(?:,\d+)*"
    r"|(?:(?:pid|ppid|user|comm|cmd|args|etime|time|stat|rss|vsz|%cpu|%mem|pcpu|pmem|tty|start|lstart|nlwp)(?:,|\Z))+"
)

_GIT_NEVER = (
    "--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--upload-pack", "--exec", "--paginate",
    "--show-signature", "--filters", "--contents", "--no-index", "--receive-pack", "--config", "--git-dir",
    "--work-tree", "--remote", "--untracked-cache", "--force-untracked-cache", "--help", "--batch", "--stdin",
)  # fmt: skip
_GIT = Reader(never_long=_GIT_NEVER)
_GIT_NAMES = Reader(never_long=_GIT_NEVER, contents=False)
_GIT_ALONE = Reader(never_long=_GIT_NEVER, operands=0)
_GIT_LISTS_ONLY = re.compile(
    r"-[alrv]+|--(?:list|all|remotes|verbose|no-color|color(?:=\w+)?|show-current|column|no-column)"
)
_GIT_SUBCOMMANDS: Mapping[str, Reader] = MappingProxyType(
    {
        **_all(
            "log diff show blame annotate shortlog whatchanged diff-tree diff-index diff-files range-diff cherry "
            "rev-list cat-file show-branch",
            _GIT,
        ),
        **_all(
            "status describe name-rev rev-parse merge-base for-each-ref show-ref ls-files ls-tree count-objects "
            "check-ignore check-attr version",
            _GIT_NAMES,
        ),
        "grep": Reader(
            never="O",
            never_long=(*_GIT_NEVER, "--untracked", "--no-exclude-standard"),
            patterns=1,
            pattern_options="ef",
        ),
        "branch": Reader(only=_GIT_LISTS_ONLY, contents=False),
        "tag": Reader(only=re.compile(r"-l|-n\d*|--list|--no-column|--no-color|--sort=[\w:.-]+"), contents=False),
        "remote": Reader(
            subcommands={
                "": Reader(only=re.compile(r"-v|--verbose"), contents=False),
                "get-url": Reader(only=re.compile(r"--all|--push|[A-Za-z][\w-]*"), contents=False),
            },
        ),
        "stash": Reader(never_long=_GIT_NEVER, subcommands={"list": _GIT, "show": _GIT}),
        "reflog": Reader(never_long=_GIT_NEVER, subcommands={"": _GIT_ALONE, "show": _GIT, "exists": _GIT}),
        "worktree": Reader(subcommands={"list": _NAMES}),
        "notes": Reader(never_long=_GIT_NEVER, subcommands={"list": _GIT, "show": _GIT}),
        "config": Reader(
            only=re.compile(
                r"--(?:get|get-all|local|show-origin|show-scope)|get|(?:user|core|branch|remote|init|pull|push|diff|merge"
                r"|color|alias)\.(?!.*(?:header|token|password|credential|secret|proxy))[\w.-]+",
            ),
            contents=False,
            subcommands={"--get": _NAMES, "--get-all": _NAMES, "get": _NAMES},
        ),
    }
)

READERS: Mapping[str, Reader] = MappingProxyType(
    {
        **_all(
            "cat tac nl rev cut paste fold fmt expand unexpand comm join od hexdump hd strings base64 base32 cmp",
            _PLAIN,
        ),
        **_all("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum wc column", _PLAIN),
        **_all("head tail", _PLAIN),
        **_all("ls dir vdir stat readlink realpath du df pathchk", _NAMES),
        **_all("which whereis type", _NO_PATHS),
        **_all("basename dirname seq true false : echo sleep factor numfmt tr expr", _NO_PATHS),
        **_all("pwd whoami uname arch nproc uptime free who users logname tty lscpu lsmem", _NO_OPERANDS),
        **_all("id groups w lsblk cal ncal", _NO_PATHS),
        "hostname": Reader(never="bF", never_long=("--file", "--boot"), operands=0, contents=False),
        "printf": Reader(never="v", paths=False, contents=False),
        "date": Reader(never="sfr", never_long=("--set", "--file", "--reference"), paths=False, contents=False),
        "printenv": Reader(
            operands=1,
            only=re.compile(r"HOME|LANG|PATH|PWD|SHELL|TERM|TZ|USER"),
            paths=False,
            contents=False,
            subcommands=_all("HOME LANG PATH PWD SHELL TERM TZ USER", _NO_OPERANDS),
        ),
        "tput": Reader(paths=False, contents=False, subcommands=_all("cols lines colors", _NO_OPERANDS)),
        "getconf": Reader(never="a", paths=False, contents=False),
        "locale": Reader(paths=False, contents=False),
        "lsb_release": Reader(paths=False, contents=False),
        "ps": Reader(paths=False, contents=False, only=_PS_WORD),
        "pgrep": Reader(paths=False, contents=False, never="F", never_long=("--pidfile",)),
        "vmstat": Reader(paths=False, contents=False),
        "file": Reader(
            never="CzZSf", never_long=("--compile", "--uncompress", "--no-sandbox", "--files-from"), contents=False
        ),
        "sort": Reader(
            never="oT", never_long=("--output", "--compress-program", "--temporary-directory", "--files0-from")
        ),
        "uniq": Reader(operands=1),
        "shuf": Reader(never="o", never_long=("--output",)),
        "xxd": Reader(never="r", never_long=("-revert",), operands=1),
        "iconv": Reader(never="o", never_long=("--output",)),
        "tsort": _PLAIN,
        "diff": Reader(never="l", never_long=("--paginate",), recursive="r", recursive_long=("--recursive",)),
        "tree": Reader(never="oR", never_long=("--output",), contents=False),
        **_all(
            "grep egrep fgrep",
            Reader(
                never="Rd",
                never_long=("--dereference-recursive", "--directories"),
                patterns=1,
                pattern_options="ef",
                recursive="r",
                recursive_long=("--recursive",),
                valued="ABCDefm",
                valued_long=(
                    "--regexp",
                    "--file",
                    "--after-context",
                    "--before-context",
                    "--context",
                    "--max-count",
                    "--include",
                    "--exclude",
                    "--exclude-dir",
                    "--exclude-from",
                    "--label",
                    "--binary-files",
                    "--devices",
                ),
            ),
        ),
        "rg": Reader(
            never="zu.g",
            never_long=(
                "--pre",
                "--hostname-bin",
                "--search-zip",
                "--hidden",
                "--no-ignore",
                "--unrestricted",
                "--glob",
                "--iglob",
            ),
            patterns=1,
            pattern_options="ef",
        ),
        "fd": Reader(
            never="xXH",
            never_long=("--exec", "--exec-batch", "--search-path", "--base-directory"),
            patterns=1,
            contents=False,
        ),
        "fdfind": Reader(
            never="xXH",
            never_long=("--exec", "--exec-batch", "--search-path", "--base-directory"),
            patterns=1,
            contents=False,
        ),
        "jq": Reader(
            never="fL",
            never_long=("--from-file", "--library-path", "--run-tests"),
            patterns=1,
            only=re.compile(
                r"(?!.*(?:\benv\b|\$ENV|\$__prog|import|include|input_filename|debug|modulemeta)).*", re.DOTALL
            ),
        ),
        "test": Reader(contents=False, never="vR"),
        "[": Reader(contents=False, never="vR"),
        "cd": Reader(contents=False),
        "set": Reader(
            only=re.compile(r"[-+][euxvf]+|[-+][eux]*o|pipefail|errexit|nounset|xtrace"), paths=False, contents=False
        ),
        "command": Reader(only=re.compile(r"-[vV]|[\w.+-]+"), paths=False, contents=False),
        "git": Reader(subcommands=_GIT_SUBCOMMANDS),
        "tar": Reader(
            operands=2,
            only=re.compile(r"-?t[zjJv]*f|[^-:][^:]*"),
            contents=False,
            subcommands=dict.fromkeys(
                ("tf", "tvf", "tzf", "tzvf", "tjf", "-tf", "-tvf", "-tzf", "-tzvf", "-tjf"),
                Reader(operands=1, contents=False),
            ),
        ),
        "unzip": Reader(operands=2, contents=False, subcommands={"-l": Reader(operands=1, contents=False)}),
        "ip": Reader(paths=False, contents=False, only=re.compile(r"-4|-6|-br|-brief|addr|address|link|route|show")),
    }
)
"""Readers by program. `find` and `sed` have rules of their own, in `reading`."""

VERSIONED = frozenset({
    "bash", "bun", "cargo", "clang", "cmake", "deno", "docker", "gcc", "git", "g++", "go", "java", "make", "mypy",
    "node", "npm", "npx", "perl", "php", "pip", "pip3", "pnpm", "podman", "pyright", "pytest", "python", "python3",
    "ruby", "ruff", "rustc", "sqlite3", "tmux", "tsc", "uv", "yarn", "gawk", "rg", "jq", "curl", "wget", "kubectl",
    "terraform", "ssh", "openssl", "sed", "grep", "find", "tar", "awk",
})  # fmt: skip
"""Programs that only print their version when asked for nothing else."""
VERSION_WORDS = frozenset({("--version",), ("-V",)})

FIND_NEVER = re.compile(r"-(?:delete|exec(?:dir)?|ok(?:dir)?|fprint[0f]?|fls|files0-from)")
SED_OPTIONS = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|unbuffered|null-data|posix|sandbox|debug)"
)


def _expression(end: str) -> str:
    """Return the form of an expression of `sed` up to `end`. A set in brackets that may hide the end has no form."""
    return rf"(?:[^{end}\\\n\[]|\\.|\[\^?+[^\]{end}\\\n\[]++\])*+{end}"


_ADDRESS = rf"(?:\d++(?:~\d++)?+|\$|/{_expression('/')}I?+)"
_REPLACE = "|".join(rf"s{d}{_expression(d)}(?:[^{d}\\\n]|\\.)*+{d}[gpI0-9]*+" for d in ("/", r"\|", ",", "#", "@", ":"))
SED_SCRIPT = re.compile(
    rf"(?:[ \t]*+(?:{_ADDRESS}(?:,[ \t]*+\+?+{_ADDRESS})?+)?+[ \t]*+!?+[ \t]*+"
    rf"(?:[pdDPqQ=]|{_REPLACE})?+[ \t]*+(?:;|\n|\Z))++"
)
"""Scripts of `sed` that print, delete and replace lines of its output; none that reads, writes or runs."""
HARMLESS_VARIABLES = re.compile(r"LANG|LC_[A-Z]+|LANGUAGE|TZ|NO_COLOR|CLICOLOR|COLUMNS|LINES|GIT_OPTIONAL_LOCKS")
"""Variables that change only how a program prints."""
SPECIAL_VARIABLES = re.compile(
    r"(?:BASH|GIT|LD|DYLD|LESS|PYTHON|PERL|RUBY|NODE|NPM|JAVA|SSH|GCC|RIPGREP|FZF|XDG|MAN|GREP|TAR|UNZIP|ZIP|GZIP|POSIX"
    r"|COMP|HIST|READLINE|PS|OPT|DIR|FUNC|EXEC|MALLOC|GLIBC|GCONV|LOCPATH|NLSPATH|TERM|DOCKER|http|https|ftp|all|no)"
    r"_?\w*|PATH|CDPATH|ENV|HOME|IFS|PWD|OLDPWD|SHELL|SHELLOPTS|EDITOR|VISUAL|PAGER|BROWSER|TMPDIR|TMP|TEMP|USER|UID"
    r"|EUID|LOGNAME|MAIL|PROMPT_COMMAND|GLOBIGNORE|IGNOREEOF|INPUTRC|MAPFILE|REPLY|SECONDS|TIMEFORMAT|TMOUT|auto_resume"
    r"|histchars|JQ_\w+|_"
)
"""Variables that a shell or a program reads for more than that."""
