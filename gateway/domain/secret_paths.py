"""Names of files that hold secrets, for rules, file tools, commands and the sandbox `full`. Pure.

A new name goes into `SECRET_GLOBS`; everything else follows from it.
"""

from __future__ import annotations

import re

SECRET_GLOBS = (
    ".env*", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_xmss*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx",
    ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", ".vault-token",
    ".ssh", ".aws", ".gnupg", ".kube", ".docker",
)  # fmt: skip
"""Patterns of these names: files of settings and keys, and folders of programs' credentials. They cover a few harmless
names, too (`_HARMLESS`), in programs that search by patterns.
"""
_HARMLESS = r"\.env\.(?:example|sample|template)|id_.*\.pub"
"""Names that are made to be read."""
_ANY = "|".join(re.escape(glob).replace(r"\*", ".*") for glob in SECRET_GLOBS)
_SECRET = re.compile(rf"(?!(?:{_HARMLESS})\Z)(?:{_ANY})", re.IGNORECASE | re.DOTALL)
_BEGINS = frozenset(letter for glob in SECRET_GLOBS if glob[0] != "*" for letter in (glob[0].lower(), glob[0].upper()))
_ENDINGS = [len(glob) - 1 for glob in SECRET_GLOBS if glob[0] == "*"]
_DOT = slice(-max(_ENDINGS), 1 - min(_ENDINGS))
"""Part of a name in which the dot of a secret ending stands."""


def is_secret_name(name: str) -> bool:
    """Return whether a file or folder of this name holds secrets. Upper and lower case are alike."""
    # The end of a name decides nearly all of them: a whole workspace is searched before a program starts.
    return (name[:1] in _BEGINS or "." in name[_DOT]) and _SECRET.fullmatch(name) is not None


def is_secret_path(path: str) -> bool:
    """Return whether a path names a secret, or something in a folder that does: `.env`, `deploy/.env/prod`."""
    return any(is_secret_name(part) for part in path.split("/"))
