"""Chromium lookup. Runs when the first page is opened, so that a browser installed meanwhile is used at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.errors import NotFound

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "chromium-headless-shell",
)
"""Names of its executable in distributions, in order of preference."""
_IN_ITS_FOLDER = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
_INSTALLERS = {
    "debian": "apt install chromium",
    "fedora": "dnf install chromium",
    "rhel": "dnf install chromium",
    "arch": "pacman -S chromium",
    "alpine": "apk add chromium",
    "suse": "zypper install chromium",
    "opensuse": "zypper install chromium",
}
"""Install commands by `ID` or `ID_LIKE` of /etc/os-release. Ubuntu's own is a snap, which runs in no other sandbox."""
_SNAP_STUB = b"/snap/bin/chromium"


def find_chromium(
    executable: str | None, environ: Mapping[str, str], os_release: Path = Path("/etc/os-release")
) -> Path:
    """Return the Chromium to run: the configured one, playwright's own, or the system's.

    Raises `NotFound`, whose cure is the command for this system.
    """
    if executable is not None:
        path = Path(executable).expanduser()
        if _can_run(path):
            return path.absolute()
        raise NotFound(
            f"The browser {executable} cannot be run.",
            cure="Correct `executable` in [tools.browser], or remove it to have one found.",
        )
    found = next(_candidates(environ), None)
    if found is None:
        raise NotFound("There is no Chromium on this machine.", cure=_cure(os_release))
    return found


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    own = [path for pattern in _IN_ITS_FOLDER for path in _own_folder(environ).glob(pattern)]
    yield from (path for path in sorted(own, key=_revision, reverse=True) if _can_run(path))
    for name in NAMES:
        path = shutil.which(name, path=environ.get("PATH", os.defpath))
        if path is not None and not _is_snap(Path(path)):
            yield Path(path)


def _own_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder where `playwright install` puts browsers; `0` means inside the package."""
    named = environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if named == "0":
        package = importlib.util.find_spec("playwright")
        return Path(package.origin).parent / "driver/package/.local-browsers" if package and package.origin else Path()
    if named:
        return Path(named)
    home = Path(environ.get("HOME") or "/nonexistent")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ms-playwright"


def _revision(path: Path) -> int:
    """Return the number in `chromium-1234`, 0 without one."""
    number = next((part.partition("-")[2] for part in path.parts if part.startswith("chromium-")), "")
    return int(number) if number.isdecimal() else 0


def _can_run(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_snap(path: Path) -> bool:
    """Return whether the file only starts a snap, which has its own sandbox and runs in no other."""
    try:
        with path.open("rb") as file:
            beginning = file.read(4096)
        return path.resolve().name == "snap" or (beginning.startswith(b"#!") and _SNAP_STUB in beginning)
    except OSError:
        return True


def _cure(os_release: Path) -> str:
    own = f"{sys.executable} -m playwright install chromium"
    if sys.platform == "darwin":
        return f"Install one: brew install --cask chromium (or: {own})."
    ids = _ids(os_release)
    system = next((_INSTALLERS[one] for one in ids if one in _INSTALLERS), None)
    if "ubuntu" in ids or system is None:
        return f"Install one: {own} --with-deps." if "ubuntu" in ids else f"Install one: {own}."
    return f"Install one: {system} (or: {own})."


def _ids(os_release: Path) -> list[str]:
    """Return `ID`, then `ID_LIKE`; empty when the file has neither."""
    try:
        lines = os_release.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return [word.strip("\"'").lower() for key in ("ID", "ID_LIKE") for word in values.get(key, "").split()]
