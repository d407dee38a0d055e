"""A daemon beside the fake Slack, in either mode: its configuration, its secrets and its address.

`async with slack_rig(folder, mode=…) as rig:`, then `await rig.start()`, `rig.slack.say(…)`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from channels.slack.manifest import manifest
from channels.slack.settings import Mode
from tests.support.daemon import Daemon
from tests.support.slack.server import FakeSlack

MODES: tuple[Mode, ...] = ("socket", "http")
_ACCOUNT = """
[channels.slack{table}]
mode = "{mode}"
api_root = "{api_root}"
bot_token = "env:SLACK_BOT_{secret}"
{key}
{more}
[channels.slack{table}.limits]
{limits}
"""
_SOCKET_KEY = 'app_token = "env:SLACK_APP_{secret}"'
_HTTP_KEY = 'signing_secret = "env:SLACK_SIGNING_{secret}"'
ONE = "main"
"""Name of the account of a plain `[channels.slack]`."""


@dataclass(slots=True, kw_only=True)
class SlackRig:
    """A daemon and its workspaces, by the account's name."""

    daemon: Daemon
    mode: Mode
    workspaces: dict[str, FakeSlack]
    config: str = ""
    """TOML besides `[channels.slack]`: owners, people, chats, model, tools."""
    limits: str = ""
    """Of every account, as TOML."""
    more: str = ""
    """Of every account, as TOML."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    line: AsyncExitStack = field(default_factory=AsyncExitStack)
    """While it is open, Slack can be reached."""

    @property
    def slack(self) -> FakeSlack:
        """The first workspace."""
        return next(iter(self.workspaces.values()))

    def tables(self) -> str:
        """The configuration of the channel."""
        several = list(self.workspaces) != [ONE]
        return "".join(
            _ACCOUNT.format(
                table=f".accounts.{name}" if several else "",
                mode=self.mode,
                api_root=slack.api_root,
                key=(_SOCKET_KEY if self.mode == "socket" else _HTTP_KEY).format(secret=name.upper()),
                secret=name.upper(),
                more=self.more,
                limits=self.limits,
            )
            for name, slack in self.workspaces.items()
        )

    def secrets(self) -> Mapping[str, str]:
        """The environment that the configuration names."""
        found: dict[str, str] = {}
        for name, slack in self.workspaces.items():
            found[f"SLACK_BOT_{name.upper()}"] = slack.bot_token
            found[f"SLACK_APP_{name.upper()}"] = slack.app_token
            found[f"SLACK_SIGNING_{name.upper()}"] = slack.signing_secret
        return found

    async def start(self, env: Mapping[str, str] | None = None, *, ready: bool = True) -> None:
        """Begin a life. Each workspace installed the app from the daemon's own manifest: no other scopes or events."""
        for name, slack in self.workspaces.items():
            slack.install(manifest(self.mode, account=name, public_url=self.daemon.url))
        self.daemon.config = self.config + self.tables()
        own = {**self.secrets(), "DRAGOMAN_HTTP__PUBLIC_URL": self.daemon.url}
        await self.daemon.start({**own, **self.env, **(env or {})}, ready=ready)

    async def hang_up(self) -> None:
        """Nobody listens where Slack was: connections are refused."""
        await self.line.aclose()

    async def connect(self) -> None:
        """Slack can be reached, at its old address."""
        await self.line.enter_async_context(self.slack.serve())


@asynccontextmanager
async def slack_rig(
    folder: Path,
    *,
    mode: Mode = "socket",
    config: str = "",
    limits: str = "",
    workspaces: Sequence[tuple[str, str]] = ((ONE, "T0AA"),),
    warm: bool = False,
) -> AsyncGenerator[SlackRig]:
    """Everything but the daemon's first life. `workspaces`: account and team of each; `warm`: see `Daemon`.

    In the end the daemon is killed; no secret stands in a log and nothing odd was asked of Slack.
    """
    (name, team), *others = workspaces
    slack = FakeSlack(team)
    found = {name: slack, **{other: slack.another_workspace(id) for other, id in others}}
    async with AsyncExitStack() as line:
        await line.enter_async_context(slack.serve())
        rig = SlackRig(
            daemon=Daemon(folder=folder, warm=warm), mode=mode, workspaces=found, config=config, limits=limits
        )
        rig.line = line
        try:
            yield rig
        finally:
            await rig.daemon.kill()
        assert slack.surprises == []
        assert [key for key, secret in rig.secrets().items() if secret in rig.daemon.log] == []
