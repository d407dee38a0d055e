"""A tool's own keys in `[tools.<name>]`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from config.load import Loaded, load
from gateway.domain.tools import Availability, Effect, Risk, ToolSpec
from gateway.errors import ConfigError


class Kite(BaseModel):
    """Settings of a fake tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    line: int = Field(default=30, ge=1, le=500, description="Metres.")
    winds: tuple[str, ...] = Field(default=(), description="Names.")
    rest: timedelta = Field(default=timedelta(minutes=5), description="A duration.")


SPECS = {
    "kite": ToolSpec(
        name="kite",
        description="",
        risk=Risk.NETWORK,
        effect=Effect.UNSAFE,
        availability=Availability.MAIN,
        settings=Kite,
    ),
    "plain": ToolSpec(
        name="plain", description="", risk=Risk.NONE, effect=Effect.PURE, availability=Availability.ALWAYS
    ),
}


def read(folder: Path, toml: str, environ: dict[str, str] | None = None) -> Loaded:
    file = folder / "config.toml"
    file.write_text(toml)
    return load(file, folder / "state", environ or {}, SPECS)


def test_without_a_table_they_have_their_defaults(tmp_path: Path) -> None:
    tools = read(tmp_path, "").tools
    assert tools["kite"].settings == Kite()
    assert tools["plain"].settings is None


def test_own_settings_stand_beside_those_of_every_tool(tmp_path: Path) -> None:
    toml = '[tools.kite]\npermission = "always"\nline = 40\nwinds = ["north"]\nrest = "90s"\n'
    kite = read(tmp_path, toml).tools["kite"]
    assert kite.availability is Availability.ALWAYS
    assert kite.settings == Kite(line=40, winds=("north",), rest=timedelta(seconds=90))


def test_own_settings_come_from_variables_too(tmp_path: Path) -> None:
    kite = read(tmp_path, "", {"DRAGOMAN_TOOLS__KITE__LINE": "41", "DRAGOMAN_TOOLS__KITE__WINDS": "north, west"})
    assert kite.tools["kite"].settings == Kite(line=41, winds=("north", "west"))


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[tools.kite]\nline = 0\n", "tools.kite.line: it is too small"),
        ("[tools.kite]\nrest = 'soon'\n", 'tools.kite.rest: "soon" is not a duration'),
        ("[tools.kite]\nlime = 4\n", 'Did you mean "line"?'),
        ("[tools.plain]\nline = 4\n", "tools.plain.line: unknown key"),
    ],
)
def test_bad_setting_is_refused_with_its_cure(toml: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, toml)
    assert told in str(caught.value)
