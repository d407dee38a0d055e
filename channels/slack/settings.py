"""Settings of the Slack channel. Read by the configuration at start, used by `adapter`.

`[channels.slack]` is one workspace, called `main`; `[channels.slack.accounts.NAME]` are several. The configuration
builds the same `SlackSettings` from both, so users of the settings see only `accounts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from channels._shared.settings import ProxySetting, check_account_name, flaw, limit, server

Mode: TypeAlias = Literal["socket", "http"]
OFFICIAL_API = "https://slack.com/api/"
SECRETS = (r"x(?:ox[abeoprs]|app)-[A-Za-z0-9-]{10,}",)
"""Pattern of any Slack token, for redaction."""
_TOKEN_REST = re.compile(r"[A-Za-z0-9-]{1,500}")
_SIGNING_SECRET = re.compile(r"[!-~]{8,256}")  # Slack's are 32 hex digits; the tests' own servers have others
_KINDS: tuple[tuple[str, str], ...] = (
    ("xoxb-", "a bot's token"),
    ("xapp-", "an app-level token"),
    ("xoxp-", "a person's token"),
    ("xoxe", "a token that expires"),
    ("xoxa-", "an old workspace token"),
)
_TAKE_BOT = "Take the Bot User OAuth Token (xoxb-…) from the app's page OAuth & Permissions, with token rotation off"
_MAKE_APP = "Make an app-level token (xapp-…) with the scope connections:write on the app's page Basic Information"
_TAKE_SIGNING = "Take the Signing Secret from the app's page Basic Information"


def endpoint_path(account: str) -> str:
    """Return the path of an account's endpoint for events, presses and commands with `mode = "http"`."""
    return f"/slack/{account}"


def _token(prefix: str, what: str, cure: str) -> Callable[[SecretStr], SecretStr]:
    def check(token: SecretStr) -> SecretStr:
        text = token.get_secret_value()
        if text.startswith(prefix) and _TOKEN_REST.fullmatch(text.removeprefix(prefix)):
            return token
        kind = next((kind for start, kind in _KINDS if text.startswith(start) and start != prefix), "")
        raise flaw(f"it is {kind}, not {what}" if kind else f"it is not {what}", cure)

    return check


def _signing_secret(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    kind = next((kind for start, kind in _KINDS if text.startswith(start)), "")
    if kind:
        raise flaw(f"it is {kind}, not a signing secret", _TAKE_SIGNING)
    if not _SIGNING_SECRET.fullmatch(text):
        raise flaw("it is not a signing secret", _TAKE_SIGNING)
    return secret


def _api_root(text: str) -> str:
    server(text, OFFICIAL_API)
    return text.rstrip("/") + "/"


class SlackLimits(BaseModel):
    """Rate limits of outgoing messages, `[channels.slack.limits]`. 0 is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_channel_per_s: Annotated[float, Field(strict=True, ge=0, le=1000), AfterValidator(limit(1))] = Field(
        default=1, description="Messages a second to one channel; 0 is no limit. Short bursts of 3 pass."
    )
    overall_per_min: Annotated[float, Field(strict=True, ge=0, le=60_000), AfterValidator(limit(60))] = Field(
        default=300, description="Messages a minute of the whole workspace; 0 is no limit."
    )


class SlackAccount(BaseModel):
    """Settings of one workspace, `[channels.slack]` or `[channels.slack.accounts.NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bot_token: Annotated[SecretStr, AfterValidator(_token("xoxb-", "a bot's token", _TAKE_BOT))] = Field(
        description='The Bot User OAuth Token (xoxb-…): "env:NAME" or "file:PATH".'
    )
    mode: Mode = Field(
        default="socket", description='Transport of events: "socket" fetches them, "http" has them sent here.'
    )
    app_token: Annotated[SecretStr, AfterValidator(_token("xapp-", "an app-level token", _MAKE_APP))] | None = Field(
        default=None, description='For mode = "socket": the app-level token (xapp-…), "env:NAME" or "file:PATH".'
    )
    signing_secret: Annotated[SecretStr, AfterValidator(_signing_secret)] | None = Field(
        default=None, description='For mode = "http": the signing secret of Slack, "env:NAME" or "file:PATH".'
    )
    api_root: Annotated[str, AfterValidator(_api_root)] = Field(
        default=OFFICIAL_API, description="The Web API, when it is not Slack's own."
    )
    proxy: ProxySetting | None = Field(
        default=None, description='An HTTP proxy on the way there: "http://host:port", "env:NAME" or "file:PATH".'
    )
    limits: SlackLimits = Field(default=SlackLimits(), description="Rate limits of messages; 0 is no limit.")

    @model_validator(mode="after")
    def _has_what_its_mode_needs(self) -> SlackAccount:
        if self.mode == "socket" and self.app_token is None:
            cure = f'Write app_token = "env:NAME" ({_MAKE_APP[0].lower()}{_MAKE_APP[1:]}), or mode = "http"'
            raise flaw("without it no events can be fetched", cure, "app_token")
        if self.mode == "http" and self.signing_secret is None:
            take = f"{_TAKE_SIGNING[0].lower()}{_TAKE_SIGNING[1:]}"
            cure = f'Write signing_secret = "env:NAME" ({take}), or mode = "socket"'
            raise flaw("without it anybody could send messages in anybody's name", cure, "signing_secret")
        return self


class SlackSettings(BaseModel):
    """Settings of all workspaces, `[channels.slack]`, by name, in the order of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accounts: Mapping[str, SlackAccount]

    @model_validator(mode="after")
    def _accounts_are_apart(self) -> SlackSettings:
        bots: dict[str, str] = {}
        apps: dict[str, str] = {}
        for name, account in self.accounts.items():
            check_account_name(name)
            other = bots.setdefault(account.bot_token.get_secret_value(), name)
            if other != name:
                what = f"{other} and {name} have the same bot_token"
                raise flaw(what, "Give each the token of its own workspace, or remove one", "accounts")
            if account.mode != "socket" or account.app_token is None:
                continue
            other = apps.setdefault(account.app_token.get_secret_value(), name)
            if other != name:
                # Slack sends each event to any one of an app's sockets, whatever its workspace.
                what = f"{other} and {name} have the same app_token, so each would be given the other's events"
                cure = "Make an app of its own for each workspace; `dragoman slack-manifest` prints what it needs"
                raise flaw(what, cure, "accounts")
        return self
