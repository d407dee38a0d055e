"""A preset of the owner's: limits that hold, or problems that name the file and the cure."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent_tools import edit, plan_exit, read, sessions_spawn, shell
from config import preset_files, reading, rules, table_lines, toml_file
from config.preset_files import RuleNames, preset_warnings, read_presets
from config.reading import TableReader
from gateway.domain.presets import Presets
from gateway.domain.rules import Layer

READS = (preset_files, reading, rules, table_lines, toml_file)
WORDS = (
    *(b'about = "x"\n', b'mode = "primary"\n', b'mode = "subagent"\n', b'risks = ["none", "read"]\n', b"risks = []\n"),
    *(b'writes = ["plans/*.md"]\n', b'writes = ["/etc/*"]\n', b'writes = [".."]\n', b'sandbox = "full"\n'),
    *(b"generation = 4\n", b"generation = 0\n", b"prompt = '''\n", b"'''\n", b"[[rules]]\n", b"rules = [{"),
    *(b'tool = "shell"\n', b'tool = "group:files"\n', b'tool = "builtin:*"\n', b'pattern = "*"\n', b'pattern = ""\n'),
    *(b'decision = "deny"\n', b'decision = "allow"\n', b"locked = true\n", b'kinds = ["main"]\n', b"kinds = []\n"),
)
SPECS = {module.SPEC.name: module.SPEC for module in (shell, read, edit, sessions_spawn, plan_exit)}
SOURCES = dict.fromkeys(SPECS, "builtin")


def target(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="dragoman-fuzz-") as folder:
        file = Path(folder) / "mine.toml"
        file.write_bytes(data)
        reader = TableReader(file="config.toml", variables={}, environ={})
        found = read_presets(Path(folder), RuleNames(tools=SPECS, sources={"builtin"}), reader)
    assert {"plan", "explore", "build"} <= set(found)
    assert ("mine" in found) is not bool(reader.problems)
    for problem in reader.problems:
        assert "mine.toml" in problem.where or "mine.toml" in problem.what
        assert problem.cure
        assert len(str(problem)) < 5_000
    list(preset_warnings(Presets(by_name=found), SPECS, SOURCES))
    mine = found.get("mine")
    if mine is None:
        return
    assert 1 <= mine.generation <= 8
    assert all(rule.layer is Layer.PRESET and rule.where.startswith("preset mine") for rule in mine.rules)
    assert all(not pattern.startswith("/") for ceiling in mine.ceilings for pattern in ceiling.writes)
