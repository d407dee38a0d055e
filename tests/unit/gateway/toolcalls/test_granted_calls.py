"""Grants on the whole path: offered, confirmed, used, revoked between decision and start, listed, taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.audit import StartBasis, StartRecord
from gateway.domain.grants import GrantPlace
from gateway.domain.ids import Principal, WaitId
from gateway.domain.messages import Conversation, Press
from gateway.domain.rules import Rule, Verdict
from gateway.domain.slots import Slot, SlotKind
from gateway.domain.tools import CallScope, Effect, Preview, ResultStatus, Risk
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import GRANTS, PressResult, StartOutcome, Verb, WaitState
from gateway.ports import PrepareContext
from gateway.toolcalls.grants import offer_for
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, CLEO_CHAT, CLEO_TELEGRAM, GROUP, FailingStore, FakeTool, Text
from tests.support.makers import ANN_SLACK, ANN_TELEGRAM, BOB, CHAT, OTHER_CHAT, inbound
from tests.support.turns import turn_view
from tests.unit.gateway.toolcalls.rig import deciding, step

OK, DENIED = ResultStatus.OK, ResultStatus.DENIED


def shell(*rules: Rule, effect: Effect = Effect.UNSAFE) -> Tool:
    """Return a fake shell whose text is its command."""
    made = FakeTool(name="shell", risk=Risk.EXECUTE, effect=effect).tool()
    return replace(made, call_scope=commands, policy=replace(made.policy, rules=rules))


def commands(args: Text) -> CallScope:
    return CallScope(risk=Risk.EXECUTE, subjects=(f"command:{args.text}",))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path, [shell()])


async def asked(engine: Engine, command: str = "git push", **who: Any) -> tuple[Lease, WaitId]:
    """A turn that asks about a command."""
    lease = await engine.planned(f"shell:{command}", **who)
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    return lease, wait.id


async def granted(engine: Engine, verb: Verb = Verb.GRANT_CHAT, command: str = "git push") -> None:
    """Ann grants a command for good, and it runs."""
    lease, wait = await asked(engine, command)
    assert (await engine.press(wait, Verb.ALWAYS)).result is PressResult.ASK_ALWAYS
    assert (await engine.press(wait, verb)).result is PressResult.APPROVED
    assert await engine.settle(lease)
    await finish(engine, lease)


async def finish(engine: Engine, lease: Lease) -> None:
    await engine.store.finish_turn(lease, TurnState.FAILED, answer=None, given=[], slots=[], timers=[])


async def runs_unasked(
    engine: Engine, command: str = "git push", *, who: Principal = ANN_TELEGRAM, where: Conversation = CHAT
) -> bool:
    """Return True if a call of the command runs without a question."""
    lease = await engine.planned(f"shell:{command}", who=who, where=where)
    settled = await engine.settle(lease)
    await finish(engine, lease)
    return settled


async def control(engine: Engine, text: str, where: Conversation = CHAT, who: Principal = ANN_TELEGRAM) -> str:
    """Send a control command; return its reply."""
    await engine.ingress.message(inbound(text, who=who, where=where, direct=where != GROUP))
    shown = list[Slot]()
    while slots := await engine.store.claim_slots(engine.core.node, ["telegram", "slack"], 50):
        for slot in slots:
            await engine.store.slot_sent(slot, ("m",))
        shown += slots
    return next(slot.text for slot in reversed(shown) if slot.kind is SlotKind.REPLY)


# --- the press ------------------------------------------------------------------------------------


async def test_one_confirmed_press_allows_the_same_call_from_then_on(engine: Engine) -> None:
    await granted(engine)
    assert await runs_unasked(engine)
    assert await runs_unasked(engine)
    assert not await runs_unasked(engine, "git push -f")
    assert not await runs_unasked(engine, where=OTHER_CHAT)
    assert not await runs_unasked(engine, who=BOB, where=GROUP)
    (grant,) = await engine.store.live_grants()
    assert (grant.used, grant.shown, grant.place) == (2, "shell git push", GrantPlace.CHAT)
    rows = await engine.store.audit_rows(0, 10)
    assert [(row.basis, row.grant) for row in rows] == [
        (StartBasis.APPROVAL, None),
        (StartBasis.GRANT, grant.id),
        (StartBasis.GRANT, grant.id),
    ]


async def test_always_alone_runs_and_grants_nothing(engine: Engine) -> None:
    lease, wait = await asked(engine)
    await engine.press(wait, Verb.ALWAYS)
    assert not await engine.settle(lease)
    assert await engine.store.live_grants() == []
    assert (await engine.press(wait, Verb.BACK)).result is PressResult.BACK
    assert (await engine.press(wait, Verb.GRANT_CHAT)).result is PressResult.NOT_VALID
    assert (await engine.press(wait, Verb.ONCE)).result is PressResult.APPROVED
    assert await engine.settle(lease)
    await finish(engine, lease)
    assert not await runs_unasked(engine)


async def test_no_place_is_confirmed_before_the_question(engine: Engine) -> None:
    _, wait = await asked(engine)
    for verb in GRANTS:
        assert (await engine.press(wait, verb)).result is PressResult.NOT_VALID
    assert await engine.store.live_grants() == []


@pytest.mark.parametrize("command", ["sudo git push", "python x.py", "echo $HOME", "./run", "a; sudo b", "rm *", "ö"])
async def test_nothing_is_offered_that_may_run_something_else(engine: Engine, command: str) -> None:
    _, wait = await asked(engine, command)
    found = await engine.store.wait(wait)
    assert found is not None
    assert found.approval is not None
    assert found.approval.always is None
    assert (await engine.press(wait, Verb.ALWAYS)).result is PressResult.NOT_VALID


async def test_a_hidden_secret_is_never_granted(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell()], secrets=["hunter2hunter2"])
    _, wait = await asked(engine, "login hunter2hunter2")
    assert (await engine.press(wait, Verb.ALWAYS)).result is PressResult.NOT_VALID


async def test_requesters_and_strangers_grant_nothing(engine: Engine) -> None:
    for who, where in ((ANN_TELEGRAM, CHAT), (CLEO_TELEGRAM, CLEO_CHAT)):
        await engine.say("hi", who=who, where=where)
        await finish(engine, await engine.claim())
    _, wait = await asked(engine, who=BOB, where=GROUP)
    for verb in (Verb.ALWAYS, Verb.BACK, *GRANTS):
        assert (await engine.press(wait, verb, who=BOB)).result is PressResult.NOT_ALLOWED
        assert (await engine.press(wait, verb, who=ANN_TELEGRAM, where=GROUP)).result is PressResult.NOT_VALID
    assert (await engine.press(wait, Verb.ALWAYS)).result is PressResult.ASK_ALWAYS
    assert (await engine.press(wait, Verb.GRANT_PERSON, who=CLEO_TELEGRAM, where=CLEO_CHAT)).result is (
        PressResult.APPROVED
    )
    (grant,) = await engine.store.live_grants()
    assert (grant.principal, grant.granted_by) == (BOB, CLEO_TELEGRAM)


async def test_a_forged_confirmation_is_not_valid(engine: Engine) -> None:
    _, wait = await asked(engine)
    await engine.press(wait, Verb.ALWAYS)
    handle = engine.tokens.make(wait, "another card", Verb.GRANT_CHAT)
    press = Press(event_key="p1", conversation=CHAT, principal=ANN_TELEGRAM, handle=handle)
    assert (await engine.ingress.press(press)).result is PressResult.NOT_VALID
    assert (await engine.ingress.press(press)).result is PressResult.DUPLICATE


async def test_confirming_after_stop_grants_and_runs_nothing(engine: Engine) -> None:
    lease, wait = await asked(engine)
    await engine.press(wait, Verb.ALWAYS)
    await engine.ingress.message(inbound("/stop"))
    assert (await engine.press(wait, Verb.GRANT_CHAT)).result is PressResult.ALREADY
    assert await engine.store.live_grants() == []
    assert ResultStatus.OK not in await engine.results(lease.turn)


async def test_one_rejected_of_two_asked_withdraws_both(engine: Engine) -> None:
    lease = await engine.planned("shell:git push", "shell:git fetch")
    assert not await engine.settle(lease)
    first, second = await engine.waits(lease.turn)
    await engine.press(first.id, Verb.ALWAYS)
    await engine.press(second.id, Verb.DENY_REASON, reason="no")
    states = [one.state for one in await engine.waits(lease.turn)]
    assert states == [WaitState.CANCELLED, WaitState.DENIED]
    assert (await engine.press(first.id, Verb.GRANT_CHAT)).result is PressResult.ALREADY
    assert await engine.settle(lease)
    assert OK not in await engine.results(lease.turn)


PATH = CallScope(risk=Risk.WRITE, subjects=("path:notes",))


@pytest.mark.parametrize(
    ("changed", "text", "preview", "is_offered"),
    [
        ({}, "ls", "", True),
        ({}, "\u00f6", "", False),
        ({"leaves_plan": True}, "ls", "", False),
        ({"prepared": True}, "ls", "", False),
        ({"in_order": True}, "ls", "", False),
        ({"prepared": True, "call_scope": PATH}, "ls", "+ a", True),
        ({"prepared": True, "call_scope": PATH}, "ls", "+ \u00f6", False),
        ({"in_order": True, "call_scope": PATH}, "ls", "", False),
    ],
)
def test_grant_is_offered_only_for_plain_visible_calls(
    tmp_path: Path, changed: dict[str, Any], text: str, preview: str, is_offered: bool
) -> None:
    one = step(arguments=json.dumps({"text": text}))
    call = deciding(tmp_path).for_hooks(turn_view(steps=[one]), one)
    assert call is not None
    flags = {name: name in changed for name in ("leaves_plan", "in_order")}
    made = replace(call.tool, spec=replace(call.tool.spec, **flags), prepare=look if "prepared" in changed else None)
    scope = changed.get("call_scope", call.call_scope)
    found = offer_for(replace(call, tool=made, preview=preview, call_scope=scope), "text")
    assert (found is not None) is is_offered


async def look(ctx: PrepareContext, args: Text) -> Preview:
    raise AssertionError("it is not prepared here")


# --- the decision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("locked", [False, True])
async def test_a_deny_of_the_owner_holds_over_a_saved_allow(tmp_path: Path, locked: bool) -> None:
    before = Engine(tmp_path, [shell()])
    await granted(before)
    rule = Rule(
        tool="shell", pattern="git *", decision=Verdict.DENY, kinds=frozenset(["main"]), locked=locked, where="rules[0]"
    )
    engine = Engine(tmp_path, [shell(rule)], store=before.store)
    lease = await engine.planned("shell:git push")
    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [DENIED]
    assert "rules[0]" in (await engine.result(lease.turn, 1)).hint


async def test_an_ask_rule_is_lifted(tmp_path: Path) -> None:
    before = Engine(tmp_path, [shell()])
    await granted(before)
    rule = Rule(tool="shell", pattern="git *", decision=Verdict.ASK, kinds=frozenset(["main"]))
    assert await runs_unasked(Engine(tmp_path, [shell(rule)], store=before.store))


async def test_the_loop_guard_asks_about_granted_calls_too(engine: Engine) -> None:
    await granted(engine)
    lease = await engine.planned(*["shell:git push"] * 4)
    assert not await engine.settle(lease)
    assert WaitState.OPEN in [wait.state for wait in await engine.waits(lease.turn)]
    open_ = next(wait for wait in await engine.waits(lease.turn) if wait.state is WaitState.OPEN)
    assert open_.approval is not None
    assert open_.approval.always is None


class RevokingStore(FailingStore):
    """Store in which a grant is taken back between the decision and the start of a call."""

    async def start_step(self, lease: Lease, n: int, wait: WaitId | None, beginning: StartRecord) -> StartOutcome:
        """Take the grant back, then start."""
        if beginning.grant is not None:
            await self.revoke_grant(beginning.grant, ANN_SLACK)
        return await super().start_step(lease, n, wait, beginning)


async def test_a_grant_revoked_between_decision_and_start_asks(tmp_path: Path) -> None:
    before = Engine(tmp_path, [shell()])
    engine = Engine(tmp_path, [shell()], store=RevokingStore(before.clock))
    await granted(engine)
    lease = await engine.planned("shell:git push")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    assert wait.state is WaitState.OPEN
    assert len(await engine.store.audit_rows(0, 10)) == 1


async def test_grants_end_with_time_and_do_not_come_back(engine: Engine) -> None:
    await granted(engine)
    engine.clock.advance(30 * 86_400 - 1)
    assert await runs_unasked(engine)
    engine.clock.advance(1)
    assert not await runs_unasked(engine)
    assert await engine.store.expire_grants() == 1
    engine.clock.advance(-86_400)
    assert not await runs_unasked(engine)


async def test_new_ends_what_holds_for_the_session(engine: Engine) -> None:
    await granted(engine, Verb.GRANT_SESSION)
    assert await runs_unasked(engine, where=OTHER_CHAT)
    await engine.ingress.message(inbound("/new"))
    assert not await runs_unasked(engine)


@pytest.mark.parametrize(("effect", "is_again"), [(Effect.PURE, True), (Effect.UNSAFE, False)])
async def test_an_interrupted_granted_call_follows_its_effect(tmp_path: Path, effect: Effect, is_again: bool) -> None:
    engine = Engine(tmp_path, [shell(effect=effect)])
    await granted(engine)
    lease = await engine.planned("shell:git push")
    (grant,) = await engine.store.live_grants()
    found = (await engine.step(lease.turn, 1)).call
    assert found is not None
    record = StartRecord(tool="shell", action_sha="x", sandbox=None, grant=grant.id)
    assert await engine.store.start_step(lease, 1, None, record) is StartOutcome.STARTED
    engine.clock.advance(16)
    await engine.store.reclaim()
    again = await engine.claim()
    assert await engine.settle(again)
    assert (await engine.results(lease.turn) == [OK]) is is_again


# --- the list -------------------------------------------------------------------------------------


async def test_grants_lists_and_takes_back(engine: Engine) -> None:
    assert await control(engine, "/grants") == "Nothing is granted here. A card offers it with its button Always."
    await granted(engine)
    await granted(engine, Verb.GRANT_SESSION, "git fetch")
    assert await runs_unasked(engine)
    listed = await control(engine, "/grants")
    assert "`shell git push`: in the chat `telegram/default/1001`, given by `ann`, until 2026-01-31, used 1 time" in (
        listed
    )
    assert "`shell git fetch`: in the session `main:ann` until /new" in listed
    assert "2 grants" in await control(engine, "/status")
    (session, chat) = sorted(await engine.store.live_grants(), key=lambda one: one.place, reverse=True)
    assert await control(engine, f"/grants revoke {chat.id[:8]}") == (
        "Taken back: `shell git push`. It asks again from the next call on."
    )
    assert not await runs_unasked(engine)
    assert await runs_unasked(engine, "git fetch")
    assert [one.id for one in await engine.store.live_grants()] == [session.id]


@pytest.mark.parametrize("text", ["/grants revoke", "/grants revoke g", "/grants revoke gffff", "/grants revoke *"])
async def test_nothing_is_taken_back_by_an_unknown_id(engine: Engine, text: str) -> None:
    await granted(engine)
    assert "There is no grant" in await control(engine, text)
    assert len(await engine.store.live_grants()) == 1


async def test_people_see_grants_of_their_session_and_revoke_none(engine: Engine) -> None:
    await granted(engine)
    (grant,) = await engine.store.live_grants()
    assert "Nothing is granted here" in await control(engine, "/grants", BOB_CHAT, BOB)
    for text in (f"/grants revoke {grant.id}", "/grants revoke"):
        assert await control(engine, text, BOB_CHAT, BOB) == "Only an owner can take a grant back."
    assert "Nothing is granted here" in await control(engine, "/grants", CLEO_CHAT, CLEO_TELEGRAM)
    assert "There is no grant" in await control(engine, f"/grants revoke {grant.id}", CLEO_CHAT, CLEO_TELEGRAM)
    assert len(await engine.store.live_grants()) == 1
