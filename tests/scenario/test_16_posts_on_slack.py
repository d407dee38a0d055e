"""Sixteenth: an agent that posts on Slack: at hand, with a pin and a reaction, and in another channel by a rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.system.failpoints import ENVIRONMENT
from tests.scenario.test_09_slack import ANN, KITCHEN, NO_LIMITS, TO_ANN
from tests.scenario.test_09_slack import CONFIG as OF_SLACK
from tests.support.model_server import Call, Reply, Rule, ScriptedModel
from tests.support.slack.rig import slack_rig

CONFIG = f"{OF_SLACK}\n[[rules]]\ntool = 'slack'\npattern = 'T0AA/{KITCHEN}'\ndecision = 'allow'\n"
SHUT = "C0SHUT"


def posts(**arguments: Any) -> Call:
    """Return a call of the tool."""
    return Call(name="slack", arguments=json.dumps(arguments))


CALLS = (
    posts(text="One of two."),
    posts(text="Supper is at seven, <!channel>.", channel=f"T0AA/{KITCHEN}"),
    posts(action="react", emoji="thumbsup"),
    posts(action="pin"),
    posts(text="Meet me.", channel=f"T0AA/{SHUT}"),
)


async def test_an_agent_posts_where_it_may(tmp_path: Path, model: ScriptedModel) -> None:
    model.rules.append(Rule(text="plan the supper", results=0, reply=Reply(calls=CALLS)))
    model.rules.append(Rule(text="plan the supper", reply=Reply(text="It is planned.")))
    config = CONFIG.format(model=model.base_url)
    workspaces = (("acme", "T0AA"),)
    async with slack_rig(
        tmp_path, mode="socket", config=config, limits=NO_LIMITS, workspaces=workspaces, warm=True
    ) as rig:
        slack = rig.workspaces["acme"]
        slack.person(ANN, "ann")
        slack.channel(KITCHEN, "kitchen", members=[ANN])
        slack.channel(SHUT, "shut", members=[ANN])
        await rig.start()
        asked = slack.say(ANN, "plan the supper")
        await slack.see(TO_ANN, "It is planned.")
        await slack.see(TO_ANN, "One of two.")
        said = await slack.see(KITCHEN, "Supper is at seven")
        assert "From the agent, asked in another conversation" in said.text
        await slack.see_reaction(asked, "thumbsup")
        await slack.until(lambda: asked.pinned)
        assert slack.shown(SHUT) == []
        refused = str(model.requests[-1].body["messages"])
        assert "no rule opens" in refused
        assert slack.troubles == []


@pytest.mark.whole("two lives of a daemon; the points on Telegram, and a life in Slack, stay")
@pytest.mark.parametrize("point", ["J13", "J14", "J18"])
async def test_posts_outlive_a_kill(point: str, tmp_path: Path, model: ScriptedModel) -> None:
    """Each requested post is there, and twice only where its sending was cut: then it is marked."""
    model.rules.append(Rule(text="plan the supper", results=0, reply=Reply(calls=CALLS[1:4])))
    model.rules.append(Rule(text="plan the supper", reply=Reply(text="It is planned.")))
    config, workspaces = CONFIG.format(model=model.base_url), (("acme", "T0AA"),)
    async with slack_rig(tmp_path, config=config, limits=NO_LIMITS, workspaces=workspaces, warm=True) as rig:
        slack = rig.workspaces["acme"]
        slack.person(ANN, "ann")
        slack.channel(KITCHEN, "kitchen", members=[ANN])
        await rig.start({ENVIRONMENT: f"{point}:kill"})
        asked = slack.say(ANN, "plan the supper")
        assert await rig.daemon.died() < 0
        await rig.start()
        await slack.see(TO_ANN, "It is planned.")
        await slack.see(KITCHEN, "Supper is at seven")
        await slack.see_reaction(asked, "thumbsup")
        await slack.until(lambda: asked.pinned)
        found = [one.text for one in slack.shown(KITCHEN) if "Supper is at seven" in one.text]
        assert len([text for text in found if "again" not in text.lower()]) == 1, found
