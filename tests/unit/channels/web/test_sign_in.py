"""Signing in to the page: what somebody may send who is nobody yet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.engine import Engine, served
from tests.support.makers import ANN


async def test_of_what_a_stranger_sends_no_more_is_looked_at_than_a_code_has(tmp_path: Path) -> None:
    async def much() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"[" * 100

    async with served(Engine(tmp_path)) as page:
        code = await page.pages.mint_code(ANN)
        for body in (b" " * 4_096 + b"{}", much()):
            async with page.client() as client, client.post(f"{page.url}/api/signin", data=body) as response:
                assert response.status == 413
        async with page.client() as client:
            body = json.dumps({"code": code}).encode().ljust(4_096)
            async with client.post(f"{page.url}/api/signin", data=body) as response:
                assert response.status == 200
