"""The command /why: who allowed a call and why it ran, why another did not, and how a call would be decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.domain.hooks import HookEvent
from gateway.domain.ids import main_session
from gateway.domain.retention import Keep
from gateway.domain.rules import Rule, Verdict
from gateway.domain.tools import CallScope, Effect, Risk
from gateway.domain.turns import TurnState
from gateway.domain.waits import Verb
from gateway.toolcalls.hooks import Hook, Hooks
from gateway.toolcalls.tool_set import Tool
from tests.support.engine import Engine
from tests.support.fakes import GROUP, FakeTool, Text
from tests.support.makers import ANN, BOB, inbound

SECRET = "123456789:AAExampleExampleExample"
RULES = (("git *", Verdict.ALLOW), ("git push *", Verdict.DENY))


def shell(*rules: tuple[str, Verdict], fake: FakeTool | None = None) -> Tool:
    made = (fake or FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE)).tool()

    def scope(args: Text) -> CallScope:
        return CallScope(risk=Risk.EXECUTE, subjects=(f"command:{args.text}",))

    written = tuple(
        Rule(tool="shell", pattern=pattern, decision=decision, kinds=frozenset({"main"}), where=f"config.toml:{n}")
        for n, (pattern, decision) in enumerate(rules, 1)
    )
    return replace(made, call_scope=scope, policy=replace(made.policy, rules=written))


async def why(engine: Engine, rest: str = "") -> str:
    """Return the reply to /why of an owner."""
    await engine.ingress.message(inbound(f"/why {rest}".strip()))
    return (await engine.texts())[-1]


async def called(engine: Engine, *named: str) -> None:
    """Let a turn call tools, and end it."""
    lease = await engine.planned(*named)
    await engine.settle(lease)


async def test_nothing_was_called_yet(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell()])
    assert "Nothing was called here yet" in await why(engine)
    await engine.say()
    assert await engine.store.finish_turn(
        await engine.claim(), TurnState.STOPPED, answer=None, given=[], slots=[], timers=[]
    )
    engine.clock.advance(1)
    assert (await engine.store.trim(main_session(ANN), Keep(age=timedelta(seconds=1)))).turns == 1
    assert "each start is in the audit, or in its exports" in await why(engine)


async def test_a_rule_that_allowed_a_call_is_named(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell(*RULES)])
    await called(engine, "shell:git status")
    said = await why(engine)
    assert "`shell` `git status`: ok" in said
    assert "a rule allowed it, config.toml:1." in said


async def test_a_refusal_names_its_rule(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell(*RULES)])
    await called(engine, "shell:git push")
    said = await why(engine)
    assert "denied" in said
    assert "It did not run (configured): A rule of the owner denies this: config.toml:2" in said


async def test_the_default_that_allowed_a_call_is_said(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ)])
    await called(engine, "read:x")
    assert "calls of read like this need no approval here, by its settings." in await why(engine)


async def test_the_person_who_allowed_a_call_is_named(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell()])
    lease = await engine.planned("shell:make")
    assert not await engine.settle(lease)
    waiting = await why(engine)
    assert "It waits for a decision: execute needs an approval." in waiting

    (wait,) = await engine.waits(lease.turn)
    engine.clock.advance(42)
    await engine.press(wait.id)
    assert await engine.settle(lease)
    said = await why(engine, "1")
    at = f"{engine.clock.now():%Y-%m-%d %H:%M} UTC"
    assert f"telegram:1001 allowed this one call at {at}, 42.0 s after it was asked (approval {wait.id})" in said


async def test_the_person_who_denied_a_call_is_named_with_the_reason(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell()])
    lease = await engine.planned("shell:make")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.DENY_REASON, reason="not now")
    await engine.settle(lease)
    said = await why(engine)
    assert "It did not run: telegram:1001 denied it at" in said
    assert said.rstrip().endswith("not now")


async def test_a_grant_is_named_for_a_call_and_by_its_id(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell()])
    lease = await engine.planned("shell:make")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.ALWAYS)
    await engine.press(wait.id, Verb.GRANT_SESSION)
    assert await engine.settle(lease)
    await engine.run(lease)
    (grant,) = await engine.store.live_grants()

    await called(engine, "shell:make")
    said = await why(engine)
    assert f"the grant {grant.id} allowed it. Grant {grant.id}: shell make, given by telegram:1001 at" in said
    assert "used once" in said
    assert f"Grant {grant.id}: shell make" in await why(engine, grant.id)
    explained = await why(engine, "shell make")
    assert f"**allow**: grant {grant.id} allows it.\n" in explained


async def test_calls_have_numbers(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell(*RULES), FakeTool(name="read", risk=Risk.READ)])
    await called(engine, "read:first", "shell:git push", "shell:git log")
    said = await why(engine)
    assert said.startswith("`shell` `git log`: ok")
    assert "- `/why 2`: `shell` `git push`: denied" in said
    assert "- `/why 3`: `read` `first`: ok" in said
    assert "by its settings" in await why(engine, "3")
    assert await why(engine, "4") == "There is no call 4. The last ones are 1 to 3; 1 is the newest."
    assert "There is no call 0." in await why(engine, "0")
    assert "There is no call" in await why(engine, "9" * 5000)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("shell git status", "`shell` `git status`: **allow**: config.toml:1 allows 'git *'.\n"),
        ("/shell git push", "**deny**: A rule of the owner denies this: config.toml:2"),
        ('shell {"text": "make"}', "**ask**: execute needs an approval"),
        ("nothing x", "**deny**: There is no tool 'nothing'"),
    ],
)
async def test_a_call_is_explained_before_it_is_made(tmp_path: Path, rest: str, said: str) -> None:
    fake = FakeTool(name="shell", risk=Risk.EXECUTE)
    engine = Engine(tmp_path, [shell(*RULES, fake=fake)])
    found = await why(engine, rest)
    assert said in found
    assert "1. `available: " in found
    assert fake.calls == [], "it runs nothing"


async def test_a_hook_that_refused_or_changed_a_call_is_named(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ)])

    async def check(call: object) -> object:
        return {"refuse": "no"} if '"bad"' in str(call).replace("'", '"') else {"arguments": {"text": "good"}}

    engine.use_hooks(Hooks(hooks=[Hook(name="check", event=HookEvent.BEFORE, tools=frozenset(), ask=check)]))
    await called(engine, "read:other", "read:bad")
    assert "It did not run (hook): The hook check refuses this: no" in await why(engine)
    said = await why(engine, "2")
    assert "The hook check changed its arguments." in said
    assert "`read` `good`: ok" in said


async def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ)], secrets=[SECRET])
    await called(engine, f"read:{SECRET}")
    assert SECRET not in await why(engine)
    assert SECRET not in await why(engine, f"read {SECRET}")


async def test_another_session_is_not_told_about(tmp_path: Path) -> None:
    engine = Engine(tmp_path, [shell(*RULES)])
    await called(engine, "shell:git status")
    await engine.ingress.message(inbound("/why", who=BOB, where=GROUP, direct=False))
    (group,) = [line.session.id for line in await engine.store.sessions() if line.session.id.startswith("chat:")]
    told = [slot.text for slot in await engine.slots(session=group)]
    assert told == ["Nothing was called here yet. Ask how a call would be decided with `/why TOOL TEXT`."]
