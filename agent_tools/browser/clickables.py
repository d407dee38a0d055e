"""Elements without a role that a person can use all the same: a click handler, a drawing, a closed part of a page.

`reading` adds them to a snapshot, with refs of their own (`x3`), and distinguishes elements of the same name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from playwright.async_api import CDPSession, Error, Frame, Page

from agent_tools.browser.errors import PLACE
from agent_tools.browser.guard import ask
from agent_tools.browser.page_queries import asked
from agent_tools.browser.page_session import PageSession
from agent_tools.browser.selector_engine import HEARD

MOST_FRAMES = 10
"""Most frames of a page that are searched."""
_MOST_HEARD = 60
"""Limit of elements whose event listeners are read: a message each."""
_MOST_LISTENERS = 20_000
"""Event listeners of a page beyond which none is read."""
_MOST_CHARS = 12_000
"""Most characters that a frame's elements may take."""
_ASK_S = 3.0
_HEARD_S = 1.5
_WORLD = "__playwright_utility_world"
"""Beginning of the name of playwright's isolated world, in which our selector engine runs."""
_USES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("click", "mousedown", "mouseup", "pointerdown", "pointerup", "touchstart"), "click"),
        "dblclick": "double-click",
        "contextmenu": "right-click",
        **dict.fromkeys(("mouseenter", "mouseover", "pointerenter", "pointerover"), "hover"),
        "dragstart": "drag",
        "drop": "drop",
        "wheel": "scroll",
        **dict.fromkeys(("keydown", "keypress", "keyup"), "keys"),
    }
)
"""Use of an element by the event that it listens to."""
_KEYS = frozenset({"keydown", "keypress", "keyup", "beforeinput"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Clickable:
    """An element that a person can use: one that no snapshot names, or one whose snapshot line says too little."""

    ref: str
    """Own ref, as in `x3`; empty for an element with a role."""
    listed: str = ""
    """Ref that playwright's snapshot may show for it."""
    kind: str = ""
    """`clickable`, `editable`, `drawing` or `closed`."""
    tag: str = ""
    name: str = ""
    near: str = ""
    """Text beside it, when other elements have the same name."""
    uses: str = ""
    box: str = ""
    """Left, top, width and height in pixels."""


async def search(session: PageSession, page: Page) -> list[Clickable]:
    """Return usable elements that a snapshot lacks, after `hear`. A page that does not answer has none."""
    found: list[Clickable] = []
    for frame in page.frames[:MOST_FRAMES]:
        with suppress(Error, TimeoutError):
            found += await _of_frame(session, frame)
    return found


async def _of_frame(session: PageSession, frame: Frame) -> list[Clickable]:
    first, *lines = (await asked(frame, "usable", _ASK_S, str(session.next_number), limit=_MOST_CHARS)).split("\n")
    session.next_number = max(session.next_number, int(first)) if first.isdecimal() else session.next_number + 100
    return [one for line in lines[:-1] if (one := parsed(line)) is not None]


def parsed(line: str) -> Clickable | None:
    """Read one line of the engine's query `usable`; None when it is not whole."""
    match line.split("\t"):
        case ["e", listed, near, uses]:
            return Clickable(ref="", listed=listed, near=near, uses=uses)
        case ["x", number, kind, tag, name, near, uses, box, listed]:
            return Clickable(
                ref=f"x{number}", listed=listed, kind=kind, tag=tag, name=name, near=near, uses=uses, box=box
            )
        case _:
            return None


@asynccontextmanager
async def marked(session: PageSession, page: Page) -> AsyncGenerator[int]:
    """Mark the elements that have no name with their refs, for a screenshot; yield how many. Take the marks away again.

    The marks are in a layer of their own, which takes no clicks.
    """
    await hear(page)
    await search(session, page)
    frames = page.frames[:MOST_FRAMES]
    try:
        yield sum([await _marks(frame, "marked") for frame in frames])
    finally:
        for frame in frames:
            await _marks(frame, "unmarked")


async def _marks(frame: Frame, what: str) -> int:
    with suppress(Error, TimeoutError):
        said = await asked(frame, what, _ASK_S)
        return int(said) if said.isdecimal() else 0
    return 0


# --- event listeners ------------------------------------------------------------------------------


async def hear(page: Page) -> None:
    """Pass the elements with event listeners to the engine. Closed shadow roots and frames of the same site are
    included.

    A page that does not answer in time is left as it is.
    """
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_HEARD_S):
            await _hear(page)


async def _hear(page: Page) -> None:
    cdp = await page.context.new_cdp_session(page)
    try:
        worlds = await _worlds(cdp)
        uses: dict[int, set[str]] = defaultdict(set)
        for one in await _listeners(cdp, "document"):
            if one["type"] in _USES:
                uses[one["backendNodeId"]].add(_USES[one["type"]])
        heard = dict(list(uses.items())[:_MOST_HEARD])
        if heard and worlds:
            await _tell(cdp, worlds, heard)
    finally:
        await cdp.detach()


async def _worlds(cdp: CDPSession) -> list[int]:
    """Return the ids of our isolated worlds, the page's first."""
    worlds: list[int] = []

    def made(event: dict[str, Any]) -> None:
        if event["context"]["name"].startswith(_WORLD):
            worlds.append(event["context"]["id"])

    cdp.on("Runtime.executionContextCreated", made)
    await ask(cdp, "Runtime.enable")
    return sorted(worlds)[:MOST_FRAMES]


async def _listeners(cdp: CDPSession, of: str) -> list[dict[str, Any]]:
    """Return the event listeners of an object and all below it; none when a page has very many, by the browser's count.

    The answer has 200 bytes for each, and is read as a whole.
    """
    if (await ask(cdp, "Memory.getDOMCounters"))["jsEventListeners"] > _MOST_LISTENERS:
        return []
    root = (await ask(cdp, "Runtime.evaluate", {"expression": of}))["result"].get("objectId")
    if root is None:
        return []
    asked_for = {"objectId": root, "depth": -1, "pierce": True}
    return (await ask(cdp, "DOMDebugger.getEventListeners", asked_for))["listeners"]


async def _tell(cdp: CDPSession, worlds: list[int], heard: Mapping[int, set[str]]) -> None:
    """Pass elements and their uses to the worlds in which they live."""
    given: dict[int, list[dict[str, str]]] = defaultdict(list)

    async def pass_on(node: int, uses: set[str]) -> None:
        for world in worlds:
            with suppress(Error):
                made = await ask(cdp, "DOM.resolveNode", {"backendNodeId": node, "executionContextId": world})
                given[world] += [{"objectId": made["object"]["objectId"]}, {"value": " ".join(sorted(uses))}]
                return

    async with asyncio.TaskGroup() as group:
        for node, uses in heard.items():
            group.create_task(pass_on(node, uses), name="browser listener")
    for world, arguments in given.items():
        call = {"functionDeclaration": HEARD, "executionContextId": world, "arguments": arguments}
        await ask(cdp, "Runtime.callFunctionOn", call)


async def listens_to_keys(page: Page) -> bool:
    """Return whether a page listens to keys anywhere, so that text must come by them."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_HEARD_S):
            cdp = await page.context.new_cdp_session(page)
            try:
                for of in ("window", "document"):
                    if any(one["type"] in _KEYS for one in await _listeners(cdp, of)):
                        return True
            finally:
                await cdp.detach()
    return False


# --- snapshot text, pure --------------------------------------------------------------------------

_REF = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
HEADING = "\nWithout a role, but a person can use them:\n"


def ref_of(line: str) -> str:
    """Return the ref of a snapshot line, empty without one. Ignores quoted text, which the page wrote."""
    found = _REF.search(_QUOTED.sub('""', line).partition(": ")[0])
    return found[1] if found else ""


def annotated(tree: str, found: Iterable[Clickable]) -> str:
    """Return a snapshot whose lines also say what stands near an element, and what it is for."""
    told = {one.listed: one for one in found if one.listed and (one.near or one.uses or one.kind == "editable")}
    if not told:
        return tree
    lines = tree.split("\n")
    for n, line in enumerate(lines):
        if (one := told.get(ref_of(line))) is not None:
            lines[n] = _with_more(line, one)
    return "\n".join(lines)


def _with_more(line: str, one: Clickable) -> str:
    uses = "" if one.uses == "click" and "[cursor=pointer]" in line else one.uses
    more = _more(one.near, "editable" if one.kind == "editable" else uses)
    mark = f"[ref={one.listed}]"
    return line.replace(mark, mark + more, 1) if line.count(mark) == 1 else line


def _more(near: str, uses: str) -> str:
    """Return the text after a ref. The page wrote `near`, so it is quoted."""
    told = f" [near={json.dumps(near, ensure_ascii=False)}]" if near else ""
    return f"{told} [{uses}]" if uses else told


def listed(tree: str, found: Iterable[Clickable], limit: int) -> str:
    """Return a line for each element that the snapshot does not show, in at most `limit` characters."""
    shown = {ref_of(line) for line in tree.split("\n")}
    missing = [one for one in found if one.ref and one.listed not in shown - {""}]
    lines: list[str] = []
    for one in missing:
        line = _line(one)
        limit -= len(line) + 1
        if limit < 0:
            lines.append(f"({len(missing) - len(lines)} more: {PLACE}.)")
            break
        lines.append(line)
    if any(one.kind in ("drawing", "closed") for one in missing):
        lines.append(f"(What is inside a drawing or a closed part has no ref: {PLACE}.)")
    return HEADING + "\n".join(lines) if lines else ""


def _line(one: Clickable) -> str:
    named = f" {json.dumps(one.name, ensure_ascii=False)}" if one.name else ""
    what = {"drawing": f"drawing <{one.tag}>", "closed": f"closed part <{one.tag}>"}.get(one.kind, one.kind)
    left, top, width, height = [*one.box.split(" "), "", "", "", ""][:4]
    size = f" [{width}x{height} at {left},{top}]" if one.kind in ("drawing", "closed") else ""
    return f"- {what}{named} [ref={one.ref}]{_more(one.near, one.uses)}{size}"
