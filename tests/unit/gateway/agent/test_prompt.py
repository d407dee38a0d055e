from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gateway.app
from config.plugins import tool_specs
from gateway.agent.prompt import Prompt, PromptBuilder
from gateway.agent.transcript import ANSWERED
from gateway.domain.children import Agent
from gateway.domain.ids import SYSTEM_CHILD, SessionId, main_session
from gateway.domain.prompts import CallResult, Image, UserText
from gateway.domain.sessions import Session
from gateway.domain.tools import Picture, ToolPolicy, ToolResult, ToolSpec
from gateway.domain.views import TurnView
from gateway.errors import DragomanError, FileAway
from gateway.llm.openai_payload import request_body
from gateway.ports import ToolContext
from gateway.toolcalls.arguments import ModelArguments
from gateway.toolcalls.tool_set import Tool, ToolSet
from tests.support.clock import FakeClock
from tests.support.fakes import FailingStore
from tests.support.makers import ANN, attachment, fetched, inbound
from tests.support.turns import answered, asked, called, lineage, session, turn_view, with_files

PROMPTS = Path(gateway.app.__file__).parent
FIRST_REQUEST_AT_MOST = 9_000
NOTHING = ToolSet([], sandboxed=True)
PNG = b"\x89PNG\r\n\x1a\n"


class Histories(FailingStore):
    """Store with one history."""

    def __init__(self, *views: TurnView) -> None:
        """Take the ended turns."""
        super().__init__(FakeClock())
        self.views = views

    async def history(
        self, session: SessionId, epoch: int, limit: int, *, oldest: bool = False
    ) -> tuple[TurnView, ...]:
        """Return the newest turns, or the oldest."""
        return self.views[:limit] if oldest else self.views[-limit:]


def questions(folder: Path, *history: TurnView, context_tokens: int = 100_000) -> PromptBuilder:
    return PromptBuilder(
        queries=Histories(*history),
        outputs=lambda _: folder,
        workspaces=lambda _: folder,
        system="You are a test.\n",
        child_system="You are a sub-session.\n",
        instructions=" Be kind. ",
        agents={"scout": Agent(name="scout", description="Looks.", instructions="Look twice.")},
        context_tokens=context_tokens,
    )


NOW = turn_view(id="now", inputs=[asked("now", given=None)])


@pytest.mark.parametrize(
    ("view", "system"),
    [
        (NOW, "You are a test.\n\nBe kind."),
        (turn_view(of=session(of=lineage())), "You are a test.\n\nBe kind.\n\nYou are a sub-session."),
        (
            turn_view(of=session(of=lineage(agent="scout"))),
            "You are a test.\n\nBe kind.\n\nYou are a sub-session.\n\nLook twice.",
        ),
        (
            turn_view(of=session(of=lineage(agent="gone"))),  # it is configured no more
            "You are a test.\n\nBe kind.\n\nYou are a sub-session.",
        ),
    ],
)
async def test_system_prompt_describes_the_session(tmp_path: Path, view: TurnView, system: str) -> None:
    assert (await questions(tmp_path).make(view, NOTHING)).request.system == system


async def test_prompt_for_the_operator_has_no_history(tmp_path: Path) -> None:
    old = turn_view(id="old", inputs=[asked("old")], steps=[answered(0, "ok")])
    made = await questions(tmp_path, old).make_alone(NOW, NOTHING)

    assert (made.history, made.request.messages, made.long) == ((), (UserText(text="now"),), False)


@pytest.mark.parametrize(
    ("chars", "turns", "long"), [(1_000, 2, False), (1_000, 3, True), (1, 39, False), (1, 40, True)]
)
async def test_a_history_that_nears_the_budget_or_its_turns_is_long(
    tmp_path: Path, chars: int, turns: int, long: bool
) -> None:
    history = [turn_view(id=f"t{n}", inputs=[asked("x" * chars)], steps=[answered(0, "ok")]) for n in range(turns)]
    made = await questions(tmp_path, *history, context_tokens=1_000).make(NOW, NOTHING)

    assert made.long is long


async def test_a_summary_is_the_one_that_goes_with_the_history(tmp_path: Path) -> None:
    """It may have been written since the turn was read, and then the history begins after it."""
    old = turn_view(id="old", of=session(summary="Ann likes tea."), inputs=[asked("old")], steps=[answered(0, "ok")])
    made = await questions(tmp_path, old).make(NOW, NOTHING)

    first = made.request.messages[0]
    assert isinstance(first, UserText)
    assert "Ann likes tea." in first.data
    assert [one.text for one in made.request.messages if isinstance(one, UserText)] == ["", "old", "now"]


def results_in(made: Prompt) -> list[str]:
    return [one.result.text for one in made.request.messages if isinstance(one, CallResult)]


def said_in(made: Prompt) -> list[str]:
    return [one.text for one in made.request.messages if isinstance(one, UserText)]


def working(*sizes: int) -> TurnView:
    """Return a running turn: that many answers, each with a call and a result of that length."""
    steps = [
        step
        for n, size in enumerate(sizes)
        for step in (answered(2 * n), replace(called(2 * n + 1, text="r" * size), answer_n=2 * n))
    ]
    return turn_view(id="now", inputs=[asked("now")], steps=steps)


async def test_turn_precedes_its_history_and_older_results_are_cut(tmp_path: Path) -> None:
    """Eight results of 50 KB are more than the default context."""
    old = turn_view(id="old", inputs=[asked("o" * 3_000)], steps=[answered(0, "ok")])
    made = await questions(tmp_path, old).make(working(*[50_000] * 8), NOTHING)
    found = results_in(made)

    assert made.history == ()
    assert sum(map(len, found)) <= 350_000
    assert all("not given again" in one and len(one) > 40_000 for one in found[:-1])
    assert found[-1] == "r" * 50_000
    assert results_in(await questions(tmp_path, old).make(working(*[50_000] * 6), NOTHING)) == ["r" * 50_000] * 6


async def test_newest_results_that_alone_are_too_long_are_cut_too(tmp_path: Path) -> None:
    made = await questions(tmp_path, context_tokens=1_000).make(working(50_000), NOTHING)

    (found,) = results_in(made)
    assert 3_000 < len(found) < 3_500


async def test_a_shorter_question_keeps_the_newer_half_and_the_summary(tmp_path: Path) -> None:
    history = [
        turn_view(id=name, of=session(summary="Before."), inputs=[asked(name)], steps=[answered(0, "ok")])
        for name in ("a", "b", "c")
    ]
    making = questions(tmp_path, *history)
    shorter = await making.make_shorter(NOW, NOTHING, await making.make(NOW, NOTHING))
    assert shorter is not None
    shortest = await making.make_shorter(NOW, NOTHING, shorter)
    assert shortest is not None

    assert [said_in(one) for one in (shorter, shortest)] == [["", "c", "now"], ["", "now"]]
    assert shortest.history == ()
    assert await making.make_shorter(NOW, NOTHING, shortest) is None


async def test_a_shorter_question_has_less_of_the_turns_own_results(tmp_path: Path) -> None:
    old = turn_view(id="old", inputs=[asked("old")], steps=[answered(0, "ok")])
    view, making = working(20_000, 20_000, 8_000), questions(tmp_path, old)
    shorter = await making.make_shorter(view, NOTHING, await making.make(view, NOTHING))
    assert shorter is not None
    shortest = await making.make_shorter(view, NOTHING, shorter)
    assert shortest is not None

    assert said_in(shorter) == said_in(shortest) == ["now"]
    cut, kept = results_in(shorter)[:2], results_in(shorter)[2]
    assert all(5_000 < len(one) < 9_000 for one in cut)
    assert kept == results_in(shortest)[2] == "r" * 8_000
    assert shortest.chars <= shorter.chars // 2 <= 12_100


async def test_shortened_prompt_bounds_the_next_one(tmp_path: Path) -> None:
    history = [turn_view(id=name, inputs=[asked(name * 1_000)], steps=[answered(0, "ok")]) for name in "abcd"]
    making = questions(tmp_path, *history)
    shorter = await making.make_shorter(NOW, NOTHING, await making.make(NOW, NOTHING))
    assert shorter is not None
    later = await making.make(working(200), NOTHING, shorter.bounds)

    assert [one[:1] for one in said_in(later)] == ["d", "n"]
    assert later.bounds == shorter.bounds


async def test_prompt_for_the_operator_is_never_shortened(tmp_path: Path) -> None:
    old = turn_view(id="old", inputs=[asked("old")], steps=[answered(0, "ok")])
    making = questions(tmp_path, old)

    assert await making.make_shorter(NOW, NOTHING, await making.make_alone(NOW, NOTHING)) is None


async def test_pictures_are_read_from_the_sessions_folder(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"png")
    shot = called(1)
    assert shot.result is not None
    pictured = replace(shot, result=replace(shot.result, pictures=(Picture(file="a.png", media_type="image/png"),)))
    made = await questions(tmp_path).make(turn_view(inputs=[asked("now")], steps=[answered(0), pictured]), NOTHING)

    assert [[i.data for i in one.images] for one in made.request.messages if isinstance(one, CallResult)] == [[b"png"]]


async def test_pictures_of_calls_are_fetched_first_or_said_to_be_away(tmp_path: Path) -> None:
    shot = called(1)
    assert shot.result is not None
    pictures = tuple(Picture(file=name, media_type="image/png") for name in ("a.png", "b.png"))
    pictured = replace(shot, result=replace(shot.result, pictures=pictures))

    async def find(_session: SessionId, name: str) -> Path | None:
        if name == "b.png":
            raise FileAway("The file is on the node first, which cannot be reached now.", cure="Start it.")
        (tmp_path / name).write_bytes(b"png")
        return tmp_path / name

    making = questions(tmp_path)
    making.find = find
    made = await making.make(turn_view(inputs=[asked("now")], steps=[answered(0), pictured]), NOTHING)
    (one,) = [one for one in made.request.messages if isinstance(one, CallResult)]
    assert [image.data for image in one.images] == [b"png"]
    assert "[The picture b.png cannot be given: it is on a machine that cannot be reached now.]" in one.result.text


async def test_pictures_of_people_are_read_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "i1-1.png").write_bytes(PNG)
    making, workspaces = questions(tmp_path / "outputs"), list[SessionId]()
    making.workspaces = lambda session: workspaces.append(session) or tmp_path
    view = turn_view(of=session(of=lineage()), inputs=[with_files(attachment(), fetched("inbox/i1-1.png"))])
    made = await making.make(view, NOTHING)

    (said,) = [one for one in made.request.messages if isinstance(one, UserText)]
    assert said.images == (Image(media_type="image/png", data=PNG, name="inbox/i1-1.png"),)
    assert workspaces == [main_session(ANN)]
    assert made.request.mark in said.data


async def test_a_workspace_that_cannot_be_used_costs_the_picture_alone(tmp_path: Path) -> None:
    def gone(session: SessionId) -> Path:
        raise DragomanError("The workspace cannot be used.")

    making = questions(tmp_path)
    making.workspaces = gone
    made = await making.make(turn_view(inputs=[with_files(attachment(), fetched("inbox/i1-1.png"))]), NOTHING)

    (said,) = [one for one in made.request.messages if isinstance(one, UserText)]
    assert (said.images, "cannot be shown to you" in said.data) == ((), True)


async def test_the_words_of_a_child_count_as_data(tmp_path: Path) -> None:
    told = replace(inbound("It has ended.", who=SYSTEM_CHILD), quoted="Seen.")
    one = replace(asked("x", given=None), message=told)
    made = await questions(tmp_path).make(turn_view(inputs=[one]), NOTHING)

    assert made.request.mark != ""
    (said,) = [one for one in made.request.messages if isinstance(one, UserText)]
    assert f"It has ended. {ANSWERED}" in said.data


# --- the first request ------------------------------------------------------------------------------


def every_tool() -> list[Tool]:
    """Return the tools of this version, in their default policy."""
    modules = [importlib.import_module(f"agent_tools.{name}") for name in tool_specs()]
    return [Tool(spec=m.SPEC, policy=policy(m.SPEC), arguments=ModelArguments(m.Args), run=_never) for m in modules]


async def _never(ctx: ToolContext, args: Any) -> ToolResult:
    """Fail: no call is run here, though some tools need a `run` to be made."""
    raise NotImplementedError


def policy(spec: ToolSpec) -> ToolPolicy:
    return ToolPolicy(availability=spec.availability, approval={}, timeout_s=30, actions={}, sandbox=spec.sandbox)


@pytest.mark.parametrize("of", [session(), session(of=lineage())])
async def test_first_request_with_every_tool_is_small(tmp_path: Path, of: Session) -> None:
    tools = every_tool()
    kept = replace(of, tools=tuple(tool.spec.name for tool in tools) if of.lineage else None)
    making = PromptBuilder(
        queries=Histories(),
        outputs=lambda _: tmp_path,
        workspaces=lambda _: tmp_path,
        system=(PROMPTS / "system_prompt.md").read_text("utf-8"),
        child_system=(PROMPTS / "child_prompt.md").read_text("utf-8"),
    )
    made = await making.make(turn_view(of=kept, inputs=[asked("hello", given=None)]), ToolSet(tools, sandboxed=True))

    assert {offer.name for offer in made.request.tools} >= {"shell", "sessions_spawn", "tools"}
    assert len(request_body("gpt", made.request, answered_by="gpt")) <= FIRST_REQUEST_AT_MOST
