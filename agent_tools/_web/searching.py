"""Services of a web search: the request of each, and the results in its answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlencode

from gateway.errors import BadRequest

LINE_CHARS = 500
"""Characters of a title, address or snippet of a result; the rest is cut off."""


class Service(StrEnum):
    """Service that searches."""

    SEARXNG = "searxng"
    BRAVE = "brave"
    TAVILY = "tavily"
    EXA = "exa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One search."""

    words: str
    count: int
    code: bool = False
    """True to search for source code and its documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Request to a service: a GET, or with a body a POST."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result."""

    title: str
    url: str
    snippet: str


ADDRESSES: Mapping[Service, str] = MappingProxyType(
    {
        Service.SEARXNG: "",
        Service.BRAVE: "https://api.search.brave.com",
        Service.TAVILY: "https://api.tavily.com",
        Service.EXA: "https://api.exa.ai",
    }
)
"""Default address of each service; empty: it has none, and the owner names one."""


def request_of(service: Service, base: str, key: str, query: Query) -> Wanted:
    """Return the request for a search at the service's address."""
    base = base.rstrip("/")
    match service:
        case Service.SEARXNG:
            terms = {"q": query.words, "format": "json", **({"categories": "it"} if query.code else {})}
            return Wanted(url=f"{base}/search?{urlencode(terms)}", headers={"Accept": "application/json"})
        case Service.BRAVE:
            terms = {"q": query.words, "count": str(query.count)}
            headers = {"X-Subscription-Token": key, "Accept": "application/json"}
            return Wanted(url=f"{base}/res/v1/web/search?{urlencode(terms)}", headers=headers)
        case Service.TAVILY:
            body = {"query": query.words, "max_results": query.count}
            return _post(f"{base}/search", {"Authorization": f"Bearer {key}"}, body)
        case Service.EXA:
            body: dict[str, Any] = {"query": query.words, "numResults": query.count, "contents": {"text": True}}
            if query.code:
                body["category"] = "github"
            return _post(f"{base}/search", {"x-api-key": key}, body)


def _post(url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Wanted:
    return Wanted(url=url, headers={**headers, "Content-Type": "application/json"}, body=json.dumps(body).encode())


def hits_of(service: Service, status: int, data: bytes, count: int) -> list[Hit]:
    """Return the results in an answer. Raises `BadRequest` for an error and for what is no answer of this service."""
    if status in (401, 403):
        raise BadRequest(f"The search service {service} refused the key ({status}).", cure="The owner can correct it.")
    try:
        found: object = json.loads(data)
    except ValueError:
        cure = "The owner can check the address, and that the service answers in JSON."
        raise BadRequest(f"The search service {service} answered with no JSON ({status}).", cure=cure) from None
    if status >= 400:
        raise BadRequest(f"The search service {service} answered with {status}.", cure="Try again later.")
    listed = _LISTS[service](cast("dict[str, Any]", found)) if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise BadRequest(f"The answer of {service} has no results in it.", cure="The owner can check its address.")
    return [hit for one in cast("list[object]", listed) if (hit := _hit(one)) is not None][:count]


def _brave(found: dict[str, Any]) -> object:
    web = found.get("web", {"results": []})
    return cast("dict[str, Any]", web).get("results") if isinstance(web, dict) else None


_LISTS: Mapping[Service, Callable[[dict[str, Any]], object]] = MappingProxyType(
    {
        Service.SEARXNG: lambda found: found.get("results"),
        Service.BRAVE: _brave,
        Service.TAVILY: lambda found: found.get("results"),
        Service.EXA: lambda found: found.get("results"),
    }
)


def _hit(one: object) -> Hit | None:
    if not isinstance(one, dict):
        return None
    table = cast("dict[str, Any]", one)
    url = table.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    text = next((table[key] for key in ("content", "description", "text") if isinstance(table.get(key), str)), "")
    title = table.get("title")
    return Hit(title=_line(title if isinstance(title, str) else url), url=_line(url), snippet=_line(text))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…"


def shown(hits: Sequence[Hit]) -> str:
    """Return the results for a model."""
    return "\n\n".join(f"{n}. {one.title}\n{one.url}\n{one.snippet}".rstrip() for n, one in enumerate(hits, 1))
