from __future__ import annotations

from gateway.system.secret_key import SecretKey, cluster_key


def test_keys_for_two_purposes_differ_and_none_shows_the_root() -> None:
    key = SecretKey(b"r" * 32)
    made = [key.derived("files"), key.derived("buttons"), bytes.fromhex(key.fingerprint)]
    assert len(set(made)) == 3
    assert all(len(one) in (16, 32) for one in made)
    assert "rrr" not in repr(key)


def test_one_secret_is_one_key_on_every_node() -> None:
    assert cluster_key("x" * 40) == cluster_key("x" * 40) != cluster_key("x" * 41)
    assert len(cluster_key("x" * 40).root) == 32
