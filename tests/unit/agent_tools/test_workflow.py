"""The tool `workflow`: its arguments, the graph in words, and refusals before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_tools import workflow
from gateway.domain.tools import Availability, Effect, Risk
from gateway.toolcalls.arguments import InvalidArguments, ModelArguments


def step(name: str, *needs: str, task: str = "Do it.") -> dict[str, Any]:
    return {"name": name, "task": task, "needs": list(needs)}


WRONG: dict[str, tuple[list[dict[str, Any]], str]] = {
    "circle": ([step("a", "c"), step("b", "a"), step("c", "b")], "in a circle: "),
    "circle of one": ([step("a", "a")], "a needs a. Take out one"),
    "missing need": ([step("a", "b")], "needs 'b', which is no step. Add it"),
    "missing input": ([step("a"), step("b", task="Read {{ a }}.")], "has {{a}}. Add 'a' to its needs"),
    "unknown input": ([step("b", task="Read {{x}}.")], "has {{x}}"),
    "same name": ([step("a"), step("a")], "Two steps are called 'a'. Give each its own name"),
    "500 steps": ([step(f"s{n}") for n in range(500)], "1 to 50 steps, and this has 500. Split or merge"),
    "no step": ([], "1 to 50 steps"),
    "empty task": ([step("a", task=" \n")], "task of the step 'a' is empty. Say what"),
    "strange name": ([step("a b")], "The name 'a b' is not valid. Use"),
    "long tasks": ([step(name, task="x" * 20_000) for name in "ab"], "40,000 characters, and 32,768 is the limit"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_graph_is_refused_with_the_cure(case: str) -> None:
    steps, why = WRONG[case]
    with pytest.raises(InvalidArguments) as refused:
        ModelArguments(workflow.Args).parse(json.dumps({"steps": steps}))
    assert why in str(refused.value)


def test_circle_names_its_steps() -> None:
    with pytest.raises(InvalidArguments, match=r"needs c needs b|needs a needs c|needs b needs a"):
        ModelArguments(workflow.Args).parse(json.dumps({"steps": WRONG["circle"][0]}))


def test_card_says_the_graph_in_words() -> None:
    steps = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c", task="Join {{b}} and {{c}}.")]
    args = ModelArguments(workflow.Args).parse(json.dumps({"steps": steps}))
    assert isinstance(args, workflow.Args)
    found = workflow.scope(args, None)
    assert found.summary == "4 sub-sessions: a; b after a; c after a; d after b, c"
    assert found.risk is Risk.EXECUTE


def test_workflow_is_for_owners_and_may_be_repeated() -> None:
    spec = workflow.SPEC
    assert (spec.availability, spec.risk, spec.effect) == (Availability.MAIN, Risk.EXECUTE, Effect.IDEMPOTENT)
    assert spec.of_children
