"""`dragoman explain`: the decision about a call from the configuration alone, and agreement with what is enforced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.load import load
from config.plugins import tool_specs
from gateway.app.explain import ConfiguredExplainer
from gateway.domain.sessions import SessionKind
from gateway.errors import BadRequest, StoreInUse
from gateway.ports import ControlEffect, SessionChange
from gateway.sandbox import Containment
from gateway.store import open_store
from gateway.system.clock import SystemClock
from gateway.toolcalls.explanation import Explanation
from tests.support.makers import control, inbound, route

NO_SANDBOX = Containment(can_bwrap=False, can_pid_namespace=False)
SANDBOX = Containment(can_bwrap=True, can_pid_namespace=True)
MAIN, DM, GROUP = SessionKind.MAIN, SessionKind.DM, SessionKind.NON_MAIN
FIRST, SECOND = "config.toml:1 (rules[0])", "config.toml:5 (rules[1])"
RULES = """\
[[rules]]
tool = "shell"
pattern = "git *"
decision = "allow"
[[rules]]
tool = "shell"
pattern = "git push *"
decision = "deny"
[tools.shell]
permission = "always"
"""


def told(tmp_path: Path, kind: SessionKind, tool: str, text: str, config: str = RULES) -> Explanation:
    file = tmp_path / "config.toml"
    file.write_text(config)
    loaded = load(file, tmp_path / "state", {"HOME": str(tmp_path)}, tool_specs())
    found = ConfiguredExplainer(loaded, SANDBOX).explain(kind, tool, text)
    assert not (tmp_path / "state").exists(), "it leaves no trace"
    return found


@pytest.mark.parametrize(
    ("kind", "tool", "text", "decision", "rule", "because"),
    [
        (MAIN, "shell", "git status", "allow", FIRST, f"{FIRST} allows 'git *'"),
        (MAIN, "shell", '{"command": "git status"}', "allow", FIRST, FIRST),
        (MAIN, "shell", "git push", "deny", SECOND, "A rule of the owner denies this"),
        (MAIN, "shell", "git status; make", "ask", "", "execute needs an approval"),
        (DM, "shell", "git status", "ask", "", "execute needs an approval"),
        (GROUP, "shell", "sudo git push", "deny", SECOND, "A rule of the owner denies this"),
        (MAIN, "shell", "", "deny", "", "/shell"),
        (MAIN, "shell", '{"command": 5}', "deny", "", "command"),
        (MAIN, "spawn", "count the files", "allow", "", "none is allowed here"),
        (DM, "sessions_spawn", "count the files", "ask", "", "needs an approval"),
        (MAIN, "sessions_list", "", "allow", "", "none is allowed here"),
        (MAIN, "nothing", "x", "deny", "", "There is no tool 'nothing'"),
    ],
)
def test_the_decision_is_reported_with_its_rule(
    tmp_path: Path, kind: SessionKind, tool: str, text: str, decision: str, rule: str, because: str
) -> None:
    found = told(tmp_path, kind, tool, text)

    assert (found.decision, found.rule) == (decision, rule)
    assert because in found.because


def test_the_order_names_each_step_up_to_the_deciding_one(tmp_path: Path) -> None:
    assert told(tmp_path, MAIN, "shell", "git log").order == (
        "available: always",
        "arguments: valid",
        "scope: execute, command:git log",
        "sandbox: basic",
        "preset: build",
        "layers: 2 of configuration",
        f"rules: {FIRST}: allow shell 'git *'",
    )
    assert told(tmp_path, MAIN, "shell", "make").order[-2:] == (
        "rules: none of 2 matches every subject",
        "default for execute in main: ask",
    )
    blocked = told(tmp_path, MAIN, "shell", "ls", '[tools.shell]\npermission = "blocked"\n')
    assert blocked.order == ("available: refused, blocked",)


def test_a_tool_that_a_rule_hides_names_that_rule(tmp_path: Path) -> None:
    hidden = told(tmp_path, MAIN, "shell", "ls", '[[rules]]\ntool = "*"\npattern = "*"\ndecision = "deny"\n')
    assert (hidden.decision, hidden.rule) == ("deny", FIRST)


def test_json_has_the_four_keys(tmp_path: Path) -> None:
    found = told(tmp_path, MAIN, "shell", "git log").as_table()
    assert sorted(found) == ["because", "decision", "order", "rule"]


async def test_stored_session_is_explained_without_a_daemon(tmp_path: Path) -> None:
    """Its preset counts; neither the store nor the folder of the session is changed."""
    state = tmp_path / "state"
    path = state / "dragoman.db"
    store = open_store(f"sqlite://{path}", SystemClock())
    planning = replace(control(ControlEffect.NONE), change=SessionChange(preset="plan"))
    assert await store.control(route(), inbound("/plan"), planning) == 0
    file = tmp_path / "config.toml"
    file.write_text(RULES)
    explainer = ConfiguredExplainer(load(file, state, {"HOME": str(tmp_path)}, tool_specs()), SANDBOX)

    with pytest.raises(StoreInUse):
        explainer.explain_stored("main:ann", "shell", "git status")
    await store.close()
    before = path.read_bytes()

    assert explainer.explain_stored("main:ann", "shell", "git status").decision == "allow"
    assert explainer.explain_stored("main:ann", "shell", "git commit").decision == "deny", "the plan is in force"
    with pytest.raises(BadRequest, match="There is no session 'main:bob'"):
        explainer.explain_stored("main:bob", "shell", "git status")
    assert path.read_bytes() == before
    assert {one.name for one in state.iterdir()} == {"dragoman.db", "dragoman.db.lock"}
