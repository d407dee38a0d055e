"""Settings of the Telegram channel. Read by the configuration at start, used by `adapter`.

`[channels.telegram]` is one account, called `main`; `[channels.telegram.accounts.NAME]` are several. The configuration
builds the same `TelegramSettings` from both, so users of the settings see only `accounts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from channels._shared.settings import ProxySetting, check_account_name, flaw, limit, server

OFFICIAL_API = "https://api.telegram.org"
SECRETS = (r"(?<!\d)\d{6,12}:[A-Za-z0-9_-]{30,}",)
"""Pattern of any bot's token, for redaction. In a URL the token follows `/bot` directly."""
# Lenient about the length: test servers, ours and others', issue short ones.
_TOKEN = re.compile(r"([1-9]\d{0,18}):([A-Za-z0-9_-]{1,256})")
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


def _token(token: SecretStr) -> SecretStr:
    if not _TOKEN.fullmatch(token.get_secret_value()):
        raise flaw(
            "it is not a bot's token",
            "Take it from @BotFather as a whole: a number, a colon, then letters, digits, - and _, without spaces",
        )
    return token


def _webhook_secret(secret: SecretStr) -> SecretStr:
    if not _WEBHOOK_SECRET.fullmatch(secret.get_secret_value()):
        raise flaw("Telegram takes no such secret", "Use 1 to 256 letters, digits, - and _")
    return secret


def _api_root(text: str) -> str:
    parts = server(text, OFFICIAL_API)
    if parts.path.rstrip("/").endswith("/bot"):
        raise flaw("the /bot at its end is added anyway", "Leave /bot out")
    return text.rstrip("/")


class TelegramLimits(BaseModel):
    """Rate limits of outgoing messages, `[channels.telegram.limits]`. 0 is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_chat_per_s: Annotated[float, Field(strict=True, ge=0, le=1000), AfterValidator(limit(1))] = Field(
        default=1, description="Messages a second to one chat; 0 is no limit. Short bursts of 3 pass."
    )
    per_group_per_min: Annotated[float, Field(strict=True, ge=0, le=60_000), AfterValidator(limit(60))] = Field(
        default=20, description="Messages a minute to one group; 0 is no limit."
    )
    overall_per_s: Annotated[float, Field(strict=True, ge=0, le=1000), AfterValidator(limit(1))] = Field(
        default=30, description="Messages a second of the whole account; 0 is no limit."
    )


class TelegramAccount(BaseModel):
    """Settings of one bot, `[channels.telegram]` or `[channels.telegram.accounts.NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: Annotated[SecretStr, AfterValidator(_token)] = Field(
        description='The token that @BotFather gave: "env:NAME" or "file:PATH".'
    )
    api_root: Annotated[str, AfterValidator(_api_root)] = Field(
        default=OFFICIAL_API, description="The Bot API server, when it is not Telegram's own."
    )
    proxy: ProxySetting | None = Field(
        default=None, description='An HTTP proxy on the way there: "http://host:port", "env:NAME" or "file:PATH".'
    )
    mode: Literal["polling", "webhook"] = Field(
        default="polling", description='Transport of updates: "polling" asks for them, "webhook" has them sent here.'
    )
    webhook_secret: Annotated[SecretStr, AfterValidator(_webhook_secret)] | None = Field(
        default=None, description='Secret that Telegram sends with every webhook: "env:NAME" or "file:PATH".'
    )
    limits: TelegramLimits = Field(default=TelegramLimits(), description="Rate limits of messages; 0 is no limit.")

    @model_validator(mode="after")
    def _webhooks_are_signed(self) -> TelegramAccount:
        if self.mode == "webhook" and self.webhook_secret is None:
            raise flaw(
                "without it anybody could send messages in anybody's name",
                'Write webhook_secret = "env:NAME" with 1 to 256 letters, digits, - and _, or mode = "polling"',
                "webhook_secret",
            )
        return self

    @property
    def bot_id(self) -> int:
        """Return the bot's own user id, the first part of the token."""
        return int(self.token.get_secret_value().partition(":")[0])

    @property
    def bare_token(self) -> SecretStr:
        """Return the token's secret half, also redacted alone: libraries and proxies cut at the colon."""
        return SecretStr(self.token.get_secret_value().partition(":")[2])


class TelegramSettings(BaseModel):
    """Settings of all accounts, `[channels.telegram]`, by name, in the order of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accounts: Mapping[str, TelegramAccount]

    @model_validator(mode="after")
    def _accounts_are_apart(self) -> TelegramSettings:
        bots: dict[int, str] = {}
        for name, account in self.accounts.items():
            check_account_name(name)
            other = bots.setdefault(account.bot_id, name)
            if other != name:
                raise flaw(
                    f"{other} and {name} are the same bot ({account.bot_id})",
                    "Give each its own token from @BotFather, or remove one",
                    "accounts",
                )
        return self
