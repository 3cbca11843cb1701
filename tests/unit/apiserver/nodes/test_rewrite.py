"""What a proxy changes: headers that it must not forward, and links to the wrong place; and nothing else."""

from __future__ import annotations

import gzip
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.nodes.rewrite import (
    SLICE_BYTES,
    HtmlPage,
    Links,
    PageChange,
    page_for,
    request_headers,
    response_headers,
)

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


HOSTILE = {
    "unclosed tags": b"<a " * 34_000,
    "unclosed tags with a quote": b'<a "' + b"<a " * 34_000,
    "comments": b"<!---->" * 15_000,
    "scripts": b"<script></script>" * 6_000,
    "beginnings of ends": b"<script>" + b"</scrip" * 14_000,
    "one long attribute": (b"<a " + b"x" * 60_000 + b">") * 2,
    "spaces": (b"<a x" + b" " * 60_000 + b">") * 2,
    "links": b"<a href=/>" * 10_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("size", [100_000, 1], ids=["whole", "byte by byte"])
def test_no_page_keeps_the_server_busy(text: bytes, size: int) -> None:
    page = HtmlPage(LINKS)
    before = time.process_time()
    for start in range(0, len(text), size):
        page.feed(text[start : start + size])
    page.finish()
    assert time.process_time() - before < 1.0  # 5 times what a piece of this length takes byte by byte


def _passed(page: PageChange, *pieces: bytes) -> bytes:
    made = []
    for piece in pieces:
        page.put(piece)
        while page.pending:
            made.append(page.take())
    return b"".join([*made, page.finish()])


def test_compressed_pages_are_rewritten_too_and_other_content_is_not() -> None:
    page = page_for(LINKS, b"text/html; charset=utf-8", b"gzip")
    assert page is not None
    packed = gzip.compress(PAGE)
    assert gzip.decompress(_passed(page, packed[:50], packed[50:])) == EXPECTED
    page = page_for(LINKS, b"text/html", b"gzip")
    assert page is not None
    assert gzip.decompress(_passed(page, gzip.compress(PAGE[:70]) + gzip.compress(PAGE[70:]))) == EXPECTED
    assert page_for(LINKS, b"application/json", b"") is None
    assert page_for(LINKS, b"text/html", b"br") is None


def test_a_small_body_that_unpacks_to_a_large_page_is_unpacked_in_slices() -> None:
    page = page_for(LINKS, b"text/html", b"gzip")
    assert page is not None
    page.put(gzip.compress(bytes(20_000_000)))
    unpack = zlib.decompressobj(wbits=31)
    slices = [len(unpack.decompress(page.take()))]
    while page.pending:
        slices.append(len(unpack.decompress(page.take())))
    assert sum(slices) == 20_000_000 and max(slices) <= SLICE_BYTES


def test_a_body_that_is_not_gzip_fails() -> None:
    page = page_for(LINKS, b"text/html", b"gzip")
    assert page is not None
    page.put(b"<html>")
    assert page.take() == b"" and page.failed and not page.pending
