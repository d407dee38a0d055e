from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.domain.ids import SessionId, TurnId, child_session, main_session
from gateway.domain.messages import Received
from gateway.domain.steps import Step
from gateway.domain.tools import Artifact, ResultStatus, Risk, ToolResult
from gateway.domain.waits import Verb
from gateway.errors import Forbidden
from gateway.ports import ArtifactKind, Credential, ToolContext, WebApi
from gateway.server.web_access import WebAccess
from tests.support.engine import Engine
from tests.support.fakes import BOB_CHAT, CLEO, CLEO_CHAT, CLEO_TELEGRAM, GROUP, FakeTool, Text, calls, done
from tests.support.makers import ANN, ANN_TELEGRAM, BOB, CHAT, inbound
from tests.unit.gateway.toolcalls.subsession_rig import call, planned, spawning

ANNS, CLEOS = main_session(ANN), main_session(CLEO)
DM, CHAT_ = SessionId("dm:telegram/default/2002"), SessionId("chat:telegram/default/-1003")


async def much(ctx: ToolContext, _args: Text) -> ToolResult:
    ctx.output.write(b"line\n" * 50_000)
    return done("")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(
        tmp_path, [FakeTool(name="read", risk=Risk.READ, body=much), FakeTool(name="shell", risk=Risk.EXECUTE)]
    )


@pytest.fixture
def web_access(engine: Engine) -> WebAccess:
    return engine.web_access()


async def talked(engine: Engine) -> TurnId:
    """Fill every kind of session; return the turn of Cleo's main session, with a long output."""
    engine.model.script = [calls("read")]
    turn = await engine.say("hello", who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await engine.run(await engine.claim())
    for who, where in ((BOB, BOB_CHAT), (BOB, GROUP), (ANN_TELEGRAM, CHAT)):
        await engine.say("hello", who=who, where=where)
        await engine.run(await engine.claim())
    return turn


# --- sub-sessions -------------------------------------------------------------------------------


async def test_owner_sees_sub_sessions_of_the_own_main_only(tmp_path: Path) -> None:
    engine = spawning(tmp_path)
    lease = await planned(engine, call("sessions_spawn", task="count"), who=CLEO_TELEGRAM, where=CLEO_CHAT)
    await engine.settle(lease)
    child = child_session(lease.turn, 1)
    web_access = engine.web_access()

    assert (await web_access.older(CLEO, child, None)).rows
    for asked in (web_access.older(ANN, child, None), web_access.changes(ANN, child, 0)):
        with pytest.raises(Forbidden):
            await asked


# --- another owner's main session ---------------------------------------------------------------

Ask = Callable[[WebAccess, TurnId], Awaitable[object]]
FORBIDDEN: dict[str, Ask] = {
    "changes": lambda web_access, _: web_access.changes(ANN, CLEOS, 0),
    "older": lambda web_access, _: web_access.older(ANN, CLEOS, None),
}
NOTHING: dict[str, Ask] = {"output": lambda web_access, turn: web_access.output(ANN, turn, 1)}
OWN = {"sign_in", "sign_out", "welcome", "sessions", "card", "saw", "watch"}
"""They take no session: they tell of the owner, of all that the owner may see, or carry no content."""


def test_every_method_of_the_desk_is_checked_here() -> None:
    methods = {name for name, _ in inspect.getmembers(WebApi, inspect.isfunction) if not name.startswith("_")}

    assert methods == {*FORBIDDEN, *NOTHING, *OWN}


@pytest.mark.parametrize("method", FORBIDDEN)
async def test_foreign_main_is_refused_like_an_unknown_session(
    engine: Engine, web_access: WebAccess, method: str
) -> None:
    turn = await talked(engine)
    with pytest.raises(Forbidden) as refused:
        await FORBIDDEN[method](web_access, turn)
    with pytest.raises(Forbidden) as unknown:
        await web_access.changes(ANN, SessionId("main:nobody"), 0)

    assert str(refused.value) == str(unknown.value)


async def test_an_output_of_another_owners_main_session_is_not_there(engine: Engine, web_access: WebAccess) -> None:
    turn = await talked(engine)

    assert await NOTHING["output"](web_access, turn) is None
    own = await web_access.output(CLEO, turn, 1)
    assert own is not None
    assert own.read_bytes() == b"line\n" * 50_000


async def test_session_list_begins_with_the_own_main_and_has_no_other(engine: Engine, web_access: WebAccess) -> None:
    await talked(engine)

    assert next(line.session.id for line in await web_access.sessions(ANN)) == ANNS
    assert {line.session.id for line in await web_access.sessions(ANN)} == {ANNS, DM, CHAT_}
    assert {line.session.id for line in await web_access.sessions(CLEO)} == {CLEOS, DM, CHAT_}


async def test_own_main_is_counted_behind_many_newer_sessions(engine: Engine, web_access: WebAccess) -> None:
    await engine.say("hello", where=CHAT)
    engine.clock.advance(1)
    await engine.groups(201)
    first, *_ = await web_access.sessions(ANN)
    await engine.ingress.message(inbound("/status", key="status"))

    assert (first.session.id, first.queued) == (ANNS, 1)
    assert "0 running, 0 waiting for a decision, 1 queued." in (await engine.texts())[-1]


async def test_an_owner_who_never_spoke_has_a_main_session_to_begin_in(web_access: WebAccess) -> None:
    (line,) = await web_access.sessions(ANN)
    assert (line.session.id, line.rev) == (ANNS, 0)
    assert (await web_access.changes(ANN, ANNS, 0)).rows == ()
    assert (await web_access.older(ANN, ANNS, None)).rows == ()


async def test_a_card_of_one_page_does_not_work_on_another(engine: Engine, web_access: WebAccess) -> None:
    await engine.store.saw_page(ANN)
    lease = await engine.planned("shell:ls", who=BOB, where=GROUP)
    await engine.settle(lease)
    (wait,) = await engine.waits(lease.turn)
    anns, cleos = web_access.card(ANN, wait), web_access.card(CLEO, wait)

    assert {b.handle for b in anns.buttons}.isdisjoint({b.handle for b in cleos.buttons})
    assert engine.tokens.verb(anns.buttons[0].handle, wait.id, ["page:ann"]) is Verb.ONCE
    assert engine.tokens.verb(anns.buttons[0].handle, wait.id, ["page:cleo"]) is None


async def test_common_session_is_seen_by_both_owners(engine: Engine, web_access: WebAccess) -> None:
    await talked(engine)
    for owner in (ANN, CLEO):
        rows = (await web_access.older(owner, DM, None)).rows
        assert [row.item.message.text for row in rows if isinstance(row.item, Received)] == ["hello"]


@pytest.mark.parametrize("n", [-1, 0, 2, 99])
async def test_only_a_step_with_a_long_output_has_a_file(engine: Engine, web_access: WebAccess, n: int) -> None:
    turn = await talked(engine)

    assert await web_access.output(CLEO, turn, n) is None
    assert await web_access.output(CLEO, TurnId("../../etc/passwd"), 1) is None


async def test_picture_is_given_by_number_to_viewers_of_the_session(tmp_path: Path) -> None:
    async def draws(ctx: ToolContext, _args: Text) -> ToolResult:
        made = (await ctx.artifacts.picture(b"one", "image/png"), await ctx.artifacts.picture(b"two", "image/gif"))
        return ToolResult(status=ResultStatus.OK, text="drawn", pictures=made)

    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=draws)])
    turn, web_access = await talked(engine), engine.web_access()

    found = [await web_access.output(CLEO, turn, 1, ArtifactKind.PICTURE, at) for at in (0, 1)]
    assert [path and path.read_bytes() for path in found] == [b"one", b"two"]
    assert await web_access.output(CLEO, turn, 1) is None
    for owner, n, at in ((ANN, 1, 0), (CLEO, 1, 2), (CLEO, 1, -1), (CLEO, 0, 0)):
        assert await web_access.output(owner, turn, n, ArtifactKind.PICTURE, at) is None


async def test_a_file_is_given_by_its_number_to_who_sees_the_session(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        shot = await ctx.artifacts.picture(b"shot", "image/png")
        names = (shot.file, "link.pdf", "../../../escaped.pdf")
        files = tuple(Artifact(file=one, name="Bill.pdf", media_type="application/pdf") for one in names)
        return ToolResult(status=ResultStatus.OK, text="saved", files=files)

    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=saves)])
    turn, web_access = await talked(engine), engine.web_access()
    folder = engine.workspaces.outputs(CLEOS)
    (tmp_path / "escaped.pdf").write_bytes(b"secret")
    (folder / "link.pdf").symlink_to(tmp_path / "escaped.pdf")

    found = await web_access.output(CLEO, turn, 1, ArtifactKind.FILE, 0)
    assert found is not None
    assert (found.read_bytes(), found.parent) == (b"shot", folder)
    assert await web_access.output(CLEO, turn, 1, ArtifactKind.PICTURE, 0) is None  # it is no picture of the result
    for owner, n, at in ((ANN, 1, 0), (CLEO, 1, 1), (CLEO, 1, 2), (CLEO, 1, 3), (CLEO, 1, -1), (CLEO, 0, 0)):
        assert await web_access.output(owner, turn, n, ArtifactKind.FILE, at) is None


async def test_an_output_that_was_removed_is_not_there(engine: Engine, web_access: WebAccess) -> None:
    turn = await talked(engine)
    path = await web_access.output(CLEO, turn, 1)
    assert path is not None
    path.unlink()

    assert await web_access.output(CLEO, turn, 1) is None


# --- sign-in ------------------------------------------------------------------------------------


async def test_a_link_signs_in_once(engine: Engine, web_access: WebAccess) -> None:
    code = await web_access.mint_code(ANN)
    found = await web_access.sign_in(code, "here")
    assert found is not None
    owner, credential = found

    assert owner == ANN
    assert await web_access.owner_of(credential) == ANN
    assert await web_access.sign_in(code, "here") is None
    await web_access.sign_out(credential)
    await web_access.sign_out(credential)
    assert await web_access.owner_of(credential) is None
    stored = repr(engine.store.all_facts)
    assert code not in stored
    assert credential.cookie not in stored
    assert credential.key not in stored
    assert credential.key not in repr(credential)


async def test_link_lasts_ten_minutes_and_a_sign_in_thirty_days(engine: Engine, web_access: WebAccess) -> None:
    late = await web_access.mint_code(ANN)
    engine.clock.advance(600)
    assert await web_access.sign_in(late, "here") is None

    found = await web_access.sign_in(await web_access.mint_code(ANN), "here")
    assert found is not None
    engine.clock.advance(30 * 86_400 - 1)
    assert await web_access.owner_of(found[1]) == ANN
    engine.clock.advance(1)
    assert await web_access.owner_of(found[1]) is None


async def test_guessing_is_stopped_and_a_right_code_still_counts(engine: Engine, web_access: WebAccess) -> None:
    code = await web_access.mint_code(ANN)
    for n in range(10):
        assert await web_access.sign_in(f"guess{n}", "there") is None

    with pytest.raises(Forbidden, match="Too many"):
        await web_access.sign_in("guess", "there")
    assert await web_access.sign_in(code, "there") is not None
    with pytest.raises(Forbidden, match="Too many"):
        await web_access.sign_in(code, "there")
    engine.clock.advance(900)
    assert await web_access.sign_in("guess", "there") is None


@pytest.mark.parametrize("cookie", ["", "x", "a" * 10_000, "\x00"])
async def test_no_other_cookie_signs_in(web_access: WebAccess, cookie: str) -> None:
    assert await web_access.owner_of(Credential(cookie=cookie, key="")) is None
    assert await web_access.owner_of(Credential(cookie="", key=cookie)) is None


def test_welcome_has_the_commands_of_the_main_session(web_access: WebAccess) -> None:
    found = web_access.welcome(ANN)

    assert (found.owner, found.main, found.model) == (ANN, ANNS, "scripted")
    names = [command.name for command in found.commands]
    assert {"stop", "new", "read", "shell"} <= set(names)
    assert len(names) == len(set(names))


async def test_secret_in_call_arguments_is_hidden_on_the_page_and_used(tmp_path: Path) -> None:
    secret = "correct horse battery"
    engine = Engine(tmp_path, [read := FakeTool(name="read", risk=Risk.READ)], secrets=[secret])
    engine.model.script = [calls(f"read:x {secret} y")]
    await engine.say("hello")
    await engine.run(await engine.claim())

    for rows in (await engine.web_access().older(ANN, ANNS, None), await engine.web_access().changes(ANN, ANNS, 0)):
        (step,) = [row.item for row in rows.rows if isinstance(row.item, Step) and row.item.call is not None]
        assert step.call is not None
        assert json.loads(step.call.arguments) == {"text": "x [hidden] y"}
    assert read.calls == [f"x {secret} y"]
