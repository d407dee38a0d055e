"""Table of decisions: rules of every layer, kinds of session and scopes of calls, a letter each.

`a` is allow, `k` ask, `d` deny. A group of four letters is one kind of session. Its calls write, in this order, a file
that the rules are about (`src/a.py`), another one, both, and nothing that they name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from gateway.domain.decisions import Allow, Ask, Decision, Deny
from gateway.domain.presets import Ceiling, Preset
from gateway.domain.rules import Layer, Rule, Verdict
from gateway.domain.sessions import Session, SessionKind
from gateway.domain.tools import ApprovalMode, Availability, CallScope, Effect, Risk, ToolPolicy, ToolSpec
from gateway.policy.permission import decide, withheld
from tests.unit.gateway.policy.test_permission import session

KINDS = {
    "main": session(SessionKind.MAIN),
    "dm": session(SessionKind.DM),
    "group": session(SessionKind.NON_MAIN),
    "child": session(SessionKind.NON_MAIN, root=SessionKind.MAIN, tools=("edit",)),
}
SCOPES: Sequence[tuple[str, ...]] = (
    ("path:src/a.py",), ("path:doc/b.md",), ("path:src/a.py", "path:doc/b.md"), (),
)  # fmt: skip
LETTERS = {Allow: "a", Ask: "k", Deny: "d"}
READING = frozenset({Risk.NONE, Risk.READ})

RULES = """
# What stands in the layers. `+` joins; `!` is a locked deny; `*` in place of the pattern `src/*`.
                                              main dm   group child
nothing                                       kkkk kkkk kkkk kkkk
configuration:allow                           akkk akkk akkk akkk
configuration:ask                             kkkk kkkk kkkk kkkk
configuration:deny                            dkdk dkdk dkdk dkdk
configuration:!                               dkdk dkdk dkdk dkdk
preset:allow                                  akkk akkk akkk akkk
preset:ask                                    kkkk kkkk kkkk kkkk
preset:deny                                   dkdk dkdk dkdk dkdk
preset:!                                      dkdk dkdk dkdk dkdk
grant:allow                                   akkk akkk akkk akkk
preset:deny + configuration:allow             akkk akkk akkk akkk
preset:allow + configuration:deny             dkdk dkdk dkdk dkdk
preset:allow + configuration:ask              kkkk kkkk kkkk kkkk
preset:ask + configuration:allow              akkk akkk akkk akkk
preset:! + configuration:allow                dkdk dkdk dkdk dkdk
preset:allow + configuration:!                dkdk dkdk dkdk dkdk
preset:! + configuration:ask                  dkdk dkdk dkdk dkdk
preset:! + grant:allow                        dkdk dkdk dkdk dkdk
preset:deny + grant:allow                     dkdk dkdk dkdk dkdk
configuration:deny + grant:allow              dkdk dkdk dkdk dkdk
configuration:! + grant:allow                 dkdk dkdk dkdk dkdk
configuration:ask + grant:allow               akkk akkk akkk akkk
preset:ask + grant:allow                      akkk akkk akkk akkk
preset:! + configuration:allow + grant:allow  dkdk dkdk dkdk dkdk
preset:deny + configuration:ask + grant:allow akkk akkk akkk akkk
configuration:deny* + configuration:allow     addd addd addd addd
configuration:deny*                           dddd dddd dddd dddd
configuration:allow*                          aaaa aaaa aaaa aaaa
configuration:allow* + configuration:deny     dada dada dada dada
configuration:allow* + configuration:ask      kaka kaka kaka kaka
configuration:deny* + grant:allow*            dddd dddd dddd dddd
preset:deny* + configuration:allow            addd addd addd addd
preset:!* + configuration:allow* + grant:allow* dddd dddd dddd dddd
grant:allow*                                  aaaa aaaa aaaa aaaa
preset:deny* + configuration:allow*           aaaa aaaa aaaa aaaa
"""

SETTINGS = """
# Other inputs, with rules after a `+`.
                                              main dm   group child
tool off                                      dddd dddd dddd dddd
tool off + configuration:allow*               dddd dddd dddd dddd
tool off + grant:allow*                       dddd dddd dddd dddd
read only                                     dddd dddd dddd dddd
read only + configuration:allow* + grant:allow* dddd dddd dddd dddd
read only but src                             kddd kddd kddd kddd
read only but src + configuration:allow*      addd addd addd addd
read only but src + grant:allow*              addd addd addd addd
read only but src + preset:deny               dddd dddd dddd dddd
approval deny                                 dddd dddd dddd dddd
approval deny + configuration:allow*          dddd dddd dddd dddd
approval allow                                aaaa aaaa aaaa aaaa
approval allow + configuration:deny           dada dada dada dada
approval allow + preset:ask                   kaka kaka kaka kaka
approval allow + read only but src            addd addd addd addd
approval deny in dm                           kkkk dddd kkkk kkkk
main only                                     kkkk dddd dddd kkkk
not in main                                   dddd kkkk kkkk dddd
blocked                                       dddd dddd dddd dddd
blocked + configuration:allow* + grant:allow* dddd dddd dddd dddd
nobody                                        dddd dddd dddd dddd
nobody + configuration:allow                  addd addd addd addd
nobody + grant:allow                          addd addd addd addd
in main:configuration:allow                   akkk kkkk kkkk akkk
in main:configuration:!                       dkdk kkkk kkkk dkdk
in dm:configuration:deny*                     kkkk dddd kkkk kkkk
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Inputs of a decision, from the words of a line."""

    spec: ToolSpec
    policy: ToolPolicy
    preset: Preset
    granted: tuple[Rule, ...] = ()
    off: tuple[str, ...] = ()
    askable: bool = True


PLAIN = Setup(
    spec=ToolSpec(name="edit", description="", risk=Risk.WRITE, effect=Effect.UNSAFE, availability=Availability.ALWAYS),
    policy=ToolPolicy(availability=Availability.ALWAYS, approval={}, timeout_s=1, actions={}, sandbox=None),
    preset=Preset(name="p"),
)


def cases() -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Yield the words of a line, a kind, a scope and the letter of the decision."""
    for line in (RULES + SETTINGS).splitlines():
        words, *letters = line.rsplit(maxsplit=4) if line and line[0] not in "# " else ("",)
        for kind, group in zip(KINDS, letters, strict=False):
            for scope, letter in zip(SCOPES, group, strict=True):
                yield words.strip(), kind, scope, letter


def setup_of(words: str) -> Setup:
    made = PLAIN
    for word in words.split(" + "):
        made = _with(made, word)
    return made


def _with(made: Setup, word: str) -> Setup:
    if (rule := _rule(word)) is not None:
        return _with_rule(made, rule)
    match word.split():
        case ["tool", "off"]:
            return replace(made, off=("edit",))
        case ["read", "only", *but]:
            ceiling = Ceiling(preset="p", risks=READING, writes=("src/*",) if but else ())
            return replace(made, preset=replace(made.preset, ceilings=(ceiling,)))
        case ["approval", mode, *kind]:
            kinds = [kind[-1]] if kind else [one.value for one in SessionKind]
            return replace(made, policy=replace(made.policy, approval=dict.fromkeys(kinds, ApprovalMode(mode))))
        case ["nobody"]:
            return replace(made, askable=False)
        case _:
            named = {
                "nothing": Availability.ALWAYS,
                "main only": Availability.MAIN,
                "not in main": Availability.NON_MAIN,
                "blocked": Availability.BLOCKED,
            }
            return replace(made, policy=replace(made.policy, availability=named[word]))


def _with_rule(made: Setup, rule: Rule) -> Setup:
    match rule.layer:
        case Layer.PRESET:
            return replace(made, preset=replace(made.preset, rules=(*made.preset.rules, rule)))
        case Layer.GRANT:
            return replace(made, granted=(*made.granted, rule))
        case _:
            return replace(made, policy=replace(made.policy, rules=(*made.policy.rules, rule)))


def _rule(word: str) -> Rule | None:
    kinds = frozenset(kind.value for kind in SessionKind)
    if word.startswith("in "):
        kind, _, word = word.removeprefix("in ").partition(":")
        kinds = frozenset({kind})
    layer, colon, decision = word.partition(":")
    if not colon:
        return None
    locked, all_of_it = decision.startswith("!"), decision.endswith("*")
    verdict = Verdict.DENY if locked else Verdict(decision.rstrip("*"))
    return Rule(
        tool="edit", pattern="*" if all_of_it else "src/*", decision=verdict, kinds=kinds, locked=locked,
        where=word, layer=Layer(layer),
    )  # fmt: skip


def decided(made: Setup, where: Session, scope: Sequence[str]) -> Decision:
    here = replace(where, tools_off=made.off)
    call_scope = CallScope(risk=Risk.WRITE, subjects=tuple(scope))
    return decide(
        made.spec, made.policy, here, call_scope, askable=made.askable, preset=made.preset, granted=made.granted
    )


WORDS = list(dict.fromkeys(words for words, *_ in cases()))
"""The set-ups of the table, a row of tests each."""


@pytest.mark.parametrize("words", WORDS)
def test_decision_by_layer_kind_and_scope(words: str) -> None:
    rows = [(kind, scope, letter) for row, kind, scope, letter in cases() if row == words]
    found = [(kind, scope, decided(setup_of(words), KINDS[kind], scope)) for kind, scope, _ in rows]

    wrong = [one for one, (*_, letter) in zip(found, rows, strict=True) if LETTERS[type(one[2])] != letter]
    assert wrong == []


def test_table_is_large_and_has_each_decision() -> None:
    found = list(cases())

    assert len(found) >= 900
    assert {letter for *_, letter in found} == {"a", "k", "d"}


@pytest.mark.parametrize("kind", list(KINDS))
def test_hidden_tool_is_one_whose_every_call_is_denied(kind: str) -> None:
    """The filter and the decision agree, apart from whether anybody can be asked.

    The filter compares no patterns, so that it may show a tool whose few permitted calls are denied by a rule.
    """
    for words in WORDS:
        made = replace(setup_of(words), askable=True)
        where = replace(KINDS[kind], tools_off=made.off)

        hidden = withheld(made.spec, made.policy, where, made.preset) is not None
        denied = {isinstance(decided(made, where, scope), Deny) for scope in SCOPES}

        assert hidden is (denied == {True} and words != "read only but src + preset:deny"), words


@pytest.mark.parametrize(
    ("risk", "main", "dm", "group"),
    [
        (Risk.NONE, "a", "a", "a"),
        (Risk.READ, "a", "a", "a"),
        (Risk.WRITE, "k", "k", "k"),
        (Risk.EXECUTE, "k", "k", "k"),
        (Risk.NETWORK, "k", "k", "k"),
    ],
)
def test_default_of_the_risk_by_kind(risk: Risk, main: str, dm: str, group: str) -> None:
    """S100 to S105: read runs, the others are asked about."""
    spec = replace(PLAIN.spec, risk=risk)
    for kind, letter in (("main", main), ("dm", dm), ("group", group)):
        found = decide(spec, PLAIN.policy, KINDS[kind], CallScope(risk=risk), askable=True)
        assert LETTERS[type(found)] == letter
