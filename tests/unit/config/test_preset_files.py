"""Presets as files: Dragoman's own, the owner's, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import tool_specs
from config.preset_files import SHIPPED
from gateway.domain.presets import Ceiling, Preset, PresetMode
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.tools import Risk
from gateway.errors import ConfigError

OWN = 'about = "Mine."\n'


def read(folder: Path, text: str = "", **presets: str) -> Loaded:
    """Load a configuration with own presets by name."""
    own = folder / "presets"
    own.mkdir(exist_ok=True)
    for name, preset in presets.items():
        (own / f"{name}.toml").write_text(preset)
    file = folder / "config.toml"
    file.write_text(f'[sessions]\npreset_folder = "presets"\n{text}')
    return load(file, folder, {}, tool_specs())


def problems(folder: Path, text: str = "", **presets: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(folder, text, **presets)
    return str(raised.value)


def test_shipped_presets_are_there_without_a_configuration(tmp_path: Path) -> None:
    presets = load(None, tmp_path, {"HOME": str(tmp_path)}, tool_specs()).presets

    assert sorted(presets.by_name) == ["build", "explore", "plan"]
    assert {name: one.read_only for name, one in presets.by_name.items()} == {
        "build": False, "explore": True, "plan": True,
    }  # fmt: skip
    assert [one.name for one in presets.for_people()] == ["build", "explore", "plan"]
    assert [one.name for one in presets.for_children()] == ["build", "explore"]
    assert presets.by_name["build"] == Preset(name="build", about=presets.by_name["build"].about)
    assert presets.by_name["plan"].mode is PresetMode.PRIMARY
    assert "not want anything changed" in presets.by_name["plan"].prompt
    assert len(sorted(SHIPPED.glob("*.toml"))) == 3


def test_own_preset_has_rules_and_limits(tmp_path: Path) -> None:
    text = (
        f'{OWN}mode = "subagent"\nrisks = ["none", "read", "execute"]\nwrites = ["out/*"]\ngeneration = 4\n'
        'sandbox = "basic"\nprompt = "Be careful."\n\n'
        '[[rules]]\ntool = "group:files"\npattern = "rm *"\ndecision = "deny"\nlocked = true\n'
    )

    found = read(tmp_path, careful=text).presets.by_name["careful"]

    assert (found.about, found.mode, found.generation) == ("Mine.", PresetMode.SUBAGENT, 4)
    assert (found.sandbox, found.prompt) == ("basic", "Be careful.")
    risks = frozenset({Risk.NONE, Risk.READ, Risk.EXECUTE})
    assert found.ceilings == (Ceiling(preset="careful", risks=risks, writes=("out/*",)),)
    assert found.rules == (
        Rule(
            tool="group:files",
            pattern="rm *",
            decision=Verdict.DENY,
            kinds=frozenset({"main", "dm", "non-main"}),
            locked=True,
            where="preset careful, careful.toml:9 (rules[0])",
            layer=Layer.PRESET,
        ),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("about = ", "careful.toml is not TOML: line 1"),
        ("", "careful.toml: about: it is missing"),
        ('about = ""', "careful.toml: about: it is empty"),
        (f"{OWN}abot = 1", "careful.toml: abot: unknown key"),
        (f'{OWN}mode = "secondary"', "mode: it is none of the choices. Write one of"),
        (f'{OWN}risks = ["reading"]', "risks[0]: it is none of the choices"),
        (f'{OWN}writes = ["/etc/*"]', "writes[0]: '/etc/*' is not a pattern of paths in the workspace"),
        (f'{OWN}writes = ["a/../b"]', "is not a pattern of paths in the workspace. Write, for instance"),
        (f'{OWN}writes = ["a"]', "writes: it has no effect where every write is permitted"),
        (f'{OWN}sandbox = "off"', 'sandbox: it is none of the choices. Write one of "basic" or "full"'),
        (f"{OWN}generation = 9", "generation: it is too large. Write 8 or less"),
        (f"{OWN}rules = 1", "rules: it is not a list of tables. Write [[rules]]"),
        (
            f'{OWN}\n[[rules]]\ntool = "shel"\npattern = "*"\ndecision = "deny"',
            "there is no tool 'shel'. Did you mean \"shell\"?",
        ),
        (f'{OWN}[[rules]]\ntool = "shell"\npattern = " "\ndecision = "deny"', "it is blank"),
        (
            f'{OWN}[[rules]]\ntool = "shell"\npattern = "*"\ndecision = "allow"\nlocked = true',
            "only a deny can be locked",
        ),
        (f"{OWN}prompt = '{'x' * 4001}'", "prompt: "),
    ],
)
def test_malformed_preset_is_reported_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems(tmp_path, careful=text)


def test_problem_of_a_rule_names_its_line(tmp_path: Path) -> None:
    text = f'{OWN}\n\n[[rules]]\ntool = "nothing"\npattern = "*"\ndecision = "deny"'

    found = problems(tmp_path, careful=text)

    assert "careful.toml" in found
    assert "4" in found.partition("careful.toml")[2][:12]


def test_own_preset_takes_no_name_of_another(tmp_path: Path) -> None:
    assert "there is a preset 'plan' already" in problems(tmp_path, plan=OWN)


def test_own_preset_has_a_plain_name(tmp_path: Path) -> None:
    assert "My Preset.toml cannot be a preset's name" in problems(tmp_path, **{"My Preset": OWN})


def test_missing_folder_of_presets_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[sessions]\npreset_folder = "nowhere"')

    with pytest.raises(ConfigError, match="there is no folder") as raised:
        load(file, tmp_path, {}, tool_specs())

    assert "Create it" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'preset = { dm = "explor" }',
            "sessions.preset.dm: the preset 'explor' is not there. Did you mean \"explore\"?",
        ),
        ('preset = { dm = "careful" }', "sessions.preset.dm: the preset 'careful' is for sub-sessions only"),
        ('preset = { dmm = "plan" }', "sessions.preset.dmm: it is none of the choices"),
        ("generation = { dm = 0 }", "sessions.generation.dm: it is too small. Write 1 or more"),
        (
            '[agents.one]\ndescription = "x"\npreset = "plan"',
            "agents.one.preset: the preset 'plan' is for sessions of people only. Known are: build, careful, explore",
        ),
        ('[agents.one]\ndescription = "x"\npreset = "mine"', "agents.one.preset: the preset 'mine' is not there"),
        ('[agents.one]\ndescription = "x"\ngeneration = 9', "agents.one.generation: it is too large"),
    ],
)
def test_wrong_name_of_a_preset_is_reported(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems(tmp_path, text, careful=f'{OWN}mode = "subagent"')


def test_rule_of_a_preset_that_decides_nothing_is_warned_of(tmp_path: Path) -> None:
    narrow = '[[rules]]\ntool = "shell"\npattern = "git *"\ndecision = "deny"\n'
    wide = '[[rules]]\ntool = "shell"\npattern = "*"\ndecision = "deny"\n'

    loaded = read(tmp_path, careful=f"{OWN}{narrow}{wide}")

    assert any("preset careful, careful.toml:2 (rules[0])" in line for line in loaded.warnings), loaded.warnings


def test_defaults_and_agents_are_read(tmp_path: Path) -> None:
    text = (
        'preset = { dm = "explore" }\ngeneration = { dm = 4 }\n'
        '[agents.one]\ndescription = "x"\npreset = "explore"\ngeneration = 2'
    )

    loaded = read(tmp_path, text)

    assert (loaded.presets.defaults, loaded.presets.generations) == ({"dm": "explore"}, {"dm": 4})
    assert (loaded.agents["one"].preset, loaded.agents["one"].generation) == ("explore", 2)
