"""Plug-ins have the same files and names; paths and configuration in guides exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from config.load import load
from config.plugins import tool_specs
from tests.support.syntax import tree_of

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "1001:of-a-test-that-talks-to-nobody"
GUIDES = [
    ROOT / "README.md",
    ROOT / "gateway" / "ARCHITECTURE.md",
    ROOT / "gateway" / "GLOSSARY.md",
    ROOT / "deploy" / "RUNBOOK.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "gateway" / "decisions").glob("*.md")),
]
TOP_LEVEL = ("gateway", "channels", "agent_tools", "config", "tests", "deploy", "docs", ".ci")

CHANNEL_FILES = frozenset(
    {"__init__.py", "adapter.py", "inbound.py", "outbound.py", "ids.py", "settings.py", "samples"}
)
TOOL_NAMES = frozenset({"SPEC", "Args"})
RUNS = frozenset({"run", "create"})


def plugins(folder: str) -> list[Path]:
    """Return the plug-ins of a top-level folder: packages, and modules that are not private."""
    return [
        path
        for path in sorted((ROOT / folder).iterdir())
        if not path.name.startswith(("_", ".")) and (path.suffix == ".py" or (path / "__init__.py").exists())
    ]


@pytest.mark.parametrize("channel", plugins("channels"), ids=lambda path: path.name)
def test_channels_have_the_same_files(channel: Path) -> None:
    there = {path.name for path in channel.iterdir()}
    assert CHANNEL_FILES - there == frozenset()


DECORATOR = ROOT / "agent_tools" / "own.py"
"""The decorator for tools of owners, which is no tool itself."""


@pytest.mark.parametrize(
    "tool", [path for path in plugins("agent_tools") if path != DECORATOR], ids=lambda path: path.stem
)
def test_tools_have_the_same_names(tool: Path) -> None:
    """A tool has SPEC and Args, and either run or, when it is stateful, create."""
    source = tool if tool.suffix == ".py" else tool / "__init__.py"
    names = top_level_names(tree_of(source.read_text(), filename=str(source)))
    assert TOOL_NAMES - names == frozenset()
    assert len(RUNS & names) == 1


def top_level_names(module: ast.Module) -> set[str]:
    """Return the names that a module defines or imports at its top level."""
    names: set[str] = set()
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=aliases):
                names.update(alias.asname or alias.name for alias in aliases)
            case _:
                pass
    return names


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_paths_in_guides_exist(guide: Path) -> None:
    missing = [path for path in named_paths(guide.read_text()) if not any(ROOT.glob(path))]
    assert missing == [], f"{guide.name} names what is not there"


def named_paths(text: str) -> list[str]:
    """Return paths of this repository that a guide names: in backticks and in links. `<name>` and `NNNN` match any."""
    spans = re.findall(r"`([^`\s]+)`", text) + re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    paths = [re.sub(r"<\w+>|NNNN|…", "*", span).rstrip("/") for span in spans]
    return [path for path in paths if path.split("/")[0] in TOP_LEVEL and "/" in path]


def test_paths_are_found_in_a_guide() -> None:
    text = "See `gateway/turn.py`, [how](deploy/RUNBOOK.md#stop), `channels/<name>/ids.py`, `/etc/x` and `uname -a`."
    assert named_paths(text) == ["gateway/turn.py", "channels/*/ids.py", "deploy/RUNBOOK.md"]


@pytest.mark.parametrize("example", sorted((ROOT / "config").rglob("*.toml")), ids=lambda path: path.name)
def test_configuration_files_parse(example: Path) -> None:
    assert tomllib.loads(example.read_text())


@pytest.mark.parametrize(
    "guide",
    [guide for guide in GUIDES if guide.parent.name != "docs"],  # test_12_guides runs those
    ids=lambda path: path.name,
)
def test_configuration_in_guides_is_read(guide: Path, tmp_path: Path) -> None:
    """Configuration in a guide loads as it stands, without a warning."""
    for block in re.findall(r"```toml\n(.*?)```", guide.read_text(), flags=re.DOTALL):
        file = tmp_path / "config.toml"
        file.write_text(block)
        file.chmod(0o600)
        secrets = {"OPENAI_API_KEY": "sk-of-a-test", "TELEGRAM_BOT_TOKEN": TOKEN}
        secrets |= {"SLACK_BOT_TOKEN": "xoxb-1-2-of-a-test", "SLACK_APP_TOKEN": "xapp-1-A0-1-of-a-test"}
        environ = {"HOME": str(tmp_path), **secrets}
        assert load(file, tmp_path / "state", environ, tool_specs()).warnings == ()


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "gateway" / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


ARCHITECTURE = ROOT / "gateway" / "ARCHITECTURE.md"
ROOMS = re.findall(r"^\| `(gateway/\w+)` \| (.*) \|$", ARCHITECTURE.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize(("room", "contents"), ROOMS)
def test_modules_of_a_room_exist(room: str, contents: str) -> None:
    for name in re.findall(r"`([a-z_]+)`", contents):
        assert list((ROOT / room).rglob(f"{name}.py")) or list((ROOT / room).rglob(f"{name}/")), name


def test_modules_named_by_path_exist() -> None:
    """`room/module` is below gateway or the top, `kernel/module` below the store."""
    above = (ROOT / "gateway", ROOT / "gateway" / "store", ROOT)
    named = re.findall(r"`((?:\w+/)+\w+)`", ARCHITECTURE.read_text())
    missing = [one for one in named if not any((at / one).is_dir() or (at / f"{one}.py").exists() for at in above)]
    assert missing == []


def test_every_room_is_named() -> None:
    there = {path.parent.name for path in (ROOT / "gateway").glob("*/__init__.py")}
    assert there == {room.removeprefix("gateway/") for room, _ in ROOMS}


ROOMS_WITH_ALL = ("agent", "approvals", "inbound", "outbound", "policy", "toolcalls")
"""Rooms of the path of a message: the table names each module, or the module that it is a part of."""
PART_OF = frozenset({"rule_index", "hook_programs", "schema_arguments", "typed_arguments", "worker_program"})


@pytest.mark.parametrize("room", ROOMS_WITH_ALL)
def test_every_module_of_the_path_is_named(room: str) -> None:
    contents = dict(ROOMS)[f"gateway/{room}"]
    modules = {path.stem for path in (ROOT / "gateway" / room).glob("*.py")} - {"__init__"} - PART_OF
    assert {name for name in modules if f"`{name}`" not in contents} == set()


def test_classes_named_in_guides_exist() -> None:
    files = [path for top in ("gateway", "channels", "agent_tools") for path in (ROOT / top).rglob("*.py")]
    defined = re.findall(
        r"^(?:class )?(\w+)(?:$|\b.*=|[:(\[])", "\n".join(map(Path.read_text, files)), flags=re.MULTILINE
    )
    guides = ARCHITECTURE.read_text() + (ROOT / "gateway" / "GLOSSARY.md").read_text()
    assert set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", guides)) - set(defined) == set()
