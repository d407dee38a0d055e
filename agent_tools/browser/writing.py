"""Text into fields: at once, or key by key where a page listens to keys. Used by `actions`."""

from __future__ import annotations

import asyncio

from playwright.async_api import Locator, Page

from agent_tools.browser.clickables import listens_to_keys
from agent_tools.browser.page_queries import asked_of
from agent_tools.browser.pointing import ACT_S, locate

_ASK_S = 3.0
_BY_KEYS = 200
"""Most characters that are typed key by key; of a longer text the end is, after the rest came at once."""
_KEYS_S = 20.0
"""Timeout in seconds for typing."""


async def write(page: Page, ref: str | None, text: str, submit: bool) -> None:
    """Replace the content of a field, or type where the focus is without a ref; with `submit`, press Enter."""
    if ref is None:
        await _type(page, text)
        if submit:
            async with asyncio.timeout(ACT_S):
                await page.keyboard.press("Enter")
    else:
        field = await locate(page, ref)
        kind = await asked_of(field, "field", _ASK_S)
        if kind in ("text", "editable", "other") and await listens_to_keys(page):
            await _replace(page, field, text, kind)
        else:
            await field.fill(text, timeout=ACT_S * 1000)
        if submit:
            await field.press("Enter", timeout=ACT_S * 1000, no_wait_after=True)


async def _replace(page: Page, field: Locator, text: str, kind: str) -> None:
    """Select what a field holds and type over it."""
    if kind == "other":
        await field.click(timeout=ACT_S * 1000, no_wait_after=True)
    else:
        # Waits until it can be written, and clears what no key would.
        await field.fill("", timeout=ACT_S * 1000)
        await field.focus(timeout=ACT_S * 1000)
    await _type(page, text)


async def _type(page: Page, text: str) -> None:
    """Type a text with key events. A line break is Shift+Enter: Enter alone would send a message."""
    async with asyncio.timeout(_KEYS_S):
        if len(text) > _BY_KEYS:
            await page.keyboard.insert_text(text[:-_BY_KEYS])
            text = text[-_BY_KEYS:]
        for n, line in enumerate(text.split("\n")):
            if n:
                await page.keyboard.press("Shift+Enter")
            await page.keyboard.type(line)
