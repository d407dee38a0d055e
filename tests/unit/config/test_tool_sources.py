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
    save(tmp_path, "c.py", "from agent_tools.own import tool\n@tool\ndef d():\n    'D.'\n")
    trust = '[tools."folder:*"]\ntrust = true\n'

    assert own(read(f'[tools]\nfolder = "mine"\n{trust}')) == {"alpha": "folder", "beta": "folder", "c_d": "folder"}
    assert own(read("")) == {}


@pytest.mark.parametrize(("package", "names"), [("one", ["one"]), ("both", ["one", "two"]), ("listed", ["one", "two"])])
def test_a_package_is_used_when_it_is_named(read: Read, package: str, names: list[str]) -> None:
    assert own(read(f'[tools]\npackages = ["{package}"]\n')) == dict.fromkeys(names, package)
    assert "acme_gone" not in sys.modules


def test_a_source_has_a_policy_of_its_own(read: Read, tmp_path: Path) -> None:
    save(tmp_path, "a.py", TOOL.format(name="alpha"))
    loaded = read(
        '[tools]\nfolder = "mine"\npackages = ["both"]\n[tools.a]\ntrust = true\n'
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
        ("shell = {trust = true}", "tools.shell.trust", "shell is no file of the tools folder"),
        ('"builtin:*" = {trust = true}', "tools.builtin:*.trust", "builtin is no folder of files"),
        ('shell = {trust = "yes"}', "tools.shell.trust", ""),
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
def test_mistakes_are_reported_with_their_key(read: Read, text: str, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"[tools]\n{text}\n")

    assert key in caught.value.message.replace('"', "")
    assert told in caught.value.message


BROKEN = {
    "broken": ("1 / 0\nSPEC = 1", "broken.py cannot be imported (ZeroDivisionError: division by zero)"),
    "leaves": ("import sys; sys.exit(3)\nSPEC = 1", "leaves.py cannot be imported (SystemExit: 3)"),
    "without": ("SPEC = 1", "has no SPEC"),
    "grouped": (TOOL.format(name="alpha").replace("name=", 'group="web", name='), "there is no tool group 'web'"),
    "taken": (TOOL.format(name="shell"), "there is a tool 'shell' already"),
    "partly": (TOOL.format(name="partly").replace("async def run", "async def walk"), "it is not complete"),
}


@pytest.mark.parametrize("stem", BROKEN)
def test_a_broken_file_harms_no_other_tool(read: Read, tmp_path: Path, stem: str) -> None:
    save(tmp_path, f"{stem}.py", BROKEN[stem][0])
    save(tmp_path, "zeta.py", TOOL.format(name="zeta"))
    loaded = read('[tools]\nfolder = "mine"\n[tools."folder:*"]\ntrust = true\n')

    assert own(loaded) == {"zeta": "folder"}
    assert loaded.folder is not None
    assert BROKEN[stem][1] in next(one.problem for one in loaded.folder.files() if one.path.stem == stem)


def test_an_untrusted_file_is_not_imported(read: Read, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    save(tmp_path, "a.py", f"open({str(mark)!r}, 'w')\n{TOOL.format(name='alpha')}")
    save(tmp_path, "b.py", f"open({str(mark)!r}, 'w')\nfrom agent_tools.own import tool\n@tool\ndef b():\n    'B.'\n")
    loaded = read('[tools]\nfolder = "mine"\n[tools.b]\npermission = "always"\n')

    assert own(loaded) == {"b": "folder"}
    assert loaded.tools["b"].availability is Availability.ALWAYS
    assert not mark.exists()


def test_a_worker_has_a_sandbox(read: Read, tmp_path: Path) -> None:
    save(tmp_path, "b.py", "from agent_tools.own import tool\n@tool\ndef b():\n    'B.'\n")
    with pytest.raises(ConfigError, match="comes from a file that is not trusted"):
        read('[tools]\nfolder = "mine"\n[tools.b]\nsandbox = "off"\n')
