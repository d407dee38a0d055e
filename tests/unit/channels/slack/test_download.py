"""Downloads from a Slack on loopback, and from hosts that only resemble Slack's."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from channels.slack.adapter import SlackChannel
from channels.slack.download import SlackDownload
from channels.slack.failures import BAD_TOKEN
from channels.slack.request import SlackClient
from gateway.domain.messages import Attachment, Conversation
from gateway.errors import FetchFailed
from tests.support.bodies import Give, answering, endless, half
from tests.support.slack import FakeSlack, Fault, Shown, faults
from tests.support.slack.hosts import Answer, Hosts, hosts
from tests.support.surroundings import Taken, refusing
from tests.unit.channels.slack.scene import Scene, no_bans

ANN = "U0ANN"
DATA = bytes(range(256)) * 1000
DIRECT = Conversation(channel="slack", account="main", chat="D0ANN")
TOKEN = "xoxb-a-token-of-a-bot"


def named(message: Shown, **other: Any) -> Attachment:
    file = message.files[0]
    made = Attachment(source=file.id, name=file.name, media_type=file.mimetype, size=len(file.content or b""))
    return replace(made, **other)


async def failed(channel: SlackChannel, file: Attachment, write: Taken | None = None) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await channel.fetch(DIRECT, file, write or Taken())
    told = f"{caught.value!r} {caught.value.message} {caught.value.cure} {caught.value.__context__!r}"
    assert "xoxb" not in told
    assert "http" not in told
    return caught.value


# --- what works ---------------------------------------------------------------------------------


async def test_a_file_comes_in_pieces_with_the_token_and_unpacked(slack: FakeSlack, channel: SlackChannel) -> None:
    taken = Taken()
    await channel.fetch(DIRECT, named(slack.attach(ANN, DATA, name="d a t ä.bin")), taken)
    assert taken.data == DATA
    assert max(map(len, taken.pieces)) <= 65_536
    (asked,) = slack.fetched
    assert (asked.token, asked.encoding) == (slack.bot_token, "identity")


async def test_repeated_fetch_is_safe_and_an_empty_file_has_no_bytes(slack: FakeSlack, channel: SlackChannel) -> None:
    file, taken = named(slack.attach(ANN, b"")), Taken()
    await channel.fetch(DIRECT, file, taken)
    await channel.fetch(DIRECT, file, taken)
    assert taken.data == b""
    assert len(slack.fetched) == 2


async def test_html_file_of_a_person_is_fetched_as_it_is(slack: FakeSlack, channel: SlackChannel) -> None:
    taken = Taken()
    await channel.fetch(DIRECT, named(slack.attach(ANN, b"<p>hi", name="a.html", mimetype="text/html")), taken)
    assert taken.data == b"<p>hi"


# --- what Slack says of a file --------------------------------------------------------------------


async def test_missing_scope_is_reported_to_the_owners_with_its_cure(
    slack: FakeSlack, channel: SlackChannel, scene: Scene
) -> None:
    slack.world.scopes -= {"files:read"}
    error = await failed(channel, named(slack.attach(ANN)))
    assert not error.retryable
    assert "files:read" in error.message
    assert "slack-manifest" in error.cure
    assert ["files:read" in text for _, text in scene.host.alerts] == [True]


@pytest.mark.parametrize("error", sorted(BAD_TOKEN))
async def test_a_bad_token_is_reported_with_its_cure(slack: FakeSlack, channel: SlackChannel, error: str) -> None:
    slack.script(refusing("files.info", faults.error(error)))
    found = await failed(channel, named(slack.attach(ANN)))
    assert f"the bot_token ({error})" in found.message
    assert "bot_token" in found.cure


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [
        (faults.error("file_not_found"), False),
        (faults.error("file_deleted"), False),
        (faults.error("invalid_auth"), False),
        (faults.error("something_new"), False),
        (faults.too_many(7), True),
        (faults.broken(), True),
        (faults.page(), True),
        (faults.drop(), True),
        (faults.torn(), True),
    ],
)
async def test_failed_file_lookup_is_retryable_where_that_helps(
    slack: FakeSlack, channel: SlackChannel, fault: Fault, retryable: bool
) -> None:
    slack.script(refusing("files.info", fault))
    assert (await failed(channel, named(slack.attach(ANN)))).retryable is retryable
    assert slack.fetched == []


@pytest.mark.parametrize(
    "more",
    [
        {"mode": "hidden_by_limit"},
        {"mode": "external", "url_private": "https://drive.example/x"},
        {"is_external": True},
        {"url_private": None, "url_private_download": None},
        {"url_private_download": 7},
        {"url_private_download": "not an address"},
        {"url_private_download": "https://[::1"},
        {"url_private_download": "file:///etc/passwd"},
    ],
)
async def test_a_file_without_a_place_is_not_asked_for(
    slack: FakeSlack, channel: SlackChannel, more: dict[str, Any]
) -> None:
    sent = slack.attach(ANN)
    sent.files[0].more = more
    assert not (await failed(channel, named(sent))).retryable
    assert slack.fetched == []


async def test_a_file_that_was_deleted_is_said_to_be_gone(slack: FakeSlack, channel: SlackChannel) -> None:
    sent = slack.attach(ANN)
    sent.files[0].deleted = True
    assert "not in Slack any more" in (await failed(channel, named(sent))).message


async def test_a_file_of_an_account_that_is_not_there_is_not_asked_for(slack: FakeSlack, channel: SlackChannel) -> None:
    with pytest.raises(FetchFailed, match="no Slack account 'other'"):
        await channel.fetch(replace(DIRECT, account="other"), named(slack.attach(ANN)), Taken())
    assert slack.calls("files.info") == []


# --- what comes in place of the bytes -------------------------------------------------------------


def says(status: int) -> Give:
    return answering(status, b"<html>no</html>", "text/html")


@pytest.mark.parametrize(("status", "retryable"), [(403, False), (404, False), (500, True)])
async def test_another_answer_is_not_the_file(
    slack: FakeSlack, channel: SlackChannel, status: int, retryable: bool
) -> None:
    slack.hub.give, taken = says(status), Taken()
    assert (await failed(channel, named(slack.attach(ANN)), taken)).retryable is retryable
    assert taken.pieces == []


@pytest.mark.parametrize("mimetype", ["image/png", "text/html"])
async def test_a_page_to_sign_in_is_not_the_file(slack: FakeSlack, channel: SlackChannel, mimetype: str) -> None:
    slack.hub.give, taken = says(200), Taken()
    error = await failed(channel, named(slack.attach(ANN, mimetype=mimetype)), taken)
    assert ("web page" in error.message, "files:read" in error.cure, taken.pieces) == (True, True, [])


async def test_a_body_that_is_cut_may_be_asked_for_again(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.hub.give = half
    error = await failed(channel, named(slack.attach(ANN, DATA)))
    assert (error.retryable, error.message) == (True, "The file broke off after 1,000 of 256,000 bytes.")


async def test_writer_may_end_an_endless_body(slack: FakeSlack, channel: SlackChannel) -> None:
    slack.hub.give, taken = endless, Taken(full_at=1_000_000)
    with pytest.raises(OSError, match="the disk is full"):
        await channel.fetch(DIRECT, named(slack.attach(ANN, b"a few bytes")), taken)
    assert len(taken.data) < 1_100_000


async def test_a_client_that_is_closed_asks_nothing(slack: FakeSlack, channel: SlackChannel, scene: Scene) -> None:
    await scene.client.close()
    assert (await failed(channel, named(slack.attach(ANN)))).retryable


async def test_redirects_in_a_circle_end(slack: FakeSlack, channel: SlackChannel) -> None:
    async def give(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": request.path})

    slack.hub.give = give
    assert "moves from address to address" in (await failed(channel, named(slack.attach(ANN)))).message
    assert len(slack.fetched) == 4


# --- where the token goes -------------------------------------------------------------------------


def moved(to: str) -> Answer:
    return lambda _: web.Response(status=302, headers={"Location": to})


def data(_: web.BaseRequest) -> web.Response:
    return web.Response(body=b"the file")


async def outside(url: str, answers: dict[str, Answer], api: str = "https://slack.com/api/") -> tuple[Hosts, str]:
    """Fetch a file that Slack says is at `url`, where hosts answer as told; return them, and the bytes or the error."""

    def info(_: web.BaseRequest) -> web.Response:
        file = {"id": "F0", "mimetype": "image/png", "size": 8, "url_private_download": url}
        return web.json_response({"ok": True, "file": file})

    async def passed(_: str) -> None:
        return None

    taken = Taken()
    root = api.split("/")[2].partition(":")[0]
    async with hosts({**answers, root: info}) as (found, client):
        try:
            await SlackDownload(SlackClient(TOKEN, api, client, passed, no_bans()), api).fetch("F0", taken)
        except FetchFailed as error:
            return found, error.message
    return found, taken.data.decode()


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://files.slack.com/files-pri/T0-F0/download/a.png", "https://slack.com/api/"),
        ("https://acme.enterprise.slack.com/files/a.png", "https://slack.com/api/"),
        ("https://files.slack.com:443/a.png", "https://slack.com/api/"),
        ("https://files.slack.com/a.png", "https://slack-proxy.example/api/"),
        ("https://files.slack-gov.com/a.png", "https://slack-gov.com/api/"),
    ],
)
async def test_slacks_own_hosts_are_shown_the_token(url: str, api: str) -> None:
    host = url.split("/")[2].partition(":")[0]
    found, came = await outside(url, {host: data}, api)
    assert came == "the file"
    assert [(one.host, one.token) for one in found.asked[1:]] == [(host, f"Bearer {TOKEN}")]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/a.png",
        "https://files.slack.com.evil.example/a.png",
        "https://notslack.com/a.png",
        "https://evil.example/files.slack.com/a.png",
        "https://files.slack.com@evil.example/a.png",
        "https://user:word@files.slack.com/a.png",
        "https://evil.example\\@files.slack.com/a.png",
        "http://files.slack.com/a.png",
        "https://files.slack.com:8443/a.png",
        "https://127.0.0.1/a.png",
        "https://169.254.169.254/latest/meta-data/",
        "//evil.example/a.png",
        "/files-pri/T0-F0/a.png",
        "ftp://files.slack.com/a.png",
    ],
)
async def test_no_other_address_is_asked_at_all(url: str) -> None:
    found, came = await outside(url, dict.fromkeys(("evil.example", "files.slack.com", "notslack.com"), data))
    assert came != "the file"
    assert [one.host for one in found.asked] == ["slack.com"]


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example/a.png",
        "//evil.example/a.png",
        "http://files.slack.com/a.png",
        "https://files.slack.com.evil.example/a.png",
        "https://files.slack.com@evil.example/a.png",
        "http://127.0.0.1/a.png",
        "data:text/plain,x",
        "javascript:alert(1)",
        "",
    ],
)
async def test_a_redirect_to_elsewhere_is_not_followed(to: str) -> None:
    found, came = await outside("https://files.slack.com/a.png", {"files.slack.com": moved(to), "evil.example": data})
    assert came != "the file"
    assert [one.host for one in found.asked] == ["slack.com", "files.slack.com"]


@pytest.mark.parametrize("to", ["https://acme.slack.com/a.png", "//acme.slack.com/a.png"])
async def test_redirect_to_another_slack_host_gets_no_token(to: str) -> None:
    found, came = await outside("https://files.slack.com/a.png", {"files.slack.com": moved(to), "acme.slack.com": data})
    assert came == "the file"
    assert [(one.host, one.token) for one in found.asked[1:]] == [
        ("files.slack.com", f"Bearer {TOKEN}"),
        ("acme.slack.com", ""),
    ]


async def test_a_redirect_within_the_host_keeps_the_token() -> None:
    def once(request: web.BaseRequest) -> web.Response:
        return data(request) if request.path == "/b.png" else moved("/b.png")(request)

    found, came = await outside("https://files.slack.com/a.png", {"files.slack.com": once})
    assert came == "the file"
    assert [(one.path, one.token) for one in found.asked[1:]] == [
        ("/a.png", f"Bearer {TOKEN}"),
        ("/b.png", f"Bearer {TOKEN}"),
    ]


async def test_nothing_of_a_token_or_an_address_is_logged(
    slack: FakeSlack, channel: SlackChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    slack.hub.give = says(403)
    await failed(channel, named(slack.attach(ANN)))
    told = json.dumps([record.getMessage() for record in caplog.records])
    assert slack.bot_token not in told
    assert "files-pri" not in told
