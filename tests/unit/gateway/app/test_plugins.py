"""Plug-ins that the configuration names: what cannot be imported is refused by its name, with the cure."""

from __future__ import annotations

from typing import Any

import pytest

from channels.web.settings import WebSettings
from config.settings import ChannelsSettings, ImportedSettings
from gateway.app.plugins import load_channels
from gateway.errors import ConfigError
from gateway.ports import ChannelContext


def unwanted(name: str, _: Any) -> ChannelContext:
    raise AssertionError(f"{name} was made")


@pytest.mark.parametrize(
    ("path", "why"),
    [("no.such:factory", "No module named 'no'"), ("tests.support.channel:nothing", "has no attribute 'nothing'")],
)
def test_a_channel_that_is_not_there_is_refused(path: str, why: str) -> None:
    imported = {"test": ImportedSettings.model_validate({"module": path})}
    settings = ChannelsSettings(web=WebSettings(enabled=False), telegram=None, slack=None, imported=imported)
    with pytest.raises(ConfigError) as caught:
        load_channels(settings, unwanted)
    assert caught.value.message.startswith(f"The channel test cannot be loaded from {path}: ")
    assert why in caught.value.message
    assert caught.value.cure == "Correct its `module`, or install what it needs."
