"""Approvers of the configuration: people who exist and can be reached, and quorums that can be met."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
from config.tools import describe
from gateway.domain.approvers import ApproverRules
from gateway.errors import ConfigError

PEOPLE = """
[owners]
ann = ["telegram:1001"]
cleo = ["telegram:3003", "slack:T0AA/U0BB"]
[channels.telegram]
token = "env:T"
[channels.slack]
bot_token = "env:B"
app_token = "env:A"
[people]
allow = ["telegram:2002"]
[chats]
allow = ["telegram:-1003"]
"""


def loaded(tmp_path: Path, text: str) -> Loaded:
    file = tmp_path / "config.toml"
    file.write_text(PEOPLE + text)
    return load(file, tmp_path, {"T": "1:t", "B": "xoxb-1", "A": "xapp-1"}, tool_specs())


def test_a_tools_approvers_are_its_policy(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        '[tools.shell]\napprovers = ["ann", "telegram:2002"]\nquorum = 2\nrequester_may_approve = false\n'
        "escalate_to = []\n",
    )
    assert found.tools["shell"].deciding == ApproverRules(
        approvers=("ann", "telegram:2002"), quorum=2, requester_may_approve=False, escalate_to=()
    )
    assert found.tools["browser"].deciding == ApproverRules()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("", ""),
        ("quorum = 2", ", decided by 2 of the owners"),
        ('approvers = ["ann", "telegram:2002"]', ", decided by ann and telegram:2002"),
        ("requester_may_approve = false", ", decided by the owners, never by the requester"),
    ],
)
def test_the_check_says_who_decides(tmp_path: Path, table: str, told: str) -> None:
    plain = describe("shell", loaded(tmp_path, "").tools["shell"])
    found = describe("shell", loaded(tmp_path, f"[tools.shell]\n{table}\n").tools["shell"])
    assert found == plain + told


def test_a_chats_approvers_are_kept_by_chat(tmp_path: Path) -> None:
    found = loaded(tmp_path, 'approvers = { "telegram:-1003" = ["telegram:2002"] }\n')
    assert found.settings.chats.approvers == {"telegram:-1003": ("telegram:2002",)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[tools.shell]\napprovers = ["bob"]', "tools.shell.approvers[0]: there is no owner 'bob'. Known are: ann"),
        ('[tools.shell]\napprovers = ["*"]', "there is no owner '*'"),
        ('[tools.shell]\napprovers = ["telegram:*"]', "everyone cannot be"),
        ('[tools.shell]\napprovers = ["telegram:bob"]', "'telegram:bob'"),
        ('[tools.shell]\napprovers = ["web:ann"]', "web:ann needs no entry"),
        (
            '[tools.shell]\napprovers = ["telegram:9009"]',
            "may not write directly, so no card reaches them. Add them to",
        ),
        ('[tools.shell]\nescalate_to = ["ann", "telegram:9009"]', "tools.shell.escalate_to[1]: telegram:9009"),
        ('[tools.shell]\napprovers = "ann"', "tools.shell.approvers"),
        ("[tools.shell]\napprovers = []", "tools.shell.approvers: nobody may decide. Name somebody"),
        ("[tools.shell]\nquorum = 0", "tools.shell.quorum"),
        ("[tools.shell]\nquorum = 6", "tools.shell.quorum"),
        ("[tools.shell]\nquorum = true", "tools.shell.quorum"),
        ("[tools.shell]\nquorum = 3", "tools.shell.quorum: 3 people must allow a call, and 2 may. Name 3 different"),
        ('[tools.shell]\nquorum = 2\napprovers = ["ann", "telegram:1001"]', "2 people must allow a call, and 1 may"),
        ("[sessions]\nescalate_after = 1.0", "sessions.escalate_after"),
        ("[sessions]\nescalate_after = -0.1", "sessions.escalate_after"),
        ('approvers = { "telegram:-1004" = ["ann"] }', "telegram:-1004 is not in chats.allow"),
        ('approvers = { "telegram:-1003" = ["bob"] }', "there is no owner 'bob'"),
    ],
)
def test_a_mistake_is_reported_with_its_cure(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text + "\n")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[tools.shell]\napprovers = ["ann"]\nrequester_may_approve = false',
            "tools.shell: nobody can allow a call that ann asked for",
        ),
        (
            'approvers = { "telegram:-1003" = ["ann"] }\n[tools.shell]\nquorum = 2',
            "chats.approvers: telegram:-1003 names fewer people than the 2 who must allow shell",
        ),
    ],
)
def test_approver_rule_that_cannot_be_met_is_a_warning(tmp_path: Path, text: str, told: str) -> None:
    assert any(line.startswith(told) for line in loaded(tmp_path, text + "\n").warnings)


@pytest.mark.parametrize("name", ["ann", "telegram:1001", "telegram:2002", "slack:T0AA/U0BB"])
def test_an_owner_and_a_person_who_may_write_can_be_named(tmp_path: Path, name: str) -> None:
    found = loaded(tmp_path, f'[tools.shell]\napprovers = ["{name}"]\n')
    assert found.tools["shell"].deciding.approvers == (name,)
