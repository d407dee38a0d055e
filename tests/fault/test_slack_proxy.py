"""A daemon whose only way out is a proxy: Slack and the model are reached, and no log has its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.slack_rig import ANN, TO_ANN
from tests.support.model_server import ScriptedModel
from tests.support.proxy_server import ProxyServer
from tests.support.slack.rig import slack_rig
from tests.support.surroundings import until

PASSWORD = "open-sesame"
CONFIG = """
[owners]
ann = ["slack:T0AA/U0ANN"]

[model]
name = "openai:m"
base_url = "{base_url}"
proxy = "env:PROXY"
"""


async def test_daemon_behind_proxy_answers(tmp_path: Path) -> None:
    async with ProxyServer(user=f"ann:{PASSWORD}").serve() as proxy, ScriptedModel() as model:
        config = CONFIG.format(base_url=model.base_url)
        async with slack_rig(tmp_path, config=config, limits="per_channel_per_s = 0") as rig:
            rig.more, rig.env = 'proxy = "env:PROXY"', {"PROXY": proxy.url_with(f"ann:{PASSWORD}")}
            rig.slack.person(ANN, "ann")
            await rig.start()
            rig.slack.say(ANN, "hello")
            await rig.slack.see(TO_ANN, "You said: hello")
            assert await rig.daemon.stop() == 0
            assert PASSWORD not in rig.daemon.log
        asked = " ".join(proxy.asked)
    assert all(part in asked for part in ("/chat/completions", "/api/chat.postMessage", "GET ")), proxy.asked


@pytest.mark.whole("a daemon behind a proxy that answers stays")
async def test_daemon_names_proxy_that_is_gone(tmp_path: Path) -> None:
    async with slack_rig(tmp_path) as rig:
        rig.config = CONFIG.split("[model]")[0]
        rig.more, rig.env = 'proxy = "env:PROXY"', {"PROXY": f"http://ann:{PASSWORD}@127.0.0.1:9"}
        await rig.start(ready=False)
        await until(lambda: "The proxy http://127.0.0.1:9 cannot be reached" in rig.daemon.log, 20)
        assert PASSWORD not in rig.daemon.log
