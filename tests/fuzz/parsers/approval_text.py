"""Text of an action on its card, and button tokens: shown exactly, and nothing forged."""

from __future__ import annotations

from gateway.approvals import action, button_token
from gateway.approvals.action import render
from gateway.approvals.button_token import ButtonTokens, wait_of
from gateway.domain.ids import Handle, WaitId
from gateway.domain.waits import Verb
from tests.fuzz import givens
from tests.support.rendered import unrender

READS = (action, button_token)
WORDS = (
    "⏎".encode(),
    "␠×9;".encode(),
    "⏎×3;\n".encode(),
    b"\\u{41}",
    b"\\",
    b" " * 12,
    b"\n\n\n",
    b"w0123456789abcdef.",
)
HANDLES = ButtonTokens(b"k" * 32)
WAIT = WaitId("w0123456789abcdef")
CARD = "s0123456789abcdef"


def target(data: bytes) -> None:
    text = givens.text(data)
    shown = render(text)
    assert unrender(shown) == text, "what is shown is not what is asked"
    assert all(" " <= char <= "~" or char in "\n⏎␠×" for char in shown)
    assert "         " not in shown, "something can be pushed out of sight"
    handle = Handle(text)
    found = wait_of(handle)
    assert found is None or text.startswith(f"{found}.")
    said = HANDLES.verb(handle, WAIT, [CARD])
    assert said is None or handle in {HANDLES.make(WAIT, CARD, verb) for verb in Verb}
