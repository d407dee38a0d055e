"""Downloads, uploads and PDFs: whole, within their limits, and through no link."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent_tools.browser.save_paths import safe_name
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.tools import ResultStatus
from tests.support.pages import FILE
from tests.support.patience import PATIENCE_S
from tests.unit.agent_tools.browser.conftest import Desk

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _left(desk: Desk) -> list[Path]:
    return [path for path in (*desk.session.folder.rglob("*"), *desk.work.cwd.rglob("*")) if path.is_file()]


async def _sent_in_all(desk: Desk) -> int:
    """Return the bytes that the server sent, once 0.3 s pass without more. Raises `TimeoutError` when it never stops.

    The connection still takes what was on its way when the download was stopped.
    """
    async with asyncio.timeout(PATIENCE_S):
        sent = -1
        while sent != desk.pages.streamed:
            sent = desk.pages.streamed
            await asyncio.sleep(0.3)
    return sent


@pytest.mark.parametrize("how", ["url", "ref"])
async def test_a_download_arrives_whole(desk: Desk, how: str) -> None:
    await desk.open("/files")
    more = {"url": f"{desk.pages.here}/file"} if how == "url" else {"ref": await desk.ref("The file")}
    result = await desk("download", **more)
    assert result.status is ResultStatus.OK, result
    (path,) = _left(desk)
    assert path.read_bytes() == FILE
    assert path.parent == desk.work.cwd / "downloads"
    assert path.name.startswith("jul-y-")
    assert path.suffix == ".pdf"
    assert "“_.._Jul y.PDF”" in result.text
    assert desk.work.kept == [(path, path.name, "application/pdf")]
    assert desk.url.endswith("/files")


async def test_displayable_download_is_stored(desk: Desk) -> None:
    await desk.open("/files")
    result = await desk("download", ref=await desk.ref("A picture"), path="pictures/one.png")
    assert result.text.startswith("pictures/one.png (20 bytes)")
    assert (desk.work.cwd / "pictures/one.png").is_file()
    assert (await desk("download", url=f"{desk.pages.here}/plain")).status is ResultStatus.OK
    again = await desk("download", url=f"{desk.pages.here}/image", path="pictures/one.png")
    assert (again.code, again.text) == ("path", "`pictures/one.png` exists already.")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["url", "ref"])
async def test_a_file_without_an_end_is_stopped(desk: Desk, how: str) -> None:
    desk.settings = BrowserSettings(download_mb=4)
    await desk.open("/files")
    more = {"url": f"{desk.pages.here}/forever"} if how == "url" else {"ref": await desk.ref("The large file")}
    result = await desk("download", **more)
    assert (result.status, result.code) == (ResultStatus.ERROR, "size")
    assert "larger than 4 MB" in result.text
    assert not _left(desk)
    assert await _sent_in_all(desk) < 40 * 1024 * 1024


async def test_a_download_that_is_cut_leaves_nothing(desk: Desk) -> None:
    desk.settings = BrowserSettings(download_mb=10_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await desk("download", url=f"{desk.pages.here}/forever")
    await asyncio.sleep(0.3)
    assert not _left(desk)
    assert len(desk.session.context.pages) == 1


async def test_downloads_that_are_none(desk: Desk) -> None:
    result = await desk("download", url=f"{desk.pages.here}/missing")
    assert (result.code, result.text) == ("load", "The host answered 404: there is no file.")
    desk.session.scopes |= {"127.0.0.1:2"}
    result = await desk("download", url="http://127.0.0.1:2/file")
    assert (result.code, result.text) == ("load", "The host refuses connections.")
    elsewhere = f"{desk.pages.elsewhere}/file"
    result = await desk("download", url=f"{desk.pages.here}/redirect?to={elsewhere}")
    assert (result.code, elsewhere in result.text) == ("outside", True)
    assert not desk.pages.reached("/file")
    assert not _left(desk)


async def test_upload_gives_the_file_to_the_page(desk: Desk) -> None:
    (desk.work.cwd / "sub").mkdir()
    (desk.work.cwd / "sub" / "a.txt").write_text("hello")
    await desk.open("/upload")
    assert (
        "a.txt: hello"
        in (await desk("upload", host=desk.pages.scope, ref=await desk.ref("File"), path="sub/a.txt")).text
    )
    (desk.work.cwd / "b.txt").write_text("again")
    assert (
        "b.txt: again" in (await desk("upload", host=desk.pages.scope, ref=await desk.ref("Choose"), path="b.txt")).text
    )


async def test_upload_takes_nothing_from_elsewhere(desk: Desk) -> None:
    secret = desk.work.cwd.parent / "secret"
    secret.write_text("secret words")
    (desk.work.cwd / "folder").mkdir()
    (desk.work.cwd / "link").symlink_to(secret)
    (desk.work.cwd / "linked").symlink_to(desk.work.cwd.parent)
    os.mkfifo(desk.work.cwd / "fifo")
    await desk.open("/upload")
    ref = await desk.ref("File")
    for path in ("../secret", "link", "folder/../../secret", "linked/secret", "folder", "fifo", "/etc/hosts"):
        result = await desk("upload", host=desk.pages.scope, ref=ref, path=path)
        assert (result.status, result.code) == (ResultStatus.ERROR, "path"), path
        assert "none" in (await desk("snapshot")).text, path


async def test_upload_gives_nothing_to_a_page_of_another_host(desk: Desk) -> None:
    """The tab went on to it after somebody had allowed the upload; it may be there, and lists the same fields."""
    (desk.work.cwd / "a.txt").write_text("hello")
    desk.session.scopes |= {desk.pages.elsewhere.removeprefix("http://")}
    await desk("open", url=f"{desk.pages.elsewhere}/upload")
    result = await desk("upload", host=desk.pages.scope, ref=await desk.ref("File"), path="a.txt")
    assert (result.status, result.code) == (ResultStatus.ERROR, "host")
    assert "none" in (await desk("snapshot")).text


async def test_a_page_as_pdf(desk: Desk) -> None:
    await desk.open("/plain")
    result = await desk("pdf")
    (path,) = _left(desk)
    assert path.read_bytes().startswith(b"%PDF-")
    assert path.parent == desk.work.cwd / "browser"
    assert desk.work.kept == [(path, path.name, "application/pdf")]
    assert result.files[0].name == path.name
    assert (await desk("pdf", path="../out.pdf")).code == "path"
    assert (await desk("pdf", path=f"{desk.work.cwd}/inbox")).code == "path"
    assert (await desk("download", url=f"{desk.pages.here}/file", path=f"{desk.work.cwd}/inbox")).code == "path"
    (desk.work.cwd / "away").symlink_to(desk.work.cwd.parent)
    assert (await desk("pdf", path="away/out.pdf")).code == "path"
    assert not (desk.work.cwd.parent / "out.pdf").exists()


# --- without a browser ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suggested", "begins", "ends"),
    [
        ("../../etc/passwd", "passwd-", ""),
        ("..", "file-", ""),
        ("", "file-", ""),
        ("July report.PDF", "july-report-", ".pdf"),
        ("a.tar.gz", "a-tar-", ".gz"),
        ("x.exe\u202efdp", "x-", ".exefdp"),
        ("c:\\windows\\evil.dll", "evil-", ".dll"),
        ("é" * 500 + "." + "z" * 500, "file-", ".zzzzzzzz"),
    ],
)
async def test_names_that_are_safe(suggested: str, begins: str, ends: str) -> None:
    name = safe_name(suggested, "file")
    assert name.startswith(begins)
    assert name.endswith(ends)
    assert len(name) == len(begins) + 6 + len(ends)
