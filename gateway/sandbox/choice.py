"""Choice of a call's sandbox and network, from the configuration, the session and this machine. Pure.

Used by the call decider, before anybody is asked: a card says which ones were chosen.
"""

from __future__ import annotations

from gateway.domain.tools import NetworkMode, NetworkPolicy, SandboxFloor, SandboxMode, SandboxPolicy
from gateway.errors import SandboxMissing
from gateway.sandbox.plan import Containment

NO_FLOOR = SandboxFloor()
_BY_STRENGTH = (SandboxMode.OFF, SandboxMode.BASIC, SandboxMode.FULL)
_WANTED = {
    SandboxPolicy.OFF: SandboxMode.OFF,
    SandboxPolicy.BASIC: SandboxMode.BASIC,
    SandboxPolicy.AUTO: SandboxMode.BASIC,
    SandboxPolicy.FULL: SandboxMode.FULL,
}


def choose(
    wanted: SandboxPolicy, kind_is_main: bool, containment: Containment, least: SandboxFloor = NO_FLOOR
) -> SandboxMode:
    """Return the mode of a call. Raises `SandboxMissing` when the least mode required is not available.

    OFF is honoured in main only; everywhere else it is at least basic. AUTO in main is basic where it works. `least`:
    what the session demands beyond that.
    """
    floor = max(least.mode, _floor_of(kind_is_main, least), key=_BY_STRENGTH.index)
    mode = max(_WANTED[wanted], floor, key=_BY_STRENGTH.index)
    if mode is SandboxMode.OFF or containment.can_bwrap:
        return mode
    if wanted is SandboxPolicy.AUTO and floor is SandboxMode.OFF:
        return SandboxMode.OFF
    raise SandboxMissing(f"This needs the sandbox `{mode}`: {containment.why_no_bwrap or 'no probe was made'}.")


def _floor_of(kind_is_main: bool, least: SandboxFloor) -> SandboxMode:
    return SandboxMode.OFF if kind_is_main and not least.read_only else SandboxMode.BASIC


def network_for(
    wanted: NetworkPolicy, mode: SandboxMode, *, kind_is_main: bool, pressed: bool, no_network: bool = False
) -> NetworkMode:
    """Return the network of a call's programs. Raises `SandboxMissing` where no sandbox can close the host's.

    `pressed`: a person allowed this call, or its scope. `no_network`: the decision allows it only without a network.
    """
    if mode is SandboxMode.OFF:
        if wanted in (NetworkPolicy.AUTO, NetworkPolicy.HOST) and not no_network:
            return NetworkMode.HOST
        asked = "its decision" if no_network else f"`network = {wanted.value}`"
        raise SandboxMissing(f"Without a sandbox this runs in the host's network, which {asked} excludes.")
    if no_network:
        return NetworkMode.NONE
    match wanted:
        case NetworkPolicy.PUBLIC:
            return NetworkMode.PUBLIC
        case NetworkPolicy.HOST if mode is SandboxMode.BASIC:
            return NetworkMode.HOST
        case NetworkPolicy.AUTO if mode is SandboxMode.BASIC and kind_is_main and pressed:
            return NetworkMode.HOST
        case _:  # closed by default: whatever else has no network
            return NetworkMode.NONE
