"""Typed settings: one frozen model for each table of the configuration. Reads no file and no variable.

Defaults stand here, or are constants of `gateway.domain` beside the rule that uses them.

Every value validates itself and names its cure. Checks across tables are in `config.people`, `config.tools` and
`config.agents`; `[model]` is in `config.model`. Durations and secrets arrive already parsed (`config.values`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, cast
from urllib.parse import SplitResult

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    model_validator,
)

from channels._shared.settings import is_name
from config.basics import SettingsTable, address, is_address, is_loopback
from config.cluster import ClusterSettings
from config.model import ModelSettings
from config.paths import REDIS_URLS, STORE_BYTES, too_long
from config.retention import AuditSettings, KeepSettings
from config.values import Flaw
from config.voice import VoiceSettings
from gateway.domain.approvers import QUORUM_AT_MOST
from gateway.domain.budgets import Allowance, BudgetLimits
from gateway.domain.durability import Durability, StoreTerms
from gateway.domain.grants import GRANT_LASTS
from gateway.domain.ids import OwnerName, Principal
from gateway.domain.questions import QUESTION_EXPIRY
from gateway.domain.routes import WhileRunning
from gateway.domain.sessions import SessionKind
from gateway.domain.text import without_password
from gateway.domain.tool_groups import NEWEST
from gateway.domain.tools import ApprovalMode, Availability, NetworkPolicy, SandboxPolicy
from gateway.domain.turns import TurnLimits
from gateway.domain.waits import APPROVAL_EXPIRY_MAIN, APPROVAL_EXPIRY_OTHER, ESCALATE_AFTER

# --- single values --------------------------------------------------------------------------


def _public_url(text: str) -> str:
    parts = address(text, "https://chat.example.org")
    if parts.path not in {"", "/"}:
        raise Flaw("the address has a path", "Give the page a host name of its own and leave the path out")
    return _origin(parts)


def _origin(parts: SplitResult) -> str:
    """Return a URL without a path as browsers write it in `Host` and `Origin`: without the default port."""
    name = (parts.hostname or "").lower()
    if not name.isascii():
        name = name.encode("idna").decode()
    host = f"[{name}]" if ":" in name else name
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in {None, usual} else "")


def _host(text: str) -> str:
    written = re.fullmatch(r"[A-Za-z0-9:._-]{1,253}", text)
    if written and ":" in text and not is_address(text):
        raise Flaw(f"{text!r} is not a host", "Leave out the port: it stands in http.port")
    if not written or not is_name(text):
        raise Flaw(f"{text!r} is not a host", 'Write an address of this machine, for instance "127.0.0.1"')
    return text


def _allowed_host(text: str) -> str:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(:\d{1,5})?", text):
        raise Flaw(f"{text!r} is not a host name", 'Write, for instance, "chat.example.org"')
    return text.lower()


def _proxy(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        cure = 'Write, for instance, "10.0.0.2" or "10.0.0.0/24"'
        raise Flaw(f"{text!r} is not an address or a network", cure) from None


def _store_url(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme in REDIS_URLS:
        if not re.fullmatch(REDIS_URLS[scheme][0], rest):
            raise Flaw("this is no address of a Redis", f'Write "{REDIS_URLS[scheme][1]}"')
        return text
    if scheme == "sqlite" and re.fullmatch(r"/[^?#\x00]*[^/?#\x00]", rest):
        if why := too_long(rest, STORE_BYTES, "-journal"):
            raise Flaw(f"the system cannot open such a store: {why}", "Choose a shorter path")
        return text
    if text == "memory://":
        return text
    example = f"sqlite://{text}" if text.startswith("/") else "sqlite:///var/lib/dragoman/dragoman.db"
    where = without_password(text)
    raise Flaw(f"no store is known at {where!r}", f'Write "sqlite://" and an absolute path, as in "{example}"')


def _main_only(text: object) -> object:
    return Availability.MAIN if text == "main-only" else text


def _by_kind(value: object) -> object:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    if value not in set(ApprovalMode):
        choices = ", ".join(f'"{one}"' for one in ApprovalMode)
        cure = f'Write one of {choices}, or a table by kind: {{ main = "ask", dm = "deny" }}'
        raise Flaw(f"{repr(value) if isinstance(value, str) else 'it'} is none of the choices", cure)
    return dict.fromkeys(SessionKind, value)


def _import_path(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", text):
        raise Flaw(f"{text!r} is not an import path", 'Write "package.module", or "package.module:NAME"')
    return text


def _module(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
        raise Flaw(f"{text!r} is not a module's name", 'Write "package.module"')
    return text


MOST_TOKENS = 1_000_000_000_000
Money = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]


# --- tables ---------------------------------------------------------------------------------


class StoreSettings(SettingsTable):
    """`[store]`."""

    url: Annotated[str, AfterValidator(_store_url)] = Field(
        default="",
        description="`sqlite://` and an absolute path, or `redis://` (`rediss://` with TLS) and an address, or "
        "`redis+sentinel://` (`rediss+sentinel://`) and those of Sentinels. Default: dragoman.db in the state folder.",
    )
    durability: Durability | None = Field(
        default=None,
        description="Data that a Redis may lose when it fails: `always` (no loss), `one-second` or `none` (all may be "
        "lost). Without it, a Redis that may lose something, or does not say, is refused.",
    )
    replicas: StrictInt = Field(
        default=0,
        ge=0,
        le=9,
        description="Replicas of Redis that must have a write before anything follows from it. With fewer at hand "
        "nothing is acknowledged.",
    )

    @property
    def terms(self) -> StoreTerms:
        """Return the durability of the store."""
        return StoreTerms(durability=self.durability, replicas=self.replicas)


class HttpSettings(SettingsTable):
    """`[http]`."""

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="127.0.0.1", description="The address of this machine that the daemon listens on."
    )
    port: StrictInt = Field(default=8470, ge=0, le=65535, description="The port; 0 takes any free one.")
    public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        default=None, description="URL of the page from outside; sign-in links use it."
    )
    allowed_hosts: tuple[Annotated[str, AfterValidator(_allowed_host)], ...] = Field(
        default=(), description="Names in the Host header that are answered, besides public_url and loopback."
    )
    trusted_proxies: tuple[Annotated[str, AfterValidator(_proxy)], ...] = Field(
        default=(), description="Proxies (addresses or networks) whose X-Forwarded headers are believed."
    )

    @model_validator(mode="after")
    def _reachable_only_through_tls(self) -> HttpSettings:
        safe = is_loopback(self.host) or self.trusted_proxies or (self.public_url or "").startswith("https://")
        if not safe:
            raise Flaw(
                f"{self.host} can be reached from other machines, and nothing says that they come through TLS",
                'Write host = "127.0.0.1", or set public_url = "https://…", or name your TLS proxy in trusted_proxies',
                key="host",
            )
        return self


class PeopleSettings(SettingsTable):
    """`[people]`."""

    allow: tuple[str, ...] = Field(
        default=(),
        description='People who may write directly, besides the owners: "telegram:2002"; "telegram:*" is everyone.',
    )


class ChatsSettings(SettingsTable):
    """`[chats]`."""

    allow: tuple[str, ...] = Field(
        default=(), description='Groups and channels that are answered: "telegram:-1003", "slack:T0AA/C0CC".'
    )
    approvers: dict[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description='Approvers of a group or channel, in place of the owners: { "telegram:-1003" = ["ann", '
        '"telegram:2002"] }. The approvers of a tool come before these.',
    )


class SessionsSettings(SettingsTable):
    """`[sessions]`."""

    keep: KeepSettings = Field(
        default=KeepSettings(),
        description="Retention of each session's history: { turns = 500, days = 90 }. Older turns are removed with "
        "their files and sub-sessions. Default: everything.",
    )

    message_while_running: WhileRunning = Field(
        default=WhileRunning.STEER,
        description='A message while a turn runs: "steer" (into the running turn), "queue" (the next turn) or '
        '"interrupt" (stops the running turn and is the next one).',
    )
    approval_expiry_main: timedelta = Field(
        default=APPROVAL_EXPIRY_MAIN, description="Expiry of cards in an owner's own session."
    )
    preset: dict[SessionKind, str] = Field(
        default_factory=dict[SessionKind, str],
        description='Preset of sessions by kind until somebody chooses another: { dm = "explore" }. Default: "build".',
    )
    preset_folder: str | None = Field(
        default=None, description="A folder with own presets, a TOML file each; relative to the configuration file."
    )
    generation: dict[SessionKind, Annotated[StrictInt, Field(ge=1, le=NEWEST)]] = Field(
        default_factory=dict[SessionKind, int],
        description="Highest generation of tools by kind of session, 1 to 8: { dm = 4 }. Default: 8, every tool.",
    )
    approval_expiry_other: timedelta = Field(
        default=APPROVAL_EXPIRY_OTHER, description="Expiry of cards of other sessions."
    )
    question_expiry: timedelta = Field(default=QUESTION_EXPIRY, description="Expiry of questions of the agent.")
    grant_expiry: timedelta = Field(
        default=GRANT_LASTS,
        description='Lifetime of a grant that is given with "Always", or made by the approval of a host.',
    )
    escalate_after: Annotated[float, Field(strict=True)] = Field(
        default=ESCALATE_AFTER,
        ge=0,
        lt=1,
        description="Part of that time after which an open card is shown to further approvers too; 0 is never.",
    )


_USUAL = TurnLimits()


class LimitsSettings(SettingsTable):
    """`[limits]`."""

    calls_per_turn: StrictInt = Field(
        default=_USUAL.calls, ge=1, le=100_000, description="Tool calls that one turn may make."
    )
    time_per_turn: timedelta = Field(
        default=_USUAL.active, description="Time that one turn may work; waiting for a decision does not count."
    )
    tokens_per_turn: StrictInt = Field(
        default=_USUAL.tokens,
        ge=0,
        le=1_000_000_000_000,
        description="Tokens that one turn may read and write, its sub-sessions' included; 0 is no limit.",
    )
    time_per_child: timedelta = Field(
        default=_USUAL.child_active,
        description="Time that a sub-session may work at most, and does without a time of its own.",
    )
    open_approvals: StrictInt = Field(
        default=_USUAL.open_approvals,
        ge=1,
        le=1_000,
        description="Calls of one person that may wait for a decision in a session, and twice as many in all; an "
        "owner's own session has no limit.",
    )
    messages_per_minute: StrictInt = Field(
        default=20,
        ge=0,
        le=100_000,
        description="Messages of one person that are read in a minute; further ones are refused. Owners have no limit; "
        "0 is no limit for anybody.",
    )

    def of_a_turn(self) -> TurnLimits:
        """Return the limits of a turn."""
        return TurnLimits(
            calls=self.calls_per_turn,
            active=self.time_per_turn,
            tokens=self.tokens_per_turn,
            child_active=self.time_per_child,
            open_approvals=self.open_approvals,
        )


class PersonBudget(SettingsTable):
    """`[budgets.people.<name>]`."""

    tokens_per_day: StrictInt = Field(
        default=0, ge=0, le=MOST_TOKENS, description="As budgets.tokens_per_person_per_day; 0 is no limit."
    )
    money_per_day: Money = Field(default=0.0, description="As budgets.money_per_person_per_day; 0 is no limit.")


class BudgetSettings(SettingsTable):
    """`[budgets]`."""

    tokens_per_person_per_day: StrictInt = Field(
        default=0,
        ge=0,
        le=MOST_TOKENS,
        description="Tokens that models may read and write for one person on one day (UTC), owners included; 0 is no "
        "limit.",
    )
    money_per_person_per_day: Money = Field(
        default=0.0, description="The same in `model.currency`; every model needs a price then."
    )
    tokens_per_session: StrictInt = Field(
        default=0,
        ge=0,
        le=MOST_TOKENS,
        description="Tokens of one session with its sub-sessions, until `/new`; 0 is no limit.",
    )
    money_per_session: Money = Field(default=0.0, description="The same in `model.currency`.")
    people: dict[str, PersonBudget] = Field(
        default_factory=dict[str, PersonBudget],
        description="Budgets of single people in place of the first two: by owner's name or a person's id.",
    )

    def limits(self) -> BudgetLimits:
        """Return the budgets in tokens and millionths of the currency."""
        return BudgetLimits(
            person=_allowance(self.tokens_per_person_per_day, self.money_per_person_per_day),
            session=_allowance(self.tokens_per_session, self.money_per_session),
            people={name: _allowance(one.tokens_per_day, one.money_per_day) for name, one in self.people.items()},
        )


def _allowance(tokens: int, money: float) -> Allowance:
    return Allowance(tokens=tokens, micros=round(money * 1_000_000))


class SandboxSettings(SettingsTable):
    """`[sandbox]`."""

    memory_mb: StrictInt = Field(
        default=4096, ge=256, le=1_000_000, description="Megabytes that each of its processes may allocate."
    )
    tree_mb: StrictInt = Field(
        default=16_384,
        ge=0,
        le=10_000_000,
        description="Megabytes of all processes of a call together, measured once a second; 0 is no limit.",
    )
    file_mb: StrictInt = Field(
        default=10_240, ge=1, le=10_000_000, description="Megabytes of each file that it writes."
    )
    tmp_mb: StrictInt = Field(
        default=1024,
        ge=1,
        le=1_000_000,
        description="Megabytes of /tmp, /dev/shm and the home in `basic`, each. They are memory. Needs bubblewrap 0.8.",
    )


class LogSettings(SettingsTable):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of log lines that are written."
    )


_KINDS = [kind.value for kind in SessionKind]
_APPROVALS = [one.value for one in ApprovalMode]
_APPROVALS_BY_KIND: dict[str, Any] = {
    "anyOf": [
        {"enum": _APPROVALS},
        {"type": "object", "propertyNames": {"enum": _KINDS}, "additionalProperties": {"enum": _APPROVALS}},
    ]
}


class ToolSettings(SettingsTable):
    """`[tools.<name>]`. Missing keys default to the tool's own spec."""

    module: Annotated[str, AfterValidator(_module)] | None = Field(
        default=None, description='"package.module" of a tool that is not part of Dragoman; it runs with its rights.'
    )
    trust: StrictBool = Field(
        default=False,
        description="True: this file of the tools folder runs in the daemon, with all its rights, in place of a "
        "contained worker. The table is named as the file, without .py.",
    )
    permission: Annotated[Availability, BeforeValidator(_main_only)] | None = Field(
        default=None,
        description='Kinds of session that have it: "always", "main", "non-main" (everywhere but main), "blocked".',
    )
    approval: Annotated[
        dict[SessionKind, ApprovalMode], BeforeValidator(_by_kind), WithJsonSchema(_APPROVALS_BY_KIND)
    ] = Field(
        default_factory=dict[SessionKind, ApprovalMode],
        description='"ask", "allow" or "deny", or by kind of session: { main = "ask", dm = "deny" }.',
    )
    timeout: timedelta | None = Field(default=None, description="Time limit of a call; no call may ask for more.")
    approvers: tuple[str, ...] | None = Field(
        default=None,
        description='Approvers of its calls: names of owners and people\'s ids, ["ann", "telegram:2002"]. Default: the '
        "approvers of the chat, else the owners.",
    )
    quorum: StrictInt = Field(
        default=1, ge=1, le=QUORUM_AT_MOST, description="Number of different people who must allow a call."
    )
    requester_may_approve: StrictBool = Field(default=True, description="True: people may allow their own calls.")
    escalate_to: tuple[str, ...] | None = Field(
        default=None,
        description="Further approvers when nobody decided in time (`sessions.escalate_after`). Default: the other "
        "owners, except about an owner's own session.",
    )
    sandbox: SandboxPolicy | None = Field(
        default=None,
        description='Containment in main: "off", "basic", "full" (basic with secret files hidden), "auto". Elsewhere '
        'it is at least "basic".',
    )
    network: NetworkPolicy | None = Field(
        default=None,
        description='Network of its contained programs: "none", "public" (vetted public hosts over HTTP and HTTPS), '
        '"host", "auto" (in main with basic the host\'s after a press; otherwise none).',
    )


class WebSettings(BaseModel):
    """`[channels.web]`: the web page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: StrictBool = Field(default=True, description="Serve the web page and let owners sign in there.")
    cookie_lifetime: timedelta = Field(default=timedelta(days=30), description="Lifetime of a sign-in on the page.")


class ChannelModule(BaseModel):
    """`[channels.<name>]` with a `module`: a channel that is not part of Dragoman. All other keys are its own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    module: Annotated[str, AfterValidator(_import_path)] = Field(
        description='"package.module", whose CHANNEL is a ChannelSpec, or "package.module:NAME". Other keys are its.'
    )


# --- all of it ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with defaults filled in, except of tools, which became policies (`Loaded.tools`)."""

    owners: Mapping[OwnerName, tuple[Principal, ...]]
    """Each owner's principals on the channels, without the implicit one of the web page."""
    store: StoreSettings
    cluster: ClusterSettings
    http: HttpSettings
    model: ModelSettings
    web: WebSettings
    """The web page, `[channels.web]`."""
    people: PeopleSettings
    chats: ChatsSettings
    sessions: SessionsSettings
    audit: AuditSettings
    log: LogSettings
    voice: VoiceSettings
