"""F11 to F13 and what people do meanwhile: servers that refuse, streams that break, answers that make no sense.

Each case is a person with a session of their own, and all of a test write to one daemon at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.slots import Slot
from gateway.domain.turns import Turn, TurnState
from tests.fault.model_rig import Crowd, crowd, once, peek, results_in, shell, side_by_side
from tests.fault.oracle import Evidence, the_model_was_asked_properly
from tests.fault.rig import lines_of, marked, stored, until, until_quiet
from tests.support.model.wire import events
from tests.support.model_server import MANY, Call, Reply, Rule, count_events
from tests.support.proof import figure

WHOLE = Reply(text="This is the whole answer.")
TRIES = 4
STOPPED_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A person's faulty model answers in order, before the good one, and the expected outcome."""

    who: str
    replies: tuple[Reply, ...]
    asked: int
    """Requests to the model."""
    says: str = WHOLE.text
    """Stands in the one answer that the chat shows in the end."""
    results: tuple[str, ...] = ()
    """Results of calls given to the model, each the beginning of a line."""
    gaps_s: tuple[float, ...] = ()
    """Seconds between the questions, at least."""

    def rules(self) -> list[Rule]:
        """Its replies to what this person says."""
        mine = f"^{self.who}: "
        return [*(once(reply, text=mine) for reply in self.replies), Rule(text=mine, reply=WHOLE)]


async def tried_out(cases: Sequence[Case], folder: Path, **settings: Any) -> Crowd:
    """Let everybody ask at once; return how all stands when the daemon, which had lived all the time, has stopped."""
    rules = [rule for case in cases for rule in case.rules()]
    async with crowd(folder, [case.who for case in cases], rules, **settings) as people:
        await people.start()

        async def live(who: str) -> None:
            await people.say(who, "go on")
            await people.see(who)

        await side_by_side(people.people, live)
        await until_quiet(people.daemon)
        assert await people.is_ready()
        assert await people.daemon.stop() == 0
        assert "Traceback" not in people.daemon.log
        return people


def gaps(people: Crowd, case: Case) -> list[float]:
    """Seconds between the questions that a case led to."""
    return [later.at_s - one.at_s for one, later in pairwise(people.asked(case.who))]


def check(case: Case, people: Crowd) -> None:
    """The case came out as it must."""
    asked = people.asked(case.who)
    assert len(asked) == case.asked, (case.who, [one.ended for one in asked])
    (*_, last) = people.answers(case.who)
    assert case.says in last, (case.who, last)
    given = results_in(asked[-1])
    assert len(given) == len(case.results), (case.who, given)
    for found, wanted in zip(given, case.results, strict=True):
        assert wanted in found, (case.who, found)
    found = gaps(people, case)
    assert all(gap >= wanted for gap, wanted in zip(found, case.gaps_s, strict=False)), (case.who, found)
    questions = [one.body for one in asked]
    the_model_was_asked_properly(Evidence(said=(), ran={}, frames=(), asked=questions, page=(), items=()))


# --- F11: it refuses ------------------------------------------------------------------------------


def refused(status: int, after: str = "") -> Reply:
    """An error, with the seconds after which to ask again."""
    return Reply(status=status, error="busy", headers={"Retry-After": after} if after else {})


F11 = [
    *(Case(who=f"once-{status}", replies=(refused(status),), asked=2, gaps_s=(1,)) for status in (429, 500, 529)),
    *(
        Case(who=f"wait-{status}", replies=(refused(status, "3"), refused(status, "1")), asked=3, gaps_s=(3, 1))
        for status in (429, 500, 529)
    ),
    *(
        Case(who=f"never-{status}", replies=(refused(status, "1"),) * 9, asked=TRIES, says=f"{TRIES} times")
        for status in (429, 500, 529)
    ),
    Case(who="twice", replies=(refused(503), refused(429)), asked=3, gaps_s=(1, 2)),
    Case(who="tomorrow", replies=(refused(429, "86400"),), asked=1, says="wait 86400 s"),
    Case(who="odd-header", replies=(refused(429, "soon"),), asked=2, gaps_s=(1,)),
]


async def test_refused_for_a_while(tmp_path: Path) -> None:
    """Every turn is answered: by the model when it comes back in four tries, else with why. It waits as it was told."""
    people = await tried_out(F11, tmp_path)
    figure("F11", "turns without an answer", sum(not people.answers(case.who) for case in F11), 0, of=len(F11))
    figure("F11", "most tries of one turn", max(len(people.asked(case.who)) for case in F11), TRIES)
    told = [(gap, wanted) for case in F11 for gap, wanted in zip(gaps(people, case), case.gaps_s, strict=False)]
    figure(
        "F11", "tries before the time that the server named", sum(gap < wanted for gap, wanted in told), 0, of=len(told)
    )
    for case in F11:
        check(case, people)


# --- F12: it breaks off ---------------------------------------------------------------------------

TEXT = Reply(text="one two three four five six seven eight", chunks=8)
TEXT_ENDS = 1 + 8 + 1
"""Events after which the answer is whole: who speaks, the text, its end. Figures and a last word follow."""
CALL_ENDS = 1 + 2 + 1 + 4 + 1


def calling(who: str) -> Reply:
    """An answer with a call. Cut in its arguments, a good guess would complete them."""
    return Reply(text="Let me.", chunks=2, calls=(shell(f"echo x >> {who}"),), fragments=4)


def torn(reply: Reply, k: int) -> Reply:
    """The connection breaks after so many events."""
    return reply.model_copy(update={"cut_after": k})


def ended(reply: Reply, k: int) -> Reply:
    """The server ends its answer after so many events, as if that were all."""
    calls = tuple(call.model_copy(update={"id": "call_1"}) for call in reply.calls)
    return Reply(raw=b"".join(islice(events(reply, calls, "first"), k)).decode())


CUTS = {"torn": torn, "ended": ended}
CUT_TEXTS = [
    Case(
        who=f"{how}-text-{k}",
        replies=(cut(TEXT, k),),
        asked=2 if k < TEXT_ENDS else 1,
        says=WHOLE.text if k < TEXT_ENDS else TEXT.text,
    )
    for how, cut in CUTS.items()
    for k in range(count_events(TEXT))
]
CUT_CALLS = [
    Case(who=who, replies=(cut(calling(who), k),), asked=2, results=() if k < CALL_ENDS else ("exit 0",))
    for how, cut in CUTS.items()
    for k in range(count_events(calling("")))
    for who in [f"{how}-call-{k}"]
]


async def test_cut_after_each_event(tmp_path: Path) -> None:
    """A part of an answer is never the answer, and no call comes of a part of its arguments; it is asked once more."""
    people = await tried_out([*CUT_TEXTS, *CUT_CALLS], tmp_path)
    partial = [case.who for case in CUT_TEXTS if people.answers(case.who) not in ([WHOLE.text], [TEXT.text])]
    ran = {case.who: len(lines_of(people.daemon.state, case.who)) for case in CUT_CALLS}
    whole = {case.who: len(case.results) for case in CUT_CALLS}
    wrong = [who for who in ran if ran[who] != whole[who]]
    figure("F12", "parts of a text shown as the answer", len(partial), 0, of=len(CUT_TEXTS))
    figure("F12", "calls of a part that ran, or whole ones that did not", len(wrong), 0, of=len(CUT_CALLS))
    assert ran == whole
    for case in (*CUT_TEXTS, *CUT_CALLS):
        check(case, people)


# --- F13: it makes no sense -----------------------------------------------------------------------

RAN = "nonsense"
"""File in which each of these commands would leave a line."""
COMMAND = shell(f"echo x >> {RAN}")
PIECES = 65_536
CUT_CALL = Call(name="shell", arguments=COMMAND.arguments[:-2])
REFUSED = "error: invalid_arguments"
F13 = [
    Case(who="half-chunk", replies=(Reply(nonsense="bad_json"),), asked=2),
    Case(who="half-arguments", replies=(Reply(calls=(CUT_CALL,)),), asked=2, results=(REFUSED,)),
    Case(
        who="not-an-object",
        replies=(
            Reply(calls=tuple(Call(name="shell", arguments=one) for one in ('["ls"]', '"ls"', "", "[" * 20_000))),
        ),
        asked=2,
        results=(REFUSED,) * 4,
    ),
    Case(
        who="no-arguments-needed",
        replies=(Reply(calls=(Call(name="sessions_list", arguments='{"'),)),),
        asked=2,
        results=(REFUSED,),
    ),
    Case(
        who="unknown-tool",
        replies=(Reply(calls=(Call(name="rm -rf /", arguments="{}"), Call(name="")), fragments=1),),
        asked=2,
        results=("error: unknown_tool",) * 2,
    ),
    Case(
        who="same-ids",
        replies=(Reply(calls=(peek("a"), peek("b")), nonsense="duplicate_ids"),),
        asked=2,
        results=("peeked at a", "peeked at b"),
    ),
    Case(who="ten-megabytes", replies=(Reply(nonsense="huge_arguments"),), asked=1, says="exceed"),
    Case(
        who="megabytes",
        replies=(Reply(calls=tuple(shell(f"echo x >> {RAN} #" + "x" * n) for n in (10**6, 8 * 10**6)), fragments=32),),
        asked=2,
        results=(REFUSED,) * 2,
    ),
    Case(
        who="many-calls",
        replies=(Reply(calls=tuple(peek(str(n)) for n in range(MANY))),),
        asked=2,
        results=("peeked at",) * 50 + ("50 calls",) * (MANY - 50),
    ),
    Case(
        who="many-denied",
        replies=(Reply(calls=(Call(name="poke", arguments='{"what": "x"}'),), nonsense="many_calls"),),
        asked=2,
        results=("denied",) * MANY,
    ),
    Case(who="says-nothing", replies=(Reply(nonsense="empty"),), asked=1, says="empty answer"),
    Case(who="wrong-role", replies=(Reply(text="I am you.", nonsense="wrong_role"),), asked=1, says="I am you."),
    Case(
        who="endless",
        replies=(Reply(text="And so on. " * PIECES, chunks=8, nonsense="endless"),),
        asked=1,
        says="longer than",
    ),
    Case(who="web-page", replies=(Reply(nonsense="html"),), asked=1, says="base_url"),
    Case(who="plain-text", replies=(Reply(raw="Hello!", content_type="text/plain"),), asked=1, says="base_url"),
    Case(who="image", replies=(Reply(raw="\x89PNG", content_type="image/png"),), asked=1, says="base_url"),
    Case(who="wrong-type", replies=(Reply(text="Read me.", content_type="text/plain"),), asked=1, says="Read me."),
    Case(who="no-calls", replies=(Reply(finish="tool_calls"),), asked=2),
    Case(who="no-end", replies=(Reply(text="So", finish="", calls=(COMMAND,)),), asked=2),
    Case(who="too-short", replies=(Reply(calls=(COMMAND,), finish="length"),), asked=1, says="nothing was run"),
    Case(who="expired-key", replies=(Reply(status=401, error="Expired"),), asked=1, says="[model] api_key"),
]


async def test_answers_that_make_no_sense(tmp_path: Path) -> None:
    """The model is told what is wrong with its calls, the person what is wrong with the server; nothing of it runs."""
    people = await tried_out(F13, tmp_path)
    figure("F13", "crashes", people.daemon.lives - 1, 0, of=len(F13))
    figure("F13", "executions", len(lines_of(people.daemon.state, RAN)), 0, of=len(F13))
    for case in F13:
        check(case, people)
    (endless,) = people.asked("endless")
    assert endless.ended == "left"


async def test_too_long_for_the_model(tmp_path: Path) -> None:
    """The window shrinks once and the answer comes; when that does not help, the cure is named."""
    too_long = Reply(status=400, code="context_length_exceeded", error="maximum context length is 10 tokens")
    rules = [
        Rule(system="keep the memory", reply=Reply(text="It is about numbers.")),
        once(too_long, text="^bob: 4"),
        Rule(text="^eve: 4", reply=too_long),
        Rule(reply=WHOLE),
    ]
    async with crowd(tmp_path, ["bob", "eve"], rules) as people:
        await people.start()

        async def live(who: str) -> None:
            for n in range(1, 5):
                await people.say(who, f"{n}")
                await people.see(who, count=n)

        await side_by_side(people.people, live)
        assert people.answers("bob") == [WHOLE.text] * 4
        assert "/new" in people.answers("eve")[-1]
        long = {who: bodies_about(people, f"{who}: 4") for who in people.people}
        asked = [len(one) for one in long.values()]
        figure("F13", "most questions of a turn that is too long for the model", max(asked), 3)
        assert asked == [2, 3]
        for bodies in long.values():
            sizes = [len(one["messages"]) for one in bodies]
            assert sizes == sorted(set(sizes), reverse=True)  # each shorter than the one before
        await people.say("eve", "5")
        await people.see("eve", WHOLE.text, count=4)
        await until_quiet(people.daemon)
        assert await people.is_ready()


def last_words(body: dict[str, Any]) -> str:
    """The last message of a question."""
    return str(body["messages"][-1]["content"])


def bodies_about(people: Crowd, words: str) -> list[dict[str, Any]]:
    """The questions that end with these words."""
    return [one.body for one in people.model.requests if last_words(one.body) == words]


async def test_a_fallback_steps_in(tmp_path: Path) -> None:
    """The chat says who answered; who failed rests; when both fail, it says so of each, and the next message works."""
    broken = Reply(text="Half of an ans", chunks=4, cut_after=4)
    rules = [
        once(broken, model="first"),
        Rule(model="second", text="1$", reply=Reply(text="Second here.")),
        Rule(model="second", text="2$", reply=Reply(text="Still second.")),
        Rule(model="second", text="3$", reply=Reply(status=401, error="gone")),
        Rule(model="first", reply=WHOLE),
    ]
    async with crowd(tmp_path, ["ann"], rules, fallback=True) as people:
        await people.start()
        said: list[str] = []
        for n in range(1, 5):
            await people.say("ann", f"{n}")
            said.append((await people.see("ann", count=n)).text)
        asked = [one.body["model"] for one in people.asked("ann")]
        assert asked == ["first", "second", "second", "second", "first"]
        assert said[0].startswith("Second here.")
        assert "second answered: first failed" in said[0]
        assert "second answered: first rests" in said[1]
        assert "first (rests: " in said[2]
        assert "api_key" in said[2]
        assert said[3] == WHOLE.text
        assert not any("Half" in text for text in said)
        notes = [one for one in people.asked("ann") if "answered: first" in str(one.body["messages"])]
        assert notes == []


# --- what people do meanwhile ---------------------------------------------------------------------

SLOWLY = Reply(text="This takes a while. " * 4, chunks=16, delay_s=0.1)
SLEEP = "sleep 31.4159"
MEANWHILE = [
    once(SLOWLY, text="^stream: go"),
    once(SLOWLY.model_copy(update={"calls": (peek("it"),)}), text="^calls: go"),
    once(Reply(calls=(shell("sleep 1.5; echo x >> tool"),)), text="^tool: go", results=0),
    once(SLOWLY.model_copy(update={"stall_after": 5}), text="^stop-stream: go"),
    once(Reply(calls=(shell(f"{SLEEP}1 && echo x >> stop-tool"), shell("echo x >> stop-tool"))), text="^stop-tool: go"),
    once(SLOWLY.model_copy(update={"stall_after": 5}), text="^cut-stream: go"),
    once(Reply(calls=(shell(f"{SLEEP}2 && echo x >> cut-tool"),)), text="^cut-tool: go", results=0),
    Rule(reply=Reply(text="You said: {text}")),
]


async def test_a_message_meanwhile_steers(tmp_path: Path) -> None:
    """Said while an answer streams, or while a tool runs: the model reads it at its next step.

    Where nothing but the answer was left, that stands, and the message is answered next in the same turn.
    """
    wanted = {"stream": ["assistant", "user"], "calls": ["assistant", "tool", "user"]}
    wanted["tool"] = wanted["calls"]
    async with crowd(tmp_path, list(wanted), MEANWHILE) as people:
        await people.start()

        async def live(who: str) -> None:
            await people.say(who, "go")
            asked = await people.until_asked(who)
            await asyncio.sleep(0.5)
            if who != "tool":
                assert asked.ended == "open"
            await people.say(who, "and quickly")
            await people.see(who, f"You said: {who}: and quickly")

        await side_by_side(people.people, live)
        await until_quiet(people.daemon)
        assert await people.daemon.stop() == 0
        for who, roles in wanted.items():
            first, second = people.asked(who)
            assert [one["role"] for one in second.body["messages"]][len(first.body["messages"]) :] == roles
            turns = [one for one in await stored(people.daemon.state, f"main:{who}") if isinstance(one, Turn)]
            assert [turn.state for turn in turns] == [TurnState.DONE]
        first, second = people.answers("stream")
        assert (first.startswith("This takes a while."), second) == (True, "You said: stream: and quickly")
        assert len(lines_of(people.daemon.state, "tool")) == 1


async def in_the_middle(people: Crowd, who: str) -> str:
    """Say go; return when the model streams, or its call runs: the command of that then."""
    await people.say(who, "go")
    await people.until_asked(who)
    if "tool" not in who:
        await asyncio.sleep(0.8)
        return ""
    command = f"{SLEEP}{1 if who == 'stop-tool' else 2}"
    await until(lambda: marked(command), 15)
    return command


async def ended_s(people: Crowd, who: str, command: str, since: float) -> float:
    """Wait until what runs has ended; return how long that took."""
    await until(lambda: not marked(command) if command else people.asked(who)[0].ended == "left", 10)
    return time.monotonic() - since


@pytest.mark.by_the_clock
async def test_stop_ends_a_stream_and_a_call(tmp_path: Path) -> None:
    """Within a second, and nothing runs or is asked afterwards."""
    took: dict[str, float] = {}
    async with crowd(tmp_path, ["stop-stream", "stop-tool"], MEANWHILE) as people:
        await people.start()

        async def live(who: str) -> None:
            command = await in_the_middle(people, who)
            since = time.monotonic()
            await people.post(who, "/stop")
            took[who] = await ended_s(people, who, command, since)
            await people.platform.see(people.chat(who), "reply", "Stopped.")

        await side_by_side(people.people, live)
        await until_quiet(people.daemon)
        await asyncio.sleep(0.5)
        assert [len(people.asked(who)) for who in people.people] == [1, 1]
        assert await people.daemon.stop() == 0
        figure("F27", "from /stop to the end of a stream", took["stop-stream"], STOPPED_WITHIN_S, "s")
        figure("F27", "from /stop to the end of a command", took["stop-tool"], STOPPED_WITHIN_S, "s")
        assert lines_of(people.daemon.state, "stop-tool") == []
        for who in people.people:
            items = await stored(people.daemon.state, f"main:{who}")
            assert [turn.state for turn in items if isinstance(turn, Turn)] == [TurnState.STOPPED]
            assert all("Stopped." not in answer for answer in people.answers(who))  # the reply says it


async def test_a_message_interrupts_where_it_is_set(tmp_path: Path) -> None:
    """The running turn is stopped within a second, and the message begins its own turn."""
    took: dict[str, float] = {}
    async with crowd(tmp_path, ["cut-stream", "cut-tool"], MEANWHILE, running="interrupt") as people:
        await people.start()

        async def live(who: str) -> None:
            command = await in_the_middle(people, who)
            since = time.monotonic()
            await people.post(who, f"{who}: something else")
            took[who] = await ended_s(people, who, command, since)
            await people.see(who, f"You said: {who}: something else")

        await side_by_side(people.people, live)
        await until_quiet(people.daemon)
        assert await people.daemon.stop() == 0
        slowest_s = max(took.values())
        figure("F27", "from a message that interrupts to the end of what ran", slowest_s, STOPPED_WITHIN_S, "s")
        assert lines_of(people.daemon.state, "cut-tool") == []
        for who in people.people:
            items = await stored(people.daemon.state, f"main:{who}")
            turns = [turn.state for turn in items if isinstance(turn, Turn)]
            assert turns == [TurnState.STOPPED, TurnState.DONE]
            assert any(isinstance(item, Slot) and "Interrupted." in item.text for item in items)
