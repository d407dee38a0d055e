"""Reasons that people type after pressing 'Deny with reason': who is expected to type one, and which messages are one.

Used by ingress, before a message becomes a turn.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.approvals import Approvals, is_shown_by
from gateway.domain.ids import Handle, Principal, SlotId, WaitId
from gateway.domain.messages import NEXT_PART_WITHIN, Conversation, Inbound, Press
from gateway.domain.waits import TOO_LATE, Pressed, PressResult, PressVerdict, Wait, WaitState
from gateway.ports import Clock, KeyValue, Queries

REASON_WITHIN = timedelta(hours=1)
"""Time to reply to the card after a press on "Deny with reason"."""


class TypedReasons:
    """Expected typed reasons, in the key-value store. Reasons that the platform cut off are in memory only."""

    def __init__(self, *, queries: Queries, key_value: KeyValue, approvals: Approvals, clock: Clock) -> None:
        """Take the stores, and the approvals that authorize a denial."""
        self._queries = queries
        self._key_value = key_value
        self._approvals = approvals
        self._clock = clock
        self._cut_reasons: dict[tuple[Conversation, Principal], tuple[str, datetime]] = {}

    async def expect(self, press: Press, wait: WaitId) -> None:
        """Expect a reason of this person, in this conversation, for this wait, for an hour.

        The last wait of a card counts.
        """
        for card in await self._queries.card_slots(wait):
            if card.conversation == press.conversation:
                await self._store(press.conversation, card.id, press.principal, wait)

    async def wait_denied_by(self, message: Inbound) -> Wait | None:
        """Return the open wait that this reply denies, or None.

        The author must have pressed "Deny with reason" on the very card that the message replies to.
        """
        expected = await self._expected(message)
        for wait in expected.values():
            for card in await self._queries.card_slots(wait):
                if is_shown_by(card, message.conversation, message.reply_to):
                    return await self._undecided(message, expected.get(card.id, wait))
        return None

    async def _undecided(self, message: Inbound, wait: WaitId) -> Wait | None:
        found = await self._queries.wait(wait)
        if found is None or (found.state is WaitState.OPEN and found.expires_at > self._clock.now()):
            return found
        await self._stop_expecting(message, wait)  # decided meanwhile, on the page for instance
        return None

    async def denial(self, message: Inbound, wait: Wait) -> tuple[Press, PressVerdict]:
        """Return this text as the press of a denial, and its verdict. Text is never consent."""
        session = await self._queries.session(wait.session)
        nobody = PressVerdict(refusal=PressResult.NOT_VALID)
        verdict = self._approvals.denial(wait, message.principal, session) if session else nobody
        press = Press(
            event_key=message.event_key,
            conversation=message.conversation,
            principal=message.principal,
            handle=Handle(""),
            reason=message.text.strip(),
        )
        return press, replace(verdict, written=True)

    async def record(self, message: Inbound, wait: WaitId, pressed: Pressed) -> None:
        """Stop expecting a reason once the wait is decided; if the platform cut it off, expect the rest.

        A text that came too late is not a reason, nor is its rest.
        """
        if pressed.wait is None or pressed.wait.state is not WaitState.OPEN:
            await self._stop_expecting(message, wait)
        if message.cut and pressed.result not in TOO_LATE:
            self._expect_rest(message)

    async def _stop_expecting(self, message: Inbound, wait: WaitId) -> None:
        """Treat this person's replies to the cards of the wait as messages again."""
        for card, about in (await self._expected(message)).items():
            if about == wait:
                await self._store(message.conversation, card, message.principal, "")

    async def _expected(self, message: Inbound) -> dict[SlotId, WaitId]:
        """Return the waits for which the author's reason is expected here, by card."""
        stored = await self._key_value.items(_namespace(message.conversation))
        found = [(*key.partition(" "), wait) for key, wait in stored.items()]
        return {SlotId(card): WaitId(wait) for card, _, who, wait in found if wait and who == message.principal}

    async def _store(self, conversation: Conversation, card: SlotId, who: Principal, wait: str) -> None:
        await self._key_value.put(_namespace(conversation), f"{card} {who}", wait, REASON_WITHIN)

    def _expect_rest(self, message: Inbound) -> None:
        """Expect the rest of a reason. In memory only: after a restart the rest is taken as a message."""
        until = self._clock.now() + NEXT_PART_WITHIN
        self._cut_reasons[message.conversation, message.principal] = (message.event_key, until)

    def is_rest(self, message: Inbound) -> bool:
        """Return whether this is the rest of a cut-off reason, which the agent must not take for a request.

        Changes state: expects a further part if this one was cut too.
        """
        last, until = self._cut_reasons.pop((message.conversation, message.principal), ("", None))
        if until is None or until <= self._clock.now() or message.reply_to or message.follows not in ("", last):
            return False
        if message.cut:
            self._expect_rest(message)
        return True


def _namespace(conversation: Conversation) -> str:
    """Return the namespace of the reasons that are expected in a conversation."""
    return f"reasons/{conversation.key}"
