"""Start-up guard: verifies that our four import names are ours. Runs before anything else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gateway.errors import StartError

NAMES = ("gateway", "channels", "agent_tools", "config")


def check_imports() -> None:
    """Raise `StartError` unless all four packages come from one folder.

    `channels` and `config` are generic names. Another package of that name, earlier on the path or installed over
    ours, would be imported with the daemon's rights.
    """
    root = Path(__file__).resolve().parents[2]
    for name in NAMES:
        origin = _origin(name)
        if origin is None:
            raise StartError(
                f"The package {name!r}, a part of Dragoman, is missing or is not a regular package.", cure=_CURE
            )
        if origin.parent.parent != root or origin.name != "__init__.py":
            raise StartError(
                f"Another package has taken the import name {name!r}: {origin}. Dragoman's own is in {root}.",
                cure=_CURE,
            )
        if _has_code(origin):
            # Installed over ours: the path is right, the content is foreign. Ours hold at most a docstring.
            raise StartError(f"Another package was installed over {origin.parent}.", cure=_CURE)


_CURE = "Install Dragoman into an environment of its own (./run makes one), and keep other folders off PYTHONPATH."


def _has_code(init: Path) -> bool:
    code = compile(init.read_bytes(), str(init), "exec", dont_inherit=True)
    return bool(set(code.co_names) - {"__doc__", "__future__", "annotations"})


def _origin(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # sys.modules holds a module without a spec
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
