from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.agent.transcript import NOTICE, message_cache, messages
from gateway.domain.ids import SYSTEM_HOME
from gateway.domain.sessions import SessionKind
from tests.support.makers import inbound
from tests.unit.gateway.agent.test_transcript import MARK, block, of, users, view


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("kind", list(SessionKind))
def test_notice_of_the_gateway_is_no_persons_word(kind: SessionKind, context: bool) -> None:
    """It may have come to a turn, or be kept for the next one; in a main session the owner is not named."""
    told = replace(of(replace(inbound("The files are away.", who=SYSTEM_HOME), name="Dragoman")), context=context)
    found = view([told, of(inbound("next"))], [], kind=kind)
    first, second = users(messages([], found, MARK, message_cache()))
    assert (first.text, first.name, first.data) == ("", "", block(NOTICE, "The files are away."))
    assert (second.text, second.data) == ("next", "")
    assert (first.is_notice, second.is_notice) == (True, False)
    again = users(messages([found], view([], []), MARK, message_cache()))
    assert [one.data for one in again] == [first.data, ""]
