"""The tool `send_file`: what leaves the workspace, under which name, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_tools import send_file
from gateway.domain.tools import Artifact, ResultStatus
from gateway.errors import BadRequest, DragomanError
from gateway.toolcalls.artifacts import ArtifactStore
from tests.unit.agent_tools.files.conftest import Bench, Call

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


class Sending(Call):
    """A call that keeps files for people as the daemon does."""

    async def file(self, path: Path, name: str, media_type: str) -> Artifact:
        return ArtifactStore(self.cwd.parent / "outputs", "t1-1").file(self.cwd, path, name, media_type)


async def sent(bench: Bench, path: str, name: str | None = None) -> Artifact:
    args = send_file.Args(path=path, name=name)
    assert send_file.scope(args, None).subjects == (f"path:{path}",)
    result = await send_file.run(Sending(bench.workspace, bench.changes(), {}), args)
    assert result.status is ResultStatus.OK
    (kept,) = result.files
    return kept


@pytest.mark.parametrize(
    ("data", "path", "name", "shown", "kind"),
    [
        (PNG, "plots/a.png", None, "a.png", "image/png"),
        (PNG, "plots/a.dat", "chart.png", "chart.png", "image/png"),
        (b"%PDF-1.7", "july.pdf", None, "july.pdf", "application/pdf"),
        (b"a,b\n", "table.csv", None, "table.csv", "text/csv"),
        (b"x", "what.ever", None, "what.ever", "application/octet-stream"),
    ],
)
async def test_a_file_is_kept_with_name_and_type(
    bench: Bench, data: bytes, path: str, name: str | None, shown: str, kind: str
) -> None:
    bench.path(path).parent.mkdir(exist_ok=True)
    bench.path(path).write_bytes(data)
    kept = await sent(bench, path, name)
    assert (kept.name, kept.media_type) == (shown, kind)
    assert (bench.workspace.parent / "outputs" / kept.file).read_bytes() == data


async def test_an_empty_file_is_not_sent(bench: Bench) -> None:
    bench.path("empty").touch()
    with pytest.raises(BadRequest, match="is empty"):
        await sent(bench, "empty")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "link", "none"])
async def test_a_path_elsewhere_is_not_sent(bench: Bench, tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_text("secret")
    bench.path("link").symlink_to(tmp_path / "x")
    with pytest.raises(DragomanError):
        await sent(bench, path)
