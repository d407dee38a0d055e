from __future__ import annotations

import subprocess
import sys

import aiohttp
import pytest

from gateway.errors import ConfigError
from gateway.llm import open_model
from gateway.ports import Model
from tests.support.clock import FakeClock


async def opened(name: str) -> Model:
    async with aiohttp.ClientSession() as session:
        return open_model(name, session=session, base_url=None, api_key=None, specs={}, clock=FakeClock())


@pytest.mark.parametrize("name", ["operator", "openai:gpt-5-mini", "openai:org/model:free"])
async def test_models_are_opened_by_name(name: str) -> None:
    assert (await opened(name)).name == name


@pytest.mark.parametrize("name", ["", "openai", "openai:", "gpt-5-mini", "operator:x"])
async def test_another_name_is_refused_with_its_cure(name: str) -> None:
    with pytest.raises(ConfigError, match="There is no model") as caught:
        await opened(name)

    assert "openai:gpt-5-mini" in caught.value.cure


def test_the_operator_needs_no_http_client() -> None:
    program = "import gateway.llm, gateway.llm.operator, sys; sys.exit('aiohttp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0
