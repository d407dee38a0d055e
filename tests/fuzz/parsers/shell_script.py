"""Parser of shell scripts, and what is decided by it: doubt is a reason to ask, and a reader changes nothing."""

from __future__ import annotations

from gateway.domain.rules import Rule, Verdict
from gateway.policy import rules
from gateway.policy.rules import evaluate
from gateway.policy.shell import (
    LINES_AT_MOST,
    PartKind,
    WorkingFolder,
    characters,
    lexing,
    parse,
    parsing,
    part_verdicts,
    places,
    read_only,
    reading,
    rule_for_always,
    unwrapping,
)
from tests.fuzz import givens

READS = (parsing, lexing, characters, unwrapping, places, reading, rules)
WORDS = (
    *(b"ls ", b"rm x", b"git ", b"cat .env", b"sudo ", b"env A=1 ", b"xargs ", b"bash -c '", b"find . -exec ", b"\\;"),
    *(
        b"; ",
        b" && ",
        b" | ",
        b" > out",
        b" < in",
        b" 2>&1",
        b"$(",
        b")",
        b"`",
        b"<(",
        b"${a}",
        b"$((",
        b"{a,b}",
        b"~/",
    ),
    *(b"if ", b"; then ", b"; fi", b"for x in ", b"; do ", b"; done", b"case x in ", b"f() { ", b"; }", b"[[ ", b" ]]"),
    *(b"<<E\n", b"\nE\n", b"'", b'"', b"$'", b"\\\n", b"#", b"*", b"?", b"=", b"cd ..", b"sed -n 's/a/b/w x'"),
)
KINDS = frozenset({"main"})
DENIED = Rule(tool="shell", pattern="*", decision=Verdict.DENY, kinds=KINDS)
ALLOWED = Rule(tool="shell", pattern="*", decision=Verdict.ALLOW, kinds=KINDS)
HARMLESS = {PartKind.COMMAND, PartKind.READ, PartKind.ASSIGNMENT}


def target(data: bytes) -> None:
    text = givens.text(data)
    script = parse(text)
    assert len(part_verdicts(script)) <= LINES_AT_MOST
    assert rule_for_always(script) in (None, (text.strip(),))
    for place in (WorkingFolder(), WorkingFolder(workspace="/w", folder="a")):
        if read_only(script, place):
            assert not script.why_ask
            assert script.plain
            assert {part.kind for part in script.parts} <= HARMLESS
    found = evaluate([ALLOWED, DENIED], [f"command:{text}"], "main")
    assert found is not None
    assert found.decision is Verdict.DENY
    allowed = evaluate([ALLOWED], [f"command:{text}"], "main")
    assert allowed is None or not script.why_ask
