"""Reasons that are given after a press: who was asked for one, and which messages are one instead of a request."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.approvals import Approvals, is_shown_by
from gateway.domain.ids import Handle, Principal, SlotId, WaitId
from gateway.domain.messages import NEXT_PART_WITHIN, Conversation, Inbound, Press
from gateway.domain.waits import TOO_LATE, Pressed, PressResult, PressVerdict, Wait, WaitState
from gateway.ports import Clock, KeyValue, Queries

REASON_WITHIN = timedelta(hours=1)
"""How long a person who pressed "Deny with reason" may take to reply to the card."""


class DenialReasons:
    """Keeps who was asked for a reason, as a note; and, in memory only, whose reason the platform cut off."""

    def __init__(self, *, queries: Queries, key_value: KeyValue, approvals: Approvals, clock: Clock) -> None:
        """Take where that is kept, and what says who may deny."""
        self._queries = queries
        self._key_value = key_value
        self._approvals = approvals
        self._clock = clock
        self._cut_reasons: dict[tuple[Conversation, Principal], tuple[str, datetime]] = {}

    async def expect(self, press: Press, wait: WaitId) -> None:
        """Note that this person is asked why, here, about this wait; for an hour. Of one card, the last wait counts."""
        for card in await self._queries.card_slots(wait):
            if card.conversation == press.conversation:
                await self._note(press.conversation, card.id, press.principal, wait)

    async def asked_why(self, message: Inbound) -> Wait | None:
        """The open wait that this reply denies, if any: who wrote it pressed "Deny with reason" on the very card."""
        asked = await self._asked(message)
        for wait in asked.values():
            for card in await self._queries.card_slots(wait):
                if is_shown_by(card, message.conversation, message.reply_to):
                    return await self._undecided(message, asked.get(card.id, wait))
        return None

    async def _undecided(self, message: Inbound, wait: WaitId) -> Wait | None:
        found = await self._queries.wait(wait)
        if found is None or (found.state is WaitState.OPEN and found.expires_at > self._clock.now()):
            return found
        await self._ask_no_more(message, wait)  # decided meanwhile, on the page for instance
        return None

    async def denial(self, message: Inbound, wait: Wait) -> tuple[Press, PressVerdict]:
        """Say which press this text is, as the reason of a denial, and what that may do. Text is never consent."""
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

    async def took(self, message: Inbound, wait: WaitId, pressed: Pressed) -> None:
        """Ask no more once the wait is decided; of a reason that the platform cut off, expect the rest.

        What came too late is no reason, nor is its rest.
        """
        if pressed.wait is None or pressed.wait.state is not WaitState.OPEN:
            await self._ask_no_more(message, wait)
        if message.cut and pressed.result not in TOO_LATE:
            self._expect_rest(message)

    async def _ask_no_more(self, message: Inbound, wait: WaitId) -> None:
        """What the person replies to its cards from now on is a message again."""
        for card, about in (await self._asked(message)).items():
            if about == wait:
                await self._note(message.conversation, card, message.principal, "")

    async def _asked(self, message: Inbound) -> dict[SlotId, WaitId]:
        """What whoever wrote this is asked about here, by card."""
        notes = await self._key_value.notes(_reasons(message.conversation))
        found = [(*key.partition(" "), wait) for key, wait in notes.items()]
        return {SlotId(card): WaitId(wait) for card, _, who, wait in found if wait and who == message.principal}

    async def _note(self, conversation: Conversation, card: SlotId, who: Principal, wait: str) -> None:
        await self._key_value.note(_reasons(conversation), f"{card} {who}", wait, REASON_WITHIN)

    def _expect_rest(self, message: Inbound) -> None:
        """More of a reason will come. Nothing of it is kept; a restart in between may make it a message."""
        until = self._clock.now() + NEXT_PART_WITHIN
        self._cut_reasons[message.conversation, message.principal] = (message.event_key, until)

    def is_rest(self, message: Inbound) -> bool:
        """Whether it is more of a reason that the platform cut off: the agent must not take that for a request."""
        last, until = self._cut_reasons.pop((message.conversation, message.principal), ("", None))
        if until is None or until <= self._clock.now() or message.reply_to or message.follows not in ("", last):
            return False
        if message.cut:
            self._expect_rest(message)
        return True


def _reasons(conversation: Conversation) -> str:
    """The room of those who were asked for a reason here."""
    return f"reasons/{conversation.key}"
