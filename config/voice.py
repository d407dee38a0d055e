"""Settings of `[voice]`: the server that turns voice messages into text."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from channels._shared.settings import ProxySetting
from config.basics import SettingsTable, address, is_in_clear
from config.values import Flaw

_ENDPOINT = "/audio/transcriptions"


def _base_url(text: str) -> str:
    parts = address(text, "https://api.openai.com/v1")
    if parts.path.rstrip("/").endswith(_ENDPOINT):
        cure = f'Write "{text.rstrip("/").removesuffix(_ENDPOINT)}"'
        raise Flaw(f"the address goes on to {_ENDPOINT}, which is added to it", cure)
    return text.rstrip("/")


def _model(text: str) -> str:
    if not 1 <= len(text) <= 200 or not text.isprintable() or text != text.strip():
        raise Flaw(f"{text!r} cannot be a model", 'Write the name that the server has for it, such as "whisper-1"')
    return text


def _speech(text: str) -> str:
    model, _, voice = text.rpartition("/")
    if text and not (model and voice):
        raise Flaw(f"{text!r} names no model and voice", 'Write both, as in "tts-1/alloy"')
    return _model(text) if text else text


class VoiceSettings(SettingsTable):
    """`[voice]`."""

    base_url: Annotated[str, AfterValidator(_base_url)] | None = Field(
        default=None,
        description="A server with the OpenAI-compatible /audio/transcriptions. Without one, nothing is transcribed.",
    )
    api_key: SecretStr | None = Field(
        default=None, description='"env:NAME" or "file:PATH". Not needed for a server that wants none.'
    )
    proxy: ProxySetting | None = Field(
        default=None, description='An HTTP proxy on the way there: "http://host:port", "env:NAME" or "file:PATH".'
    )
    model: Annotated[str, AfterValidator(_model)] = Field(
        default="whisper-1", description="The server's name of the model that transcribes."
    )
    language: str = Field(
        default="",
        pattern=r"^([a-z]{2,3})?$",
        description='The language that people speak, as in "en" or "de". Default: the server finds it out.',
    )

    speak: Annotated[str, AfterValidator(_speech)] = Field(
        default="",
        description='Model and voice of spoken answers to voice messages in chats: "tts-1/alloy". Default: none.',
    )

    def warnings(self) -> list[str]:
        """Return sentences about settings that are dangerous or have no effect."""
        if self.base_url is None:
            lost = self.model_fields_set - {"base_url"}
            return [f"voice: {', '.join(sorted(lost))} has no effect without base_url."] if lost else []
        clear = self.api_key is not None and is_in_clear(self.base_url)
        return [f"voice: the api_key goes to {self.base_url} without TLS."] if clear else []
