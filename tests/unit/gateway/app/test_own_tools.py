"""The owner's folder of tools: reading, trying and following its files, and the workers that run them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import cast

import pytest

from config.own_files import read_file
from config.own_folder import OwnFolder
from config.settings import ToolSettings
from gateway.app.own_tools import PACKAGE, SIDE_BY_SIDE, FolderSource
from gateway.domain.tools import Availability, Effect, Risk, SandboxMode, SandboxPolicy
from gateway.domain.workers import WorkerFile
from gateway.errors import BadRequest, DragomanError, SandboxMissing
from gateway.ports import ToolContext
from gateway.sandbox import Confinement, Containment, ProcessLimits
from gateway.toolcalls.arguments import InvalidArguments
from gateway.toolcalls.schema_arguments import SchemaArguments
from gateway.toolcalls.workers import Workers
from tests.support.fakes import NO_SANDBOX
from tests.support.patience import PATIENCE_S
from tests.support.surroundings import until
from tests.unit.gateway.app.own_tools_rig import ADD, HEAD, after, place

CONTAINED = Containment(can_bwrap=True, can_pid_namespace=True)


# --- what the text says --------------------------------------------------------------------------

TYPES = '''from typing import *
from agent_tools.own import tool
@tool(risk="network", effect="idempotent", permission="always", timeout=7, network="public", positional="a")
def run(a: str, b: Literal["x", 2], c: list[dict[str, int | None]], *, d: "Annotated[float, 'How far.']" = 1.5,
        e: Optional[bool] = None, f: Any = None, g: list = []) -> str:
    """First line
    goes on.

    Args:
        a: The text.
    """
'''


def test_a_signature_becomes_spec_and_schema(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(TYPES)
    (one,) = read_file(tmp_path / "many.py", trusted=False).tools

    spec = one.spec
    assert (spec.name, spec.description, spec.timeout_s) == ("many", "First line goes on.", 7)
    assert (spec.risk, spec.effect, spec.availability) == (Risk.NETWORK, Effect.IDEMPOTENT, Availability.ALWAYS)
    assert one.schema["required"] == ["a", "b", "c"]
    assert one.schema["properties"]["a"] == {"type": "string", "description": "The text."}
    assert one.schema["properties"]["b"] == {"enum": ["x", 2]}
    assert one.schema["properties"]["d"] == {"type": "number", "description": "How far.", "default": 1.5}
    assert one.schema["properties"]["e"] == {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None}
    arguments = SchemaArguments(one.schema)
    read = arguments.parse('{"a": "t", "b": 2, "c": [{"k": null}]}')
    assert read == {"a": "t", "b": 2, "c": [{"k": None}], "d": 1.5, "e": None, "f": None, "g": []}
    assert arguments.restore(arguments.dump(read)) == read
    for wrong in ('{"a": "t"}', '{"a": 1, "b": 2, "c": []}', '{"a": "t", "b": 3, "c": []}', '{"z": 1}', "[]"):
        with pytest.raises(InvalidArguments):
            arguments.parse(wrong)


def test_defaults_of_the_decorator_are_closed(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(f'{HEAD}@tool\ndef bare():\n    """Bare."""\n')
    (one,) = read_file(tmp_path / "bare.py", trusted=False).tools

    assert (one.spec.risk, one.spec.effect) == (Risk.EXECUTE, Effect.UNSAFE)
    assert (one.spec.availability, one.spec.sandbox) == (Availability.MAIN, SandboxPolicy.BASIC)


BAD_TEXTS = {
    "syntax": ("def (", "line 1: invalid syntax"),
    "nothing": ("x = 1", "no function with @tool"),
    "spec": ("SPEC = 1", "trust = true in [tools.spec]"),
    "Upper": (ADD, "its name is no tool name"),
    "twice": (f"{ADD}@tool\ndef run(a: int):\n    'B.'\n@tool\ndef twice():\n    'C.'",
              "two of its tools are named twice"),
    "untyped": (f"{HEAD}@tool\ndef f(a):\n    'A.'", "has no type"),
    "odd": (f"{HEAD}@tool\ndef f(a: os.PathLike):\n    'A.'", "the type os.PathLike of a is not known"),
    "tuples": (f"{HEAD}@tool\ndef f(a: tuple[int, int]):\n    'A.'", "is not known"),
    "star": (f"{HEAD}@tool\ndef f(*a: int):\n    'A.'", "arguments without names"),
    "silent": (f"{HEAD}@tool\ndef f(a: int):\n    pass", "has no docstring"),
    "risky": (f"{HEAD}@tool(risk='harmless')\ndef f():\n    'A.'", "there is no risk 'harmless'"),
    "checked": (f"{HEAD}@tool(effect='checkable')\ndef f():\n    'A.'", "there is no effect 'checkable'"),
    "dynamic": (f"{HEAD}@tool(risk=os.name)\ndef f():\n    'A.'", "risk is not a literal"),
    "slow": (f"{HEAD}@tool(timeout=0)\ndef f():\n    'A.'", "timeout = 0 is not known"),
    "unknown": (f"{HEAD}@tool(trust=True)\ndef f():\n    'A.'", "trust = True is not known"),
    "default": (f"{HEAD}@tool\ndef f(a: int = 'x'):\n    'A.'", "a default is not of its argument's type"),
    "computed": (f"{HEAD}@tool\ndef f(a: int = len('x')):\n    'A.'", "is not a literal JSON value"),
    "nul": ("\0", "cannot"),
    "deep": ("(" * 5_000, "cannot"),
}  # fmt: skip


@pytest.mark.parametrize("stem", BAD_TEXTS)
async def test_a_file_with_a_bad_text_is_one_line(tmp_path: Path, stem: str) -> None:
    async with place(tmp_path, NO_SANDBOX) as at:
        at.save(f"{stem}.py", BAD_TEXTS[stem][0])

        ((name, why),) = at.why().items()

        assert name.startswith("file_")
        assert BAD_TEXTS[stem][1].replace("cannot", "cannot be used") in why


async def test_a_name_that_another_tool_has_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path, NO_SANDBOX, trusts_all=True) as at:
        at.save("shell.py", ADD.replace("def add", "def run"))
        at.save("a.py", ADD.replace("def add", "def b_c"))
        at.save("a_b.py", ADD.replace("def add", "def c"))
        os.mkfifo(at.folder.path / "pipe.py")

        why = at.why()

    assert why["a_b_c"] == ""
    assert "there is a tool 'shell' already" in why["file_shell"]
    assert "there is a tool 'a_b_c' already" in why["file_a_b"]
    assert "no regular file" in why["file_pipe"]


def test_a_description_has_no_invisible_letters(tmp_path: Path) -> None:
    text = ADD.replace("Add.", "Add \u202egnp.exe\u202c\u200b\x07 now.")
    (tmp_path / "add.py").write_text(text)
    (one,) = read_file(tmp_path / "add.py", trusted=False).tools

    assert one.spec.description.isprintable()
    assert "\u202e" not in one.spec.description


# --- what importing says --------------------------------------------------------------------------


async def test_a_file_that_fails_on_import_is_one_line(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("exits.py", after("sys.exit(3)"))
        at.save("ends.py", after("os._exit(3)"))
        at.save("forks.py", after("os.fork()"))
        at.save("raises.py", after("1 / 0"))
        at.save("prints.py", after("print('x' * 1_000_000)"))
        at.save("reads.py", after("sys.stdin.read()"))
        at.save("other.py", f"{after('')}del run\n")
        at.save("add.py", ADD)

        await at.source.settle()
        why = at.why()

    assert (why["add"], why["prints"], why["reads"]) == ("", "", "")
    assert "exits when it is imported (3)" in why["file_exits"]
    assert "ends the process when it is imported" in why["file_ends"]
    assert "starts a process when it is imported" in why["file_forks"]
    assert "ZeroDivisionError: division by zero" in why["file_raises"]
    assert "has other tools when it runs" in why["file_other"]


FORGED = """
for fd in os.listdir('/proc/self/fd'):
    if os.path.exists(f'/proc/self/fd/{fd}') and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:'):
        os.write(int(fd), b'{"functions": 5}' + bytes([10]))
time.sleep(600)
"""


async def test_a_file_that_forges_its_answer_is_one_line(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("forges.py", after(FORGED))
        at.save("add.py", ADD)

        await at.source.settle()
        why = at.why()

        assert why["add"] == ""
        assert "forges.py cannot be used" in why["file_forges"]
        with pytest.raises(BadRequest, match="cannot be used"):
            await at.call("forges", {})


@pytest.mark.whole("takes the five seconds that an import may take; the other ways to fail stay")
async def test_a_file_that_blocks_on_import_is_one_line(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("blocks.py", after("time.sleep(600)"))
        await at.source.settle()

        assert "takes more than 5 s" in at.why()["file_blocks"]


class Meeting(Workers):
    """Workers whose tries end when as many files as it waits for are tried at once. They import nothing."""

    def __init__(self, parties: int) -> None:
        super().__init__(containment=CONTAINED, limits=ProcessLimits(), package=PACKAGE)
        self.tried: list[str] = []
        self._all_there = asyncio.Barrier(parties)

    async def try_file(self, file: WorkerFile) -> str:
        self.tried.append(file.name)
        await self._all_there.wait()
        return "it blocks"


async def test_files_are_tried_side_by_side_and_once(tmp_path: Path) -> None:
    workers, found = Meeting(3), CONTAINED
    source = FolderSource(OwnFolder(path=tmp_path), taken=[], workers=workers, containment=found)
    for stem in ("a", "b", "c"):
        (tmp_path / f"{stem}.py").write_text(after("time.sleep(600)"))

    async with asyncio.timeout(PATIENCE_S):
        await source.settle()
    await source.settle()

    assert sorted(workers.tried) == ["a.py", "b.py", "c.py"]
    assert all("it blocks" in tool.missing for tool in source.snapshot())


async def test_more_files_than_places_are_all_tried_once(tmp_path: Path) -> None:
    workers, found = Meeting(1), CONTAINED
    source = FolderSource(OwnFolder(path=tmp_path), taken=[], workers=workers, containment=found)
    for n in range(2 * SIDE_BY_SIDE):
        (tmp_path / f"t{n}.py").write_text(after(f"x = {n}"))

    async with asyncio.timeout(PATIENCE_S):
        await source.settle_all()

    assert len(workers.tried) == len(set(workers.tried)) == 2 * SIDE_BY_SIDE


async def test_an_untrusted_file_is_not_run_by_the_daemon(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = after(f"open({str(mark)!r}, 'w').write(str(os.getpid()))")
    async with place(tmp_path, NO_SANDBOX) as at:
        at.save("marks.py", code)
        await at.source.settle()
        why = at.why()["marks"]

        assert not mark.exists()
        assert "runs in a sandbox only" in why
        assert "Install bubblewrap, or write trust = true in [tools.marks]" in why
        with pytest.raises(DragomanError):
            await at.call("marks", {})
    assert not mark.exists()


async def test_a_trusted_file_runs_in_the_daemon(tmp_path: Path) -> None:
    async with place(tmp_path, NO_SANDBOX, trusted=frozenset({"pid"})) as at:
        at.save("pid.py", f'{HEAD}@tool\ndef run() -> int:\n    """Id."""\n    return os.getpid()\n')
        at.save("add.py", ADD)
        at.save("bad.py", after("sys.exit(1)"))
        (add, _, pid) = at.source.snapshot()
        result = await pid.run(cast("ToolContext", None), pid.arguments.parse("{}"))

    assert (pid.missing, pid.spec.sandbox) == ("", None)
    assert getattr(result, "text", "") == str(os.getpid())
    assert "runs in a sandbox only" in add.missing


async def test_no_setting_takes_a_worker_out_of_its_sandbox(tmp_path: Path) -> None:
    async with place(tmp_path, settings=ToolSettings(sandbox=SandboxPolicy.OFF)) as at:
        at.save("add.py", ADD)

        (one,) = at.source.snapshot()

        assert one.policy.sandbox is SandboxPolicy.BASIC
        with pytest.raises(SandboxMissing):
            await at.call("add", {"a": 1}, within=Confinement(mode=SandboxMode.OFF))


# --- following the files ---------------------------------------------------------------------------


async def test_files_are_followed_between_turns(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("add.py", ADD)
        await at.source.settle()
        first = at.source.snapshot()
        assert at.source.snapshot() is first

        at.save("two.py", ADD.replace("def add", "def two"))
        at.save("add.py", ADD.replace("Add.", "Add well."))
        await at.source.settle()
        second = {tool.spec.name: tool.spec.description for tool in at.source.snapshot()}
        (at.folder.path / "add.py").unlink()

        assert [tool.spec.description for tool in first] == ["Add."]
        assert second == {"add": "Add well.", "two": "Add."}
        assert list(at.why()) == ["two"]


async def test_a_folder_that_is_gone_has_no_tools(tmp_path: Path) -> None:
    async with place(tmp_path, NO_SANDBOX) as at:
        at.save("add.py", ADD)
        assert list(at.why()) == ["add"]
        (at.folder.path / "add.py").unlink()
        at.folder.path.rmdir()

        assert at.why() == {}


# --- workers --------------------------------------------------------------------------------------

RETURNS = f'''{HEAD}
import subprocess
calls = 0
@tool
def returns(code: str) -> object:
    """Return what an expression is."""
    global calls
    calls += 1
    return eval(code)
'''


async def test_a_worker_is_kept_for_its_session_alone(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)

        assert [await at.call("returns", {"code": "calls"}) for _ in range(2)] == ["1", "2"]
        assert await at.call("returns", {"code": "calls"}, of="another") == "1"
        full = Confinement(mode=SandboxMode.FULL)
        assert [await at.call("returns", {"code": "calls"}, within=full) for _ in range(2)] == ["1", "1"]
        at.save("returns.py", f"{RETURNS}\n# changed\n")
        assert await at.call("returns", {"code": "calls"}) == "1"


async def test_a_worker_sees_no_secrets_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_TOKEN", "a-secret")
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)
        (at.folder.path / "secret.txt").write_text("a-secret")
        (at.workspace / "note.txt").write_text("noted")

        names = json.loads(await at.call("returns", {"code": "sorted(os.environ)"}))
        seen = json.loads(await at.call("returns", {"code": f"os.listdir({str(at.folder.path)!r})"}))
        routes = await at.call("returns", {"code": "open('/proc/net/route').read().count(chr(10))"})

        assert "TELEGRAM_TOKEN" not in names
        assert seen == ["returns.py"]
        assert routes == "1"
        assert await at.call("returns", {"code": "open('note.txt').read()"}) == "noted"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("{1, 2}", "neither text nor JSON"),
        ("1 / 0", "ZeroDivisionError"),
        ("sys.exit(2)", "SystemExit: 2"),
        ("os._exit(2)", "ended in the call"),
        ("float('nan')", "neither text nor JSON"),
        ("os.kill(os.getpid(), 9)", "ended in the call"),
        ("bytearray(2_000_000_000)", "MemoryError"),
    ],
)
async def test_a_call_that_fails_is_reported_and_the_next_works(tmp_path: Path, code: str, told: str) -> None:
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)

        with pytest.raises(BadRequest, match=told):
            await at.call("returns", {"code": code})
        assert await at.call("returns", {"code": "'still'"}) == "still"


async def test_results_and_output_are_bounded(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)

        large = await at.call("returns", {"code": "'é' * 10_000_000"})
        widest = await at.call("returns", {"code": "'\U0001f600' * 1_000_000"})
        broken = await at.call("returns", {"code": "'na' + chr(0xDCE9) + 've'"})  # as in a file's name
        await at.call("returns", {"code": "print('to the call')"})
        await at.call("returns", {"code": "None"})

        assert large.endswith("[9,000,000 more characters were left out]")
        assert widest == "\U0001f600" * 1_000_000
        assert broken == "na?ve"
        assert at.printed.data == b"to the call\n"


async def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)
        code = "(subprocess.Popen(['sleep', '600']), open('begun', 'w').close(), time.sleep(600))"

        async with asyncio.TaskGroup() as group:
            calling = group.create_task(at.call("returns", {"code": code}))
            await until((at.workspace / "begun").exists, within_s=20)
            calling.cancel()

        assert not at.workers.count
        assert await at.call("returns", {"code": "calls"}) == "1"


async def test_process_left_by_a_call_ends_with_it(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.save("returns.py", RETURNS)

        assert await at.call("returns", {"code": "str(bool(subprocess.Popen(['sleep', '600'])))"}) == "True"
        assert not at.workers.count
