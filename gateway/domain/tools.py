"""Tools: what one is, what may be done with it, what came of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gateway.domain.ids import CallId, WaitId


class Availability(StrEnum):
    """In which kinds of session a tool exists. Its key is `permission`."""

    ALWAYS = "always"
    MAIN = "main"
    """Only where an owner speaks directly. `main-only` is read as this."""
    NON_MAIN = "non-main"
    """Everywhere but main; this hides the tool from the owner's own session."""
    BLOCKED = "blocked"


class Risk(StrEnum):
    """What a call can do at worst; decides the default approval."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


class Effect(StrEnum):
    """What happens to a call that a crash cut in half."""

    PURE = "pure"
    """Run again."""
    IDEMPOTENT = "idempotent"
    """Run again with the step's id as its key."""
    UNSAFE = "unsafe"
    """Never run again by itself: the outcome is unknown and said to be so."""


class ApprovalMode(StrEnum):
    """What holds for calls of a tool in a kind of session, before any rule. Its key is `approval`."""

    ASK = "ask"
    ALLOW = "allow"
    DENY = "deny"


class SandboxPolicy(StrEnum):
    """How a tool's processes are contained."""

    OFF = "off"
    """On the host, in a process namespace of its own where one can be had."""
    BASIC = "basic"
    """Workspace writable, system read-only, home hidden, environment constructed, limits."""
    AUTO = "auto"
    """Main sessions only: basic where a probe works, else the host, said on every card."""


class SandboxMode(StrEnum):
    """How the processes of one call are contained, decided of what is wanted (`SandboxPolicy`) and what there is."""

    OFF = "off"
    BASIC = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a tool is. Data only: no vendor import, no I/O."""

    name: str
    """Lower case, digits and `_`; unique in a registry."""
    description: str
    """One or two sentences for the model."""
    risk: Risk
    effect: Effect
    availability: Availability
    """The default availability."""
    timeout_s: float = 30.0
    max_timeout_s: float | None = None
    """The longest a call may ask for with an argument `timeout` in seconds; None: it may only lower."""
    actions: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by action, for tools whose argument `action` names one."""
    sandbox: SandboxPolicy | None = None
    """The default sandbox in main; elsewhere it is at least basic. None: the tool starts no process."""
    positional: str | None = None
    """The argument that takes the whole text after `/<name>`; None: the text is `key=value` words."""
    shows: str | None = None
    """The argument that a card shows as the thing that will run; the others are listed below it."""
    approval: Mapping[str, ApprovalMode] = field(default_factory=dict[str, ApprovalMode])
    """The default approval by kind of session, where it is another one than its risk's."""
    settings: type[Any] | None = None
    """A pydantic model of its own keys in `[tools.<name>]`, each with a default; None: it has none."""
    needs: str = ""
    """The package that must be installed for it to work, and so for it to exist: `playwright`. Empty: none."""
    extra: str = ""
    """The extra of Dragoman that brings that package."""
    command: str = ""
    """How it is called by hand, when that is shorter than its name: `spawn` for `sessions_spawn`."""
    example: str = ""
    """What may follow the word by hand, as people are shown it: `uptime`."""
    of_children: bool = False
    """It spawns sub-sessions or looks after them: a session that may have none is not given it."""
    speaks: bool = False
    """It spawns a sub-session, whose last words are its text: Markdown as they stand, and no output of a program."""

    @property
    def by_hand(self) -> str:
        """The word that people call it by."""
        return self.command or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """A tool as configured: the spec's defaults with the owner's settings laid over them."""

    availability: Availability
    approval: Mapping[str, ApprovalMode]
    """By session kind (`main`, `dm`, `non-main`); a missing kind has the default of the risk."""
    timeout_s: float
    actions: Mapping[str, float]
    sandbox: SandboxPolicy | None
    ceilings: frozenset[str] = frozenset()
    """The actions whose timeout the owner has set, and the tool's name where its own is: a call may only lower it."""
    settings: Any = None
    """Of the spec's `settings`; None when it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call as the model gave it. `arguments` is JSON text and may be malformed."""

    id: CallId
    tool: str
    arguments: str


ARGUMENTS_AT_MOST = 1_048_576
"""Characters of arguments that are looked at; a call with more is refused."""
NAMED_AT_MOST = 200
"""Characters of a name that a model made up: of a tool, or of an argument. It may make names of any length."""


def call_of(id: str, tool: str, arguments: str) -> ToolCall:
    """Return a call as it is stored: of what is too long only so much that it is refused for that."""
    return ToolCall(id=CallId(id), tool=tool[:NAMED_AT_MOST], arguments=arguments[: ARGUMENTS_AT_MOST + 1])


ACTION_BYTES = 65_536
"""UTF-8 bytes of an action as people are shown it. Nobody can be asked to allow a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One exact thing that will be done. Its canonical form is what an approval binds and what runs."""

    tool: str
    arguments: Mapping[str, Any]
    """The validated arguments, JSON-safe, defaults filled in."""
    cwd: str
    sandbox: SandboxMode | None
    """None for a tool that starts no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a call goes first, through a gate."""

    host: str
    """`host:port`, the port always there, IPv6 in brackets."""
    permitted: tuple[str, ...] = ()
    """Hosts of private networks, and other ports, that the owner's settings let through."""
    setting: str = ""
    """Name of that setting for people, as in `[tools.browser] hosts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """What one call can do at worst, where that depends on its arguments. Said by the tool, purely."""

    risk: Risk
    """In place of the spec's. What is configured as allowed is what has the tool's own risk: others are asked about."""
    scope: str = ""
    """What one approval covers until the session's history begins anew, such as a host; empty: this one call."""
    refused: str = ""
    """Why the owner's settings do not have it at all, with the cure; empty when they do."""
    destination: Destination | None = None
    """Judged before anybody is asked: a host that no gate lets through is refused at once."""


USUAL_PORTS = frozenset({80, 443})
"""Of the web: one scope has both."""


def host_scope(name: str, port: int) -> str:
    """Return the scope of a host: `host`, or `host:port` where the port is not a usual one; without `www.`.

    What an approval covers and what a gate lets through are held together by this. An IPv6 address gets brackets.
    """
    bare = name.removeprefix("www.")
    host = bare if "." in bare else name
    host = f"[{host}]" if ":" in host else host
    return host if port in USUAL_PORTS else f"{host}:{port}"


INBOX = "inbox"
"""Folder of a workspace for attachments. Reserved: a tool that saves a file by name refuses this first name."""

EVERY_SCOPE = "*"
"""Among the scopes of a call: the configuration allows the tool without asking, so there is none that it lacks."""


class ResultStatus(StrEnum):
    """How a call ended. Every planned call gets exactly one."""

    OK = "ok"
    ERROR = "error"
    """It ran and failed, or its arguments were not usable."""
    DENIED = "denied"
    """It did not run: a rule, a setting or a person said no."""
    EXPIRED = "expired"
    """It did not run: nobody decided in time."""
    TIMEOUT = "timeout"
    """It was stopped at its limit; the partial output is kept."""
    CANCELLED = "cancelled"
    """It was stopped by /stop or shutdown, or withdrawn before it ran."""
    UNKNOWN = "unknown"
    """The process ended after the start and before the end; it may or may not have happened."""


PICTURES: Mapping[str, str] = MappingProxyType(
    {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}
)
"""What is kept as a picture, given to models and shown on the page: media types, and how their files end. Nothing that
a browser could run."""
PICTURE_BYTES = 10_000_000
"""Of one that is kept, or given to a model, at most."""
KEPT_BYTES = 50_000_000
"""Of a file that is kept for people, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that came of a call, as a file in the session's output folder."""

    file: str
    """Its name in that folder."""
    media_type: str
    """One of `PICTURES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that came of a call, kept in the session's output folder for people to have."""

    file: str
    """Its name in that folder."""
    name: str
    """What people see it called."""
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of a call."""

    status: ResultStatus
    text: str
    """The output, or why there is none. `gateway.toolcalls.output` bounds it for every tool, keeping head and tail."""
    code: str = ""
    """A stable machine word for a refusal or an error: a `DenyReason` or the tool's own."""
    hint: str = ""
    """What to do about it, one sentence."""
    exit_code: int | None = None
    duration_ms: int = 0
    """Milliseconds of execution; the wait for a decision does not count."""
    dropped_bytes: int = 0
    """Bytes of output left out of `text`; all of it is in `full_output`."""
    full_output: str = ""
    """The name of the file with everything, inside the session's output folder; empty when `text` is all."""
    output_path: str = ""
    """Where tools can read the same, relative to the workspace; empty when they cannot."""
    pictures: tuple[Picture, ...] = ()
    """In the order they were made."""
    files: tuple[Artifact, ...] = ()
    """Other files for people, in the order they were made. A model is told of them by `text` alone."""
    untrusted: bool = False
    """True when `text` holds words of strangers, such as a page's: a model is given them as data."""


def outcome_unknown(started_at: datetime | None) -> ToolResult:
    """Make the result of a call that was started and whose end nobody saw: it may have been done, or in part."""
    began = f" at {started_at:%H:%M:%S} UTC" if started_at else ""
    return ToolResult(
        status=ResultStatus.UNKNOWN,
        text="",
        code="unknown",
        hint=f"Outcome unknown: the process ended after the start{began}. Do not assume success or failure; "
        "it is not run again unless it is asked for and allowed anew.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """A tool's answer "not yet": the store opened `wait` on this very step, and its answer becomes the result."""

    wait: WaitId
