"""Payloads in a store that another program wrote to: read, or refused by an error that names them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from gateway.domain.messages import Conversation
from gateway.store import codec
from gateway.store.codec import (
    ANSWER,
    APPROVAL,
    CALL,
    LINEAGE,
    RESULT,
    Payload,
    dump_conversation,
    dump_json,
    head,
    load_conversation,
    storable,
)
from tests.fuzz import givens

READS = (codec,)
WORDS = (
    *(b"text", b"calls", b"usage", b"opaque", b"arguments", b"status", b"pictures", b"action", b"risk", b"root"),
    *(b"input_tokens", b"duration_ms", b"exit_code", b"requester", b"depth", b"NaN", b"1e400", b"ok", b"parent"),
)
KINDS: tuple[Payload[Any], ...] = (ANSWER, CALL, RESULT, APPROVAL, LINEAGE)


def target(data: bytes) -> None:
    text = givens.text(data)
    for kind in KINDS:
        try:
            found = kind.load(text)
        except ValidationError:
            continue
        written = kind.dump(found)
        assert kind.dump(kind.load(written)) == written, "what was written is read as something else"
    safe = storable(text)
    safe.encode()
    assert storable(safe) == safe
    assert safe == text or not givens.stored(text.replace("\x00", ""))
    assert len(head(text, 100).encode()) <= 100
    assert safe.startswith(head(text, 100))
    dump_json([text, {text[:50]: text}]).encode()
    place = Conversation(channel="slack", account=safe[:20], chat=safe[20:60], thread=safe[60:90])
    assert load_conversation(dump_conversation(place)) == place
