"""Sign-in requests of unauthenticated clients."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.engine import Engine, served
from tests.support.makers import ANN


async def test_sign_in_body_is_limited_to_the_size_of_a_code(tmp_path: Path) -> None:
    async with served(Engine(tmp_path)) as page:
        code = json.dumps({"code": await page.web_access.mint_code(ANN)}).encode()
        found: list[int] = []
        for length in (4_097, 4_096):
            body = code.ljust(length)
            async with page.client() as client, client.post(f"{page.url}/api/signin", data=body) as response:
                found.append(response.status)
    assert found == [401, 200]
