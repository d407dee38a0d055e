"""Names of files that hold secrets, and names that only look like them."""

from __future__ import annotations

import pytest

from gateway.domain.secret_paths import SECRET_GLOBS, is_secret_name, is_secret_path


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".env.local", ".env.production", ".envrc", ".ENV", ".env.example.bak",
        "id_rsa", "id_ed25519", "id_ecdsa_sk", "id_rsa.bak", "ID_RSA",
        "server.pem", "tls.key", "TLS.KEY", ".pem",
        ".netrc", ".git-credentials", ".npmrc", ".pypirc",
        *(glob.replace("*", "a") for glob in SECRET_GLOBS),
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "env", "my.env", ".environment.d"[1:], ".env.example", ".env.sample", ".env.template", ".ENV.Example",
        "id_rsa.pub", "id_map.py", "id_", "key", "keys.py", "pem", "monkey", "npmrc", ".netrc.md", "notes.key.md",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("path", "secret"),
    [(".env", True), ("deploy/.env/prod", True), ("a/b/tls.key", True), ("a/b", False), ("a/.env.example", False)],
)
def test_a_path_is_as_secret_as_its_parts(path: str, secret: bool) -> None:
    assert is_secret_path(path) is secret
