"""Slack channel. `CHANNEL` is all that the configuration and the composition root know of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from channels._shared.settings import is_in_clear, is_safe_to_send_to
from channels.slack.ids import message_of
from channels.slack.settings import SECRETS, Mode, SlackAccount, SlackSettings
from gateway.domain.posts import PostAct
from gateway.ports import Build, ChannelSpec, IdForm, Mistake

_PERSON = re.compile(r"T[A-Z0-9]{1,31}/[UW][A-Z0-9]{1,31}")
_CHAT = re.compile(r"T[A-Z0-9]{1,31}/[CG][A-Z0-9]{1,31}")


def _load() -> Build:
    from channels.slack.adapter import build

    return build


def _person(text: str) -> Mistake | None:
    if _PERSON.fullmatch(text):
        return None
    return Mistake("is not a person on slack", "Write the account's own id, as in slack:T0AA/U0BB")


def _chat(text: str) -> Mistake | None:
    if _CHAT.fullmatch(text):
        return None
    return Mistake("is not a group or channel on slack", "Write its own id, as in slack:T0AA/C0CC")


def _check(account: SlackAccount, public_url: str | None) -> Iterator[Mistake]:
    if account.mode == "http" and public_url is not None and not is_safe_to_send_to(public_url):
        clear = "Slack sends through TLS, and public_url is http://"
        what = clear if public_url else "nothing says where Slack can send events"
        cure = 'Set http.public_url = "https://…" as the world reaches it, or write mode = "socket"'
        yield Mistake(what, cure, "mode")


def _warnings(settings: SlackSettings, _named: Sequence[str]) -> Iterator[str]:
    for name, account in settings.accounts.items():
        if is_in_clear(account.api_root):
            yield f"channels.slack: the tokens of {name} go to {account.api_root} without TLS."
        if account.mode == "socket" and account.signing_secret is not None:
            yield f'channels.slack: the signing_secret of {name} has no effect with mode = "socket".'
        if account.mode == "http" and account.app_token is not None:
            yield f'channels.slack: the app_token of {name} has no effect with mode = "http".'


def _describe(settings: SlackSettings) -> Iterator[tuple[str, str]]:
    for name, account in settings.accounts.items():
        yield name, f"{account.mode} at {account.api_root}"


def _manifest(table: Mapping[str, Any], account: str, public_url: str) -> Mapping[str, Any]:
    """Return the app manifest of one account. Raises `ValueError` for a mode that does not exist."""
    from channels.slack.manifest import manifest

    mode = table.get("mode", "socket")
    if mode not in {"socket", "http"}:
        raise ValueError('mode: it is none of the choices. Write one of "socket" or "http".')
    return manifest(cast("Mode", str(mode)), account=account, public_url=public_url)


CHANNEL = ChannelSpec(
    name="slack",
    api=2,
    load=_load,
    settings=SlackSettings,
    account=SlackAccount,
    account_noun="workspace",
    needs="a bot_token",
    person=IdForm(example="T0AA/U0BB", check=_person),
    chat=IdForm(example="T0AA/C0CC", check=_chat),
    secret_patterns=SECRETS,
    check=_check,
    warnings=_warnings,
    describe=_describe,
    manifest=_manifest,
    posts=frozenset(PostAct) - {PostAct.POLL},
    message_of=message_of,
    extra="slack",
)
