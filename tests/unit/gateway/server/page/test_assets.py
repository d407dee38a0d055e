"""The page's files: one version for all, loaded in one wave, without a circle among its modules."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from graphlib import TopologicalSorter
from pathlib import Path

import aiohttp
import pytest

from gateway.server.page.assets import ENTRY, STALE, Assets
from tests.support.engine import Engine, Served, served

FOR_EVER = "public, max-age=31536000, immutable"
OTHER = "0123456789abcdef"
"""A version that the page never had."""
FIRST_LOAD_AT_MOST = 100_000
"""Bytes of the page and of all that it asks for before it works, compressed."""


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Served]:
    """The page on a real port."""
    async with served(Engine(tmp_path)) as found:
        yield found


def named(body: str) -> list[str]:
    """Return the files that a page's HTML names, in order."""
    return re.findall(r'(?:src|href)="(/static/[^"]+)"', body)


async def test_every_file_of_the_page_is_kept_for_ever(page: Served) -> None:
    async with page.client() as client:
        async with client.get(f"{page.url}/") as response:
            assert response.headers["Cache-Control"] == "no-cache"
            names = named(await response.text())
        assert len({name.split("/")[2] for name in names}) == 1
        for name in names:
            async with client.get(f"{page.url}{name}") as response:
                assert (response.status, response.headers["Cache-Control"]) == (200, FOR_EVER), name
                tag = response.headers["ETag"]
            async with client.get(f"{page.url}{name}", headers={"If-None-Match": tag}) as response:
                assert (response.status, response.headers["Cache-Control"]) == (304, FOR_EVER), name


async def test_a_file_of_another_version_is_gone(page: Served) -> None:
    """A current one in its place could not work with those that a cache still has."""
    async with page.client() as client:
        async with client.get(f"{page.url}/static/{OTHER}/{ENTRY}") as response:
            assert (response.status, response.headers["Cache-Control"]) == (404, "no-store")
            assert "Reload" in (await response.json())["error"]
        async with client.get(f"{page.url}/static/{OTHER}/{STALE}") as response:
            assert (response.status, response.headers["Cache-Control"]) == (200, "no-store")
            assert response.content_type == "text/javascript"


async def test_a_file_without_a_version_is_asked_for_again(page: Served) -> None:
    for query in ("", "?v=old"):
        async with page.client() as client, client.get(f"{page.url}/static/{ENTRY}{query}") as response:
            assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache")


def test_every_module_is_preloaded_once() -> None:
    assets = Assets()
    body = assets.index.body.decode()
    preloaded = re.findall(r'<link rel="modulepreload" href="/static/[0-9a-f]{16}/([^"]+)">', body)
    assert set(preloaded) == set(assets.imports)
    assert len(preloaded) == len(set(preloaded)) > 20
    assert preloaded[0] == ENTRY
    assert "types.js" not in preloaded  # types for the checker, in comments alone


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    imports = Assets().imports
    order = list(TopologicalSorter(imports).static_order())
    assert order[-1] == ENTRY
    assert {"state.js", "vendor/preact.js", "views/card.js"} < set(order)


def test_the_version_follows_from_what_the_files_hold() -> None:
    assert Assets().version == Assets().version
    assert re.fullmatch("[0-9a-f]{16}", Assets().version)


async def test_the_first_load_is_small(page: Served) -> None:
    total = 0
    async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "gzip"}) as client:
        async with client.get(f"{page.url}/") as response:
            index = await response.read()
        for name in named(gzip.decompress(index).decode()):
            async with client.get(f"{page.url}{name}") as response:
                total += len(await response.read())
    assert total + len(index) <= FIRST_LOAD_AT_MOST
