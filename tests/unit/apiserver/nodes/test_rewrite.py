"""What a proxy changes: headers that it must not forward, and links to the wrong place; and nothing else."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.nodes.rewrite import HtmlPage, Links, page_for, request_headers, response_headers

PREFIX = "/api/v1/namespaces/a/pods/p/proxy"
LINKS = Links(PREFIX, "10.0.0.1:80", "api.example:6443")


def test_credentials_and_headers_of_the_connection_do_not_go_along() -> None:
    headers = {
        b"host": b"h", b"authorization": b"Bearer x", b"impersonate-user": b"u", b"x-remote-user": b"u",
        b"connection": b"Upgrade", b"upgrade": b"websocket", b"te": b"trailers", b"cookie": b"a=b",
        b"x-forwarded-for": b"1.1.1.1",
        b"sec-websocket-protocol": b"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4",
    }  # fmt: skip
    kept = dict(request_headers(headers, "10.0.0.5:4000", upgrade=False))
    assert kept == {
        b"host": b"h", b"cookie": b"a=b", b"x-forwarded-for": b"1.1.1.1, 10.0.0.5",
        b"sec-websocket-protocol": b"v4.channel.k8s.io",
    }  # fmt: skip
    kept = dict(request_headers(headers, "", upgrade=True))
    assert kept[b"connection"] == b"Upgrade" and kept[b"upgrade"] == b"websocket"


def test_an_answers_framing_is_made_anew() -> None:
    headers = [
        (b"Content-Length", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"a"),
        (b"Set-Cookie", b"b"),
    ]
    assert response_headers(headers) == [(b"Set-Cookie", b"a"), (b"Set-Cookie", b"b")]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("/x/y?q=1#f", f"{PREFIX}/x/y?q=1#f"),
        ("/", f"{PREFIX}/"),
        (f"{PREFIX}/x", f"{PREFIX}/x"),
        ("x/y", "x/y"),
        ("#top", "#top"),
        ("http://10.0.0.1:80/x", f"{PREFIX}/x"),
        ("https://api.example:6443/x", f"https://api.example:6443{PREFIX}/x"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
        ("mailto:a@b", "mailto:a@b"),
        ("http://[broken/", "http://[broken/"),
    ],
)
def test_links_lead_through_the_proxy(link: str, expected: str) -> None:
    assert LINKS.rewritten(link) == expected


PAGE = b"""<!DOCTYPE html><html manifest='/m'><head><title>a < b <a href="/no"></title>
<link rel=stylesheet href=/s.css /><script src="/s.js">if (a < b) x = '<a href="/no">'</script></head>
<!-- <a href="/no"> --><body><A HREF = "/yes" title="/no">1 < 2</a><img src="rel" alt='>'><form action='/f'>
<p data-href="/no">&lt;a href="/no"&gt;</p></body></html><unfinished href="/no"""

EXPECTED = (
    PAGE.replace(b"'/m'", b"'%b/m'")
    .replace(b"=/s.css", b"=%b/s.css")
    .replace(b'"/s.js"', b'"%b/s.js"')
    .replace(b'"/yes"', b'"%b/yes"')
    .replace(b"'/f'", b"'%b/f'")
    .replace(b"%b", PREFIX.encode())
)


@given(st.lists(st.integers(0, len(PAGE)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_page_is_rewritten_the_same_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(PAGE)]
    page = HtmlPage(LINKS)
    made = b"".join(page.feed(PAGE[start:end]) for start, end in zip(places, places[1:], strict=False)) + page.finish()
    assert made == EXPECTED


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_what_has_no_links_goes_through_unchanged(data: bytes) -> None:
    text = data.replace(b"=", b"")
    page = HtmlPage(LINKS)
    assert page.feed(text) + page.finish() == text


def test_a_page_that_pretends_to_be_a_tag_is_not_held_for_ever() -> None:
    page = HtmlPage(LINKS)
    sent = sum(len(page.feed(b"<a " + b"x" * 8192)) for _ in range(100))
    assert sent > 100 * 8192 - 2 * 64 * 1024


def test_compressed_pages_are_rewritten_too_and_other_content_is_not() -> None:
    page = page_for(LINKS, b"text/html; charset=utf-8", b"gzip")
    assert page is not None
    packed = gzip.compress(PAGE)
    made = page.feed(packed[:50]) + page.feed(packed[50:]) + page.finish()
    assert gzip.decompress(made) == EXPECTED
    assert page_for(LINKS, b"application/json", b"") is None
    assert page_for(LINKS, b"text/html", b"br") is None
