"""Sources of tools: the owner's folder, installed packages, and the policies of a whole source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.load import Loaded, load
from config.plugins import FOLDER_MODULES, tool_specs
from gateway.domain.tools import ApprovalMode, Availability
from gateway.errors import ConfigError

TOOL = """
from pydantic import BaseModel
from gateway.domain.tools import Availability, Effect, Risk, ToolSpec
SPEC = ToolSpec(
    name="{name}", description="A tool.", risk=Risk.WRITE, effect=Effect.UNSAFE, availability=Availability.ALWAYS
)
class Args(BaseModel): pass
async def run(ctx, args): return None
"""
Read = Callable[[str], Loaded]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Load a configuration beside a folder `mine`, and an installed package with tools."""
    (tmp_path / "mine").mkdir()
    info = tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dragoman.tools]\none = acme_one\nboth = acme_both\nlisted = acme_both:TOOLS\nbad = acme_both:NAMES\n"
        "gone = acme_gone\n"
    )
    (tmp_path / "site" / "acme_one.py").write_text(TOOL.format(name="one"))
    (tmp_path / "site" / "acme_two.py").write_text(TOOL.format(name="two"))
    (tmp_path / "site" / "acme_both.py").write_text(
        'import acme_one, acme_two\nTOOLS = [acme_one, acme_two]\nNAMES = ["acme_one"]\n'
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])

    def given(text: str) -> Loaded:
        file = tmp_path / "config.toml"
        file.write_text(text)
        return load(file, tmp_path / "state", {"HOME": str(tmp_path)}, tool_specs())

    yield given
    for name in [one for one in sys.modules if one.startswith(("acme_", FOLDER_MODULES))]:
        del sys.modules[name]


def own(loaded: Loaded) -> dict[str, str]:
    return {name: tool.source for name, tool in loaded.own_tools.items()}


def save(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "mine" / name).write_text(text)


def test_each_file_of_the_folder_is_a_tool(read: Read, tmp_path: Path) -> None:
    save(tmp_path, "b.py", TOOL.format(name="beta"))
    save(tmp_path, "a.py", TOOL.format(name="alpha"))
    save(tmp_path, "_helper.py", "1 / 0")
    save(tmp_path, "notes.txt", "no tool")

    assert own(read('[tools]\nfolder = "mine"\n')) == {"alpha": "folder", "beta": "folder"}
    assert own(read("")) == {}


@pytest.mark.parametrize(("package", "names"), [("one", ["one"]), ("both", ["one", "two"]), ("listed", ["one", "two"])])
def test_a_package_is_used_when_it_is_named(read: Read, package: str, names: list[str]) -> None:
    assert own(read(f'[tools]\npackages = ["{package}"]\n')) == dict.fromkeys(names, package)
    assert "acme_gone" not in sys.modules


def test_a_source_has_a_policy_of_its_own(read: Read, tmp_path: Path) -> None:
    save(tmp_path, "a.py", TOOL.format(name="alpha"))
    loaded = read(
        '[tools]\nfolder = "mine"\npackages = ["both"]\n'
        '[tools."both:*"]\npermission = "main"\napproval = "deny"\ntimeout = "7s"\n'
        '[tools.two]\npermission = "always"\n[tools."builtin:*"]\npermission = "blocked"\n'
    )

    assert {name: policy.availability for name, policy in loaded.tools.items() if name in ("one", "two", "alpha")} == {
        "one": Availability.MAIN,
        "two": Availability.ALWAYS,
        "alpha": Availability.ALWAYS,
    }
    assert loaded.tools["two"].approval["main"] is ApprovalMode.DENY
    assert (loaded.tools["two"].timeout_s, loaded.tools["alpha"].timeout_s) == (7, 30)
    assert loaded.tools["shell"].availability is Availability.BLOCKED


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ('folder = "none"', "tools.folder", "No such file or directory"),
        ("folder = 5", "tools.folder", ""),
        ('folder = "bad"', "tools.folder", "broken.py cannot be imported (ZeroDivisionError: division by zero)"),
        ('folder = "leaves"', "tools.folder", "leaves.py cannot be imported (SystemExit: 3)"),
        ('folder = "without"', "tools.folder", "has no SPEC"),
        ('folder = "grouped"', "tools.folder", "there is no tool group 'web'"),
        ('folder = "taken"', "tools.folder", "there is a tool 'shell' already"),
        ('folder = "twice"', "tools.folder", "there is a tool 'alpha' already"),
        ('packages = ["nothing"]', "tools.packages[0]", "no installed package has tools named 'nothing'"),
        ('packages = ["gone"]', "tools.packages[0]", "acme_gone cannot be imported"),
        ('packages = ["bad"]', "tools.packages[0]", "is no tool"),
        ('packages = "one"', "tools.packages", ""),
        ("packages = [1]", "tools.packages", "it is not a list of names"),
        ('packages = ["one", "listed"]', "tools.packages[1]", "there is a tool 'one' already"),
        ('"nowhere:*" = {permission = "main"}', "tools.nowhere:*", "there is no source of tools 'nowhere'"),
        ('"builtin:*" = {module = "x"}', "tools.builtin:*", ""),
        ('"builtin:*" = {permission = "sometimes"}', "tools.builtin:*.permission", ""),
    ],
)
def test_mistakes_are_told_with_their_key(read: Read, tmp_path: Path, text: str, key: str, told: str) -> None:
    files = {
        "bad/broken.py": "1 / 0",
        "leaves/leaves.py": "import sys; sys.exit(3)",
        "without/empty.py": "",
        "grouped/a.py": TOOL.format(name="alpha").replace("name=", 'group="web", name='),
        "taken/shell.py": TOOL.format(name="shell"),
        "twice/a.py": TOOL.format(name="alpha"),
        "twice/b.py": TOOL.format(name="alpha"),
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    with pytest.raises(ConfigError) as caught:
        read(f"[tools]\n{text}\n")

    assert key in caught.value.message.replace('"', "")
    assert told in caught.value.message
