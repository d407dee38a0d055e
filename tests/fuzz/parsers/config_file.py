"""A configuration file and the environment: settings that hold, or one `ConfigError` that names place and cure."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_tools import sessions_list, sessions_spawn, sessions_stop, shell
from config import accounts, agents, model, people, reading, settings, text_files, tools, values
from config import load as loading
from config.describe import lines
from config.load import load
from gateway.errors import ConfigError
from tests.fuzz import givens

READS = (accounts, agents, loading, model, people, reading, settings, text_files, tools, values)
WORDS = (
    *(
        b"[owners]",
        b"[http]",
        b"[model]",
        b"[[model.fallback]]",
        b"[channels.telegram]",
        b"[channels.slack.accounts.a]",
    ),
    *(b"[people]", b"[chats]", b"[tools.shell]", b"[tools.mine]", b"[agents.a]", b"[limits]", b"[log]", b"[sessions]"),
    *(b"[store]", b"port = ", b"url = ", b"timeout = ", b'"120s"', b"approval = ", b"allow = [", b'"env:NAME"'),
    *(b'"file:/dev/null"', b"0x7fffffffffffffff", b"1e999", b"nan", b"inf", b"1979-05-27T07:32:00Z", b"'''", b'"""'),
    *(b"a.b.c = 1", b"{a = 1}", b"9" * 400, b"0x" + b"f" * 4000, b"[" * 500, b"a = [[[[", b"module = "),
    *(b"\x1fDRAGOMAN_HTTP__PORT=", b"\x1fDRAGOMAN_OWNERS__ANN=", b"\x1fDRAGOMAN_MODEL__NAME=", b"\x1fNAME=secret"),
    *(b"\x1fDRAGOMAN_TOOLS__SHELL__TIMEOUT=", b"\x1fDRAGOMAN_MODEL__PRICES=", b"\x1fDRAGOMAN_HTTP_PORT=1"),
)
SHORTEST = 6
"""A secret of fewer characters stands in a warning by chance: `c` is in every sentence."""
SPECS = {module.SPEC.name: module.SPEC for module in (shell, sessions_spawn, sessions_list, sessions_stop)}


def target(data: bytes) -> None:
    """The file, then after each `\\x1f` a variable of the environment."""
    toml, *variables = data.split(b"\x1f")
    environ: dict[str, str] = {"HOME": "/nonexistent"}
    for one in variables[:50]:
        name, _, value = one.partition(b"=")
        if name and b"\x00" not in one:
            environ[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
    for held in ("DRAGOMAN_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "DRAGOMAN_STATE"):
        environ.pop(held, None)
    with tempfile.TemporaryDirectory(prefix="dragoman-fuzz-") as folder:
        file = Path(folder) / "config.toml"
        file.write_bytes(toml)
        try:
            loaded = load(file, Path(folder) / "state", environ, SPECS)
        except ConfigError as error:
            givens.check_words(error, most=200_000, sent=False)  # a hundred problems
            return
    assert loaded.settings.store.url
    assert loaded.settings.owners is not None
    assert 0 <= loaded.settings.http.port < 65_536
    assert set(SPECS) <= set(loaded.tools), "a tool without a policy"
    assert all(policy.timeout_s > 0 for policy in loaded.tools.values())
    warnings = "\n".join(loaded.warnings)
    for secret in loaded.secrets:
        text = secret.get_secret_value()
        assert len(text) < SHORTEST or text not in warnings, "a warning tells a secret"
    assert lines(loaded)
