"""Files of calls, served by the page's server."""

from __future__ import annotations

from pathlib import Path

from gateway.domain.ids import SessionId
from gateway.domain.tools import Artifact, ResultStatus, Risk, ToolResult
from gateway.errors import FileAway
from gateway.ports import ToolContext
from gateway.server.http_answers import HEADERS
from tests.support.engine import Engine, served
from tests.support.fakes import ANN_PAGE, CLEO, FakeTool, Text, calls
from tests.support.makers import ANN


async def test_a_file_is_always_a_download_whatever_is_in_it(tmp_path: Path) -> None:
    async def saves(ctx: ToolContext, _args: Text) -> ToolResult:
        made = await ctx.artifacts.picture(b"<script>alert(1)</script>", "image/png")
        names = (made.file, made.file.replace(".png", ".html"), 'a"\r\nX-Evil: 1;.html')
        files = tuple(Artifact(file=one, name="x.html", media_type="text/html") for one in names)
        return ToolResult(status=ResultStatus.OK, text="saved", files=files)

    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=saves)])
    async with served(engine) as page:
        engine.model.script = [calls("read")]
        turn = await engine.say(where=ANN_PAGE)
        await engine.run(await engine.claim())
        (folder,) = (tmp_path / "outputs").iterdir()
        (kept,) = folder.iterdir()
        kept.with_suffix(".html").write_bytes(b"<script>alert(2)</script>")
        kept.with_name('a"\r\nX-Evil: 1;.html').write_bytes(b"x")
        url = f"{page.url}/api/output/{turn}/1/file"

        async with page.client(await page.cookie()) as ann:
            for at, name in ((0, kept.name), (1, f"{kept.stem}.html"), (2, "a X-Evil 1;.html")):
                async with ann.get(f"{url}/{at}") as response:
                    assert response.status == 200
                    assert response.headers["Content-Type"] == "application/octet-stream"
                    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
                    assert "X-Evil" not in response.headers
                    assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
        for owner, at, status in ((ANN, "3", 404), (ANN, "9" * 20, 404), (ANN, "-1", 404), (CLEO, "0", 404)):
            async with page.client(await page.cookie(owner)) as other, other.get(f"{url}/{at}") as response:
                assert response.status == status
        async with page.client("") as nobody, nobody.get(f"{url}/0") as response:
            assert response.status == 401


async def test_a_file_on_a_node_that_is_away_is_no_missing_file(tmp_path: Path) -> None:
    """The page says where it is, and does not take it for gone."""

    async def away(_session: SessionId, _name: str) -> Path | None:
        raise FileAway("The file is on the node first, which cannot be reached now.", cure="Start first again.")

    async def prints(_ctx: ToolContext, _args: Text) -> ToolResult:
        file = Artifact(file="t1-1-f1.txt", name="x.txt", media_type="text/plain")
        return ToolResult(status=ResultStatus.OK, text="saved", files=(file,))

    engine = Engine(tmp_path, [FakeTool(name="read", risk=Risk.READ, body=prints)])
    async with served(engine) as page:
        engine.model.script = [calls("read")]
        turn = await engine.say(where=ANN_PAGE)
        await engine.run(await engine.claim())
        page.web_access.find = away
        async with (
            page.client(await page.cookie()) as ann,
            ann.get(f"{page.url}/api/output/{turn}/1/file/0") as response,
        ):
            assert response.status == 503
            assert "is on the node first, which cannot be reached now. Start first again." in await response.text()
