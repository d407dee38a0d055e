"""Work that a script can cause: the largest ones are decided in time, and the parser is imported when it is needed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from gateway.domain.rules import Rule, Verdict
from gateway.policy.rules import evaluate
from gateway.policy.shell import parse, read_only


@pytest.mark.parametrize(
    "script",
    [
        "a@" * 200 + "x" * 30_000, ")" * 15_000, ")" * 1_900, "a|" * 990, "a@" * 990, "a=(" * 660, "@x" * 990,
        f"cat <<E\n{'f(x)[0] = {1: 2}' * 3_000}\nE",
        "a|" * 32_000, "a " * 32_000, "$(" * 32_000, "(" * 65_000, "'" * 65_001, "a\n" * 32_000, "<<a " * 16_000,
        "a=(" * 20_000, "a[" * 400 + "x " * 20_000, "{" * 60_000, "a['" * 20_000, '\\"' * 30_000, "$'" * 30_000,
        f"cat {'*' * 60_000}", f"sed '{' ' * 490}x' a", f"sed '{'1' * 490}x' a", f"cat {'a/' * 30_000}b/..*",
        f"a {'x.y ' * 900}", "(" * 390 + "x " * 20_000, "f(){ " * 199 + "x " * 20_000, "; ;" * 330 + "x " * 20_000,
        f"a {'{' * 390}{',' * 50_000}", f"a '{chr(92) * 60_000}$", "a" * 65_000 + "*",
        f"cat {'[' * 390}{'x' * 60_000}]",
    ],
    ids=range(33),
)  # fmt: skip
def test_a_large_script_is_read_in_time(script: str) -> None:
    began = time.process_time()
    found = parse(script)
    for pattern, decision in (("rm *", Verdict.DENY), ("*a*b*/x", Verdict.ASK), ("*", Verdict.ALLOW)):
        rule = Rule(tool="shell", pattern=pattern, decision=decision, kinds=frozenset({"main"}))
        evaluate([rule], [f"command:{script}"], "main")
    assert time.process_time() - began < 1
    assert not read_only(found)


def test_the_parser_is_imported_when_it_is_needed() -> None:
    script = (
        "import sys, gateway.app, gateway.policy.permission\n"
        "assert not [one for one in sys.modules if one.startswith('tree_sitter')]\n"
        "from gateway.policy.shell import parse\n"
        "parse('ls')\n"
        "assert 'tree_sitter_bash' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
