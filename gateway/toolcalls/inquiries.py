"""Questions and task lists of calls. Used by `execution`; `agent_tools` reach them through their context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from gateway.approvals import asking_place
from gateway.domain.ids import WaitId, mint
from gateway.domain.questions import QUESTION_EXPIRY, Inquiry, Question
from gateway.domain.slots import NewSlot, SlotKind
from gateway.domain.task_lists import TaskItem
from gateway.domain.tools import Park, ResultStatus, ToolResult
from gateway.domain.turns import Lease
from gateway.domain.views import TurnView
from gateway.domain.waits import NewWait, WaitKind
from gateway.ports import Inquiries
from gateway.system.redaction import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryService:
    """Service behind the questions and lists of every call."""

    inquiries: Inquiries
    redactor: Redactor
    expiry: timedelta = QUESTION_EXPIRY

    def of(self, view: TurnView, n: int, lease: Lease) -> CallInquiries:
        """Return the questions and the list for step `n` of a turn."""
        return CallInquiries(service=self, view=view, n=n, lease=lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInquiries:
    """`ports.People` of one call."""

    service: InquiryService
    view: TurnView
    n: int
    lease: Lease

    async def ask(self, questions: Sequence[Question]) -> ToolResult | Park:
        """Ask in the chat where the work is: of a sub-session, the one that began its root's turn."""
        session, turn, clean = self.view.session, self.view.turn, self.service.redactor.text
        inquiry = Inquiry(
            questions=tuple(
                Question(text=clean(one.text), options=tuple(map(clean, one.options)), several=one.several)
                for one in questions
            ),
            requester=turn.principal,
            title=session.title if session.lineage else "",
        )
        wait = NewWait(
            id=WaitId(mint("w")),
            kind=WaitKind.QUESTION,
            n=self.n,
            approval=None,
            payload=inquiry.as_payload(),
            expires_in=self.service.expiry,
        )
        place = asking_place(session, turn)
        # The page lists open questions by itself, so it gets no card.
        slots = [] if place.on_page else [NewSlot(conversation=place, kind=SlotKind.CARD, waits=(wait.id,))]
        opened = await self.service.inquiries.ask(self.lease, wait, slots)
        if opened is None:
            hint = "The turn was stopped; nobody was asked."
            return ToolResult(status=ResultStatus.CANCELLED, text="", code="stopping", hint=hint)
        return Park(wait=opened)

    async def write_list(self, items: Sequence[TaskItem]) -> None:
        """Store and show the session's task list."""
        clean = self.service.redactor.text
        shown = [TaskItem(text=clean(one.text), state=one.state) for one in items]
        await self.service.inquiries.write_list(self.lease, self.n, shown)

    async def read_list(self) -> Sequence[TaskItem]:
        """Return the session's task list."""
        return await self.service.inquiries.task_list(self.view.session.id, self.view.turn.epoch)
