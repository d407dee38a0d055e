"""Sessions and the ways to them."""

from __future__ import annotations

from gateway.model.ids import OwnerName, SessionId
from gateway.model.routes import Route, main_route
from gateway.model.sessions import Origin, SessionKind

ANN = OwnerName("ann")


def test_the_way_to_an_owners_main_session() -> None:
    assert main_route(ANN) == Route(
        session=SessionId("main:ann"), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=ANN, title="ann"
    )
