"""Programs that run other programs: wrappers, interpreters and runners. Data of `unwrapping`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """Program whose arguments are options, then a command that it runs."""

    valued: str = ""
    """Short options that take a value."""
    valued_long: tuple[str, ...] = ()
    """Long options that take a value in the next word."""
    flags: str = ""
    """Short options without a value. Any other short option makes the command unknown."""
    flags_long: tuple[str, ...] = ()
    """Long options without a value."""
    skip: int = 0
    """Operands in front of the command."""
    assigns: bool = False
    """True when `NAME=value` may stand in front of the command."""
    numbers: bool = False
    """True when `-10` is an option."""
    changes: str = ""
    """Reason why the command is not the same as without it, in one sentence; empty when it is."""


_ROOT = "It runs a command with other rights."
_LATER = "It starts a command that may go on after the call."
_APPENDS = "It adds arguments that are known only when it runs."

WRAPPERS: Mapping[str, Wrapper] = MappingProxyType(
    {
        "env": Wrapper(
            valued="uC",
            valued_long=("--unset", "--chdir"),
            flags="i0v",
            flags_long=("--ignore-environment", "--null", "--debug"),
            assigns=True,
            changes="It runs a command in a changed environment.",
        ),
        "command": Wrapper(flags="p"),
        "builtin": Wrapper(),
        "exec": Wrapper(valued="a", flags="cl", changes="It replaces the shell."),
        "time": Wrapper(flags="pv"),
        "nice": Wrapper(valued="n", valued_long=("--adjustment",), numbers=True),
        "ionice": Wrapper(valued="cn", valued_long=("--class", "--classdata"), flags="t"),
        "timeout": Wrapper(
            valued="ks",
            valued_long=("--kill-after", "--signal"),
            flags="vfp",
            flags_long=("--foreground", "--preserve-status", "--verbose"),
            skip=1,
        ),
        "stdbuf": Wrapper(valued="ioe", valued_long=("--input", "--output", "--error")),
        "nohup": Wrapper(changes=_LATER),
        "setsid": Wrapper(flags="cfw", flags_long=("--ctty", "--fork", "--wait"), changes=_LATER),
        "sudo": Wrapper(
            valued="ughpCDRTrtU",
            valued_long=("--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--role", "--type"),
            flags="bEHiknPSsAB",
            flags_long=("--background", "--preserve-env", "--set-home", "--login", "--non-interactive", "--stdin"),
            assigns=True,
            changes=_ROOT,
        ),
        "doas": Wrapper(valued="uC", flags="nsL", changes=_ROOT),
        "chroot": Wrapper(
            valued_long=("--userspec", "--groups"), flags_long=("--skip-chdir",), skip=1, changes=_ROOT
        ),
        "taskset": Wrapper(flags="ac", skip=1),
        "chrt": Wrapper(flags="bfior", skip=1, changes="It changes how a command is scheduled."),
        "flock": Wrapper(
            valued="wE", valued_long=("--timeout", "--conflict-exit-code"), flags="senuFox", skip=1,
            changes="It writes a lock file.",
        ),
        "watch": Wrapper(
            valued="nq", valued_long=("--interval", "--equexit"), flags="bcdegprtwx",
            flags_long=("--beep", "--color", "--differences", "--errexit", "--chgexit", "--no-title", "--exec"),
            changes="It runs a command again and again.",
        ),
        "xargs": Wrapper(
            valued="adEILnPs",
            valued_long=(
                "--arg-file", "--delimiter", "--eof", "--replace", "--max-lines", "--max-args", "--max-procs",
                "--max-chars",
            ),
            flags="0rtpxo",
            flags_long=("--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty"),
            changes=_APPENDS,
        ),
        "busybox": Wrapper(),
        "toybox": Wrapper(),
        "caffeinate": Wrapper(flags="dimsu", valued="tw"),
        "systemd-run": Wrapper(
            valued="upM", flags="qGtrP", flags_long=("--user", "--scope", "--pty", "--wait"), changes=_LATER
        ),
        "unbuffer": Wrapper(),
        "catchsegv": Wrapper(),
    }
)  # fmt: skip
"""Wrappers that are known well enough to find the command that they run."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh"})
"""Programs that run a script given to `-c`."""

RUNNERS = frozenset({
    ".", "alias", "apptainer", "bind", "bwrap", "chpst", "complete", "coproc", "cpulimit", "dbus-run-session",
    "docker", "enable", "entr", "eval", "expect", "faketime", "firejail", "gdb", "ltrace", "machinectl", "mapfile",
    "nsenter", "numactl", "parallel", "perf", "podman", "proot", "pkexec", "readarray", "runuser", "script",
    "scriptreplay", "setarch", "setpriv", "singularity", "source", "ssh", "sshpass", "start-stop-daemon", "strace",
    "su", "tmux", "screen", "torify", "torsocks", "trap", "unshare", "valgrind", "wsl", "proxychains", "proxychains4",
    "kubectl", "lxc", "nix-shell", "flatpak", "runcon", "sg", "newgrp", "at", "batch", "crontab", "rlwrap", "fakeroot",
    "linux32", "linux64", "i386", "x86_64", "prlimit", "softlimit", "run-parts", "direnv", "dotenv",
    "uvx", "npx", "bunx", "pnpx", "pipx", "poetry", "pipenv", "hatch", "rye", "conda", "mamba",
    "distrobox", "toolbox", "vagrant", "ansible", "gosu", "tini", "dumb-init", "s6-setuidgid", "setuidgid",
})  # fmt: skip
"""Programs and builtins that may run what their arguments say, in ways that are not read here."""

_INTERPRETERS = frozenset({
    "awk", "gawk", "mawk", "nawk", "perl", "ruby", "node", "nodejs", "php", "lua", "luajit", "tclsh", "wish",
    "Rscript", "R", "julia", "osascript", "deno", "bun", "pypy", "pypy3", "ipython", "ghci", "scala", "groovy",
    "java", "jshell", "guile", "racket", "emacs", "vim", "vi", "ex", "ed", "nano", "dc", "bc", "m4", "gnuplot",
    "sqlite3", "psql", "mysql", "ftp", "sftp", "telnet", "socat", "nc", "ncat", "netcat", "jrunscript",
    "powershell", "pwsh", "cmd", "elixir", "erl", "iex", "swift", "kotlin", "clojure", "octave",
})  # fmt: skip
_VERSIONED = re.compile(r"(?:python|pypy|perl|ruby|lua|node|php|tclsh)[\d.]+[a-z]*|python|pythonw?|python3?-\w+")

HARMLESS_ARGUMENTS = frozenset({
    "git", "sed", "find",
    "cp", "mv", "rm", "mkdir", "rmdir", "touch", "chmod", "chown", "ln", "install", "tee", "dd", "curl", "wget",
    "pip", "pip3", "apt", "apt-get", "brew", "gh", "tar", "zip", "unzip", "gzip", "rsync", "scp", "kill", "pkill",
    "mount", "umount", "export", "declare", "local", "readonly", "typeset", "unset", "set", "shift", "read", "ruff",
    "pytest", "mypy", "pyright", "eslint", "prettier", "tsc", "shred", "truncate", "unlink", "history", "let", "exit",
    "return", "break", "continue", "wait", "jobs", "fg", "bg", "umask", "ulimit", "shopt", "pushd", "popd", "dirs",
    "cd", "[", "[[", "((", "test", "man", "less", "more", "systemctl", "service", "journalctl", "useradd", "passwd",
    "mkfs", "fdisk", "split", "csplit", "patch", "make", "cmake", "ninja",
})  # fmt: skip
"""Programs that do not run a program named by their plain arguments. Any other one is suspected to."""


def is_interpreter(program: str) -> bool:
    """Return whether a program runs code that it is given in a language of its own."""
    return program in _INTERPRETERS or program in SHELLS or _VERSIONED.fullmatch(program) is not None
