"""Sessions and routes to them."""

from __future__ import annotations

from gateway.domain.ids import OwnerName, SessionId
from gateway.domain.routes import Route, main_route
from gateway.domain.sessions import Origin, SessionKind

ANN = OwnerName("ann")


def test_main_route_leads_to_the_owners_session() -> None:
    assert main_route(ANN) == Route(
        session=SessionId("main:ann"), kind=SessionKind.MAIN, origin=Origin.DIRECT, owner=ANN, title="ann"
    )
