"""Approvals: what exactly is asked, how it is shown, who may decide, and what a button carries.

Pure but for `Approvals`, which reads where approvers can be reached. The decision is one transition of the store.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from gateway.model.ids import Handle, OwnerName, Principal, SessionId, SlotId, TurnId, WaitId, web_principal
from gateway.model.messages import Conversation, Press
from gateway.model.sessions import Session, SessionKind, Turn
from gateway.model.slots import Button, CardRow, NewSlot, Slot, SlotKind
from gateway.model.tools import Action, Risk
from gateway.model.views import Whereabouts
from gateway.model.waits import ApprovalRequest, PressResult, Verb, Verdict, Wait, WaitState
from gateway.ports import Accounts
from gateway.routing import People

ROWS_A_CARD = 8
SHOWN_AT_MOST = 65_536
"""UTF-8 bytes of a rendered action; a longer one cannot be approved."""
PAGE_REACHES_FOR = timedelta(days=7)
SUB_SESSION = "sub_session"
"""In the payload of an approval: the title of the child that asks."""

_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\[rtbfu]")  # a control character in JSON; not a backslash that somebody wrote
_LONG_SPACES = re.compile(r" {9,}")
_LONG_BREAKS = re.compile(r"(?:⏎\n){3,}")
_SHOWN = re.compile(r"\\(\\|u\{([0-9A-F]+)\})|␠×(\d+);|⏎×(\d+);\n|⏎\n|.", re.DOTALL)


# --- what is asked ------------------------------------------------------------------------------


def canonical(action: Action) -> str:
    """Return the one text form of an action; every field and argument is in it."""
    return json.dumps(
        {"tool": action.tool, "arguments": dict(action.arguments), "cwd": action.cwd, "sandbox": action.sandbox},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def action_key(action: Action) -> str:
    """SHA-256 of the canonical action: the same whoever asks. Grants and loop checks compare it."""
    return hashlib.sha256(canonical(action).encode()).hexdigest()


def action_sha(key: str, session: SessionId, turn: TurnId, n: int, requester: Principal) -> str:
    """SHA-256 that binds an action to this session, turn, step and person. An approval is for this alone."""
    return hashlib.sha256(json.dumps([key, session, turn, n, requester]).encode()).hexdigest()


# --- how it is shown ----------------------------------------------------------------------------


def render(text: str) -> str:
    """Show text so that what is read is what runs: printable ASCII and marked line breaks, all else escaped.

    `unrender` gives the text back exactly.
    """
    out: list[str] = []
    for char in text:
        if char == "\\":
            out.append("\\\\")
        elif " " <= char <= "~":
            out.append(char)
        elif char == "\n":
            out.append("⏎\n")
        else:
            out.append(f"\\u{{{ord(char):X}}}")
    shown = _LONG_SPACES.sub(lambda m: f"␠×{len(m.group())};", "".join(out))
    return _LONG_BREAKS.sub(lambda m: f"⏎×{len(m.group()) // 2};\n", shown)


def unrender(shown: str) -> str:
    """Read what `render` wrote."""
    out: list[str] = []
    for match in _SHOWN.finditer(shown):
        escape, code, spaces, breaks = match.groups()
        if escape is not None:
            out.append(chr(int(code, 16)) if code else "\\")
        elif spaces is not None:
            out.append(" " * int(spaces))
        elif breaks is not None:
            out.append("\n" * int(breaks))
        else:
            out.append("\n" if match.group() == "⏎\n" else match.group())
    return "".join(out)


def render_action(action: Action, shows: str | None) -> str:
    """Show a whole action: the argument that runs first, then every other one, by name."""
    arguments = dict(action.arguments)
    lines: list[str] = []
    if shows is not None and isinstance(arguments.get(shows), str):
        lines.append(render(str(arguments.pop(shows))))
    lines += [
        f"{render(name)} = {render(json.dumps(value, ensure_ascii=False, sort_keys=True))}"
        for name, value in sorted(arguments.items())
        if value is not None
    ]
    return "\n".join(lines)


def needs_escape(action: Action) -> bool:
    """Whether something in the arguments is not plain printable ASCII or a line break."""
    text = json.dumps(dict(action.arguments), ensure_ascii=False)
    return any(not (" " <= char <= "~") for char in text) or bool(_ESCAPED.search(text))


_WANTS = MappingProxyType(
    {
        Risk.NONE: "wants to act",
        Risk.READ: "wants to read",
        Risk.WRITE: "wants to change something",
        Risk.EXECUTE: "wants to run",
        Risk.NETWORK: "wants to use the network",
    }
)


def outcome_line(wait: Wait, people: People) -> str:
    """Say in one line what became of an approval; empty while it is open."""
    who = name_of(wait.decided_by, people)
    at = f", {wait.decided_at:%H:%M} UTC" if wait.decided_at else ""
    reason = f": {wait.reason}" if wait.reason else ""
    allowed = "allowed for this session" if wait.approval is not None and wait.approval.scope else "allowed once"
    return {
        WaitState.OPEN: "",
        WaitState.APPROVED: f"{who} {allowed}{at}",
        WaitState.CONSUMED: f"{who} {allowed}{at}",
        WaitState.DENIED: f"{who} denied{at}{reason}",
        WaitState.EXPIRED: "Expired; nothing was run",
        WaitState.CANCELLED: "Withdrawn; nothing was run",
        WaitState.SUPERSEDED: "Expired while Dragoman was away; it is asked anew",
        WaitState.ANSWERED: "",
    }[wait.state]


def name_of(who: Principal | None, people: People) -> str:
    """How a principal is called on cards: the owner's name, else the principal itself."""
    if who is None:
        return "Nobody"
    return people.owner_of(who) or who


# --- what a button carries ----------------------------------------------------------------------


class Handles:
    """Makes and checks button handles: a wait's id and 128 bits of HMAC over (wait, card, verb).

    The same on a resend; worthless for another card, conversation or verb; the verb is not in it to be swapped.
    """

    def __init__(self, state_key: bytes) -> None:
        """Take the secret of this state folder, at least 32 bytes."""
        self._key = state_key

    def make(self, wait: WaitId, card: str, verb: Verb) -> Handle:
        """Return the handle, at most 64 bytes of ASCII."""
        mac = hmac.new(self._key, json.dumps([wait, card, verb]).encode(), hashlib.sha256).digest()[:16]
        return Handle(f"{wait}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}")

    def verb(self, handle: Handle, wait: WaitId, cards: Iterable[str]) -> Verb | None:
        """Return what the handle says on one of these cards, or None when it is not one of ours."""
        found: Verb | None = None
        for card in cards:
            for verb in Verb:
                if hmac.compare_digest(self.make(wait, card, verb).encode(), handle.encode(errors="surrogatepass")):
                    found = verb
        return found


def wait_of(handle: Handle) -> WaitId | None:
    """Return the wait a handle names; this alone means nothing. None when it cannot be a handle."""
    name, dot, mac = handle.partition(".")
    well_formed = bool(dot) and len(handle) <= 64 and re.fullmatch(r"w[0-9a-f]{16}", name) and len(mac) == 22
    return WaitId(name) if well_formed else None


def page_card(owner: OwnerName) -> str:
    """The card that an owner's web page is: it shows every approval that the owner may see."""
    return f"page:{owner}"


# --- who may decide -----------------------------------------------------------------------------


def approvers(session: Session, people: People) -> frozenset[Principal]:
    """Whose press counts: below a main session its owner, elsewhere every owner; now, not when it was asked."""
    if session.root_kind is SessionKind.MAIN:
        return people.owners.get(session.owner, frozenset()) if session.owner is not None else frozenset()
    return frozenset(who for principals in people.owners.values() for who in principals)


def may_resolve(verb: Verb, who: Principal, requester: Principal, allowed: frozenset[Principal]) -> Verdict:
    """Say what a press may do: approvers decide; whoever asked may also deny."""
    if who in allowed:
        state = WaitState.APPROVED if verb is Verb.ONCE else WaitState.DENIED
        return Verdict(refusal=None, state=state, withdraw_siblings=verb is Verb.DENY_REASON)
    if verb is not Verb.ONCE and who == requester:
        return Verdict(refusal=None, state=WaitState.DENIED, withdraw_siblings=verb is Verb.DENY_REASON)
    return Verdict(refusal=PressResult.NOT_ALLOWED)


def asks_reason(verdict: Verdict, press: Press, wait: Wait, now: datetime) -> bool:
    """Whether a denial waits for its reason: the platform's buttons carry no text, and it can still be decided.

    A verdict that withdraws the siblings is that of "Deny with reason".
    """
    without = press.can_ask_reason and not press.reason.strip()
    undecided = wait.state is WaitState.OPEN and wait.expires_at > now
    return verdict.refusal is None and verdict.withdraw_siblings and without and undecided


def is_shown_by(slot: Slot, conversation: Conversation, message: str) -> bool:
    """Whether this message of this conversation shows the slot, or a part of it."""
    return slot.conversation == conversation and bool(message) and message in slot.platform_id.split(",")


# --- where it is asked --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Where the cards of a session's approvals are shown."""

    conversations: tuple[Conversation, ...]
    page: bool
    """Whether an approver signed in on the page within seven days."""

    @property
    def anybody(self) -> bool:
        """Whether somebody can be asked at all."""
        return bool(self.conversations) or self.page


def audience(session: Session, turn: Turn, places: Sequence[Whereabouts], now: datetime) -> Audience:
    """Say where to ask: a main session and its children in its chat, others in each approver's last direct one."""
    page = any(r.page_seen_at is not None and now - r.page_seen_at <= PAGE_REACHES_FOR for r in places)
    if session.root_kind is SessionKind.MAIN:
        return Audience(conversations=(_place(session, turn),), page=page)
    latest = [max(r.direct.values(), key=lambda one: one[1])[0] for r in places if r.direct]
    return Audience(conversations=tuple(dict.fromkeys(latest)), page=page)


def _place(session: Session, turn: Turn) -> Conversation:
    """Where it was asked for: of a child, where its root's turn began."""
    return session.lineage.conversation if session.lineage else turn.conversation


def payload(session: Session) -> Mapping[str, str]:
    """What is kept with an approval besides the action: which sub-session it is for."""
    return {SUB_SESSION: session.title} if session.lineage else {}


def card_slots(
    waits: Sequence[WaitId], titles: Sequence[str], place: Audience, session: Session, turn: Turn
) -> list[NewSlot]:
    """The cards (at most eight rows each) for every place, and a note where it was asked when no card stands there."""
    rows = [tuple(waits[i : i + ROWS_A_CARD]) for i in range(0, len(waits), ROWS_A_CARD)]
    slots = [
        NewSlot(conversation=where, kind=SlotKind.CARD, waits=some) for where in place.conversations for some in rows
    ]
    asked_at = _place(session, turn)
    if session.root_kind is not SessionKind.MAIN and asked_at not in place.conversations:
        what = ", ".join(dict.fromkeys(titles))
        text = f"An owner was asked to allow this: {what}. It goes on when they decide."
        slots.append(NewSlot(conversation=asked_at, kind=SlotKind.NOTE, text=text))
    return slots


class Approvals:
    """What the engine needs of all this: where to ask, what a press means, what a card shows."""

    def __init__(self, people: People, accounts: Accounts, handles: Handles) -> None:
        """Take the configured people, and the store's knowledge of where they are."""
        self._people = people
        self._accounts = accounts
        self._handles = handles

    def is_owner(self, name: OwnerName) -> bool:
        """Whether the configuration names this owner now."""
        return name in self._people.owners

    async def audience(self, session: Session, turn: Turn, now: datetime) -> Audience:
        """Where to ask about calls of this turn."""
        main = session.root_kind is SessionKind.MAIN
        owners = [name for name in self._people.owners if not main or name == session.owner]
        places = [await self._accounts.whereabouts(name, sorted(self._people.owners.get(name, ()))) for name in owners]
        return audience(session, turn, places, now)

    def verdict(self, handle: Handle, wait: Wait, cards: Iterable[str], who: Principal, session: Session) -> Verdict:
        """What this press may do to this wait, from the cards of the conversation where it was pressed."""
        verb = self._handles.verb(handle, wait.id, cards)
        if verb is None or wait.approval is None:
            return Verdict(refusal=PressResult.NOT_VALID)
        return may_resolve(verb, who, wait.approval.requester, approvers(session, self._people))

    def denial(self, wait: Wait, who: Principal, session: Session) -> Verdict:
        """What a reason that is given later may do: deny, when this person may do that now as well."""
        if wait.approval is None:
            return Verdict(refusal=PressResult.NOT_VALID)
        return may_resolve(Verb.DENY_REASON, who, wait.approval.requester, approvers(session, self._people))

    def row(self, wait: Wait, card: str) -> CardRow:
        """One row of a card, with its buttons while the approval is open."""
        request = wait.approval
        if request is None:
            raise ValueError(f"{wait.id} is not an approval")
        allow = "Allow" if request.scope else "Once"
        buttons = [(allow, Verb.ONCE), ("Deny", Verb.DENY), ("Deny with reason", Verb.DENY_REASON)]
        return CardRow(
            wait=wait,
            title=title(request),
            facts=self._facts(wait, request),
            buttons=tuple(
                Button(verb=verb, label=label, handle=self._handles.make(wait.id, card, verb))
                for label, verb in buttons
                if wait.state is WaitState.OPEN
            ),
            outcome=outcome_line(wait, self._people),
        )

    def _facts(self, wait: Wait, request: ApprovalRequest) -> tuple[tuple[str, str], ...]:
        facts = [
            ("Risk", request.risk.value),
            ("Covers", f"{render(request.scope)}, until /new" if request.scope else ""),
            ("Folder", render(request.action.cwd)),
            ("Sandbox", {"": "none needed", "off": "none: it runs on the host"}.get(request.action.sandbox, "basic")),
            ("Asked by", render(name_of(request.requester, self._people))),
            ("Sub-session", render(str(wait.payload.get(SUB_SESSION, "")))),
            ("Session", render(wait.session)),
            ("Answer by", f"{wait.expires_at:%Y-%m-%d %H:%M} UTC"),
            ("Check", request.action_sha[:8]),
        ]
        return tuple(fact for fact in facts if fact[1])


def title(request: ApprovalRequest) -> str:
    """The first line of a card: which tool, and what it wants."""
    return f"{request.action.tool} {_WANTS[request.risk]}"


def cards_at(conversation: Conversation, shown: Iterable[tuple[SlotId, Conversation]]) -> list[str]:
    """The cards that a press in this conversation can be of."""
    cards = [str(slot) for slot, where in shown if where == conversation]
    if conversation.on_page:
        cards.append(page_card(OwnerName(conversation.chat)))
    return cards


def page_principals(people: People) -> Mapping[OwnerName, Principal]:
    """Each owner's principal on the page."""
    return {name: web_principal(name) for name in people.owners}
