"""The sandbox `full` and read-only workspaces, with real programs: no secret file is read, nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.domain.tools import SandboxMode
from gateway.errors import BadRequest
from gateway.sandbox import Confinement, Containment, ProcessLimits, run_contained
from gateway.sandbox.masks import Masks, secrets_in

SECRET = "t0ken-of-the-owner"
HIDDEN = (
    ".env", ".env.local", ".envrc", "deploy/.env.production", "keys/id_ed25519", "keys/id_rsa.bak", "tls/server.key",
    "tls/server.pem", ".netrc", ".git-credentials", ".npmrc", "pkg/.pypirc", "deep/a/b/c/.env", ".env.d/inner",
)  # fmt: skip
SHOWN = (".env.example", ".env.sample", "keys/id_ed25519.pub", "main.py", "notes/key.md")


class Printed:
    """`Output` that stores everything."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


class Place:
    """A workspace with secrets, and programs in it."""

    def __init__(self, folder: Path, machine: Containment) -> None:
        self.workspace = folder / "state" / "workspaces" / "w"
        self.workspace.mkdir(parents=True)
        self.machine = machine
        for name in (*HIDDEN, *SHOWN):
            self.put(name, SECRET if name in HIDDEN else "harmless")

    def put(self, name: str, text: str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def run(self, script: str, mode: SandboxMode = SandboxMode.FULL, *, read_only: bool = False) -> str:
        printed = Printed()
        await run_contained(
            ["/bin/bash", "--noprofile", "--norc", "-c", script],
            within=Confinement(mode=mode, read_only=read_only),
            workspace=self.workspace,
            cwd=self.workspace,
            output=printed,
            containment=self.machine,
            limits=ProcessLimits(),
        )
        return printed.data.decode()


@pytest.fixture
def place(tmp_path: Path, machine: Containment) -> Place:
    return Place(tmp_path, machine)


WAYS_TO_READ = (
    "cat .env",
    "grep -r . .",
    "find . -type f -exec cat {} +",
    "tar cf - . | strings",
    "python3 -c \"import pathlib; [print(p.read_bytes()) for p in pathlib.Path('.').rglob('*') if p.is_file()]\"",
    "cp -a . /tmp/copy; grep -r . /tmp/copy",
    "mv .env x; cat x; ls x",
    "ln .env x; cat x",
    "ln -s .env x; cat x",
    "mv deploy d2; cat d2/.env.production",
    "rm -f .env; cat .env",
    "umount .env; cat .env",
    "mount --bind . /tmp; cat /tmp/.env",
    "unshare -Urm sh -c 'umount .env; cat .env'",
    "cat /proc/1/cwd/.env /proc/self/root$PWD/.env",
    "exec 9<.env; cat <&9",
    "dd if=.env",
    "mknod n c 1 3; source .env; echo $TOKEN",
    "chmod -R 777 .; cat .env deploy/.env.production",
    "cd deep/a/b/c && cat .env ../../../../.npmrc",
)


@pytest.mark.parametrize("script", WAYS_TO_READ)
async def test_full_shows_no_secret(place: Place, script: str) -> None:
    printed = await place.run(f"{{ {script}; }} 2>&1; echo end")
    assert printed.endswith("end\n")
    assert SECRET not in printed


async def test_full_leaves_the_workspace_as_it_was(place: Place) -> None:
    await place.run("; ".join(WAYS_TO_READ))
    assert all((place.workspace / name).is_file() for name in SHOWN)
    assert (place.workspace / ".env").read_text() == SECRET
    assert sum(
        path.read_text() == SECRET for path in place.workspace.rglob("*") if path.is_file() and not path.is_symlink()
    ) == len(HIDDEN)


async def test_full_shows_and_writes_all_the_rest(place: Place) -> None:
    printed = await place.run(f"cat {' '.join(SHOWN)}; echo new > kept && cat kept; head -c1 .env || echo refused")
    assert printed.startswith("harmless" * len(SHOWN) + "new\n")
    assert "Permission denied" in printed
    assert printed.endswith("refused\n")
    assert (place.workspace / "kept").read_text() == "new\n"


async def test_basic_shows_what_full_hides(place: Place) -> None:
    """Otherwise the tests above would pass without any mask."""
    assert await place.run("cat .env", SandboxMode.BASIC) == SECRET


async def test_full_hides_other_names_of_a_secret(place: Place) -> None:
    os.link(place.workspace / ".env", place.workspace / "harmless.txt")
    place.put("real/settings", SECRET)
    (place.workspace / ".env.link").symlink_to("real/settings")
    assert SECRET not in await place.run("cat harmless.txt real/settings .env.link 2>&1")


@pytest.mark.parametrize("mode", [SandboxMode.BASIC, SandboxMode.FULL])
async def test_a_read_only_workspace_cannot_be_changed(place: Place, mode: SandboxMode) -> None:
    before = {path: path.read_bytes() for path in place.workspace.rglob("*") if path.is_file()}
    printed = await place.run(
        "{ echo x > main.py; echo x > new; rm -rf notes; mv main.py m; touch -d yesterday main.py; mkdir d; "
        "git init -q .; chmod 777 main.py; } 2>/dev/null; cat main.py; echo ok > /tmp/x && cat /tmp/x",
        mode,
        read_only=True,
    )
    assert printed == "harmlessok\n"
    assert {path: path.read_bytes() for path in place.workspace.rglob("*") if path.is_file()} == before


def test_a_link_out_of_the_workspace_is_nothing_to_hide(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".env").symlink_to("/etc/hostname")
    (tmp_path / "w" / ".npmrc").symlink_to("nowhere")
    assert secrets_in(tmp_path / "w") == Masks()


def test_unsearchable_workspace_is_refused(place: Place) -> None:
    with pytest.raises(BadRequest, match="more than 10 files, too many to look for secret ones"):
        secrets_in(place.workspace, looked_at=10)
    with pytest.raises(BadRequest, match="more than 3 secret files"):
        secrets_in(place.workspace, hidden=3)


@pytest.mark.parametrize("mode", [0o000, 0o300])
def test_a_folder_that_cannot_be_read_is_hidden(tmp_path: Path, mode: int) -> None:
    if os.geteuid() == 0:  # for root every folder can be read, and what is in it is found
        (tmp_path / "closed").mkdir(mode=mode)
        (tmp_path / "closed" / ".env").write_text(SECRET)
        assert secrets_in(tmp_path) == Masks(files=(f"{tmp_path}/closed/.env",))
        return
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(mode)
    try:
        assert secrets_in(tmp_path) == Masks(folders=(str(closed),))
    finally:
        closed.chmod(0o700)


TRAP = "#!/bin/sh\necho trapped by $0\necho trapped by $0 >&2\n"
TRAPS = ("core.fsmonitor", "gpg.program", "core.pager")


@pytest.mark.parametrize("command", ["git status", "git log --oneline", "git ls-files", "git grep -c x"])
async def test_git_that_only_reads_runs_no_program_of_the_workspace(place: Place, command: str) -> None:
    """A clone brings no settings of git, but whoever could write the workspace once could leave some (I10)."""
    trap = place.put("trap", TRAP)
    trap.chmod(0o755)
    settings = "; ".join(f"git config {name} {trap}" for name in TRAPS)
    hooks = "; ".join(f"cp trap .git/hooks/{name}" for name in ("post-index-change", "reference-transaction"))
    who = "-c user.name=a -c user.email=a@b.example"
    begun = f"git init -q; echo x > a; git add a; git {who} commit -qm x; {settings}; {hooks}"
    await place.run(f"{begun}; git config log.showSignature true; touch -d 2001-01-01 a", SandboxMode.BASIC)
    assert "trapped" not in await place.run(command, SandboxMode.BASIC, read_only=True)
    assert "trapped" in await place.run("git status", SandboxMode.BASIC)
