"""Names of files that hold secrets, for rules, file tools and the sandbox `full`. Pure.

A new name goes into both lists.
"""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"(?!\.env\.(?:example|sample|template)\Z|id_.*\.pub\Z)"  # made to be read
    r"(?:\.env.*"  # .env, .env.local, .envrc
    r"|id_(?:rsa|dsa|ecdsa|ed25519|xmss).*"  # private keys of SSH, and copies of them
    r"|.*\.(?:pem|key)"
    r"|\.netrc|\.git-credentials|\.npmrc|\.pypirc|\.pgpass|\.htpasswd|\.vault-token"
    r"|\.(?:ssh|aws|gnupg|kube|docker)"  # folders of programs' credentials
    r"|.*\.(?:p12|pfx|kdbx))",
    re.IGNORECASE | re.DOTALL,
)

SECRET_GLOBS = (
    ".env*", "id_*", "*.pem", "*.key", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".htpasswd",
    ".vault-token", ".ssh", ".aws", ".gnupg", ".kube", ".docker", "*.p12", "*.pfx", "*.kdbx",
)  # fmt: skip
"""Patterns that cover all of these names, for programs that search by patterns. They cover harmless names, too."""
_BEGINS = frozenset(letter for glob in SECRET_GLOBS if glob[0] != "*" for letter in (glob[0].lower(), glob[0].upper()))
_ENDINGS = [len(glob) - 1 for glob in SECRET_GLOBS if glob[0] == "*"]
_DOT = slice(-max(_ENDINGS), 1 - min(_ENDINGS))
"""Part of a name in which the dot of a secret ending stands."""


def is_secret_name(name: str) -> bool:
    """Return whether a file or folder of this name holds secrets. Upper and lower case are alike."""
    # Nearly all names are told apart by a look at their ends: a whole workspace is searched before a program starts.
    return (name[:1] in _BEGINS or "." in name[_DOT]) and _SECRET.fullmatch(name) is not None


def is_secret_path(path: str) -> bool:
    """Return whether a path names a secret, or something in a folder that does: `.env`, `deploy/.env/prod`."""
    return any(is_secret_name(part) for part in path.split("/"))
