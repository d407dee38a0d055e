"""Settings that the web tools share, validated when the configuration is loaded."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

_HOST = re.compile(r"(?:(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])(?::([1-9]\d{0,4}))?")


def _host(text: str) -> str:
    host = text.strip().lower()
    found = _HOST.fullmatch(host)
    if found is None or int(found[1] or 1) > 65535:
        what, cure = f"{text[:80]!r} is not a host", 'Write, for instance, "wiki.lan", "10.0.0.5:8080" or "*.lan"'
        raise PydanticCustomError("flaw", "{what}", {"what": what, "cure": cure, "key": ""})
    return host


PrivateHost = Annotated[str, AfterValidator(_host)]


class WebToolSettings(BaseModel):
    """The owner's settings of a tool that fetches pages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: tuple[PrivateHost, ...] = Field(
        default=(),
        max_length=100,
        description='Hosts of the private network that it may reach, as in "wiki.lan", "10.0.0.5:8080" or "*.lan".',
    )
