"""What is set, in lines for `dragoman check`. Secrets are said to be set, and never shown."""

from __future__ import annotations

from config.load import Loaded
from config.settings import ModelSettings
from config.tools import describe
from config.values import spoken


def lines(loaded: Loaded) -> list[tuple[str, str]]:
    """Return (what, how it is set), in the order of the configuration's tables."""
    settings = loaded.settings
    rows = [
        ("configuration", str(loaded.file) if loaded.file else "no file: all defaults"),
        *((f"${name}", "overrides it") for name in loaded.variables),
        ("state folder", str(loaded.state)),
        *((f"owner {name}", ", ".join(who) or "the web page only") for name, who in settings.owners.items()),
        ("store", settings.store.url),
        ("listens on", f"{settings.http.host}:{settings.http.port or 'any free port'}"),
        *([("reached as", settings.http.public_url)] if settings.http.public_url else []),
        *_model(settings.model),
        ("channel web", _web(loaded)),
        *_telegram(loaded),
        *((f"channel {name}", channel.module) for name, channel in settings.channels.imported.items()),
        ("other people", ", ".join(settings.people.allow) or "nobody"),
        ("groups", ", ".join(settings.chats.allow) or "none"),
        ("message while running", settings.sessions.message_while_running.value),
        *((f"tool {name}", describe(policy)) for name, policy in sorted(loaded.tools.items())),
    ]
    return [(what, how) for what, how in rows]


def _model(model: ModelSettings) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for what, one in (("model", model), *(("fallback", one) for one in model.fallback)):
        parts = [one.name, f"at {one.base_url}" if one.base_url else "", "key set" if one.api_key else ""]
        rows.append((what, ", ".join(part for part in parts if part)))
    return rows


def _web(loaded: Loaded) -> str:
    web = loaded.settings.channels.web
    return f"on, a sign-in lasts {spoken(web.cookie_lifetime)}" if web.enabled else "off"


def _telegram(loaded: Loaded) -> list[tuple[str, str]]:
    telegram = loaded.settings.channels.telegram
    return [
        (f"channel telegram/{name}", f"bot {account.bot_id}, {account.mode} at {account.api_root}")
        for name, account in (telegram.accounts.items() if telegram else ())
    ]
