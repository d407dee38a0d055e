"""Plug-ins that the configuration names: what cannot be imported is refused by its name, with the cure."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

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
    [
        ("no.such:factory", "No module named 'no'"),
        ("tests.support.channel:nothing", "has no 'nothing' that can be called"),
    ],
)
def test_a_channel_that_is_not_there_is_refused(path: str, why: str) -> None:
    imported = {"test": ImportedSettings.model_validate({"module": path})}
    settings = ChannelsSettings(web=WebSettings(enabled=False), telegram=None, slack=None, imported=imported)
    with pytest.raises(ConfigError) as caught:
        load_channels(settings, unwanted)
    assert caught.value.message.startswith(f"The channel test cannot be loaded from {path}: ")
    assert why in caught.value.message
    assert caught.value.cure == "Correct its `module`, or install what it needs."


def nothing(*_: object) -> Any:
    return None


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("of the error itself")


def leave() -> object:
    sys.exit(3)


def fail(error: Exception) -> object:
    raise error


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (leave, "SystemExit: 3"),
        (lambda: fail(ValueError("of mine")), "ValueError: of mine"),
        (lambda: fail(ValueError("x" * 10_000_000)), "ValueError: xxxx"),
        (lambda: fail(Mute()), "Mute: it does not say why"),
        (lambda: None, "has no run"),
        (lambda: SimpleNamespace(run=1, show=print), "has no run"),
    ],
)
def test_whatever_a_factory_does_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, make: Any, why: str) -> None:
    module = cast(Any, ModuleType("owners_channel"))

    def factory(_: object) -> object:
        return make()

    module.factory = factory
    monkeypatch.setitem(sys.modules, "owners_channel", module)
    imported = {"test": ImportedSettings.model_validate({"module": "owners_channel:factory"})}
    settings = ChannelsSettings(web=WebSettings(enabled=False), telegram=None, slack=None, imported=imported)
    with pytest.raises(ConfigError) as caught:
        load_channels(settings, nothing)
    assert why in caught.value.message
    assert len(caught.value.message) < 700


def test_the_routes_of_a_channel_of_the_owners_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    module, route = cast(Any, ModuleType("owners_channel")), object()

    def factory(_: object) -> object:
        return SimpleNamespace(run=print, show=print, endpoints=lambda: [route])

    module.factory = factory
    monkeypatch.setitem(sys.modules, "owners_channel", module)
    imported = {"test": ImportedSettings.model_validate({"module": "owners_channel:factory"})}
    settings = ChannelsSettings(web=WebSettings(enabled=False), telegram=None, slack=None, imported=imported)

    assert load_channels(settings, nothing)[1] == [route]
