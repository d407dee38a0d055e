"""Fifteenth: an owner's own tools. A file is a tool, is changed, breaks, asks, and is cut by a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenario.conftest import until
from tests.support.daemon import Daemon, Page, page_of

FILE = '''"""The tools of ann."""

import os, time
from agent_tools.own import Context, tool

print("printed by the import")


@tool(risk="read", effect="pure")
def greet(name: str, times: int = 1) -> dict:
    """Greet somebody."""
    print("hello " * times + name)
    return {"token": os.environ.get("A_TOKEN"), "here": sorted(os.listdir("."))}


@tool
def wait(seconds: int, ctx: Context) -> str:
    """Wait, after leaving a mark in the workspace."""
    ctx.progress("it waits in " + ctx.session)
    (ctx.workspace / "mark").touch()
    time.sleep(seconds)
    return "waited"
'''


async def result(page: Page, text: str, id: str = "") -> dict[str, Any]:
    """Write a command, and return the result of its call."""
    known = {key for key, row in page.rows.items() if row["type"] == "step"}
    await page.say(text, id)

    def is_new(row: dict[str, Any]) -> bool:
        key = next(key for key, one in page.rows.items() if one is row)
        return key not in known and row["kind"] == "tool" and row["state"] == "finished"

    return (await page.until_row("step", is_new))["result"]


@pytest.mark.whole("test_own_tools has workers and files that change, and the guides' tool stays")
async def test_an_owners_file_is_a_tool_that_follows_its_file(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "greet.py").write_text(FILE)
    daemon = Daemon(folder=tmp_path, config='[tools]\nfolder = "tools"\n', warm=True)
    await daemon.start({"A_TOKEN": "a-secret"})
    try:
        async with page_of(daemon) as page:
            found = await result(page, "/greet name=Ben times=2")
            assert found["text"].splitlines()[0] == "hello hello Ben"
            assert '{"token": null, "here": [' in found["text"]
            wrong = await result(page, "/greet name=Ben times=often")
            assert (wrong["status"], wrong["code"]) == ("error", "invalid_arguments")

            (tools / "greet.py").write_text(FILE.replace('"hello "', '"good day "'))
            (tools / "broken.py").write_text("from agent_tools.own import tool\n1 / 0\n@tool\ndef run():\n    'Run.'\n")
            assert (await result(page, "/greet name=Ben"))["text"].startswith("good day Ben")
            code, told = await daemon.run_command("send", "/tools", "--wait")
            assert (code, "broken.py cannot be used: it cannot be imported (ZeroDivisionError" in told) == (0, True)
            code, listed = await daemon.run_command("tools", "list")
            assert (code, "ZeroDivisionError" in listed, "greet_wait" in listed) == (0, True, True)
            code, answer = await daemon.run_command("tools", "run", "greet", '{"name": "Ann Lee", "times": 1}')
            assert (code, "good day Ann Lee" in answer) == (0, True)
            code, refused = await daemon.run_command("tools", "run", "file_broken")
            assert (code, "cannot be used" in refused) == (1, True)

            await page.say("/greet_wait seconds=60")
            asked = await page.until_row("approval", lambda row: row["state"] == "open")
            assert (await page.press(page.button(asked, "once")))["result"] == "approved"
            await until(lambda: any(daemon.state.rglob("mark")))
        await daemon.kill()
        await daemon.start({"A_TOKEN": "a-secret"})
        async with page_of(daemon) as page:
            await page.until_row("step", lambda row: "Outcome unknown" in str(row.get("result")))
            assert (await result(page, "/greet name=Ben", id="after-the-crash"))["text"].startswith("good day Ben")
    finally:
        await daemon.kill()
