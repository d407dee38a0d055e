"""Calls with a scope from their tool: requests, the cover of an approval, and the order of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.domain.audit import StartBasis
from gateway.domain.grants import Grant
from gateway.domain.ids import TurnId, main_session
from gateway.domain.rules import Rule, Verdict
from gateway.domain.slots import SlotKind
from gateway.domain.steps import StepState
from gateway.domain.tools import (
    ApprovalMode,
    Artifact,
    CallScope,
    Effect,
    Picture,
    ResultStatus,
    Risk,
    ToolResult,
)
from gateway.domain.turns import Lease, TurnState
from gateway.domain.waits import Verb, WaitState
from gateway.ports import ToolContext
from gateway.system.cancellation import Cancellation, CancelReason
from gateway.toolcalls.tool_set import Tool
from gateway.toolcalls.wait_results import after_a_wait
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, GROUP, FailingStore, FakeTool, Text, calls, done, in_background, until
from tests.support.makers import ANN, BOB, inbound

OK, DENIED, CANCELLED, UNKNOWN = ResultStatus.OK, ResultStatus.DENIED, ResultStatus.CANCELLED, ResultStatus.UNKNOWN
SCRIPTS_ARE_OFF = "Scripts are off. The owner can turn them on."


def call_scope(args: Text) -> CallScope:
    """Return the scope of a call of the fake browser: `open HOST/…`, `upload`, `script`, `broken`; others read."""
    action, _, what = args.text.partition(" ")
    match action:
        case "open":
            host = what.split("/")[0]
            return CallScope(risk=Risk.NETWORK, scope=host, subjects=(f"host:{host}",))
        case "upload":
            return CallScope(risk=Risk.NETWORK)
        case "script":
            return CallScope(risk=Risk.EXECUTE, refused=SCRIPTS_ARE_OFF)
        case "broken":
            raise LookupError("no such host")
        case _:
            return CallScope(risk=Risk.READ)


@dataclass(slots=True)
class Browser:
    """Stateful tool that records its calls, and the scopes allowed at each."""

    fake: FakeTool = field(
        default_factory=lambda: FakeTool(name="browser", risk=Risk.NETWORK, effect=Effect.UNSAFE, approval={})
    )
    scopes: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    async def run(self, ctx: ToolContext, args: Text) -> ToolResult:
        """Record the scopes."""
        known = ("example.org", "example.net", "example.com")
        self.scopes.append(frozenset(one for one in known if one in ctx.scopes))
        return done(args.text)

    def tool(self) -> Tool:
        """Return the tool for the registry."""
        self.fake.body = self.run
        made = self.fake.tool()
        return replace(made, call_scope=call_scope, spec=replace(made.spec, in_order=True))


@pytest.fixture
def browser() -> Browser:
    return Browser()


@pytest.fixture
def shell() -> FakeTool:
    return FakeTool(name="shell", risk=Risk.EXECUTE, effect=Effect.UNSAFE, approval={"main": ApprovalMode.ALLOW})


@pytest.fixture
def look() -> FakeTool:
    return FakeTool(name="look", risk=Risk.READ)


@pytest.fixture
def engine(tmp_path: Path, browser: Browser, shell: FakeTool, look: FakeTool) -> Engine:
    return Engine(tmp_path, [browser.tool(), shell, look])


async def allow(engine: Engine, lease: Lease) -> None:
    """Approve every open request."""
    (wait,) = [one for one in await engine.waits(lease.turn) if one.state is WaitState.OPEN]
    await engine.press(wait.id)


async def until_result(engine: Engine, lease: Lease, n: int) -> None:
    """Wait until a call has its result."""

    async def ended() -> bool:
        return (await engine.results(lease.turn))[n - 1] is not None

    await until(ended)


async def again(engine: Engine, lease: Lease, *named: str) -> bool:
    """Plan the model's next answer, with these calls."""
    await engine.store.plan(lease, calls(*named), given=[], slots=[])
    return await engine.settle(lease)


async def opened(engine: Engine, *hosts: str) -> Lease:
    """Return a turn in which these hosts were allowed."""
    lease = await engine.planned(f"browser:open {hosts[0]}/")
    for host in hosts[1:]:
        assert not await engine.settle(lease)
        await allow(engine, lease)
        assert await engine.settle(lease)
        await engine.store.plan(lease, calls(f"browser:open {host}/"), given=[], slots=[])
    assert not await engine.settle(lease)
    await allow(engine, lease)
    assert await engine.settle(lease)
    return lease


# --- what is asked about ------------------------------------------------------------------------


async def test_an_approval_shows_the_address_and_covers_the_host(engine: Engine) -> None:
    lease = await engine.planned("browser:open example.org/a?b=c")
    assert not await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)

    assert wait.approval is not None
    assert (wait.approval.scope, wait.approval.risk) == ("example.org", Risk.NETWORK)
    assert wait.approval.rendered == "open example.org/a?b=c"


async def test_an_allowed_host_is_not_asked_about_again_and_another_is(engine: Engine, browser: Browser) -> None:
    lease = await opened(engine, "example.org")
    assert await again(engine, lease, "browser:open example.org/other")
    assert not await again(engine, lease, "browser:open example.net/")

    assert browser.fake.calls == ["open example.org/", "open example.org/other"]
    assert [wait.state for wait in await engine.waits(lease.turn)] == [WaitState.CONSUMED, WaitState.OPEN]


async def test_audit_names_approval_grant_or_settings_as_basis(engine: Engine) -> None:
    lease = await opened(engine, "example.org")
    assert await again(engine, lease, "browser:open example.org/b", "shell:date")
    rows = await engine.store.audit_rows(0, 10)
    assert [(row.tool, row.basis) for row in sorted(rows, key=lambda row: row.n)] == [
        ("browser", StartBasis.APPROVAL),
        ("browser", StartBasis.GRANT),
        ("shell", StartBasis.SETTINGS),
    ]


async def test_call_gets_granted_hosts_and_its_own(engine: Engine, browser: Browser) -> None:
    lease = await opened(engine, "example.org", "example.net")
    assert await again(engine, lease, "browser:click")

    both = {"example.org", "example.net"}
    assert browser.scopes == [{"example.org"}, both, both]


async def test_every_host_is_allowed_when_settings_ask_nobody(tmp_path: Path, browser: Browser) -> None:
    """Also to the calls after the one that opened it: no approval is stored that would cover them."""
    browser.fake.approval = {"main": ApprovalMode.ALLOW}
    engine = Engine(tmp_path, [browser.tool()])
    lease = await engine.planned("browser:open example.org/", "browser:click")

    assert await engine.settle(lease)
    assert browser.scopes == [{"example.org", "example.net", "example.com"}] * 2


@pytest.mark.parametrize(
    ("approval", "rules", "reached"),
    [
        (ApprovalMode.ASK, ["* allow"], "org net com"),
        (ApprovalMode.ASK, ["example.* allow"], "org net com"),
        (ApprovalMode.ASK, ["example.org allow"], "org"),
        (ApprovalMode.ASK, ["* allow", "*.net deny"], "org com"),
        (ApprovalMode.ASK, ["* allow", "*.net ask"], "org com"),
        (ApprovalMode.ALLOW, ["*.net deny"], "org com"),
        (ApprovalMode.ALLOW, ["*.net ask"], "org com"),
    ],
)
async def test_a_page_may_lead_where_rules_let_it_be_opened(
    tmp_path: Path, browser: Browser, approval: ApprovalMode, rules: list[str], reached: str
) -> None:
    """Also in the calls after the one that opened a page, which name no host: they were told that nobody allowed it."""
    browser.fake.approval, made = {"main": approval}, list[Rule]()
    for pattern, decision in (one.split() for one in rules):
        made.append(Rule(tool="*", pattern=pattern, decision=Verdict(decision), kinds=frozenset({"main"}), where="r"))
    tool = browser.tool()
    engine = Engine(tmp_path, [replace(tool, policy=replace(tool.policy, rules=tuple(made)))])
    lease = await engine.planned("browser:open example.org/", "browser:click")

    assert await engine.settle(lease)
    assert browser.scopes == [{f"example.{one}" for one in reached.split()}] * 2


async def test_reading_call_runs_and_sending_call_is_asked_each_time(engine: Engine) -> None:
    lease = await engine.planned("browser:click")
    assert await engine.settle(lease)
    for _ in range(2):
        assert not await again(engine, lease, "browser:upload")
        await allow(engine, lease)
        assert await engine.settle(lease)

    requests = [wait.approval for wait in await engine.waits(lease.turn)]
    assert [(one.scope, one.risk) for one in requests if one] == [("", Risk.NETWORK)] * 2


async def test_disabled_action_is_denied_with_the_settings_hint(engine: Engine, browser: Browser) -> None:
    lease = await engine.planned("browser:script")

    assert await engine.settle(lease)
    found = await engine.result(lease.turn, 1)
    assert (found.status, found.code, found.hint) == (DENIED, "configured", SCRIPTS_ARE_OFF)
    assert browser.fake.calls == []


async def test_a_reach_that_fails_is_a_refusal(engine: Engine, browser: Browser) -> None:
    lease = await engine.planned("browser:broken", "look")

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [DENIED, OK]
    assert (await engine.result(lease.turn, 1)).code == "policy_error"
    assert browser.fake.calls == []


async def test_a_denied_host_is_asked_about_again(engine: Engine, browser: Browser) -> None:
    lease = await engine.planned("browser:open example.org/")
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    await engine.press(wait.id, Verb.DENY)
    assert await engine.settle(lease)
    assert not await again(engine, lease, "browser:open example.org/")

    assert browser.fake.calls == []


async def test_new_history_and_other_session_have_no_granted_host(engine: Engine, browser: Browser) -> None:
    lease = await opened(engine, "example.org")
    await engine.store.finish_turn(lease, TurnState.FAILED, answer=None, given=(), slots=(), timers=())
    elsewhere = await engine.planned("browser:open example.org/", who=BOB, where=BOB_CHAT)
    await engine.settle(elsewhere)
    await engine.ingress.message(inbound("/new"))
    anew = await engine.planned("browser:open example.org/")
    assert not await engine.settle(anew)

    assert len(browser.fake.calls) == 1


async def test_granted_host_is_void_when_the_owner_denies_the_tool(engine: Engine, tmp_path: Path) -> None:
    lease = await opened(engine, "example.org")
    denying = Browser()
    denying.fake.approval = {"main": ApprovalMode.DENY}
    later = Engine(tmp_path, [denying.tool()], store=engine.store)

    assert await again(later, lease, "browser:open example.org/")
    assert denying.fake.calls == []


async def test_approval_is_void_when_the_tools_scope_changed(engine: Engine, tmp_path: Path) -> None:
    lease = await engine.planned("browser:open example.org/")
    await engine.settle(lease)
    await allow(engine, lease)
    changed = Browser()

    def wider(_: Text) -> CallScope:
        return CallScope(risk=Risk.NETWORK, scope="*")

    later = Engine(tmp_path, [replace(changed.tool(), call_scope=wider)], store=engine.store)

    assert await later.settle(lease)
    assert (await later.result(lease.turn, 1)).code == "not_approved"
    assert changed.fake.calls == []


@pytest.mark.parametrize("changed", ["refused", "broken"])
async def test_an_approved_call_is_checked_again_before_it_runs(engine: Engine, tmp_path: Path, changed: str) -> None:
    lease = await engine.planned("browser:open example.org/")
    await engine.settle(lease)
    await allow(engine, lease)

    def now(_: Text) -> CallScope:
        if changed == "broken":
            raise LookupError("no such host")
        return CallScope(risk=Risk.NETWORK, scope="example.org", refused="The browser is closed today.")

    other = Browser()
    later = Engine(tmp_path, [replace(other.tool(), call_scope=now)], store=engine.store)

    assert await later.settle(lease)
    assert (await later.result(lease.turn, 1)).status is DENIED
    assert other.fake.calls == []


async def test_reading_call_runs_when_nobody_can_be_asked(tmp_path: Path, browser: Browser) -> None:
    engine = Engine(tmp_path, [browser.tool()])
    lease = await engine.planned("browser:open example.org/", "browser:click", who=BOB, where=GROUP)

    assert await engine.settle(lease)
    assert (await engine.result(lease.turn, 1)).code == "nobody_to_ask"
    assert await engine.results(lease.turn) == [DENIED, OK]


# --- in which order -----------------------------------------------------------------------------


async def test_ordered_calls_run_one_at_a_time_whatever_they_reach(engine: Engine, browser: Browser) -> None:
    lease = await opened(engine, "example.org")
    browser.fake.most = 0
    made = [f"browser:click {n}" for n in range(4)]
    made[2:2] = ["browser:open example.org/next"]

    assert await again(engine, lease, *made)
    assert browser.fake.most == 1
    assert browser.fake.calls[1:] == [one.removeprefix("browser:") for one in made]


@pytest.mark.parametrize("risk", [Risk.NETWORK, Risk.READ])
async def test_ordered_calls_are_serial_beside_other_tools(
    tmp_path: Path, browser: Browser, look: FakeTool, risk: Risk
) -> None:
    """Also when it only reads, and four such calls would run side by side."""
    browser.fake.risk, browser.fake.hold, look.hold = risk, True, True
    engine = Engine(tmp_path, [browser.tool(), look])
    lease = await engine.planned("browser:click", "browser:type", "look:a", "look:b")
    async with in_background(engine.settle(lease)) as settling:
        await browser.fake.until_begun()
        await look.until_begun(2)
        assert browser.fake.calls == ["click"]
        look.release.set()
        await asyncio.sleep(0.02)  # it is looked at again
        assert browser.fake.calls == ["click"]
        browser.fake.release.set()
        await settling

    assert browser.fake.calls == ["click", "type"]


async def test_later_ordered_call_is_cancelled_when_one_waits(
    engine: Engine, browser: Browser, shell: FakeTool
) -> None:
    """It would act on another page than its model meant: nobody knows yet whether the page before it opens."""
    lease = await engine.planned(
        "browser:open example.org/", "browser:click", "shell:ls", "browser:open example.org/next"
    )

    assert not await engine.settle(lease)
    assert await engine.results(lease.turn) == [None, CANCELLED, OK, CANCELLED]
    assert await engine.result(lease.turn, 2) == after_a_wait("browser")
    assert len(await engine.waits(lease.turn)) == 1
    assert await engine.store.park(lease)
    await allow(engine, lease)
    assert await engine.settle(await engine.claim())
    assert browser.fake.calls == ["open example.org/"]
    assert shell.calls == ["ls"]


async def test_earlier_ordered_call_runs_before_one_that_waits(engine: Engine, browser: Browser) -> None:
    browser.fake.hold = True
    lease = await engine.planned("browser:click", "browser:open example.org/", "look:a")
    async with in_background(engine.settle(lease)) as settling:
        await browser.fake.until_begun()
        await until_result(engine, lease, 3)
        await asyncio.sleep(0.02)  # it is looked at again
        assert await engine.waits(lease.turn) == []  # decided when its turn has come
        browser.fake.release.set()
        await settling

    assert await engine.results(lease.turn) == [OK, None, OK]
    assert len(await engine.waits(lease.turn)) == 1


async def test_behind_a_refused_call_the_next_one_is_decided_at_once(engine: Engine, browser: Browser) -> None:
    lease = await engine.planned("browser:script", "browser:broken", "browser:click")

    assert await engine.settle(lease)
    assert await engine.results(lease.turn) == [DENIED, DENIED, OK]


# --- what it costs, and crashes -----------------------------------------------------------------


class CountingStore(FailingStore):
    """Store that counts reads of the grants."""

    reads = 0

    async def grants_for(self, turn: TurnId) -> Sequence[Grant]:
        """Count the read, then read."""
        self.reads += 1
        return await super().grants_for(turn)


async def test_the_store_is_not_asked_about_tools_that_keep_nothing(engine: Engine, tmp_path: Path) -> None:
    store = CountingStore(engine.clock)
    other = Engine(tmp_path, [Browser().tool(), FakeTool(name="look", risk=Risk.READ)], store=store)
    lease = await other.planned("look:a", "look:b")
    assert await other.settle(lease)
    assert store.reads == 0
    assert not await again(other, lease, "browser:open example.org/", "browser:click", "look:c")
    assert store.reads == 1
    assert not await other.settle(lease)
    assert store.reads == 1  # it only waits


@pytest.mark.parametrize(("effect", "status", "runs"), [(Effect.UNSAFE, UNKNOWN, 2), (Effect.PURE, OK, 3)])
async def test_cut_call_of_a_granted_host_follows_its_effect(
    tmp_path: Path, effect: Effect, status: ResultStatus, runs: int
) -> None:
    browser = Browser()
    browser.fake.effect = effect
    engine = Engine(tmp_path, [browser.tool()])
    lease = await opened(engine, "example.org")
    await engine.store.plan(lease, calls("browser:open example.org/next"), given=[], slots=[])
    browser.fake.hold = True
    await browser.fake.until_begun()
    work = asyncio.create_task(engine.settle(lease, Cancellation(why=CancelReason.LOST)))
    await browser.fake.until_begun()
    work.cancel()
    await asyncio.wait([work])
    assert (await engine.step(lease.turn, 3)).state is StepState.STARTED
    engine.clock.advance(16)
    await engine.store.reclaim()
    browser.fake.release.set()

    assert await engine.settle(await engine.claim())
    assert ((await engine.result(lease.turn, 3)).status, len(browser.fake.calls)) == (status, runs)


# --- what is shown of a result ------------------------------------------------------------------


async def test_pictures_and_files_of_a_call_are_shown_with_its_result(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        (ctx.files.root / "page.pdf").write_bytes(b"%PDF")
        kept = await ctx.artifacts.file(ctx.files.root / "page.pdf", "The page.pdf", "application/pdf")
        return replace(
            done(), pictures=(await ctx.artifacts.picture(b"x", "image/png"),), files=(kept,), untrusted=True
        )

    engine = Engine(tmp_path, [FakeTool(name="saves", body=saves)])
    lease = await engine.planned("saves")
    assert await engine.settle(lease)

    found = await engine.result(lease.turn, 1)
    kept = Artifact(file=f"{lease.turn}-1-f1.pdf", name="The page.pdf", media_type="application/pdf")
    assert (found.files, found.untrusted) == ((kept,), True)
    assert found.pictures == (Picture(file=f"{lease.turn}-1-1.png", media_type="image/png"),)
    assert (engine.workspaces.outputs(main_session(ANN)) / kept.file).read_bytes() == b"%PDF"
    shown = [slot for slot in await engine.slots() if slot.kind is SlotKind.FILE]
    assert [slot.file.file for slot in shown if slot.file] == [found.pictures[0].file, kept.file]
