"""Command line `dragoman`: parse and print. Commands reach a running daemon through its control socket.

Each command imports its dependencies when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.import_guard import check_imports
from gateway.cli.imports import NOT_USED, hidden, importing
from gateway.cli.nodes import make_nodes
from gateway.cli.options import Options, TextCommand, places
from gateway.cli.stores import backup, compare_audit, export, export_audit, migrate, restore
from gateway.cli.terminal import approval, block, is_output_error, leave_output, read_input, table, use_streams
from gateway.errors import ConfigError, DragomanError

if TYPE_CHECKING:
    from config.load import Loaded
    from config.rule_cases import RuleCase
    from gateway.app.explain import ConfiguredExplainer
    from gateway.cli.own_tools import Tools

_ANSWER_S = 35.0
"""Timeout in seconds for an answer of the daemon, a little above the daemon's own."""
_LONGER_S = 5.0
"""Seconds added to the daemon's own timeout for slow commands."""
_NOT_WHOLE = "Stop the daemon and keep a copy of its state folder; deploy/RUNBOOK.md has the next steps."


_SCRIPT_COMMANDS = ("add", "test", "bench", "twins", "fuzz", "mutants", "soak", "proof")
_SCRIPT_CURE = "It belongs to the script `run` of a clone: ./run "
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "help": "Write --help.",
        "version": "Write --version.",
        "start": "Write `dragoman run`.",
        "serve": "Write `dragoman run`.",
        "stop": "Press Ctrl-C where the daemon runs, or stop its unit: systemctl stop dragoman.",
        "restart": "Stop the daemon, then write `dragoman run`; with the unit: systemctl restart dragoman.",
        "status": "Write `dragoman sessions` for what runs and waits, `dragoman check` for what is set.",
        "config": "Write `dragoman check`, which prints what is set and where it is read.",
        "log": "The log is on standard error of the daemon; with the unit: journalctl -u dragoman.",
        "logs": "The log is on standard error of the daemon; with the unit: journalctl -u dragoman.",
        "login": "Write `dragoman link`.",
        **{name: f"{_SCRIPT_CURE}{name}." for name in _SCRIPT_COMMANDS},
    }
)
"""Cures by name of commands that people try and that do not exist."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, 1 for a failure with its cure on stderr, 2 for wrong usage."""
    try:
        use_streams()
        check_imports()
        done = cli.main(args=None if argv is None else list(argv), prog_name="dragoman", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except DragomanError as error:
        click.echo(f"Error: {error.message}", err=True)
        if error.cure:
            click.echo(error.cure, err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        if not is_output_error(error):
            raise
        leave_output(error)
        return 1
    return done if isinstance(done, int) else 0


class _Commands(click.Group):
    """Command group that suggests the right command for a common wrong one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` name. Raises `UsageError`."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            if cure := _INSTEAD.get(args[0]):
                raise click.UsageError(f"{error.message} {cure}", ctx) from None
            raise click.UsageError(f"{error.format_message()} Known are: {', '.join(self.commands)}.", ctx) from None


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@places
@click.version_option(package_name="dragoman", prog_name="dragoman", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """Dragoman stands between chats and machines. Without a command: run the daemon."""
    context.obj = context.obj or Options()
    return _serve(context.obj) if context.invoked_subcommand is None else None


@cli.command()
@click.option("--node", metavar="NAME", help="The name of this node among those on the same store: [cluster] node.")
@click.option("--roles", metavar="ROLES", help="Its roles, of ingress,worker,delivery: [cluster] roles.")
@places
@click.pass_obj
def run(options: Options, node: str | None, roles: str | None) -> int:
    """Run the daemon until it is stopped."""
    given = {"DRAGOMAN_CLUSTER__NODE": node, "DRAGOMAN_CLUSTER__ROLES": roles}
    return _serve(options, {name: value for name, value in given.items() if value is not None})


@cli.command()
@places
@click.pass_obj
def demo(options: Options) -> int:
    """Run a separate daemon with a scripted model: an agent at work, without a key. Leaves nothing behind."""
    if options.config or options.state:
        raise click.UsageError("The demo brings a configuration and a state folder of its own; leave yours out.")
    with importing(), hidden(NOT_USED):
        from gateway.app.run import serve
        from gateway.cli.demo import demonstrate
    return demonstrate(serve)


@cli.command()
@click.argument("owner", required=False)
@places
@click.pass_obj
def link(options: Options, owner: str | None) -> None:
    """Print a link that signs OWNER in on the web page, once."""
    click.echo(_call(options, "link", {"owner": owner})["url"])


@cli.command()
@places
@click.pass_obj
def sessions(options: Options) -> None:
    """List the sessions, most recently active first."""
    rows = _call(options, "sessions", {})
    columns = ("id", "kind", "title", "running", "queued", "waiting", "active_at")
    click.echo(table(columns, rows) if rows else "There are no sessions yet.")


@cli.command()
@places
@click.pass_obj
def approvals(options: Options) -> None:
    """List the approvals that wait for a decision."""
    rows = _call(options, "approvals", {})
    click.echo("\n".join(approval(row) for row in rows) if rows else "Nothing waits for a decision.")


@cli.group()
@click.pass_obj
def grants(_options: Options) -> None:
    """Work with what is allowed without a question."""


@grants.command("list")
@places
@click.pass_obj
def list_grants(options: Options) -> None:
    """List the grants, the newest first."""
    rows = _call(options, "grants", {})
    columns = ("id", "allows", "place", "held_by", "granted_by", "expires_at", "used", "last_used_at")
    click.echo(table(columns, rows) if rows else "Nothing is granted.")


@grants.command("revoke")
@click.argument("grant")
@places
@click.pass_obj
def revoke_grant(options: Options, grant: str) -> None:
    """Take GRANT back: its id, or the beginning of it. It asks again from the next call on."""
    click.echo(f"Taken back: {_call(options, 'revoke', {'grant': grant})['allows']}")


@cli.group(invoke_without_command=True)
@click.option("--last", metavar="N", type=click.IntRange(0, 500), default=20, show_default=True, help="Rows to print.")
@places
@click.pass_context
def audit(context: click.Context, last: int) -> None:
    """List the last calls that started, and verify the whole audit. Exit code 1 when it is not whole."""
    if context.invoked_subcommand is not None:
        return
    from gateway.server.control_wire import AUDIT_TAKES_S

    found = _call(context.obj, "audit", {"last": last}, timeout_s=AUDIT_TAKES_S + _LONGER_S)
    columns = ("seq", "at", "call", "session", "by", "tool", "because", "rule")
    columns += ("decided_by", "approval", "sandbox", "action")
    if found["rows"]:
        click.echo(table(columns, found["rows"]) + "\n")
    if found["broken"] is not None:
        raise DragomanError(found["broken"], cure=_NOT_WHOLE)
    click.echo(f"The audit is whole: {found['count']} rows, {found['calls']} started calls. Its head: {found['head']}")
    if found["removed"]:
        click.echo(f"Rows 1 to {found['removed']} were removed behind an export.")


@cli.command(cls=TextCommand)
@click.argument("text")
@click.option("--owner", metavar="NAME", help="Owner of the main session it goes to; needed with several owners.")
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@places
@click.pass_obj
def send(options: Options, text: str, owner: str | None, wait: bool) -> int:
    """Send TEXT to an owner's main session. TEXT `-` is read from standard input.

    With --wait the exit code is 1 when the turn did not finish.
    """
    from gateway.server.control_wire import SEND_WAITS_S

    said = read_input() if text == "-" else text
    if not said.strip():
        raise click.UsageError("There is no text to send.")
    args = {"owner": owner, "text": said, "wait": wait}
    found = _call(options, "send", args, timeout_s=SEND_WAITS_S + _LONGER_S if wait else _ANSWER_S)
    answer = found.get("answer")
    try:
        click.echo("Sent." if answer is None else block(answer, ""))
    except OSError as error:
        if is_output_error(error):
            click.echo("It was sent: do not send it again. Its answer cannot be printed.", err=True)
        raise
    return 0 if found.get("state", "done") == "done" else 1


@cli.command(cls=TextCommand)
@click.argument("tool")
@click.argument("text", default="")
@click.option(
    "--kind", type=click.Choice(["main", "dm", "non-main"]), default="main", show_default=True, help="Kind of session."
)
@click.option("--preset", metavar="NAME", default="", help="Preset in force. Default: that of the kind.")
@click.option("--session", metavar="ID", help="A stored session, with its preset and grants.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@places
@click.pass_context
def explain(
    context: click.Context, tool: str, text: str, kind: str, preset: str, session: str | None, *, as_json: bool
) -> None:
    """Show if a call of TOOL would run, ask or be denied, and why. TEXT is that of a chat command, or JSON.

    Reads the configuration, and for --session the store. Runs nothing; the daemon need not run.
    """
    import json

    from gateway.domain.sessions import SessionKind

    options: Options = context.obj
    if session is not None:
        if preset or context.get_parameter_source("kind") is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError("A session has its own kind and preset: leave out --kind and --preset.")
        found = _explain_stored(options, session, tool, text)
    else:
        found = _explainer(options).explain(SessionKind(kind), tool, text, preset).as_table()
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    click.echo(f"{found['decision']}: {found['because']}")
    if found["rule"]:
        click.echo(f"  rule: {found['rule']}")
    for n, step in enumerate(found["order"], 1):
        click.echo(f"  {n}. {step}")


def _explainer(options: Options) -> ConfiguredExplainer:
    import asyncio

    from gateway.app.explain import ConfiguredExplainer
    from gateway.sandbox import probe

    return ConfiguredExplainer(_load(options), asyncio.run(probe()))


def _explain_stored(options: Options, session: str, tool: str, text: str) -> Any:
    """Ask the daemon, or read the store that no daemon holds."""
    from config.paths import find_state
    from gateway.server.control_client import is_running
    from gateway.server.control_wire import socket_path

    if is_running(socket_path(find_state(options.state, os.environ))):
        return _call(options, "explain", {"session": session, "tool": tool, "text": text})
    return _explainer(options).explain_stored(session, tool, text).as_table()


@cli.group()
@click.pass_obj
def tools(_options: Options) -> None:
    """Work with tools, above all your own."""


@tools.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are part of Dragoman.")
@places
@click.pass_obj
def list_tools(options: Options, *, every: bool) -> None:
    """List your own tools, and why one cannot be used."""
    rows = _tools(options).rows(own=not every)
    click.echo(table(("name", "source", "risk", "where", "state"), rows) if rows else "There are no tools of your own.")


@tools.command("show")
@click.argument("name")
@places
@click.pass_obj
def show_tool(options: Options, name: str) -> None:
    """Print what is known of the tool NAME, with the schema of its arguments."""
    click.echo("\n".join(_tools(options).lines(name)))


@tools.command("price")
@places
@click.pass_obj
def price_tools(options: Options) -> None:
    """List the bytes that each tool adds to the first request of a model."""
    click.echo(table(("name", "first_request", "when_used"), _tools(options).prices()))


@tools.command("new")
@click.argument("name")
@places
@click.pass_obj
def new_tool(options: Options, name: str) -> None:
    """Write a template for the tool NAME into your tools folder."""
    from gateway.cli.own_tools import write_template

    click.echo(f"Written: {write_template(_load(options), name)}")


@tools.command("run")
@click.argument("name")
@click.argument("arguments", default="{}")
@click.option("--owner", metavar="NAME", help="Owner of the main session it runs in; needed with several owners.")
@places
@click.pass_obj
def run_tool(options: Options, name: str, arguments: str, owner: str | None) -> int:
    """Call the tool NAME with ARGUMENTS, a JSON object, in your main session of the running daemon.

    It is decided like any call: where it asks, press in the chat or on the page. Exit code 1 when it did not finish.
    """
    from gateway.cli.own_tools import command
    from gateway.server.control_wire import SEND_WAITS_S

    args = {"owner": owner, "text": command(_tools(options).get(name), arguments), "wait": True}
    found = _call(options, "send", args, timeout_s=SEND_WAITS_S + _LONGER_S)
    click.echo(block(found.get("answer") or "It has not finished.", ""))
    return 0 if found.get("state", "done") == "done" else 1


def _tools(options: Options) -> Tools:
    from gateway.cli.own_tools import Tools

    return Tools(_load(options))


@cli.group()
@click.pass_obj
def rules(_options: Options) -> None:
    """Work with the rules of the configuration."""


@rules.command("test")
@click.argument("file", type=click.Path(path_type=Path))
@places
@click.pass_obj
def test_rules(options: Options, file: Path) -> int:
    """Compare the decisions that FILE expects with those that would be made. Runs nothing.

    FILE is TOML: [[case]] tables with tool, text and decision, and optionally kind, preset, session and because. Exit
    code 1 when a decision is another one, 2 when FILE is malformed.
    """
    from config.rule_cases import read_cases
    from gateway.app.rule_cases import failed
    from gateway.toolcalls.explanation import Explanation

    try:
        cases = read_cases(file)
    except ConfigError as error:
        click.echo(f"Error: {error.message}\n{error.cure}".rstrip(), err=True)
        return 2
    explainer = _explainer(options)

    def explained(one: RuleCase) -> Explanation:
        if not one.session:
            return explainer.explain(one.kind, one.tool, one.text, one.preset)
        return Explanation.of(_explain_stored(options, one.session, one.tool, one.text))

    failures = list(failed(cases, explained))
    for failure in failures:
        click.echo("\n".join(failure.lines()))
    click.echo(f"{len(cases) - len(failures)} of {len(cases)} cases are decided as expected.")
    return 1 if failures else 0


@cli.command("slack-manifest")
@click.option("--account", metavar="NAME", help="Account of [channels.slack.accounts.NAME]; needed with several.")
@places
@click.pass_obj
def slack_manifest(options: Options, account: str | None) -> None:
    """Print the Slack app manifest; paste it at api.slack.com/apps, Create New App, From a manifest."""
    import json

    from config.manifest import app_manifest

    made = app_manifest("slack", options.config, os.environ, account)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))


@cli.command()
@places
@click.pass_obj
def check(options: Options) -> int:
    """Check the configuration and this machine, and print the settings. Exit code 1 when there are problems."""
    from config.describe import lines
    from gateway.app.channel_loader import import_channels
    from gateway.app.machine_checks import CheckResult, Level, look
    from gateway.app.preflight import refusals
    from gateway.app.tool_loader import check_tools
    from gateway.domain.tools import SandboxPolicy

    loaded = _load(options)
    import_channels(loaded.channels)
    rows = lines(loaded)
    width = max(len(what) for what, _ in rows)
    for what, how in rows:
        click.echo(f"{what.ljust(width)}  {how}")
    click.echo()
    http = loaded.settings.http
    findings = [CheckResult(level=Level.NOTE, what=warning) for warning in loaded.warnings]
    findings += look(
        state=loaded.state,
        store_url=loaded.settings.store.url,
        host=http.host,
        port=http.port,
        contained=[
            name for name, policy in loaded.tools.items() if policy.sandbox in (SandboxPolicy.BASIC, SandboxPolicy.FULL)
        ],
    )
    findings += [CheckResult(level=Level.PROBLEM, what=one.message, cure=one.cure) for one in refusals(loaded)]
    findings += [
        CheckResult(level=Level.NOTE if cure else Level.OK, what=what, cure=cure) for what, cure in check_tools(loaded)
    ]
    for found in findings:
        click.echo(f"{found.level.value.upper() if found.level is Level.PROBLEM else found.level.value:8} {found.what}")
        if found.cure:
            click.echo(f"{'':8} {found.cure}")
    return 1 if any(found.level is Level.PROBLEM for found in findings) else 0


for command in (export, migrate, backup, restore):
    cli.add_command(command)
audit.add_command(export_audit)
audit.add_command(compare_audit)


def _load(options: Options, given: Mapping[str, str] = MappingProxyType({})) -> Loaded:
    from config.load import load
    from config.plugins import tool_specs

    return load(options.config, options.state, {**os.environ, **given}, tool_specs())


def _serve(options: Options, given: Mapping[str, str] = MappingProxyType({})) -> int:
    with importing():
        with hidden(NOT_USED):
            from gateway.app.channel_loader import import_channels
            from gateway.app.run import serve
        loaded = _load(options, given)  # imports the owner's own tools, which may need any package
        with hidden(NOT_USED):
            import_channels(loaded.channels)
    return serve(loaded)


def _call(options: Options, command: str, args: Mapping[str, Any], *, timeout_s: float = _ANSWER_S) -> Any:
    from config.paths import find_state
    from gateway.server.control_client import call
    from gateway.server.control_wire import socket_path

    return call(socket_path(find_state(options.state, os.environ)), command, args, timeout_s)


cli.add_command(make_nodes(places, _call))
