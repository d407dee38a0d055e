"""Program of a contained worker: its parts that need no process. `test_own_tools` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.toolcalls import worker_program
from gateway.toolcalls.worker_program import TextLoader, as_text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        ("", ""),
        (0, "0"),
        ({"é": [1, None]}, '{"é": [1, null]}'),
        (False, "false"),
    ],
)
def test_result_is_text_or_json(result: object, text: str) -> None:
    assert as_text(result) == text


@pytest.mark.parametrize("result", [object(), float("nan"), {1, 2}])
def test_result_that_is_neither_says_what_to_return(result: object) -> None:
    with pytest.raises(TypeError, match=r"^the result is neither text nor JSON: .+; return one of the two$"):
        as_text(result)


def test_loader_gives_the_text_that_was_checked() -> None:
    loader = TextLoader("/tools/a.py", "b = 1")
    module = loader.module("a")
    assert (loader.get_filename("a"), loader.get_source("a")) == ("/tools/a.py", "b = 1")
    assert (module.__name__, module.__file__) == ("a", "/tools/a.py")
    loader.exec_module(module)
    assert module.b == 1


def test_program_sees_no_other_module_of_ours() -> None:
    assert "gateway" not in Path(worker_program.__file__).read_text().replace("`gateway.toolcalls.workers`", "")
