"""Three daemons on one Redis, a role each, are one bot: one receives, one runs turns, one sends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.domain.nodes import Role
from tests.fault.rig import marked, until
from tests.fault.test_redis_nodes import KEY, nodes, ready
from tests.support.daemon import Daemon
from tests.support.model_server import Call, Reply, Rule, ScriptedModel
from tests.support.redis_server import RedisServer
from tests.support.telegram import TOKEN, FakeTelegram

ANN = 1001
CONFIG = """
[store]
url = "{url}"
[cluster]
key = "env:CLUSTER_KEY"
node = "{name}"
roles = ["{name}"]
[owners]
ann = ["telegram:1001"]
[model]
name = "openai:scripted"
base_url = "{model}"
[tools.shell]
permission = "always"
approval = "allow"
[channels.telegram]
token = "env:TELEGRAM_TOKEN"
api_root = "{api_root}"
"""
WORDS = " ".join(f"word-{n}" for n in range(60))


@asynccontextmanager
async def a_node_each(folder: Path, telegram: FakeTelegram, model: ScriptedModel) -> AsyncGenerator[dict[str, Daemon]]:
    """Daemons by role."""
    (data := folder / "redis").mkdir()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer(data))
        found: dict[str, Daemon] = {}
        for role in Role:
            (place := folder / role.value).mkdir()
            config = CONFIG.format(url=server.url, name=role.value, model=model.base_url, api_root=telegram.api_root)
            one = found[role.value] = Daemon(folder=place, config=config, warm=True)
            stack.push_async_callback(one.kill)
            await one.start({"CLUSTER_KEY": KEY, "TELEGRAM_TOKEN": TOKEN})
        yield found


def steered(body: dict[str, Any]) -> bool:
    """Return True if this request has the steering message behind the result of the call."""
    said = [one["role"] for one in body["messages"] if one["role"] == "tool" or "by the way" in json.dumps(one)]
    return said[-2:] == ["tool", "user"]


async def test_three_roles_are_one_bot(tmp_path: Path) -> None:
    """An answer streams, a call is stopped, and more is said to a turn that runs, all from the chat."""
    marker = "71828182"
    look = Call(name="shell", arguments=json.dumps({"command": f"sleep 2.{marker}"}))
    rules = [
        Rule(text="tell me", reply=Reply(text=WORDS, chunks=60, delay_s=0.05)),
        Rule(text="look at it", results=0, reply=Reply(calls=(look,))),
    ]
    async with (
        FakeTelegram().serve() as telegram,
        ScriptedModel(rules=rules) as model,
        a_node_each(tmp_path, telegram, model) as daemons,
    ):
        assert {name: set((await ready(one))[1]["roles"]) for name, one in daemons.items()} == {
            name: {name} for name in daemons
        }
        assert {row["state"] for row in (await nodes(daemons["worker"])).values()} == {"works"}
        telegram.say(ANN, "hello")  # from here on the account has a sender
        await telegram.until(lambda: len(telegram.shown(ANN)) == 1)
        telegram.say(ANN, "tell me")
        await telegram.until(lambda: any(shown.text == WORDS for shown in telegram.shown(ANN)))
        assert len(telegram.calls("editMessageText")) >= 2, "its beginning was shown, and grew"
        telegram.say(ANN, f"/shell sleep {marker}")
        await until(lambda: marked(f"sleep {marker}"))
        [turn] = (await nodes(daemons["delivery"]))["worker"]["turns"]
        assert turn
        telegram.say(ANN, "/stop")
        await until(lambda: not marked(f"sleep {marker}"), within_s=5)
        assert [name for name, one in daemons.items() if list(one.state.glob("workspaces/*/"))] == ["worker"]
        code, out = await daemons["ingress"].run_command("send", "--wait", "tell me once more")
        assert (code, out.strip()) == (0, WORDS)
        telegram.say(ANN, "look at it")
        await until(lambda: marked(f"sleep 2.{marker}"))
        telegram.say(ANN, "by the way")
        await until(lambda: any(steered(asked.body) for asked in model.requests))
        assert "main:ann" in (await daemons["delivery"].run_command("sessions"))[1]
