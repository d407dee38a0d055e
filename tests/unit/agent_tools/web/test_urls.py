"""Checks of URLs and the scopes of their approvals, for every web tool."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent_tools import browser
from agent_tools._web.urls import checked_url, scope_of


@pytest.mark.parametrize(
    ("given", "read", "scope"),
    [
        ("https://example.org/a/b?c=d#e", "https://example.org/a/b?c=d#e", "example.org"),
        ("example.org/x", "https://example.org/x", "example.org"),
        ("EXAMPLE.org", "https://example.org/", "example.org"),
        ("HTTP://Example.ORG:80", "http://example.org/", "example.org"),
        ("https://example.org:443?a", "https://example.org/?a", "example.org"),
        ("http://example.org:443/", "http://example.org:443/", "example.org"),
        ("https://www.example.org:8443/", "https://www.example.org:8443/", "example.org:8443"),
        ("www.example.org", "https://www.example.org/", "example.org"),
        ("www.org", "https://www.org/", "www.org"),
        ("localhost:8080/x", "https://localhost:8080/x", "localhost:8080"),
        ("http://192.0.2.7/", "http://192.0.2.7/", "192.0.2.7"),
        ("http://[2001:db8::1]:8080/", "http://[2001:db8::1]:8080/", "[2001:db8::1]:8080"),
        ("http://[2001:DB8::1]/", "http://[2001:db8::1]/", "[2001:db8::1]"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("https://straße.example/", "https://xn--strae-oqa.example/", "xn--strae-oqa.example"),
        ("https://example.org/ü", "https://example.org/ü", "example.org"),
        ("https://example.org/a@b:c", "https://example.org/a@b:c", "example.org"),
        ("my_host.example", "https://my_host.example/", "my_host.example"),
    ],
)
def test_an_address_has_one_form_and_one_scope(given: str, read: str, scope: str) -> None:
    assert checked_url(given) == read
    assert checked_url(read) == read
    assert scope_of(read) == scope


@pytest.mark.parametrize(
    "url",
    [
        # Other forms of an address of four numbers, and of IPv6.
        "http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.0.0.01/",
        "http://127.0.0.1./", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://a.0x7f/", "http://①②⑦.⓪.⓪.①/",
        "http://[0:0::1]/", "http://[::0001]/", "http://[fe80::1%eth0]/", "http://[::1", "http://::1/", "http://[]/",
        # What is read in two ways.
        "http://127.0.0.1:80\\@example.com", "http://example.com\\@127.0.0.1/", "http://a@b.example/",
        "http://user:pw@example.org/", "http://@example.org/", "http:/example.org", "http:///example.org",
        "http:example.org", "https://exa mple.org/", "https://example.org/a b", "https://example.org/\ta",
        "https://example.org/a\nb", "https://example.org/\x00", "https://example.org/\u202ea", "https://exa\u200bmple.org/",
        "https://ｅxample.org/", "https://example。org/", "https://example.org./", "localhost.", "https://exa%6dple.org/",
        # No host, no port.
        "https://", "https://:80/", "https:///", "https://example.org:0/", "https://example.org:65536/",
        "https://example.org:8o/", "https://-a.example/", "https://a..example/", "https://.example/", "",
        f"https://{'a' * 64}.example/", f"https://{'a.' * 130}example/", f"https://example.org/{'a' * 4096}",
        # Other schemes.
        "file:///etc/passwd", "gopher://example.org/", "ftp://example.org/", "data:text/html,hi", "chrome://version",
        "view-source:https://example.org/", "javascript:alert(1)", "blob:https://example.org/1", "about:blank",
        "ws://example.org/", "mailto:a@example.org", "JaVaScRiPt:alert(1)",
    ],
)  # fmt: skip
def test_an_address_that_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r": (write|give|take|use) ") as refused:
        checked_url(url)
    assert len(str(refused.value)) < 200
    with pytest.raises(ValidationError):
        browser.Args.model_validate({"action": "open", "url": url})


@pytest.mark.parametrize("url", ["about:blank", "data:text/html,x", "chrome-error://chromewebdata/", "http://[", ""])
def test_url_without_a_host_has_no_scope(url: str) -> None:
    assert scope_of(url) == ""
