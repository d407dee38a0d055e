"""One workspace against a Slack on loopback: both modes, trouble, no event lost or processed twice."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from channels.slack.account import SlackConnection
from channels.slack.indicators import SEEN
from gateway.domain.messages import RefusedReason
from gateway.domain.waits import PRESSED_TEXT, PressResult
from gateway.errors import NotKnownYet, StoreError
from tests.support.clock import FakeClock
from tests.support.proxy_server import ProxyServer
from tests.support.slack import FakeSlack, Fault, Shown, faults
from tests.support.surroundings import refusing, until
from tests.unit.channels.slack.scene import QUICK, Scene, running

ANN, BOB = "U0ANN", "U0BOB"


@pytest.fixture(params=["socket", "http"])
async def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- what is said -------------------------------------------------------------------------------


async def test_a_direct_message_is_taken_acknowledged_and_marked(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.person(ANN, "ann")
    async with running(scene, mode):
        said = slack.say(ANN, "hello")
        assert await slack.see_reaction(said) == SEEN
        await until(lambda: not slack.app.pending)
    message = scene.sink.messages[0]
    assert (message.text, message.principal, message.name) == ("hello", f"slack:{slack.team}/{ANN}", "ann")
    assert message.direct
    assert message.addressed
    assert not message.outsider
    assert message.conversation.key == f"slack/main/{slack.direct(ANN)}"
    assert len(slack.app.given[-1].tries) == 1
    assert scene.points[0] == "J3"


async def test_mention_begins_a_thread_in_which_the_bot_is_addressed(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.channel("C0CC", members=[ANN, BOB])
    async with running(scene, mode):
        root = slack.mention(ANN, "look here", channel="C0CC")
        await until(lambda: len(scene.sink.messages) == 1)
        await until(lambda: not slack.app.pending)
        slack.say(BOB, "and there", channel="C0CC", thread=root)
        slack.say(BOB, "beside it", channel="C0CC")
        await until(lambda: len(scene.sink.messages) == 3)
        await until(lambda: not slack.app.pending)
    first, second, third = scene.sink.messages
    assert (first.conversation.thread, first.text, first.addressed) == (root.ts, "look here", True)
    assert (second.conversation, second.addressed) == (first.conversation, True)
    assert (third.conversation.thread, third.addressed) == ("", False)
    assert first.also_called == (f"{slack.team}/C0CC",)


async def test_the_threads_are_known_after_a_restart(slack: FakeSlack, scene: Scene) -> None:
    slack.channel("C0CC", members=[ANN])
    async with running(scene):
        root = slack.mention(ANN, "look here", channel="C0CC")
        await until(lambda: len(scene.sink.messages) == 1 and not slack.app.pending)
    async with running(scene):
        slack.say(ANN, "and there", channel="C0CC", thread=root)
        await until(lambda: len(scene.sink.messages) == 2)
    assert scene.sink.messages[1].addressed


async def test_own_message_leaves_no_row(slack: FakeSlack, scene: Scene) -> None:
    slack.channel("C0CC", members=[ANN])
    async with running(scene) as account:
        made = await account.client.call("chat.postMessage", {"channel": "C0CC", "text": "hello"})
        await account.client.call("chat.update", {"channel": "C0CC", "ts": made["ts"], "text": "hello you"})
        await until(lambda: len(slack.app.given) == 2 and not slack.app.pending)
    assert scene.sink.events == []


async def test_another_bot_is_refused_with_a_row(slack: FakeSlack, scene: Scene) -> None:
    slack.channel("C0CC", members=[ANN])
    async with running(scene):
        slack.other_bot_says("hello", channel="C0CC")
        await until(lambda: scene.sink.refused)
    assert scene.sink.refused[0].reason is RefusedReason.NOT_A_PERSON


async def test_guests_and_people_of_other_workspaces_are_outsiders(slack: FakeSlack, scene: Scene) -> None:
    slack.person("U0GG", guest="single")
    slack.person("U0FF", team="T0ZZ")
    slack.channel("C0CC", members=["U0GG", "U0FF"], shared=True)
    async with running(scene):
        slack.mention("U0GG", "let me", channel="C0CC")
        slack.mention("U0FF", "me too", channel="C0CC")
        await until(lambda: len(scene.sink.messages) == 2)
    found = {message.principal: message.outsider for message in scene.sink.messages}
    assert found == {f"slack:{slack.team}/U0GG": True, "slack:T0ZZ/U0FF": True}


async def test_user_that_cannot_be_looked_up_is_an_outsider(slack: FakeSlack, scene: Scene) -> None:
    slack.script(refusing("users.info", faults.broken()))
    async with running(scene):
        slack.say(ANN, "hello")
        slack.say(ANN, "again")
        await until(lambda: len(scene.sink.messages) == 2)
    assert [(message.outsider, message.unsure) for message in scene.sink.messages] == [(True, True)] * 2
    assert len(slack.calls("users.info")) == 1


async def test_message_of_an_unknown_user_is_repeated_and_looked_up(slack: FakeSlack, scene: Scene) -> None:
    slack.channel("C0CC", members=[ANN])
    slack.script(refusing("users.info", faults.broken(), 1))
    unsure = [NotKnownYet()]
    scene.sink.fail = lambda _key: unsure.pop() if unsure else None
    async with running(scene):
        slack.mention(ANN, "hello", channel="C0CC")
        await until(lambda: scene.sink.messages)
        await until(lambda: not slack.app.pending)
    assert [(message.outsider, message.unsure) for message in scene.sink.messages] == [(False, False)]
    assert len(slack.calls("users.info")) == 2


async def test_people_are_asked_about_once(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene):
        for n in range(5):
            slack.say(ANN, f"hello {n}")
        await until(lambda: len(scene.sink.messages) == 5)
    assert len(slack.calls("users.info")) == 1


async def test_a_command_is_taken_where_it_was_given(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.channel("C0CC", members=[ANN])
    async with running(scene, mode):
        for text, channel in (("status", ""), ("what is new?", "C0CC")):
            await slack.acknowledged(slack.slash(ANN, text, channel=channel))
    direct, there = scene.sink.messages
    assert (direct.text, direct.conversation.chat, direct.direct) == ("/status", slack.direct(ANN), True)
    assert (there.text, there.conversation.chat, there.addressed) == ("what is new?", "C0CC", True)


async def test_a_command_whose_answer_has_no_place_is_not_taken(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.person(ANN)
    slack.script(refusing("conversations.open", faults.error("fatal_error")))
    async with running(scene, mode):
        refused = slack.slash(ANN, "status")
        await until(lambda: refused.done)
        assert (refused.acknowledged, scene.sink.messages) == (False, [])
        (told,) = slack.troubles
        assert "sees /dragoman failed" in told
        slack.troubles.clear()
        slack.script(lambda _call: None)
        await slack.acknowledged(slack.slash(ANN, "status"))
    (taken,) = scene.sink.messages
    assert taken.conversation.chat == slack.direct(ANN)


async def test_edits_and_deletions_amend(slack: FakeSlack, scene: Scene) -> None:
    async with running(scene):
        said = slack.say(ANN, "hello")
        await until(lambda: len(scene.sink.messages) == 1)
        slack.edit(said, "good bye")
        await until(lambda: len(scene.sink.messages) == 2)
    first, second = scene.sink.messages
    assert (second.edits, second.text) == (first.event_key, "good bye")


# --- once, in order -----------------------------------------------------------------------------


async def test_repeated_or_late_delivery_is_one_event(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.app.copies = 3
    async with running(scene, mode):
        slack.say(ANN, "hello")
        await until(lambda: scene.sink.tries == 3)
        slack.replay()
        await until(lambda: scene.sink.tries == 4)
    assert scene.sink.texts == ["hello"]


async def test_unstored_message_comes_again(slack: FakeSlack, scene: Scene, mode: str) -> None:
    left = [StoreError("the disk is full"), StoreError("the disk is full")]
    scene.sink.fail = lambda _key: left.pop() if left else None
    slack.app.ack_within_s, slack.app.pauses_s = 0.3, (0.0, 0.05, 0.1)
    async with running(scene, mode):
        slack.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
        await until(lambda: not slack.app.pending)
    assert slack.app.lost == []


async def test_a_thread_that_cannot_be_kept_in_mind_is_told_of_again(slack: FakeSlack, scene: Scene, mode: str) -> None:
    slack.channel("C0CC", members=[ANN])
    slack.app.ack_within_s, slack.app.pauses_s = 0.3, (0.05,) * 50
    scene.notes.broken = True
    async with running(scene, mode):
        root = slack.mention(ANN, "look here", channel="C0CC")
        await until(lambda: scene.sink.tries >= 3)
        assert slack.app.pending
        scene.notes.broken = False
        await until(lambda: not slack.app.pending)
        slack.say(ANN, "and there", channel="C0CC", thread=root)
        await until(lambda: len(scene.sink.messages) == 2)
    assert scene.sink.texts == ["look here", "and there"]
    assert scene.sink.messages[1].addressed


async def test_a_slack_that_does_not_say_who_speaks_is_not_waited_for(slack: FakeSlack, scene: Scene) -> None:
    slack.script(refusing("users.info", Fault(hold_s=10)))
    async with running(scene):
        slack.say(ANN, "hello")
        await until(lambda: not slack.app.pending and scene.sink.texts == ["hello"])
    assert len(slack.app.given[-1].tries) == 1
    assert slack.app.given[-1].tries[0].took_s < 2.5


async def test_poisonous_event_is_put_aside_and_reported_to_the_owners(slack: FakeSlack, scene: Scene) -> None:
    scene.sink.fail = lambda key: RuntimeError() if not key.startswith("b") else None
    slack.app.ack_within_s, slack.app.pauses_s = 0.1, (0.0, 0.05, 0.1)
    async with running(scene):
        slack.say(ANN, "hello")
        await until(lambda: scene.host.alerts)
        await until(lambda: not slack.app.pending)
    assert [refused.reason for refused in scene.sink.refused] == [RefusedReason.POISON]
    assert slack.app.lost == []
    assert scene.host.alerts[0][0] == "slack/main/poison"


async def test_a_channel_keeps_its_order_and_none_waits_for_another(slack: FakeSlack, scene: Scene, mode: str) -> None:
    scene.sink.delay_s = 0.01
    async with running(scene, mode):
        for n in range(20):
            slack.say(ANN, f"a{n}")
            slack.say(BOB, f"b{n}")
        await until(lambda: len(scene.sink.messages) == 40)
    if mode == "socket":  # over HTTP connections overtake each other
        for who in "ab":
            assert [text for text in scene.sink.texts if text[0] == who] == [f"{who}{n}" for n in range(20)]


@pytest.mark.parametrize("event", [None, 5, "text", [], {}, {"type": None}, {"type": "message", "channel": 5}])
async def test_nonsense_is_kept_and_acknowledged(slack: FakeSlack, scene: Scene, mode: str, event: object) -> None:
    async with running(scene, mode):
        slack.send_raw(event)
        await until(lambda: scene.sink.refused and not slack.app.pending)
        slack.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
    assert [refused.reason for refused in scene.sink.refused] == [RefusedReason.POISON]
    assert slack.app.lost == []


@pytest.mark.parametrize("field", ["authorizations", "team_id", "event_id", "api_app_id", "enterprise_id", "type"])
async def test_a_field_of_a_wrong_kind_ends_nothing(slack: FakeSlack, scene: Scene, mode: str, field: str) -> None:
    async with running(scene, mode):
        values: list[object] = [None, 5, {"a": 5}, [5], "x" * 100_000]
        for value in values:
            slack.send_raw({"type": "message", "channel": "D0ANN", "user": ANN, "ts": "1.2"}, **{field: value})
        await until(lambda: not slack.app.pending)
        slack.say(ANN, "hello")
        await until(lambda: "hello" in scene.sink.texts)
    assert slack.app.lost == []


# --- presses ------------------------------------------------------------------------------------


async def card(account: SlackConnection, slack: FakeSlack, channel: str) -> Shown:
    """A message with the buttons of a card."""
    buttons = [
        {"type": "button", "text": {"type": "plain_text", "text": text}, "action_id": f"{verb}:1", "value": f"h-{verb}"}
        for text, verb in (("Allow once", "once"), ("Deny", "deny"), ("Deny with reason", "deny_reason"))
    ]
    content = {"text": "a card", "blocks": [{"type": "actions", "elements": buttons}]}
    await account.client.call("chat.postMessage", {"channel": channel, **content})
    return await slack.see(channel, button="Allow once")


async def test_a_press_is_stored_then_acknowledged(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode) as account:
        shown = await card(account, slack, slack.direct(ANN))
        await slack.acknowledged(slack.press(ANN, shown, "Allow once"))
        await asyncio.sleep(0.05)
    press = scene.sink.pressed[0]
    assert (press.handle, press.principal) == ("h-once", f"slack:{slack.team}/{ANN}")
    assert press.conversation.key == f"slack/main/{slack.direct(ANN)}"
    assert slack.notes(ANN) == []


@pytest.mark.parametrize(
    "result", [PressResult.NOT_ALLOWED, PressResult.NOT_VALID, PressResult.EXPIRED, PressResult.ALREADY]
)
async def test_refused_presser_alone_sees_the_reason(
    slack: FakeSlack, scene: Scene, mode: str, result: PressResult
) -> None:
    scene.sink.result = result
    slack.channel("C0CC", members=[ANN, BOB])
    async with running(scene, mode) as account:
        shown = await card(account, slack, "C0CC")
        for label in ("Allow once", "Deny with reason"):
            await slack.acknowledged(slack.press(BOB, shown, label))
        await slack.see_note(BOB, PRESSED_TEXT[result], count=2)
        assert slack.modal(BOB) is None


async def test_a_denial_with_a_reason_opens_a_form(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode) as account:
        shown = await card(account, slack, slack.direct(ANN))
        await slack.acknowledged(slack.press(ANN, shown, "Deny with reason"))
        form = await slack.see_modal(ANN, "Why")
        scene.sink.result = PressResult.DENIED
        await slack.acknowledged(slack.submit(form, {"reason": "too dangerous"}))
        assert not form.open
    asked, denied = scene.sink.pressed
    assert (asked.handle, asked.can_ask_reason, asked.reason) == ("h-deny_reason", True, "")
    assert (denied.handle, denied.can_ask_reason, denied.reason) == ("h-deny_reason", False, "too dangerous")
    assert denied.conversation == asked.conversation


async def test_a_form_that_cannot_be_opened_is_reported(slack: FakeSlack, scene: Scene) -> None:
    slack.script(refusing("views.open", faults.error("expired_trigger_id")))
    async with running(scene) as account:
        shown = await card(account, slack, slack.direct(ANN))
        await slack.acknowledged(slack.press(ANN, shown, "Deny with reason"))
        await slack.see_note(ANN, "Press the button again")


# --- a proxy --------------------------------------------------------------------------------------


async def test_sockets_and_requests_go_through_proxy(slack: FakeSlack, scene: Scene) -> None:
    async with ProxyServer(user="ann:secret").serve() as proxy:
        scene.proxy = proxy.url_with("ann:secret")
        async with running(scene) as account:
            slack.say(ANN, "hello")
            await until(lambda: len(scene.sink.messages) == 1)
            assert account.trouble() == ""
        asked = " ".join(proxy.asked)
    assert "/api/auth.test" in asked
    assert "/api/apps.connections.open" in asked
    assert len(proxy.asked) >= 4, "the sockets too"


async def test_proxy_that_is_not_there_is_reported(scene: Scene) -> None:
    scene.proxy = "http://ann:secret@127.0.0.1:9"
    async with running(scene, ready=False) as account:
        await until(lambda: "The proxy http://127.0.0.1:9 cannot be reached" in account.trouble())
        assert "secret" not in account.trouble()


# --- the agent view ------------------------------------------------------------------------------


async def test_agent_view_has_prompts_and_a_status(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode):
        slack.open_agent(ANN, looking_at="C0CC")
        await until(lambda: (slack.direct(ANN), "") in slack.world.prompts)
        slack.look_around(ANN, "C0CC")
        root = slack.say(ANN, "What is the weather like in Rome today?")
        await until(lambda: len(scene.sink.messages) == 1)
        slack.say(ANN, "And in Paris?", thread=root)
        await until(lambda: slack.statuses(root.channel, root.ts))
        await slack.heard()
    assert [message.conversation.thread for message in scene.sink.messages] == ["", root.ts]
    assert scene.sink.refused == []
    assert slack.calls("assistant.threads.setTitle") == []


async def test_stop_button_is_stop_in_its_thread(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode):
        root = slack.say(ANN, "count to a million")
        slack.say(ANN, "faster", thread=root)
        slack.press_stop(ANN, root)
        await until(lambda: len(scene.sink.messages) == 3)
        await until(lambda: slack.world.sessions.get((root.channel, root.ts)) == ["active"])
        slack.press_stop(ANN, root, user=None)
        slack.press_stop(ANN, root, channel=None)
        await until(lambda: len(scene.sink.refused) == 2)
        await slack.heard()
    said, stop = (next(one for one in scene.sink.messages if one.text == text) for text in ("faster", "/stop"))
    assert (stop.text, stop.addressed, stop.direct) == ("/stop", True, True)
    assert (stop.conversation, stop.principal, stop.outsider) == (said.conversation, said.principal, said.outsider)
    assert {refused.detail for refused in scene.sink.refused} == {"agent_session_stopped without a user and a channel"}


# --- the assistant panel of apps from before it ---------------------------------------------------


async def test_the_panel_has_prompts_a_title_and_a_status(slack: FakeSlack, scene: Scene, mode: str) -> None:
    async with running(scene, mode):
        slack.app.from_before()
        root = slack.open_assistant(ANN)
        place = (root.channel, root.ts)
        await until(lambda: place in slack.world.prompts)
        slack.look_elsewhere(ANN, root, "C0CC")
        slack.say(ANN, "What is the weather like in Rome today?", thread=root)
        await until(lambda: place in slack.world.titles and slack.statuses(*place))
        slack.say(ANN, "And in Paris?", thread=root)
        await until(lambda: len(scene.sink.messages) == 2 and not slack.app.pending)
    assert slack.world.titles[place] == "What is the weather like in Rome today?"
    assert len(slack.calls("assistant.threads.setTitle")) == 1
    assert slack.calls("reactions.add") == []
    assert {message.conversation.thread for message in scene.sink.messages} == {root.ts}
    assert scene.sink.refused == []


async def test_optional_call_may_be_refused(slack: FakeSlack, scene: Scene) -> None:
    slack.script(lambda call: faults.error("missing_scope") if call.method == "reactions.add" else None)
    async with running(scene) as account:
        for n in range(3):
            slack.say(ANN, f"hello {n}")
            await until(lambda: len(scene.sink.messages) == n + 1)  # noqa: B023 - awaited in the loop
        await asyncio.sleep(0.05)
        assert account.trouble() == ""
    assert len(slack.calls("reactions.add")) == 1


# --- one node has the sockets -------------------------------------------------------------------


async def test_account_connects_only_while_it_holds_the_lease(slack: FakeSlack, scene: Scene) -> None:
    """Ready to: it knows who it is. Another node has the sockets meanwhile, and that is no trouble."""
    scene.host.ours = False
    async with running(scene) as account:
        await until(lambda: len(scene.host.held) >= 3)
        assert (slack.sockets, account.trouble()) == ([], "")
        scene.host.ours = True
        await until(lambda: len(slack.sockets) == 2)
        slack.say(ANN, "hello")
        await until(lambda: scene.sink.texts == ["hello"])
        scene.host.broken = True
        renewed = len(scene.host.held)
        await until(lambda: len(scene.host.held) > renewed + 2)
        assert len(slack.sockets) == 2, "the lease lasts while the store is away for a moment"
        scene.host.broken = scene.host.ours = False
        await until(lambda: slack.sockets == [])
    (name,) = {name for name, _ in scene.host.held}
    assert re.fullmatch(r"slack/[0-9a-f]{12}", name)


async def test_a_node_that_slept_past_its_lease_takes_nothing(slack: FakeSlack, scene: Scene) -> None:
    """Slack tells the node that has the sockets by now. Where none took them, the lease is asked for at once."""
    scene.clock = clock = FakeClock()
    async with running(scene, pauses=replace(QUICK, lease=60)):
        await until(lambda: len(slack.sockets) == 2)
        clock.advance(16)
        scene.host.ours = False
        slack.say(ANN, "hello")
        await asyncio.sleep(0.2)
        assert scene.sink.texts == []
        scene.host.ours = True
        slack.say(ANN, "again")
        await until(lambda: "again" in scene.sink.texts)
