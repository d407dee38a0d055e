"""Columns of each kind of row, once for the stores on SQLite and Redis: their order, and how a value is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, TypeVar

from gateway.domain.grants import Grant
from gateway.domain.messages import Attachment, Conversation
from gateway.domain.slots import shown_when_stored
from gateway.store.codec import (
    ANSWER,
    APPROVAL,
    ATTACHMENTS,
    BROUGHT,
    CALL,
    HOOK_OUTCOME,
    KEPT_FILE,
    LINEAGE,
    POST,
    RESULT,
    dump_conversation,
    dump_json,
    dump_message_ids,
    to_us,
)
from gateway.store.kernel.rows import MessageRow, SessionRow, SlotRow, StepRow, TurnRow, WaitRow

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: where its value stands in a row, and its stored form."""

    name: str
    path: str
    """Attributes from the row to the value, such as `turn.state`."""
    encode: Callable[[Any], Any] | None = None
    """Stored form of a value that is not None."""
    fixed: bool = False
    """True when the value never changes after the row was made."""


class RowColumns(Generic[R]):
    """The columns of one kind of row."""

    def __init__(self, name: str, key: str, columns: Sequence[Column]) -> None:
        """Take the name of the kind, the column that identifies a row, and all columns."""
        self.name, self.key = name, key
        self.columns = tuple(columns)
        self.names = tuple(one.name for one in columns)
        self._all = attrgetter(*(one.path for one in columns))
        self._encoders = [(at, one.encode) for at, one in enumerate(columns) if one.encode is not None]

    def values(self, row: R) -> list[Any]:
        """Return the stored form of all columns of a row, in their order."""
        values = list(self._all(row))
        for at, encode in self._encoders:
            if values[at] is not None:
                values[at] = encode(values[at])
        return values


def _time(moment: datetime) -> int:
    return to_us(moment)


def _attachments(attachments: tuple[Attachment, ...]) -> str | None:
    return ATTACHMENTS.dump(attachments) if attachments else None


def _is_kept(conversation: Conversation) -> int:
    return int(shown_when_stored(conversation))


def _ids(ids: tuple[str, ...]) -> str:
    return dump_json(list(ids))


SESSIONS = RowColumns[SessionRow](
    "sessions",
    "id",
    (
        Column("id", "session.id", fixed=True),
        Column("kind", "session.kind._value_", fixed=True),
        Column("origin", "session.origin._value_", fixed=True),
        Column("owner", "session.owner", fixed=True),
        Column("title", "session.title"),
        Column("epoch", "session.epoch"),
        Column("root_kind", "session.root_kind._value_", fixed=True),
        Column("tools", "session.tools", _ids),
        Column("created_at", "session.created_at", _time, fixed=True),
        Column("active_at", "session.active_at", _time),
        Column("lineage", "session.lineage", LINEAGE.dump),
        Column("preset", "session.preset"),
        Column("preset_before", "session.preset_before"),
        Column("presets_above", "session.presets_above", _ids),
        Column("tools_off", "session.tools_off", _ids),
        Column("summary", "session.summary"),
        Column("context", "context", _ids),
        Column("summary_rev", "summary_rev"),
        Column("parent", "session.lineage", lambda lineage: lineage.parent, fixed=True),
        Column("root", "session.lineage", lambda lineage: lineage.root, fixed=True),
        Column("task_turn", "task"),
        Column("parent_wait", "parent_wait"),
        Column("live", "live", int),
        Column("homes", "homes", _ids),
    ),
)
TURNS = RowColumns[TurnRow](
    "turns",
    "ord",
    (
        Column("ord", "ord", fixed=True),
        Column("id", "turn.id", fixed=True),
        Column("session", "turn.session", fixed=True),
        Column("epoch", "turn.epoch"),
        Column("kind", "turn.kind._value_", fixed=True),
        Column("state", "turn.state._value_"),
        Column("conversation", "turn.conversation", dump_conversation, fixed=True),
        Column("principal", "turn.principal", fixed=True),
        Column("created_at", "turn.created_at", _time, fixed=True),
        Column("started_at", "turn.started_at", _time),
        Column("ended_at", "turn.ended_at", _time),
        Column("active_ms", "turn.active_ms"),
        Column("stopped_text", "stopped_text"),
        Column("rev", "rev"),
        Column("queued_at", "queued_at", _time),
        Column("queued_rev", "queued_rev"),
        Column("head", "head", int),
        Column("node", "node"),
        Column("fence", "fence"),
        Column("lease_until", "lease_until", _time),
        Column("held_since", "held_since", _time),
        Column("gathers_until", "gathers_until", _time),
        Column("ended_rev", "ended_rev"),
        Column("given_by", "given_by"),
        Column("given_n", "given_n"),
        Column("hops", "hops"),
        Column("home", "home"),
    ),
)
MESSAGES = RowColumns[MessageRow](
    "messages",
    "ord",
    (
        Column("ord", "ord", fixed=True),
        Column("id", "received.id", fixed=True),
        Column("turn", "received.turn"),
        Column("given", "received.given"),
        Column("received_at", "received.received_at", _time, fixed=True),
        Column("event_key", "received.message.event_key", fixed=True),
        Column("conversation", "received.message.conversation", dump_conversation, fixed=True),
        Column("principal", "received.message.principal", fixed=True),
        Column("name", "received.message.name", fixed=True),
        Column("direct", "received.message.direct", int, fixed=True),
        Column("addressed", "received.message.addressed", int, fixed=True),
        Column("text", "received.message.text"),
        Column("sent_at", "received.message.sent_at", _time, fixed=True),
        Column("quoted", "received.message.quoted", fixed=True),
        Column("reply_to", "received.message.reply_to", fixed=True),
        Column("unread", "received.message.unread", fixed=True),
        Column("cut", "received.message.cut", int, fixed=True),
        Column("context", "received.context", int),
        Column("continues", "received.continues", int),
        Column("attachments", "received.message.attachments", _attachments, fixed=True),
        Column("files", "received.files", BROUGHT.dump),
        Column("session", "session", fixed=True),
        Column("rev", "rev"),
    ),
)
STEPS = RowColumns[StepRow](
    "steps",
    "ord",
    (
        Column("ord", "ord", fixed=True),
        Column("turn", "step.turn", fixed=True),
        Column("n", "step.n", fixed=True),
        Column("kind", "step.kind._value_", fixed=True),
        Column("state", "step.state._value_"),
        Column("answer", "step.answer", ANSWER.dump, fixed=True),
        Column("call", "step.call", CALL.dump, fixed=True),
        Column("answer_n", "step.answer_n", fixed=True),
        Column("result", "step.result", RESULT.dump),
        Column("asked_anew", "step.asked_anew", int),
        Column("started_at", "step.started_at", _time),
        Column("ended_at", "step.ended_at", _time),
        Column("hook_outcome", "step.hook_outcome", HOOK_OUTCOME.dump),
        Column("session", "session", fixed=True),
        Column("rev", "rev"),
        Column("fence", "fence"),
        Column("audit", "audit"),
    ),
)
WAITS = RowColumns[WaitRow](
    "waits",
    "ord",
    (
        Column("ord", "ord", fixed=True),
        Column("id", "wait.id", fixed=True),
        Column("kind", "wait.kind._value_", fixed=True),
        Column("session", "wait.session", fixed=True),
        Column("turn", "wait.turn", fixed=True),
        Column("n", "wait.n", fixed=True),
        Column("state", "wait.state._value_"),
        Column("approval", "wait.approval", APPROVAL.dump, fixed=True),
        Column("payload", "wait.payload", dump_json),
        Column("opened_at", "wait.opened_at", _time, fixed=True),
        Column("expires_at", "wait.expires_at", _time),
        Column("decided_by", "wait.decided_by"),
        Column("decided_at", "wait.decided_at", _time),
        Column("reason", "wait.reason"),
        Column("rev", "rev"),
    ),
)
GRANTS = RowColumns[Grant](
    "grants",
    "id",
    (
        Column("id", "id", fixed=True),
        Column("tool", "tool"),
        Column("kind", "kind._value_"),
        Column("matches", "matches", _ids),
        Column("risk", "risk._value_"),
        Column("place", "place._value_"),
        Column("session", "session"),
        Column("epoch", "epoch"),
        Column("root_kind", "root_kind._value_"),
        Column("conversation", "conversation", dump_conversation),
        Column("principal", "principal"),
        Column("shown", "shown"),
        Column("wait", "wait"),
        Column("granted_by", "granted_by"),
        Column("quorum", "quorum"),
        Column("by_another", "by_another", int),
        Column("granted_at", "granted_at", _time),
        Column("expires_at", "expires_at", _time),
        Column("used", "used"),
        Column("last_used_at", "last_used_at", _time),
        Column("revoked_at", "revoked_at", _time),
        Column("revoked_by", "revoked_by"),
        Column("expired", "expired", int),
        Column("held_by", "held_by"),
        Column("ended", "ended", int),
    ),
)
SLOTS = RowColumns[SlotRow](
    "slots",
    "seq",
    (
        Column("seq", "seq", fixed=True),
        Column("id", "slot.id", fixed=True),
        Column("conversation", "slot.conversation", dump_conversation, fixed=True),
        Column("session", "slot.session", fixed=True),
        Column("turn", "slot.turn", fixed=True),
        Column("n", "slot.n"),
        Column("kind", "slot.kind._value_", fixed=True),
        Column("text", "slot.text"),
        Column("waits", "slot.waits", _ids, fixed=True),
        Column("version", "slot.version"),
        Column("sent_version", "slot.sent_version"),
        Column("platform_id", "slot.message_ids", dump_message_ids),
        Column("state", "slot.state._value_"),
        Column("attempts", "slot.attempts"),
        Column("uncertain", "slot.uncertain", int),
        Column("due_at", "slot.due_at", _time),
        Column("created_at", "slot.created_at", _time, fixed=True),
        Column("file", "slot.file", KEPT_FILE.dump, fixed=True),
        Column("once_more", "slot.once_more", int),
        Column("fence", "slot.fence"),
        Column("post", "slot.post", POST.dump),
        Column("ord", "ord", fixed=True),
        Column("rev", "rev"),
        Column("channel", "slot.conversation.channel", fixed=True),
        Column("kept", "slot.conversation", _is_kept, fixed=True),
        Column("early", "early", int),
        Column("node", "node"),
        Column("sending_since", "sending_since", _time),
        Column("shown_by", "shown_by"),
        Column("again_at", "again_at", _time),
        Column("again_over", "again_over"),
        Column("why_dead", "why_dead"),
    ),
)
