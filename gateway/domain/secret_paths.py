"""Names of files that hold secrets: the one list that rules, file tools and the sandbox `full` share. Pure."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"\.env.*"  # .env, .env.local, .envrc
    r"|id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk|xmss).*"  # private keys of SSH, and copies of them
    r"|.*\.(pem|key)"
    r"|\.netrc|\.git-credentials|\.npmrc|\.pypirc"
)
_HARMLESS = re.compile(r"\.env\.(example|sample|template)|id_.*\.pub")
"""Names that match `_SECRET`, and are made to be read."""


def is_secret_name(name: str) -> bool:
    """Return whether a file or folder of this name holds secrets. Upper and lower case are alike."""
    folded = name.lower()
    return _SECRET.fullmatch(folded) is not None and _HARMLESS.fullmatch(folded) is None


def is_secret_path(path: str) -> bool:
    """Return whether a path names a secret, or something in a folder that does: `.env`, `deploy/.env/prod`."""
    return any(is_secret_name(part) for part in path.split("/"))
