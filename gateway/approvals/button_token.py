"""Button tokens: authenticate a press as coming from a card of ours. Made for cards, checked at presses. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable

from gateway.domain.ids import Handle, OwnerName, SlotId, WaitId
from gateway.domain.messages import Conversation
from gateway.domain.waits import Verb


class ButtonTokens:
    """Maker and checker of button handles: a wait's id and 128 bits of HMAC over (wait, card, verb).

    Equal on a resend; worthless for another card, conversation or verb. It does not contain the verb, so nobody can
    swap it.
    """

    def __init__(self, key: bytes) -> None:
        """Take the secret of this gateway, at least 32 bytes."""
        self._key = key

    def make(self, wait: WaitId, card: str, verb: str) -> Handle:
        """Return the handle, at most 64 bytes of ASCII. `verb`: a `Verb`, or the name of a question's `Pick`."""
        mac = hmac.new(self._key, json.dumps([wait, card, verb]).encode(), hashlib.sha256).digest()[:16]
        return Handle(f"{wait}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}")

    def verb(self, handle: Handle, wait: WaitId, cards: Iterable[str]) -> Verb | None:
        """Return the verb of the handle on one of these cards, or None when the handle is not ours."""
        found = self.named(handle, wait, cards, list(Verb))
        return None if found is None else Verb(found)

    def named(self, handle: Handle, wait: WaitId, cards: Iterable[str], names: Iterable[str]) -> str | None:
        """Return which of these names the handle on one of these cards stands for, or None."""
        found: str | None = None
        all_names = list(names)
        for card in cards:
            for name in all_names:
                if hmac.compare_digest(self.make(wait, card, name).encode(), handle.encode(errors="surrogatepass")):
                    found = name
        return found


def wait_of(handle: Handle) -> WaitId | None:
    """Return the wait that a handle names, unauthenticated; None when the text cannot be a handle."""
    name, dot, mac = handle.partition(".")
    well_formed = bool(dot) and len(handle) <= 64 and re.fullmatch(r"w[0-9a-f]{16}", name) and len(mac) == 22
    return WaitId(name) if well_formed else None


def page_card(owner: OwnerName) -> str:
    """Return the card name of an owner's web page, which shows every approval that the owner may see."""
    return f"page:{owner}"


def cards_at(conversation: Conversation, shown: Iterable[tuple[SlotId, Conversation]]) -> list[str]:
    """Return the cards that a press in this conversation can belong to."""
    cards = [str(slot) for slot, where in shown if where == conversation]
    if conversation.on_page:
        cards.append(page_card(OwnerName(conversation.chat)))
    return cards
