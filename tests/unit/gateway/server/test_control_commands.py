"""Answers to CLI commands: links, lists, and messages of an owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.app.wiring import make_why
from gateway.domain.audit import AuditRow
from gateway.domain.ids import TurnId
from gateway.domain.steps import Answer
from gateway.domain.tools import Risk
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import Verb
from gateway.errors import BadRequest, ModelError, StoreError
from gateway.ports import Audit
from gateway.server import control_commands
from gateway.server.control_commands import ControlCommands
from gateway.store.audit_files import NAMES
from tests.support.engine import Engine, Served, served
from tests.support.fakes import CLEO, NODE, FakeTool, calls, in_background
from tests.support.makers import ANN
from tests.support.patience import PATIENCE_S


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    shell = FakeTool(name="shell", risk=Risk.EXECUTE)
    async with served(Engine(tmp_path, [shell, FakeTool(name="read")])) as found:
        yield found


def local(page: Served, *owners: str) -> ControlCommands:
    names = [name for name in (ANN, CLEO) if name in (owners or ("ann",))]
    return ControlCommands(
        web_access=page.web_access,
        http=page.http,
        ingress=page.engine.ingress,
        queries=page.engine.store,
        audit=page.engine.store,
        grants=page.engine.store,
        node=page.engine.store,
        why=make_why(page.engine.core),
        events=page.engine.store.event_bus,
        clock=page.engine.clock,
        owners=names,
    )


async def does(commands: ControlCommands, name: str, **args: Any) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return await commands.commands()[name](args)


async def test_a_link_signs_its_owner_in_once(page: Served) -> None:
    found = await does(local(page), "link")
    base, _, code = found["url"].partition("/#code=")

    assert (base, found["owner"], found["expires_s"]) == (page.url, "ann", 600)
    for expected in (200, 401):
        async with page.client() as client, client.post(f"{base}/api/signin", json={"code": code}) as response:
            assert response.status == expected


async def test_the_port_is_the_one_that_is_listened_on(page: Served) -> None:
    assert page.url.endswith(f":{(await does(local(page), 'port'))['port']}")


async def test_there_is_no_link_to_a_page_that_is_switched_off(page: Served) -> None:
    commands = local(page)
    commands.page = False
    elsewhere = local(page)
    elsewhere.page_here = False
    with pytest.raises(BadRequest, match=r"serves no web page\. Ask a node with the role ingress"):
        await does(elsewhere, "link")
    with pytest.raises(BadRequest, match="The web page is switched off") as wrong:
        await does(commands, "link")
    assert "[channels.web] enabled = true" in wrong.value.cure


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "There are several owners. Name one of them: ann, cleo."),
        ({"owner": "nobody"}, "There is no owner 'nobody'. Name one of them: ann, cleo."),
        ({"owner": 7}, "There is no owner '7'."),
        ({"owner": "a" * 500}, "There is no owner 'aaaa"),
    ],
)
async def test_ambiguous_owner_is_refused(page: Served, args: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest) as wrong:
        await does(local(page, "ann", "cleo"), "link", **args)

    assert says in str(wrong.value)
    assert len(str(wrong.value)) < 200


async def test_sessions_and_approvals_are_listed(page: Served) -> None:
    engine = page.engine
    lease = await engine.planned("shell:ls \u202e")
    await engine.settle(lease)

    (session,) = await does(local(page), "sessions")
    assert (session["id"], session["kind"], session["running"], session["waiting"]) == ("main:ann", "main", 1, 1)
    (approval,) = await does(local(page), "approvals")
    assert (approval["tool"], approval["session"], approval["rendered"]) == ("shell", "main:ann", r"ls \u{202E}")


async def test_the_audit_is_verified_and_its_last_rows_are_shown(page: Served) -> None:
    engine = page.engine
    lease = await engine.planned("read:one", "read:two", "shell:ls")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id)
    assert await engine.settle(lease)

    found = await does(local(page), "audit", last=1)
    assert (found["count"], found["calls"], found["broken"]) == (3, 3, None)
    assert found["head"] == (await engine.store.audit_head()).hash
    (row,) = found["rows"]
    assert (row["seq"], row["call"], row["tool"], row["because"]) == (3, f"{lease.turn}/3", "shell", "approval")
    assert {"seq", "at", "session", "tool", "because", "rule", "grant", "sandbox", "node"} <= row.keys() & {*NAMES}
    assert (row["decided_by"], row["approval"], row["by"]) == ("telegram:1001", wait.id, "model")
    assert [one["seq"] for one in (await does(local(page), "audit", last=500))["rows"]] == [1, 2, 3]
    assert (await does(local(page), "audit", last=0))["rows"] == []
    assert await does(local(page), "audit_exported", seq=3, head=found["head"]) == {"noted": True}
    assert await does(local(page), "audit_exported", seq=2, head=found["head"]) == {"noted": False}
    assert await engine.store.trim_audit(timedelta()) == 2
    assert [(await does(local(page), "audit", last=9))[name] for name in ("removed", "count", "broken")] == [2, 1, None]


class OneUnreadable:
    """Audit whose row 2 cannot be read."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.audit_head, self.started_calls = audit.audit_head, audit.started_calls
        self.removed_audit, self.note_export = audit.removed_audit, audit.note_export

    async def audit_row(self, turn: TurnId, n: int) -> AuditRow | None:
        """Return the row of a call."""
        return await self._audit.audit_row(turn, n)

    async def audit_rows(self, after: int, limit: int) -> Sequence[AuditRow]:
        rows = await self._audit.audit_rows(after, limit)
        if any(row.seq == 2 for row in rows):
            raise StoreError("Row 2 of the audit cannot be read.")
        return rows


async def test_one_unreadable_row_of_the_audit_hides_no_other(page: Served) -> None:
    engine = page.engine
    lease = await engine.planned("read:one", "read:two", "read:three")
    await engine.settle(lease)

    found = await does(replace(local(page), audit=OneUnreadable(engine.store)), "audit", last=20)
    assert [one["seq"] for one in found["rows"]] == [1, 3]
    assert found["broken"] == "Row 2 of the audit cannot be read."


async def test_an_audit_that_is_not_whole_says_where(page: Served) -> None:
    engine = page.engine
    lease = await engine.planned("read:one", "read:two")
    await engine.settle(lease)
    engine.store.audit.pop()

    found = await does(local(page), "audit", last=20)
    assert (found["count"], len(found["rows"])) == (1, 1)
    assert f"of turn {lease.turn} started at" in found["broken"]
    assert "there is no row of it" in found["broken"]


@pytest.mark.parametrize("last", [None, -1, 501, "3", True, 2.0])
async def test_malformed_number_of_rows_is_refused(page: Served, last: object) -> None:
    with pytest.raises(BadRequest, match="Use a number from 0 to 500"):
        await does(local(page), "audit", last=last)


@pytest.mark.parametrize("text", [None, "", "  ", 7, ["x"]])
async def test_nothing_is_not_sent(page: Served, text: object) -> None:
    with pytest.raises(BadRequest, match="no text to send"):
        await does(local(page), "send", text=text)


async def test_a_message_from_the_shell_is_the_owners_own(page: Served) -> None:
    found = await does(local(page), "send", text="hello")

    assert found["answer"] is None
    turn = (await page.engine.store.turn(found["turn"])).turn
    assert (turn.session, turn.principal, turn.state) == ("main:ann", "web:ann", TurnState.QUEUED)


async def test_waiting_sender_gets_the_new_answer_only(page: Served) -> None:
    engine = page.engine
    engine.model.script = [Answer(text="Old."), calls("read", text="Looking."), Answer(text="New.")]
    async with in_background(engine.worker().run()):
        await does(local(page), "send", text="one", wait=True)
        found = await does(local(page), "send", text="two", wait=True)

    assert found["answer"] == "Looking.\n\nNew."


async def test_a_control_command_is_answered_at_once(page: Served) -> None:
    assert await does(local(page), "send", text="/stop", wait=True) == {"answer": "Nothing is running or waiting here."}


async def test_waiting_sender_gets_the_answer_in_a_busy_session(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_commands, "CHANGES_AT_ONCE", 3)
    engine, commands = page.engine, local(page)
    engine.model.script = [Answer(text="The answer.")]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(does(commands, "send", text="hello", wait=True))
        lease = await until_claimed(engine)
        for _ in range(10):
            await does(commands, "send", text="/tree")
        await engine.run(lease)
    assert waiting.result() | {"turn": ""} == {"answer": "The answer.", "turn": "", "state": "done"}


async def test_commands_at_the_same_time_get_each_its_own_reply(page: Served) -> None:
    commands, replies = local(page), dict[str, str]()
    for name in ("tree", "approvals", "stop", "sessions"):
        replies[name] = (await does(commands, "send", text=f"/{name}"))["answer"]
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(does(commands, "send", text=f"/{name}")) for name in replies}
        assert {name: task.result()["answer"] for name, task in tasks.items()} == replies


async def test_a_turn_that_failed_says_so(page: Served) -> None:
    engine = page.engine
    engine.model.script = [ModelError("It is away.", cure="Try again.")]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(does(local(page), "send", text="hello", wait=True))
        await engine.run(await until_claimed(engine))
    assert waiting.result()["state"] == "failed"
    assert "It is away." in waiting.result()["answer"]


async def until_claimed(engine: Engine) -> Lease:
    (claimed,) = await engine.store.claim(NODE, wait_s=5)
    return claimed.lease


async def test_grants_are_listed_and_taken_back(page: Served) -> None:
    engine, commands = page.engine, local(page)
    assert await does(commands, "grants") == []
    lease = await engine.planned("shell:ls")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.ALWAYS)
    await engine.press(wait.id, Verb.GRANT_CHAT)
    (listed,) = await does(commands, "grants")

    assert (listed["allows"], listed["place"], listed["used"]) == ("shell ls", "chat", 0)
    assert (listed["held_by"], listed["granted_by"]) == ("telegram/default/1001", "telegram:1001")
    assert await does(commands, "revoke", grant=listed["id"][:6]) == listed
    assert await does(commands, "grants") == []
    for wanted in (listed["id"], "g", "", None, 5):
        with pytest.raises(BadRequest, match="There is no grant"):
            await does(commands, "revoke", grant=wanted)


async def test_a_call_is_explained_in_a_stored_session(page: Served) -> None:
    await page.engine.say()
    found = await does(local(page), "explain", session="main:ann", tool="shell", text="ls")
    assert (found["decision"], found["rule"], found["order"][0]) == ("ask", "", "available: always")
    with pytest.raises(BadRequest, match="There is no session 'main:nobody'"):
        await does(local(page), "explain", session="main:nobody", tool="shell", text="ls")
