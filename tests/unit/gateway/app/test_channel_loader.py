"""Channels that the configuration names: found by module or package, checked, and refused by name with the cure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from config.load import Loaded, load
from gateway.app.channel_loader import import_channels, load_channels, redactor_of
from gateway.errors import ConfigError
from gateway.ports import ChannelContext, ChannelSpec, IdForm, Mistake

MODULE = "owners_channel"
TOKEN, OTHER = "a-token-of-the-first-account", "a-token-of-the-second-one"
TABLE = f'[channels.test]\nmodule = "{MODULE}"\n'


class Account(BaseModel):
    """Settings of one account of the test's channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: SecretStr
    room: str = "lobby"


class Accounts(BaseModel):
    """Settings of all accounts."""

    accounts: dict[str, Account]


def no_adapter() -> Any:
    raise AssertionError("the adapter was imported")


def further_secrets(account: Account) -> list[SecretStr]:
    return [SecretStr(f"half-of-{account.token.get_secret_value()}")]


def check(account: Account, _public_url: str | None) -> list[Mistake]:
    return [] if account.room == "lobby" else [Mistake("there is no such room", "Write lobby", "room")]


def warnings(settings: Accounts, named: Sequence[str]) -> list[str]:
    return [f"test: {len(settings.accounts)} accounts, {len(named)} people"]


def describe(settings: Accounts) -> list[tuple[str, str]]:
    return [(name, one.room) for name, one in settings.accounts.items()]


SPEC = ChannelSpec(name="test", api=2, load=no_adapter)
WITH_ACCOUNTS = replace(
    SPEC,
    settings=Accounts,
    account=Account,
    needs="a token",
    secrets_of=further_secrets,
    secret_patterns=(r"kite-\d{10}",),
    check=check,
    warnings=warnings,
    describe=describe,
    person=IdForm(example="p1", check=lambda text: None if text[:1] == "p" else Mistake("is no person", "Write p1")),
)

Given = Callable[[str], Loaded]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Load a configuration."""

    def read(text: str) -> Loaded:
        file = tmp_path / "config.toml"
        file.write_text(text)
        return load(file, tmp_path / "state", {"HOME": str(tmp_path), "TOKEN": TOKEN, "OTHER": OTHER}, {})

    return read


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Make an object the `CHANNEL` of an importable module."""

    def export(spec: object) -> None:
        module = cast(Any, ModuleType(MODULE))
        module.CHANNEL = module.other = spec
        monkeypatch.setitem(sys.modules, MODULE, module)

    return export


def refusal(read: Given, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return f"{caught.value.message} {caught.value.cure}"


Export = Callable[[object], None]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("no spec", "has no CHANNEL that is a ChannelSpec"),
        (None, "has no CHANNEL that is a ChannelSpec"),
        (replace(SPEC, api=3), "is written for channel interface 3; this is 2"),
        (ChannelSpec(name="test", load=no_adapter), "is written for channel interface 1; this is 2"),
        (replace(SPEC, api=cast("int", "one")), "is written for channel interface 'one'; this is 2"),
        (replace(SPEC, load=cast("Any", None)), "load of its CHANNEL is not valid"),
        (replace(SPEC, check=cast("Any", "yes")), "check of its CHANNEL is not valid"),
        (replace(SPEC, account=Account), "settings of its CHANNEL is not valid"),
        (replace(SPEC, secret_patterns=("(",)), "secret_patterns of its CHANNEL is not valid"),
        (replace(SPEC, secret_patterns=cast("Any", "kite")), "secret_patterns of its CHANNEL is not valid"),
        (replace(SPEC, person=cast("Any", None)), "person of its CHANNEL is not valid"),
    ],
)
def test_a_bad_specification_is_refused(given: Given, exported: Export, spec: object, why: str) -> None:
    exported(spec)

    told = refusal(given, TABLE)
    assert "channels.test.module: " in told
    assert why in told


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("no.such", "no.such cannot be imported"),
        (f"{MODULE}:nothing", "has no CHANNEL that is a ChannelSpec"),
        ("a/b", "'a/b' is not an import path"),
        ("", "'' is not an import path"),
    ],
)
def test_a_module_that_is_not_there_is_refused(given: Given, exported: Export, module: str, why: str) -> None:
    exported(SPEC)

    assert why in refusal(given, f'[channels.test]\nmodule = "{module}"\n[people]\nallow = ["test:p1"]\n')


@pytest.mark.parametrize("module", [MODULE, f"{MODULE}:other"])
def test_a_channel_is_named_by_its_module(given: Given, exported: Export, module: str) -> None:
    exported(SPEC)
    channel = given(f'[channels.test]\nmodule = "{module}"\nport = 7\n').channels["test"]

    assert (channel.settings, channel.origin) == ({"port": 7}, module)


def test_an_own_channel_has_accounts_checks_and_secrets(given: Given, exported: Export) -> None:
    exported(WITH_ACCOUNTS)
    loaded = given(
        f'{TABLE}[channels.test.accounts.a]\ntoken = "env:TOKEN"\n[channels.test.accounts.b]\ntoken = "env:OTHER"\n'
        '[people]\nallow = ["test:p1"]\n'
    )

    assert list(loaded.channels["test"].settings.accounts) == ["a", "b"]
    assert loaded.channels["test"].describe() == [("a", "lobby"), ("b", "lobby")]
    assert "test: 2 accounts, 1 people" in loaded.warnings
    hidden = redactor_of(loaded).text(f"{TOKEN} half-of-{OTHER} kite-0123456789 lobby")
    assert hidden.count("[hidden]") == 3
    assert hidden.endswith("lobby")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('token = "env:TOKEN"\nroom = "attic"\n', "channels.test.room: there is no such room. Write lobby"),
        ('token = "plain"\n', "channels.test.token"),
        ("", "channels.test.token"),
        ('token = "env:TOKEN"\ncolour = 1\n', "colour"),
        ('token = "env:TOKEN"\n[people]\nallow = ["test:q"]\n', "'test:q' is no person. Write p1"),
        ('token = "env:TOKEN"\n[chats]\nallow = ["test:a b"]\n', "'test:a b' is not a group or channel on test"),
    ],
)
def test_mistakes_of_an_own_channel_have_key_and_cure(given: Given, exported: Export, text: str, why: str) -> None:
    exported(WITH_ACCOUNTS)

    assert why in refusal(given, TABLE + text)


def test_checks_that_fail_are_a_problem_of_the_channel(given: Given, exported: Export) -> None:
    def fails(*_: object) -> Iterable[Any]:
        raise LookupError("a fault of the channel")

    exported(replace(WITH_ACCOUNTS, check=fails))
    assert "test cannot check it (LookupError)" in refusal(given, f'{TABLE}token = "env:TOKEN"\n')
    people = '[people]\nallow = ["test:p1"]\n'
    exported(replace(WITH_ACCOUNTS, person=IdForm(example="p1", check=cast("Any", fails))))
    assert "'test:p1' cannot be checked (LookupError)" in refusal(given, f'{TABLE}token = "env:TOKEN"\n{people}')
    exported(replace(WITH_ACCOUNTS, describe=fails))
    described = given(f'{TABLE}token = "env:TOKEN"\n').channels["test"].describe()
    assert described == [("", "it cannot be described (LookupError)")]
    exported(replace(WITH_ACCOUNTS, warnings=fails))
    assert (
        "channels.test: its settings cannot be examined (LookupError)."
        in given(f'{TABLE}token = "env:TOKEN"\n').warnings
    )


def test_an_installed_package_is_a_channel_when_configured(
    given: Given, exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(WITH_ACCOUNTS)
    info = tmp_path / "site" / "kites-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kites\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dragoman.channels]\nkite = {MODULE}:CHANNEL\nbad = {MODULE}:nothing\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])

    assert list(given("").channels) == []
    channel = given('[channels.kite]\ntoken = "env:TOKEN"\n[people]\nallow = ["kite:p1"]\n').channels["kite"]
    assert (channel.spec.name, channel.origin) == ("test", "package kites")
    assert "has no CHANNEL that is a ChannelSpec" in refusal(given, '[channels.bad]\ntoken = "env:TOKEN"\n')
    assert "there is no channel 'wind'" in refusal(given, '[channels.wind]\ntoken = "env:TOKEN"\n')


def made_by(make: Callable[[], Any]) -> ChannelSpec:
    """Return a specification whose channel is what this function returns."""

    def build(_: ChannelContext) -> Any:
        return make()

    return replace(SPEC, load=lambda: build)


# --- making --------------------------------------------------------------------------------------


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
def test_failing_channel_is_refused_with_the_reason(given: Given, exported: Export, make: Any, why: str) -> None:
    exported(made_by(make))
    with pytest.raises(ConfigError) as caught:
        load_channels(given(TABLE).channels, nothing)
    assert caught.value.message.startswith("The channel test ")
    assert why in caught.value.message
    assert len(caught.value.message) < 700


def no_package() -> Any:
    raise ImportError("No module named 'kites'", name="kites")


@pytest.mark.parametrize(
    ("load_adapter", "why", "cure"),
    [
        (no_package, "needs packages that are not installed (kites)", f"Install what {MODULE} needs."),
        (lambda: fail(ValueError("of mine")), f"cannot be loaded from {MODULE}: ValueError: of mine", "Correct its"),
    ],
)
def test_an_adapter_that_cannot_be_imported_is_refused(
    given: Given, exported: Export, load_adapter: Any, why: str, cure: str
) -> None:
    exported(replace(SPEC, load=load_adapter))
    with pytest.raises(ConfigError) as caught:
        import_channels(given(TABLE).channels)
    assert why in caught.value.message
    assert cure in caught.value.cure


def test_the_routes_of_an_own_channel_are_served(given: Given, exported: Export) -> None:
    route = object()
    exported(made_by(lambda: SimpleNamespace(run=print, show=print, endpoints=lambda: [route])))

    assert load_channels(given(TABLE).channels, nothing)[1] == [route]
