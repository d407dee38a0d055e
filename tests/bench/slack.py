"""Slack's wire for the rows: a daemon or the bare SDK, on a fake Slack of its own in the bench's process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from channels.slack.manifest import manifest
from channels.slack.parts import RESENT
from tests.bench.world import OWNER, WITH_MODEL, WITHIN_S, Bench, Life, Watcher, pid_of, run_bare
from tests.support.slack import FakeSlack
from tests.support.slack.faults import Call, Fault
from tests.support.slack.rig import ONE, slack_rig

TEAM = "T0AA"
SDK = "tests.bench.slack_sdk"
PEOPLE = range(5000, 5250)
"""Some who may be written to."""
TALKERS = range(7000, 7050)
"""Those who talk in channels."""
CHANNELS = tuple(f"C{number}" for number in range(100, 150))
"""Channels that the bot is in, and all talkers."""
NO_LIMITS = "per_channel_per_s = 0\noverall_per_min = 0"
CONFIG = """
[owners]
ann = ["slack:{team}/{owner}"]
[limits]
messages_per_minute = 0
[people]
allow = ["slack:*"]
[chats]
allow = [{channels}]
[store]
url = "sqlite://{folder}/state/dragoman.db"
{rest}
"""


def user(number: str | int) -> str:
    """A person's id by the number that the rows know."""
    return f"U{number}"


def direct(number: str | int) -> str:
    """The id of the direct conversation with a person."""
    return f"D{number}"


@dataclass(slots=True)
class People:
    """The people of a bench on Slack."""

    slack: FakeSlack

    async def say(self, user: str, text: str) -> object:
        """Write in the direct conversation."""
        return self.slack.say(f"U{user}", text)


@dataclass(slots=True, kw_only=True)
class SlackLife(Life):
    """A daemon or the bare SDK, and its Slack."""

    slack: FakeSlack


@asynccontextmanager
async def run_slack_daemon(
    bench: Bench,
    config: str = "",
    *,
    model: bool = False,
    folder: Path | None = None,
    ready: bool = True,
    echo: bool = True,
) -> AsyncGenerator[SlackLife]:
    """A daemon on Slack; `config` is TOML besides; `echo`: it hears of its own messages, as in earnest.

    Raises `AssertionError` when it did what the fake finds odd.
    """
    folder, watcher = folder or bench.new_folder(), Watcher()
    channels = ", ".join(f'"slack:{TEAM}/{channel}"' for channel in CHANNELS)
    rest = (WITH_MODEL.format(url=bench.model.base_url) if model else "") + config
    text = CONFIG.format(team=TEAM, owner=user(OWNER), channels=channels, folder=folder, rest=rest)
    async with slack_rig(folder, config=text, limits=NO_LIMITS, workspaces=((ONE, TEAM),)) as rig:
        _populate(rig.slack, watcher, echo=echo)
        await rig.start({"DRAGOMAN_LOG__LEVEL": "info"}, ready=ready)
        yield SlackLife(
            platform=People(rig.slack),
            watcher=watcher,
            pid=pid_of(rig.daemon),
            daemon=rig.daemon,
            database=rig.daemon.state / "dragoman.db",
            slack=rig.slack,
        )


@asynccontextmanager
async def run_slack_sdk(bench: Bench, *words: str, model: bool = False, echo: bool = True) -> AsyncGenerator[SlackLife]:
    """The bare SDK on Slack; `words` of its command line besides the tokens."""
    watcher = Watcher()
    async with FakeSlack(TEAM).serve() as slack:
        slack.install(manifest("socket", account=ONE, public_url=""))
        _populate(slack, watcher, echo=echo)
        tokens = ["--api-root", slack.api_root, "--token", slack.bot_token, "--app-token", slack.app_token]
        asked = ["--model", bench.model.base_url] if model else []
        async with run_bare(SDK, *tokens, *asked, *words) as pid:
            yield SlackLife(platform=People(slack), watcher=watcher, pid=pid, slack=slack)


def _populate(slack: FakeSlack, watcher: Watcher, *, echo: bool) -> None:
    """Everybody is there, and the watcher sees what they are told."""
    for number in (OWNER, *PEOPLE):
        slack.direct(user(number))
    for channel in CHANNELS:
        slack.channel(channel, members=[user(number) for number in TALKERS])
    slack.app.ack_within_s = WITHIN_S  # a flood is taken at the app's pace; nothing of it comes twice
    slack.teller.echo = echo
    slack.script(before=lambda call: None, after=_shown_to(watcher))


def _shown_to(watcher: Watcher) -> Callable[[Call], Fault | None]:
    def after(call: Call) -> None:
        if call.method == "chat.postMessage" and call.acted:
            again = RESENT in str(call.parameters.get("text", ""))
            watcher.saw(call.channel.removeprefix("D"), repeated=again)

    return after
