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
from tests.support.surroundings import until
from tests.unit.agent_tools.browser.conftest import Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _left(rig: Rig) -> list[Path]:
    return [path for path in (*rig.session.folder.rglob("*"), *rig.work.cwd.rglob("*")) if path.is_file()]


async def _sent_in_all(rig: Rig) -> int:
    """Return the bytes that the server sent, once 0.3 s pass without more. Raises `TimeoutError` when it never stops.

    The connection still takes what was on its way when the download was stopped.
    """
    async with asyncio.timeout(PATIENCE_S):
        sent = -1
        while sent != rig.pages.streamed:
            sent = rig.pages.streamed
            await asyncio.sleep(0.3)
    return sent


@pytest.mark.parametrize("how", ["url", "ref"])
async def test_a_download_arrives_whole(rig: Rig, how: str) -> None:
    await rig.open("/files")
    more = {"url": f"{rig.pages.here}/file"} if how == "url" else {"ref": await rig.ref("The file")}
    result = await rig("download", **more)
    assert result.status is ResultStatus.OK, result
    (path,) = _left(rig)
    assert path.read_bytes() == FILE
    assert path.parent == rig.work.cwd / "downloads"
    assert path.name.startswith("jul-y-")
    assert path.suffix == ".pdf"
    assert "“_.._Jul y.PDF”" in result.text
    assert rig.work.kept == [(path, path.name, "application/pdf")]
    assert rig.url.endswith("/files")


async def test_displayable_download_is_stored(rig: Rig) -> None:
    await rig.open("/files")
    result = await rig("download", ref=await rig.ref("A picture"), path="pictures/one.png")
    assert result.text.startswith("pictures/one.png (20 bytes)")
    assert (rig.work.cwd / "pictures/one.png").is_file()
    assert (await rig("download", url=f"{rig.pages.here}/plain")).status is ResultStatus.OK
    again = await rig("download", url=f"{rig.pages.here}/image", path="pictures/one.png")
    assert (again.code, again.text) == ("path", "`pictures/one.png` exists already.")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["url", "ref"])
async def test_a_file_without_an_end_is_stopped(rig: Rig, how: str) -> None:
    rig.settings = BrowserSettings(download_mb=4)
    await rig.open("/files")
    more = {"url": f"{rig.pages.here}/forever"} if how == "url" else {"ref": await rig.ref("The large file")}
    result = await rig("download", **more)
    assert (result.status, result.code) == (ResultStatus.ERROR, "size")
    assert "larger than 4 MB" in result.text
    assert not _left(rig)
    assert await _sent_in_all(rig) < 40 * 1024 * 1024


async def test_a_download_that_is_cut_leaves_nothing(rig: Rig) -> None:
    rig.settings = BrowserSettings(download_mb=10_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await rig("download", url=f"{rig.pages.here}/forever")
    await until(lambda: len(rig.session.context.pages) == 1)
    await asyncio.sleep(0.3)
    assert not _left(rig)
    assert len(rig.session.context.pages) == 1


async def test_downloads_that_are_none(rig: Rig) -> None:
    result = await rig("download", url=f"{rig.pages.here}/missing")
    assert (result.code, result.text) == ("load", "The host answered 404: there is no file.")
    rig.session.scopes |= {"127.0.0.1:2"}
    result = await rig("download", url="http://127.0.0.1:2/file")
    assert (result.code, result.text) == ("load", "The host refuses connections.")
    elsewhere = f"{rig.pages.elsewhere}/file"
    result = await rig("download", url=f"{rig.pages.here}/redirect?to={elsewhere}")
    assert (result.code, elsewhere in result.text) == ("outside", True)
    assert not rig.pages.reached("/file")
    assert not _left(rig)


async def test_upload_gives_the_file_to_the_page(rig: Rig) -> None:
    (rig.work.cwd / "sub").mkdir()
    (rig.work.cwd / "sub" / "a.txt").write_text("hello")
    await rig.open("/upload")
    assert (
        "a.txt: hello" in (await rig("upload", host=rig.pages.scope, ref=await rig.ref("File"), path="sub/a.txt")).text
    )
    (rig.work.cwd / "b.txt").write_text("again")
    assert "b.txt: again" in (await rig("upload", host=rig.pages.scope, ref=await rig.ref("Choose"), path="b.txt")).text


async def test_upload_takes_nothing_from_elsewhere(rig: Rig) -> None:
    secret = rig.work.cwd.parent / "secret"
    secret.write_text("secret words")
    (rig.work.cwd / "folder").mkdir()
    (rig.work.cwd / "link").symlink_to(secret)
    (rig.work.cwd / "linked").symlink_to(rig.work.cwd.parent)
    os.mkfifo(rig.work.cwd / "fifo")
    await rig.open("/upload")
    ref = await rig.ref("File")
    for path in ("../secret", "link", "folder/../../secret", "linked/secret", "folder", "fifo", "/etc/hosts"):
        result = await rig("upload", host=rig.pages.scope, ref=ref, path=path)
        assert (result.status, result.code) == (ResultStatus.ERROR, "path"), path
        assert "none" in (await rig("snapshot")).text, path


async def test_upload_gives_nothing_to_a_page_of_another_host(rig: Rig) -> None:
    """The tab went on to it after somebody had allowed the upload; it may be there, and lists the same fields."""
    (rig.work.cwd / "a.txt").write_text("hello")
    rig.session.scopes |= {rig.pages.elsewhere.removeprefix("http://")}
    await rig("open", url=f"{rig.pages.elsewhere}/upload")
    result = await rig("upload", host=rig.pages.scope, ref=await rig.ref("File"), path="a.txt")
    assert (result.status, result.code) == (ResultStatus.ERROR, "host")
    assert "none" in (await rig("snapshot")).text


async def test_a_page_as_pdf(rig: Rig) -> None:
    await rig.open("/plain")
    result = await rig("pdf")
    (path,) = _left(rig)
    assert path.read_bytes().startswith(b"%PDF-")
    assert path.parent == rig.work.cwd / "browser"
    assert rig.work.kept == [(path, path.name, "application/pdf")]
    assert result.files[0].name == path.name
    assert (await rig("pdf", path="../out.pdf")).code == "path"
    assert (await rig("pdf", path=f"{rig.work.cwd}/inbox")).code == "path"
    assert (await rig("download", url=f"{rig.pages.here}/file", path=f"{rig.work.cwd}/inbox")).code == "path"
    (rig.work.cwd / "away").symlink_to(rig.work.cwd.parent)
    assert (await rig("pdf", path="away/out.pdf")).code == "path"
    assert not (rig.work.cwd.parent / "out.pdf").exists()


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
