"""Choice of sandbox and network of a call, as tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from gateway.domain.tools import NetworkMode, NetworkPolicy, SandboxFloor, SandboxMode, SandboxPolicy
from gateway.errors import SandboxMissing
from gateway.sandbox import Containment, choose, network_for

BOTH = Containment(can_bwrap=True, can_pid_namespace=True)
NEITHER = Containment(can_bwrap=False, can_pid_namespace=False, why_no_bwrap="bubblewrap is not installed")
FULL = SandboxFloor(mode=SandboxMode.FULL)
READ_ONLY = SandboxFloor(read_only=True)
N, P, H = NetworkMode.NONE, NetworkMode.PUBLIC, NetworkMode.HOST


@pytest.mark.parametrize(
    ("wanted", "is_main", "containment", "mode"),
    [
        (SandboxPolicy.OFF, True, BOTH, SandboxMode.OFF),
        (SandboxPolicy.OFF, True, NEITHER, SandboxMode.OFF),
        (SandboxPolicy.OFF, False, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.OFF, False, NEITHER, None),
        (SandboxPolicy.BASIC, True, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.BASIC, True, NEITHER, None),
        (SandboxPolicy.BASIC, False, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.BASIC, False, NEITHER, None),
        (SandboxPolicy.AUTO, True, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.AUTO, True, NEITHER, SandboxMode.OFF),
        (SandboxPolicy.AUTO, False, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.AUTO, False, NEITHER, None),
        (SandboxPolicy.BASIC, True, replace(NEITHER, can_pid_namespace=True), None),
        (SandboxPolicy.FULL, True, BOTH, SandboxMode.FULL),
        (SandboxPolicy.FULL, True, NEITHER, None),
        (SandboxPolicy.FULL, False, BOTH, SandboxMode.FULL),
        (SandboxPolicy.FULL, False, NEITHER, None),
    ],
)
def test_the_host_is_for_main_only(
    wanted: SandboxPolicy, is_main: bool, containment: Containment, mode: SandboxMode | None
) -> None:
    if mode is not None:
        assert choose(wanted, is_main, containment) == mode
        return
    with pytest.raises(SandboxMissing, match=r"bubblewrap is not installed.* `dragoman check`"):
        choose(wanted, is_main, containment)


@pytest.mark.parametrize(
    ("wanted", "least", "containment", "mode"),
    [
        (SandboxPolicy.OFF, FULL, BOTH, SandboxMode.FULL),
        (SandboxPolicy.BASIC, FULL, BOTH, SandboxMode.FULL),
        (SandboxPolicy.AUTO, FULL, BOTH, SandboxMode.FULL),
        (SandboxPolicy.AUTO, FULL, NEITHER, None),
        (SandboxPolicy.OFF, FULL, NEITHER, None),
        (SandboxPolicy.OFF, READ_ONLY, BOTH, SandboxMode.BASIC),
        (SandboxPolicy.AUTO, READ_ONLY, NEITHER, None),
        (SandboxPolicy.FULL, READ_ONLY, BOTH, SandboxMode.FULL),
        (SandboxPolicy.FULL, SandboxFloor(mode=SandboxMode.BASIC), BOTH, SandboxMode.FULL),
    ],
)
def test_a_session_may_demand_more_containment(
    wanted: SandboxPolicy, least: SandboxFloor, containment: Containment, mode: SandboxMode | None
) -> None:
    if mode is not None:
        assert choose(wanted, True, containment, least) is mode
        return
    with pytest.raises(SandboxMissing, match="bubblewrap is not installed"):
        choose(wanted, True, containment, least)


# Columns: main and pressed, main and not pressed, elsewhere and pressed, elsewhere and not pressed.
TABLE: dict[tuple[SandboxMode, NetworkPolicy], tuple[NetworkMode | None, ...]] = {
    (SandboxMode.OFF, NetworkPolicy.AUTO): (H, H, H, H),
    (SandboxMode.OFF, NetworkPolicy.HOST): (H, H, H, H),
    (SandboxMode.OFF, NetworkPolicy.NONE): (None, None, None, None),
    (SandboxMode.OFF, NetworkPolicy.PUBLIC): (None, None, None, None),
    (SandboxMode.BASIC, NetworkPolicy.AUTO): (H, N, N, N),
    (SandboxMode.BASIC, NetworkPolicy.HOST): (H, H, H, H),
    (SandboxMode.BASIC, NetworkPolicy.NONE): (N, N, N, N),
    (SandboxMode.BASIC, NetworkPolicy.PUBLIC): (P, P, P, P),
    (SandboxMode.FULL, NetworkPolicy.AUTO): (N, N, N, N),
    (SandboxMode.FULL, NetworkPolicy.HOST): (N, N, N, N),
    (SandboxMode.FULL, NetworkPolicy.NONE): (N, N, N, N),
    (SandboxMode.FULL, NetworkPolicy.PUBLIC): (P, P, P, P),
}


def test_the_table_of_networks_is_whole() -> None:
    assert set(TABLE) == set(product(SandboxMode, NetworkPolicy))


@pytest.mark.parametrize(("mode", "wanted"), TABLE)
def test_the_network_of_a_call(mode: SandboxMode, wanted: NetworkPolicy) -> None:
    for (is_main, pressed), network in zip(product((True, False), repeat=2), TABLE[mode, wanted], strict=True):
        if network is None:
            with pytest.raises(SandboxMissing, match=f"network = {wanted.value}"):
                network_for(wanted, mode, kind_is_main=is_main, pressed=pressed)
        else:
            assert network_for(wanted, mode, kind_is_main=is_main, pressed=pressed) is network


@pytest.mark.parametrize(("mode", "wanted", "is_main", "pressed"),
                         list(product(SandboxMode, NetworkPolicy, (True, False), (True, False))))  # fmt: skip
def test_a_decision_without_network_is_kept(
    mode: SandboxMode, wanted: NetworkPolicy, is_main: bool, pressed: bool
) -> None:
    if mode is SandboxMode.OFF:
        with pytest.raises(SandboxMissing, match="excludes"):
            network_for(wanted, mode, kind_is_main=is_main, pressed=pressed, no_network=True)
    else:
        assert network_for(wanted, mode, kind_is_main=is_main, pressed=pressed, no_network=True) is N
