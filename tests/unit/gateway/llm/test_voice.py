"""Transcriptions over real connections to a strict server on loopback."""

from __future__ import annotations

from io import BytesIO

import aiohttp
import pytest

from gateway.domain.proxy import Proxy
from gateway.errors import ModelError
from gateway.llm.voice import OpenAIVoice
from tests.support.proxy_server import ProxyServer
from tests.support.voice_server import OGG, Odd, Transcription, VoiceServer

KEY = "sk-voice-0123456789"


async def transcribed(
    server: VoiceServer, *, key: str | None = KEY, name: str = "recording.ogg", proxy: Proxy | None = None
) -> str:
    """Transcribe one recording."""
    async with server, aiohttp.ClientSession() as session:
        voice = OpenAIVoice(
            session, base_url=server.base_url, api_key=key, model="w", language="de", proxy=proxy, within_s=0.5
        )
        return await voice.transcribe(BytesIO(OGG), name)


async def test_a_recording_is_sent_as_a_form_with_the_key() -> None:
    server = VoiceServer(["Guten Tag"], api_key=KEY)

    assert await transcribed(server) == "Guten Tag"
    assert server.asked == [Transcription("w", "de", "recording.ogg", OGG, KEY)]


async def test_a_recording_goes_through_the_proxy_of_its_server() -> None:
    async with ProxyServer().serve() as proxy:
        assert await transcribed(VoiceServer(["hi"]), proxy=Proxy(proxy.url)) == "hi"

    assert len(proxy.asked) == 1


@pytest.mark.parametrize(
    ("outcome", "said", "cure"),
    [
        (Odd(body="<html><title>Sign in</title></html>", kind="text/html"), "text/html", "[voice] base_url"),
        (Odd(body='{"text": null}'), "not with a transcript", "[voice] base_url"),
        (Odd(body="[" * 100_000), "not with a transcript", "[voice] base_url"),
        (Odd(body='{"text": "' + "a" * 1_100_000 + '"}'), "not with a transcript", "[voice] base_url"),
        (Odd(status=302), "302", "[voice]"),
        (Odd(status=404), "404", "[voice] base_url"),
        (Odd(status=413), "413", "shorter"),
        (Odd(status=503), "503", "in a moment"),
        (Odd(hangs=True), "in time", "in a moment"),
    ],
)
async def test_a_failing_server_is_an_error_with_a_cure(outcome: Odd, said: str, cure: str) -> None:
    with pytest.raises(ModelError) as error:
        await transcribed(VoiceServer([outcome]))

    assert said in error.value.message
    assert cure in error.value.cure


async def test_a_wrong_key_is_named_and_not_shown() -> None:
    with pytest.raises(ModelError, match="does not take the key") as error:
        await transcribed(VoiceServer(["hi"], api_key="another"))

    assert KEY not in str(error.value)
    assert error.value.cure == "Correct [voice] api_key."


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with aiohttp.ClientSession() as session:
        voice = OpenAIVoice(session, base_url="http://127.0.0.1:1/v1", api_key=None, model="w")
        with pytest.raises(ModelError, match=r"The voice server 127.0.0.1:1 refuses connections") as error:
            await voice.transcribe(BytesIO(OGG), "recording.ogg")
        assert error.value.cure == "Start the server, or check [voice] base_url."
        voice = OpenAIVoice(
            session, base_url="http://127.0.0.1:1/v1", api_key=None, model="w", proxy=Proxy("http://a:b@127.0.0.1:9")
        )
        with pytest.raises(ModelError, match=r"The proxy http://127.0.0.1:9 cannot be reached \(it refuses"):
            await voice.transcribe(BytesIO(OGG), "recording.ogg")


@pytest.mark.parametrize(("speech", "fails"), [(OGG, False), (b"<html>", True), (b"OggS" + bytes(5_000_001), True)])
async def test_an_answer_is_spoken_within_limits(speech: bytes, fails: bool) -> None:
    async with VoiceServer([], speech=speech) as server, aiohttp.ClientSession() as session:
        voice = OpenAIVoice(session, base_url=server.base_url, api_key=None, model="w", speech="a/b/alloy")
        if fails:
            with pytest.raises(ModelError, match="gave no speech"):
                await voice.speak("Noon.")
        else:
            assert await voice.speak("Noon.") == OGG

    assert server.spoken == [("a/b", "alloy", "Noon.")]
