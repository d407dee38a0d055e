"""Questions and task lists on the page: asked in turn on one card, answered by buttons and in words."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Route, expect

from gateway.domain.ids import CallId
from gateway.domain.steps import Answer
from gateway.domain.tools import ToolCall
from tests.support.browser import Person
from tests.support.engine import Served
from tests.support.fakes import ANN_PAGE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.whole("a browser beside an engine")]
SETTLED_MS = 500
"""Buttons that have just moved ignore the pointer for 400 ms."""
QUESTIONS = [
    {"question": "Which day suits you?", "options": ["Monday", "Wednesday", "Friday"]},
    {"question": "What shall be on it?", "options": ["olives", "capers", "onions"], "several": True},
    {"question": "What is it called?"},
]
TODOS = [
    {"text": "Buy rye flour", "state": "done"},
    {"text": "Feed the starter", "state": "doing"},
    {"text": "Bake on Friday"},
    {"text": "Ask Bob for his oven", "state": "dropped"},
]


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=CallId(id), tool=name, arguments=json.dumps(arguments))


async def test_questions_are_answered_in_turn_on_one_card(page: Served, ann: Person) -> None:
    engine, place = page.engine, ann.page
    calls = (call("c1", "todo_write", todos=TODOS), call("c2", "ask_user", questions=QUESTIONS))
    engine.model.script = [Answer(text="", calls=calls, model="m"), Answer(text="Done.", model="m")]
    turn = await engine.say("Plan the bread", where=ANN_PAGE)
    await engine.run(await engine.claim())
    card, buttons = place.locator("[data-kind=question]"), place.get_by_test_id("card-button")

    await expect(card).to_contain_text("Question 1 of 3")
    await expect(buttons).to_have_text(["Monday1", "Wednesday2", "Friday3"])
    await expect(place.locator(".checklist li")).to_have_count(4)
    await expect(card.locator(".until")).to_have_text(re.compile(r"until [A-Z][a-z]{2} \d"))  # not today
    await ann.shot("question")
    await place.wait_for_timeout(SETTLED_MS)
    await buttons.nth(2).click()
    await expect(card).to_contain_text("Question 2 of 3")
    for n in (0, 2):
        await place.wait_for_timeout(SETTLED_MS)
        await buttons.nth(n).click()
        await expect(buttons.nth(n)).to_have_attribute("aria-pressed", "true")
    await ann.shot("question-several")
    await place.wait_for_timeout(SETTLED_MS)
    await buttons.nth(3).click()
    await expect(card).to_contain_text("What is it called?")
    await expect(buttons).to_have_count(0)
    await place.set_viewport_size({"width": 390, "height": 844})
    await place.wait_for_timeout(SETTLED_MS)
    await ann.shot("question-phone")
    await place.get_by_test_id("card-answer").fill("Rye & Friday")
    await place.get_by_test_id("card-answer").press("Enter")
    await expect(card).to_contain_text("Answered by ann")
    await engine.run(await engine.claim())
    await expect(place.get_by_test_id("answer").last).to_contain_text("Done.")
    await ann.shot("question-answered")
    answers = [one["answer"] for one in json.loads((await engine.result(turn, 2)).text)]
    assert answers == [["Friday"], ["olives", "onions"], ["Rye & Friday"]]
    await place.locator(".foot button").last.click()
    asked = place.get_by_test_id("timeline-step").filter(has_text="ask_user")
    await expect(asked).to_contain_text("Which day suits you?")


async def _refuse(route: Route) -> None:
    await route.abort()


async def _answer_for_it(route: Route) -> None:
    await route.fulfill(status=502)


@pytest.mark.parametrize(
    ("file", "answer"),
    [("question.js", _refuse), ("question.css", _refuse), ("question.js", _answer_for_it)],
    ids=["script", "style", "proxy"],
)
async def test_a_page_waits_for_a_server_that_is_away_as_it_asks(
    page: Served, ann: Person, file: str, answer: Callable[[Route], Awaitable[None]]
) -> None:
    """A restart may take what a running page loads later: it stays, and loads anew when the server is back."""
    engine, place = page.engine, ann.page
    away = re.compile(rf"{re.escape(page.url)}/(static/.*/{re.escape(file)})?$")
    await place.route(away, answer)
    engine.model.script = [Answer(text="", calls=(call("c1", "ask_user", questions=QUESTIONS[:1]),), model="m")]
    await engine.say("Plan the bread", where=ANN_PAGE)
    async with place.expect_request(f"{page.url}/"):
        await engine.run(await engine.claim())
    async with place.expect_request(f"{page.url}/", timeout=10_000):  # it asks again
        await expect(place.get_by_test_id("composer")).to_be_visible()
    await expect(place.get_by_test_id("stale")).to_have_count(0)

    await place.unroute(away)
    await expect(place.get_by_test_id("card-button")).to_have_text(["Monday1", "Wednesday2", "Friday3"], timeout=15_000)
    ann.complaints.clear()  # of what could not be loaded
