"""Who may be a node of a gateway."""

from __future__ import annotations

import pytest

from gateway.domain.nodes import KeyMark, KeySource, NodeEntry
from gateway.errors import ConfigError
from tests.contract.scene import NODE, OTHER_NODE, Scene

STATE, CLUSTER = KeySource.STATE, KeySource.CLUSTER


async def _join(scene: Scene, *keys: tuple[KeySource, str]) -> None:
    for node, (source, fingerprint) in zip((NODE, OTHER_NODE, NODE), keys, strict=False):
        await scene.store.join(NodeEntry(node=node, key=KeyMark(fingerprint=fingerprint, source=source)))


@pytest.mark.conformance
@pytest.mark.parametrize(
    "keys",
    [
        ((STATE, "a"), (STATE, "a")),
        ((CLUSTER, "a"), (CLUSTER, "a")),
        ((STATE, "a"), (CLUSTER, "b"), (CLUSTER, "b")),
    ],
    ids=["its own again", "one of all", "from its own to one of all"],
)
async def test_nodes_with_one_key_join(scene: Scene, keys: tuple[tuple[KeySource, str], ...]) -> None:
    await _join(scene, *keys)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (((STATE, "a"), (STATE, "b")), r"another state folder\. Set \[cluster\] key on every node"),
        (((CLUSTER, "a"), (STATE, "b")), r"this one has none\. Give every node the same \[cluster\] key"),
        (((CLUSTER, "a"), (CLUSTER, "b")), r"another \[cluster\] key than this one\. Give every node the same"),
        (((STATE, "a"), (CLUSTER, "b"), (STATE, "a")), r"this one has none\. Give every node"),
    ],
    ids=["two own ones", "none", "another one", "back to its own"],
)
async def test_a_node_with_another_key_is_refused(
    scene: Scene, keys: tuple[tuple[KeySource, str], ...], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        await _join(scene, *keys)


async def test_a_node_without_a_mark_joins_any_store(scene: Scene) -> None:
    """No other node can open its store."""
    await _join(scene, (STATE, "a"))
    await scene.store.join(NodeEntry(node=OTHER_NODE, key=None))
