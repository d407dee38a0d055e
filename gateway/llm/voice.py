"""Client of an OpenAI-compatible server for recordings, over the daemon's own HTTP session. Used by turns."""

from __future__ import annotations

import asyncio
import json
from typing import Any, BinaryIO, cast

import aiohttp
from yarl import URL

from gateway.domain.proxy import Proxy, through
from gateway.domain.text import media_type, one_line
from gateway.errors import ModelError
from gateway.llm.server_errors import RETRYABLE
from gateway.llm.unreachable import in_words, unreachable
from gateway.system.logging_setup import log

CONNECT_S = 10.0
"""Timeout in seconds for the connection."""
TRANSCRIBED_WITHIN_S = 120.0
"""Timeout in seconds for a whole transcription."""
SPOKEN_WITHIN_S = 30.0
"""Timeout in seconds for a spoken answer: its text waits for it."""
SPEECH_BYTES = 5_000_000
"""Bytes of a spoken answer."""
BODY_BYTES = 1_000_000
"""Bytes of a response that are read."""
_WHY_CHARS = 200
"""Characters of a server's own words that are logged."""


class OpenAIVoice:
    """`ports.Transcriber` over `POST {base_url}/audio/transcriptions`. Keeps nothing between requests."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        base_url: str,
        api_key: str | None,
        model: str,
        language: str = "",
        proxy: Proxy | None = None,
        speech: str = "",
        within_s: float = TRANSCRIBED_WITHIN_S,
    ) -> None:
        """Take the settings, which are checked already; the session belongs to the caller."""
        self._session = session
        url = URL(base_url)
        self._url = url.with_path(f"{url.path.rstrip('/')}/audio/transcriptions")
        self._speech_url = url.with_path(f"{url.path.rstrip('/')}/audio/speech")
        self._speech_model, _, self._voice = speech.rpartition("/")
        self._server = url.authority
        self._key = (api_key or "").strip()
        self._model = model
        self._language = language
        self._proxy = proxy
        self._within_s = within_s
        self._log = log("voice")

    async def transcribe(self, recording: BinaryIO, name: str) -> str:
        """Return the words of a recording; see `ports.Transcriber`."""
        form = aiohttp.FormData()
        form.add_field("model", self._model)
        form.add_field("response_format", "json")
        if self._language:
            form.add_field("language", self._language)
        form.add_field("file", recording, filename=name, content_type="application/octet-stream")
        status, kind, body = await self._asked(self._url, form, self._within_s, BODY_BYTES)
        return self._words(status, kind, body)

    async def speak(self, text: str) -> bytes:
        """Return the text as speech; see `ports.Speaker`."""
        asked = {"model": self._speech_model, "voice": self._voice, "input": text, "response_format": "opus"}
        payload = aiohttp.JsonPayload(asked)
        status, _, body = await self._asked(
            self._speech_url, payload, min(self._within_s, SPOKEN_WITHIN_S), SPEECH_BYTES
        )
        if not 200 <= status < 300:
            raise self._refusal(status, body)
        if not body.startswith(b"OggS") or len(body) > SPEECH_BYTES:
            raise ModelError(f"The voice server {self._server} gave no speech.", cure="Check [voice] speak.")
        return body

    async def _asked(
        self, url: URL, data: aiohttp.FormData | aiohttp.JsonPayload, within_s: float, most: int
    ) -> tuple[int, str, bytes]:
        """Return status, media type and body of a response. Raises `ModelError`."""
        try:
            async with asyncio.timeout(within_s):
                return await self._post(url, data, most)
        except TimeoutError:
            raise ModelError(
                f"The voice server {self._server} did not answer in time.", cure="Send it again in a moment."
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from None  # the cause may contain the request's headers, and the key

    async def _post(self, url: URL, data: aiohttp.FormData | aiohttp.JsonPayload, most: int) -> tuple[int, str, bytes]:
        headers = {"Accept": "*/*"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        times = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        # Redirects are not followed: they would send the key and the recording to another host.
        async with self._session.post(
            url, data=data, headers=headers, timeout=times, allow_redirects=False, proxy=through(self._proxy)
        ) as response:
            body = bytearray()
            while len(body) <= most and (more := await response.content.readany()):
                body += more
            return response.status, media_type(response.headers.get("Content-Type", "")), bytes(body)

    def _words(self, status: int, kind: str, body: bytes) -> str:
        """Return the transcript in a response. Raises `ModelError`."""
        if not 200 <= status < 300:
            raise self._refusal(status, body)
        try:
            found: Any = json.loads(body) if len(body) <= BODY_BYTES else None
        except (ValueError, RecursionError):
            found = None
        text = cast("dict[str, Any]", found).get("text") if isinstance(found, dict) else None
        if isinstance(text, str):
            return text
        what = one_line(kind, 50) or "something"
        raise ModelError(
            f"The voice server {self._server} answered with {what}, not with a transcript.",
            cure="Check [voice] base_url; most servers answer at an address that ends with /v1.",
        )

    def _refusal(self, status: int, body: bytes) -> ModelError:
        why = one_line(body[: 4 * _WHY_CHARS].decode(errors="replace"), _WHY_CHARS)
        self._log.warning("not transcribed", status=status, why=why.replace(self._key, "[key]") if self._key else why)
        if status in (401, 403):
            what, cure = "does not take the key", "Correct [voice] api_key."
        elif status == 404:
            what, cure = "does not know this address or model", "Check [voice] base_url and model."
        elif status == 413:
            what, cure = "takes no recordings of this size", "Send a shorter one."
        elif status in RETRYABLE:
            what, cure = "could not do it now", "Send it again in a moment."
        else:
            what, cure = "refused the recording", "Check [voice] model and language; see Dragoman's log."
        return ModelError(f"The voice server {self._server} {what} ({status}).", cure=cure)

    def _unreachable(self, error: Exception) -> ModelError:
        if self._proxy is not None and isinstance(error, aiohttp.ClientHttpProxyError):
            what, cure = self._proxy.refused(error.status)
            return ModelError(what, cure=cure)
        if self._proxy is not None and isinstance(error, aiohttp.ClientProxyConnectionError):
            what, cure = self._proxy.unreached(in_words(error))
            return ModelError(what, cure=cure)
        self._log.info("connection failed", why=type(error).__name__)
        return unreachable(error, self._server, kind="voice", table="voice")
