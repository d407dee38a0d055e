from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import aiohttp
import pytest

from gateway.domain.ids import SessionId
from gateway.domain.prompts import AnswerRestarted, Complete, ModelRequest, UserText
from gateway.domain.routes import Route, empty_session
from gateway.domain.sessions import Origin, SessionKind
from gateway.errors import ConfigError
from gateway.llm import Choice, Price, open_model, open_models
from gateway.llm.operator import Operator
from gateway.ports import Model
from gateway.system.redaction import Redactor
from tests.support.clock import FakeClock
from tests.support.model_server import Call, Reply, ScriptedModel, UsageFigures

OPERATOR = Operator(dict)
ASK = ModelRequest(system="", messages=(UserText(text="Hi"),), tools=())

ROUTE = Route(session=SessionId("main:ann"), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=None, title="ann")


async def opened(name: str) -> Model:
    async with aiohttp.ClientSession() as session:
        return open_model(name, session=session, base_url=None, api_key=None, clock=FakeClock())


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "openai:org/model:free"])
async def test_models_are_opened_by_name(name: str) -> None:
    assert (await opened(name)).name == name


async def test_the_operator_is_the_one_that_is_given() -> None:
    async with aiohttp.ClientSession() as session:
        choices = [Choice(name="operator"), Choice(name="openai:a")]
        models = open_models(choices, {}, session=session, operator=OPERATOR, redactor=Redactor(), clock=FakeClock())

    assert list(models.names) == ["operator", "openai:a"]


@pytest.mark.parametrize("name", ["", "openai", "openai:", "gpt-5-mini", "operator:x", ":x", "anthropic:"])
async def test_another_name_is_refused_with_its_cure(name: str) -> None:
    with pytest.raises(ConfigError, match="There is no model") as caught:
        await opened(name)

    assert "openai:gpt-5-mini" in caught.value.cure


def test_the_operator_needs_no_http_client() -> None:
    program = "import gateway.llm, gateway.llm.operator, sys; sys.exit('aiohttp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0


def test_a_provider_whose_packages_are_missing_names_the_extra() -> None:
    program = """
import sys
sys.modules["pydantic_ai"] = None
from gateway.errors import ConfigError
from gateway.llm import open_model
try:
    open_model("anthropic:m", session=None, base_url=None, api_key="k", clock=None)
except ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)

    assert "`providers`" in ran.stdout


async def test_configured_models_fall_back_and_have_prices() -> None:
    broken = ScriptedModel([Reply(status=401, error="This key has expired")])
    fine = ScriptedModel([Reply(text="Hello", usage=UsageFigures(prompt=1_000, completion=100, cached=400))])
    async with broken, fine, aiohttp.ClientSession() as session:
        models = open_models(
            [
                Choice(name="openai:a", base_url=broken.base_url, api_key="sk-old"),
                Choice(name="openai:b", base_url=fine.base_url),
            ],
            {"openai:b": Price(input=1.0, output=2.0, cached=0.5)},
            session=session,
            operator=OPERATOR,
            redactor=Redactor(),
            clock=FakeClock(),
        )
        model = models.of(empty_session(ROUTE, datetime(2026, 1, 1, tzinfo=UTC)))
        *_, last = [event async for event in model.stream(ASK)]

    assert list(models.names) == ["openai:a", "openai:b"]
    assert isinstance(last, Complete)
    assert last.answer.text == "Hello"
    assert last.answer.usage.cost_micros == 1_000
    assert last.answer.note.startswith("b answered: a failed (The key for 127.0.0.1:")
    assert "expired" in last.answer.note


@pytest.mark.parametrize("cut_after", range(2, 9))  # before any text the model itself tries again, after seconds
async def test_cut_stream_restarts_with_the_next_model(cut_after: int) -> None:
    call = Call(name="shell", arguments='{"command":"rm -r x"}')
    cut = ScriptedModel([Reply(text="Half of it", chunks=3, calls=(call,), fragments=3, cut_after=cut_after)] * 4)
    fine = ScriptedModel([Reply(text="Whole")])
    async with cut, fine, aiohttp.ClientSession() as session:
        choices = [Choice(name="openai:a", base_url=cut.base_url), Choice(name="openai:b", base_url=fine.base_url)]
        models = open_models(choices, {}, session=session, operator=OPERATOR, redactor=Redactor(), clock=FakeClock())
        model = models.of(empty_session(ROUTE, datetime(2026, 1, 1, tzinfo=UTC)))
        *before, last = [event async for event in model.stream(ASK)]

    assert isinstance(last, Complete)
    assert (last.answer.text, last.answer.calls) == ("Whole", ())
    assert any(isinstance(event, AnswerRestarted) for event in before)


async def test_no_choice_is_refused() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigError, match="No model is configured"):
            open_models([], {}, session=session, operator=OPERATOR, redactor=Redactor(), clock=FakeClock())


def test_a_choice_does_not_show_its_key() -> None:
    assert "sk-secret" not in repr(Choice(name="openai:a", api_key="sk-secret"))
