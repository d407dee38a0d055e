"""A page is ours by its whole address, not by how that begins or ends."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.http import refusal

HOSTS = frozenset({"127.0.0.1:8470", "dragoman.example"})
ORIGINS = frozenset({"http://127.0.0.1:8470", "https://dragoman.example"})


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:84701",
        "http://127.0.0.1:8470.evil.example",
        "https://dragoman.example.evil.example",
        "https://dragoman.example@evil.example",
        "https://dragoman.example/",
        "https://evil-dragoman.example",
    ],
)
def test_an_address_that_only_looks_like_ours_may_do_nothing(method: str, origin: str) -> None:
    headers = CIMultiDict({"Host": "dragoman.example", "Origin": origin})
    found = refusal(make_mocked_request(method, "/", headers=headers), HOSTS, ORIGINS)

    assert found is not None
    assert found[0] == 403
