"""Tool types: the specification of a tool, its policy, and the action, scope and result of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address
from types import MappingProxyType
from typing import Any

from gateway.domain.approvers import OWNERS_DECIDE, ApproverRules
from gateway.domain.children import Delegation
from gateway.domain.ids import CallId, WaitId
from gateway.domain.posts import Post, PostAct
from gateway.domain.rules import Rule
from gateway.domain.tool_groups import generation_of, groups_of

USUAL_TIMEOUT_S = 30.0
"""Time limit of a call in seconds, where tool and settings name no other."""


class Availability(StrEnum):
    """Kinds of session in which a tool exists. Its configuration key is `permission`."""

    ALWAYS = "always"
    MAIN = "main"
    """Only sessions in which an owner speaks directly. `main-only` is an alias."""
    NON_MAIN = "non-main"
    """Every session except main; hides the tool from the owner's own session."""
    BLOCKED = "blocked"


class Risk(StrEnum):
    """Worst possible effect of a call; decides the default approval."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


class Effect(StrEnum):
    """Recovery rule for a call that a crash interrupted."""

    PURE = "pure"
    """Run again."""
    IDEMPOTENT = "idempotent"
    """Run again, with the step's id as its idempotency key."""
    CHECKABLE = "checkable"
    """The tool finds the outcome of the call: it is reported as done, or run again."""
    UNSAFE = "unsafe"
    """Never run again automatically; the outcome is reported as unknown."""


class ApprovalMode(StrEnum):
    """Default for calls of a tool in a kind of session, before any rule. Its configuration key is `approval`."""

    ASK = "ask"
    ALLOW = "allow"
    DENY = "deny"


class SandboxPolicy(StrEnum):
    """Configured containment of a tool's processes, each stricter than the one before."""

    OFF = "off"
    """Runs on the host, in an own process namespace where the system has one."""
    AUTO = "auto"
    """Main sessions only: basic where a probe succeeds, else the host; every card states which."""
    BASIC = "basic"
    """Workspace writable, system read-only, home hidden, environment constructed, limits."""
    FULL = "full"
    """Basic with secret files of the workspace hidden, and never with the host's network."""


class SandboxMode(StrEnum):
    """Actual containment of one call's processes, decided from the `SandboxPolicy` and the available means."""

    OFF = "off"
    BASIC = "basic"
    FULL = "full"


class NetworkPolicy(StrEnum):
    """Configured network of a tool's contained programs."""

    AUTO = "auto"
    """In main with the sandbox `basic`: the host's network after a press, else none. Elsewhere none."""
    NONE = "none"
    PUBLIC = "public"
    """Public hosts only, over HTTP and HTTPS through an egress proxy."""
    HOST = "host"


class NetworkMode(StrEnum):
    """Actual network of one call's programs, decided from the `NetworkPolicy`, the sandbox and who allowed it."""

    NONE = "none"
    """A network namespace of its own, with nothing in it but its own loopback."""
    PUBLIC = "public"
    """As NONE, with an egress proxy as the one way out."""
    HOST = "host"
    """The host's, with its loopback and its private networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFloor:
    """Least containment of every call in a session, regardless of a tool's settings. Presets set it."""

    mode: SandboxMode = SandboxMode.OFF
    """Weakest sandbox."""
    read_only: bool = False
    """True when programs may not write to the workspace; needs a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Specification of a tool. Data only: no vendor import, no I/O."""

    name: str
    """Unique name in a registry: lower case, digits and `_`."""
    description: str
    """One or two sentences for the model."""
    risk: Risk
    effect: Effect
    availability: Availability
    """Default availability."""
    timeout_s: float = USUAL_TIMEOUT_S
    max_timeout_s: float | None = None
    """Maximum for a call's argument `timeout`, in seconds; None: a call may only lower the timeout."""
    actions: Mapping[str, float] = field(default_factory=dict[str, float])
    """Timeout in seconds by action, for tools with an argument `action`."""
    sandbox: SandboxPolicy | None = None
    """Default sandbox in main; elsewhere it is at least basic. None: the tool starts no process."""
    network: NetworkPolicy | None = NetworkPolicy.AUTO
    """Default network of its contained programs. None: the tool opens its own ways out, as a browser does."""
    positional: str | None = None
    """Argument that takes the whole text after `/<name>`; None: the text is `key=value` words."""
    shows: str | None = None
    """Argument that a card shows as the code to run; the others are listed below it."""
    in_preview: frozenset[str] = frozenset()
    """Arguments whose whole effect a `Preview` shows, so that a card with one leaves them out."""
    approval: Mapping[str, ApprovalMode] = field(default_factory=dict[str, ApprovalMode])
    """Default approval by kind of session, where it differs from the risk's default."""
    settings: type[Any] | None = None
    """pydantic model of the tool's own keys in `[tools.<name>]`, each with a default; None: it has none."""
    needs: str = ""
    """Package that must be installed for the tool to exist: `playwright`. Empty: none."""
    extra: str = ""
    """Extra of Dragoman that installs that package."""
    command: str = ""
    """Name of the tool as a command, when shorter than its own: `spawn` for `sessions_spawn`."""
    example: str = ""
    """Example of a command's text, for help texts: `uptime`."""
    in_order: bool = False
    """True when the calls of one answer run in sequence: an approval of one may cover the next."""
    of_children: bool = False
    """True for a tool that spawns or manages sub-sessions. A session that may have none is not offered it."""
    channel: str = ""
    """Name of the channel that it writes to. Without that channel in the configuration the tool does not exist."""
    posts: frozenset[PostAct] = frozenset()
    """Posts that it makes: the channel must be able to show each of them."""
    subjects: frozenset[SubjectKind] | None = None
    """Kinds of the subjects that its calls touch, for the checks of rules; None: not stated."""
    group: str = ""
    """For a tool that is not part of Dragoman: its tool group (`gateway.domain.tool_groups`), such as `network`."""
    enters_plan: bool = False
    """True for a tool that begins planning. It exists in sessions of people that do not plan."""
    leaves_plan: bool = False
    """True for a tool that ends the planning. It exists only under a read-only preset of people. A person decides about
    each call of it, regardless of rules and grants."""
    indexed: bool = False
    """True for a tool that a model finds and calls through `tools`: its schema is not part of every request."""
    returns_child_text: bool = False
    """True for a tool whose result text is a sub-session's last text: Markdown to be shown as such, not output of a
    program."""

    @property
    def by_hand(self) -> str:
        """Name of the tool as a command."""
        return self.command or self.name

    @property
    def groups(self) -> frozenset[str]:
        """Names of its tool groups."""
        return groups_of(self.name, self.group)

    @property
    def generation(self) -> int:
        """Lowest generation that has it."""
        return generation_of(self.name, self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Configured tool: the spec's defaults overridden by the owner's settings."""

    availability: Availability
    approval: Mapping[str, ApprovalMode]
    """Approval by session kind (`main`, `dm`, `non-main`); a missing kind has the default of the risk."""
    timeout_s: float
    actions: Mapping[str, float]
    sandbox: SandboxPolicy | None
    network: NetworkPolicy | None = NetworkPolicy.AUTO
    ceilings: frozenset[str] = frozenset()
    """Actions whose timeout the owner has set, and the tool's name where its own is set: a call may only lower
    these."""
    settings: Any = None
    """Instance of the spec's `settings`; None when it has none."""
    rules: tuple[Rule, ...] = ()
    """The owner's rules about this tool, in the order of the configuration."""
    source: str = ""
    """Name of the tool's source, for rules about `SOURCE:*`."""
    deciding: ApproverRules = OWNERS_DECIDE
    """Rules of who decides about its calls."""

    def timeout_of(self, tool: str, action: str | None) -> float:
        """Return the timeout in seconds of an action, or of the tool for None.

        A timeout set for the tool caps each action without one of its own in the settings.
        """
        if action is None:
            return self.timeout_s
        own = self.actions[action]
        return min(own, self.timeout_s) if tool in self.ceilings and action not in self.ceilings else own


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Call as the model gave it. `arguments` is JSON text and may be malformed."""

    id: CallId
    tool: str
    arguments: str


ARGUMENTS_AT_MOST = 1_048_576
"""Maximum characters of arguments; a call with more is refused."""
NAMED_AT_MOST = 200
"""Maximum characters of a name that a model made up, of a tool or an argument. Models make names of any length."""


def call_of(id: str, tool: str, arguments: str) -> ToolCall:
    """Return a call to be stored, with overlong fields cut. Cut arguments still exceed their limit, so the call is
    refused.
    """
    return ToolCall(id=CallId(id), tool=tool[:NAMED_AT_MOST], arguments=arguments[: ARGUMENTS_AT_MOST + 1])


ACTION_BYTES = 65_536
"""Maximum UTF-8 bytes of an action as people see it. A longer one cannot be approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One exact action. Its canonical form is what an approval binds and what runs."""

    tool: str
    arguments: Mapping[str, Any]
    """Validated arguments, JSON-safe, defaults filled in."""
    cwd: str
    sandbox: SandboxMode | None
    """None for a tool that starts no process."""
    network: NetworkMode | None = None
    """None for a tool that starts no process, or opens its own ways out."""
    read_only: bool = False
    """True when its programs cannot write to the workspace."""
    home: str = ""
    """Id of the place that holds the workspaces: the same path elsewhere has other files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """First network destination of a call, through an egress proxy."""

    host: str
    """`host:port`, always with the port, IPv6 in brackets."""
    permitted: tuple[str, ...] = ()
    """Hosts of private networks, and other ports, that the owner's settings permit."""
    setting: str = ""
    """Name of that setting for people, as in `[tools.browser] hosts`."""


class SubjectKind(StrEnum):
    """Kinds of things that a call touches: the prefixes of `CallScope.subjects`."""

    COMMAND = "command"
    """Text that a shell runs."""
    PATH = "path"
    """Path in the workspace, relative to it, without `..`."""
    HOST = "host"
    """Host as `host_scope` writes it: lower case, in punycode, with an unusual port."""
    CHAT = "chat"
    """Conversation other than the one at hand, as the configuration names it, without its channel: `-1003`. Closed by
    default: a call is refused unless a rule allows or asks about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """Everything that one call may touch, and its worst possible effect. Computed by the tool, purely."""

    risk: Risk
    """Risk of this call in place of the spec's. A configured "allow" covers only the tool's own risk; other risks are
    asked about."""
    subjects: tuple[str, ...] = ()
    """All things that the call touches, each `kind:text` with a `SubjectKind`: `path:notes/july.md`."""
    sends: tuple[str, ...] = ()
    """Hosts that may receive data of the session."""
    summary: str = ""
    """One-line summary of the call for its card; empty: the text of the risk is used."""
    scope: str = ""
    """Scope that one approval covers until the session's history is reset, such as a host; empty: this one call."""
    refused: str = ""
    """Reason why the owner's settings never permit it, with the cure; empty when they do."""
    workspace: str = ""
    """Absolute path of the workspace, filled in by the decision; empty where it is not known."""
    folder: str = ""
    """Folder of the workspace in which a command starts, relative to it."""
    destination: Destination | None = None
    """Checked before anybody is asked: a host that no egress proxy lets through is refused at once."""
    delegates: tuple[Delegation, ...] = ()
    """Sub-sessions that it would begin. Checked before anybody is asked: an unknown name is refused at once."""


USUAL_PORTS = frozenset({80, 443})
"""Ports of the web. One scope covers both."""


def ipv6_text(address: IPv6Address) -> str:
    """Return the plain form of an address as browsers write it: `::ffff:7f00:1`, where Python 3.13 has dots."""
    if address.ipv4_mapped is None:
        return str(address)
    high, low = divmod(int(address.ipv4_mapped), 1 << 16)
    return f"::ffff:{high:x}:{low:x}"


def host_scope(name: str, port: int) -> str:
    """Return the scope of a host: `host`, or `host:port` where the port is not a usual one; without `www.`.

    Approvals and egress proxies share this form. An IPv6 address gets brackets.
    """
    bare = name.removeprefix("www.")
    host = bare if "." in bare else name
    host = f"[{host}]" if ":" in host else host
    return host if port in USUAL_PORTS else f"{host}:{port}"


INBOX = "inbox"
"""Folder of a workspace for attachments. Reserved: a tool that saves a file by name refuses this first name."""


class ResultStatus(StrEnum):
    """Outcome of a call. Every planned call gets exactly one."""

    OK = "ok"
    ERROR = "error"
    """The tool ran and failed, or its arguments were not valid."""
    DENIED = "denied"
    """It did not run: a rule, a setting or a person denied it."""
    EXPIRED = "expired"
    """It did not run: nobody decided in time."""
    TIMEOUT = "timeout"
    """It was stopped at its timeout; partial output is kept."""
    CANCELLED = "cancelled"
    """It was stopped by /stop or shutdown, or withdrawn before it ran."""
    UNKNOWN = "unknown"
    """The process ended between the start and the end of the call; the effect may or may not have happened."""


PICTURES: Mapping[str, str] = MappingProxyType(
    {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}
)
"""Supported media types of pictures, with their file suffixes. They are stored, given to models and shown on the page;
a browser can run none of them."""
PICTURE_BYTES = 10_000_000
"""Maximum bytes of a picture that is stored or given to a model."""
KEPT_BYTES = 50_000_000
"""Maximum bytes of an artifact for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Picture made by a call, stored as a file in the session's output folder."""

    file: str
    """File name in that folder."""
    media_type: str
    """One of `PICTURES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """File made by a call, stored in the session's output folder for people."""

    file: str
    """File name in that folder."""
    name: str
    """Name shown to people."""
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Result of a call, also of one that was refused or did not finish."""

    status: ResultStatus
    text: str
    """The output, or the reason for its absence. `gateway.toolcalls.output` bounds it for every tool, keeping head and
    tail."""
    code: str = ""
    """Stable machine-readable code of a refusal or an error: a `DenyReason` or the tool's own."""
    hint: str = ""
    """Remedy in one sentence."""
    exit_code: int | None = None
    duration_ms: int = 0
    """Milliseconds of execution; the wait for a decision does not count."""
    dropped_bytes: int = 0
    """Bytes of output omitted from `text`; all of it is in `full_output`."""
    full_output: str = ""
    """Name of the file with the complete output in the session's output folder; empty when `text` is complete."""
    output_path: str = ""
    """Path of the same output for tools, relative to the workspace; empty when they cannot read it."""
    output_cut: bool = False
    """True when `output_path` holds only the beginning of it."""
    pictures: tuple[Picture, ...] = ()
    """Pictures in order of creation."""
    files: tuple[Artifact, ...] = ()
    """Other files for people, in order of creation. A model learns of them only from `text`."""
    posts: tuple[Post, ...] = ()
    """Posts of the call, at most one. Stored as a slot with this result, so that it is sent once."""
    untrusted: bool = False
    """True when `text` contains text of strangers, such as a web page's: a model is given it as data."""


def outcome_unknown(started_at: datetime | None) -> ToolResult:
    """Return the result of a call that was started and whose end was not recorded. Its effect may have happened, or a
    part.
    """
    began = f" at {started_at:%H:%M:%S} UTC" if started_at else ""
    return ToolResult(
        status=ResultStatus.UNKNOWN,
        text="",
        code="unknown",
        hint=f"Outcome unknown: the process ended after the start{began}. Do not assume success or failure; "
        "it is not run again unless it is asked for and allowed again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Effect of a call, such as the diff of an edit. Its tool read the workspace before anybody is asked."""

    text: str
    """Text for the card. It is shown whole, escaped like the arguments."""
    state: Mapping[str, Any]
    """JSON values that identify what was read, such as a file's hash. An approval holds only while they are the
    same."""
    exact: bool = True
    """False when the tool had to guess, such as an edit whose text was not found exactly: no grant covers the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Return value of a tool that waits: the store opened `wait` on this very step, and its answer becomes the
    result.
    """

    wait: WaitId
