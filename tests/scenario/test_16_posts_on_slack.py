"""Sixteenth: an agent that posts on Slack: at hand, with a pin and a reaction, and in another channel by a rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
