"""Every kept input again, and some new ones of them: what was mended stays mended. With `--large`, ten minutes each."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import line, told
from tests.fuzz.engine import Parser, failure, fuzz
from tests.fuzz.mutation import Mutator
from tests.fuzz.parsers import PARSERS

SEED = 20260101
MUTATIONS = 300
SHORT = 2048
"""Bytes. Longer ones are for `--all`, but for those that are kept."""
LONG_S = 600.0 if os.environ.get("DRAGOMAN_LARGE") == "1" else 0.0
"""Seconds of fuzzing for each parser."""
DEPTHS = range(880, 1001, 6)
"""Python reads JSON about as deep as this, less what it stands in itself; what is read must be written, too."""

each = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


@each
def test_every_kept_input_is_taken(parser: Parser) -> None:
    kept = corpus.read(parser.name)
    assert kept, "a parser without a corpus"
    assert len(kept) <= corpus.KEPT_AT_MOST
    for data in kept:
        _taken(parser, data)


@pytest.mark.timeout(LONG_S + 120)
@each
@pytest.mark.whole("new inputs; the kept ones stay")
def test_mutations_of_the_corpus_are_accepted(parser: Parser) -> None:
    mutator = Mutator(Random(f"{parser.name} {SEED}"), corpus.read(parser.name), parser.words, SHORT)
    for _ in range(MUTATIONS):
        _taken(parser, mutator.made())
    if LONG_S:
        found: list[str] = []
        report = fuzz(parser, LONG_S, SEED, lambda one: found.append(told(parser, one)))
        assert report.held, "\n".join([line(parser.name, report), *found])


@each
def test_json_that_is_nearly_too_deep_is_taken(parser: Parser) -> None:
    random = Random(f"{parser.name} {SEED}")
    known = corpus.read(parser.name)
    mutator = Mutator(random, known, parser.words)
    for depth in DEPTHS:
        _taken(parser, mutator.nested(random.choice(known), depth))


def _taken(parser: Parser, data: bytes) -> None:
    found = failure(parser, data)
    assert found is None, f"{parser.name}: {found.what}\n{found.trace}\n{data[:300]!r}"
