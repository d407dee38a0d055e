from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.app.run import outbound_client


async def test_cookie_of_one_service_is_not_sent_to_another() -> None:
    """Nor kept: the client lives as long as the daemon."""
    sent: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Cookie", ""))
        response = web.Response()
        response.set_cookie("session", f"secret-{len(sent)}")
        return response

    app = web.Application()
    app.router.add_get("/", answer)
    servers = TestServer(app, host="localhost"), TestServer(app, host="localhost")
    async with servers[0] as one, servers[1] as other, outbound_client() as client:
        for server in (one, other, one):
            async with client.get(server.make_url("/")) as response:
                assert "session" in response.cookies
        assert len(client.cookie_jar) == 0
    assert sent == [""] * 3
