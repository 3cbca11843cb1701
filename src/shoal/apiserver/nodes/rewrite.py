"""Rewrites proxied messages: headers, and links that must point to the proxy. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade content-length".split()
)
# credentials for this server are not forwarded
_SECRET: Final = frozenset({b"authorization", b"expect"})
_SECRET_PREFIXES: Final = (b"impersonate-", b"x-remote-")
_TOKEN_PROTOCOL: Final = b"base64url.bearer.authorization.k8s.io."

# attributes that hold links, by element (HTML 4 index of attributes, and HTML's living standard)
_LINKS: Final = {
    b"a": (b"href",), b"applet": (b"codebase",), b"area": (b"href",), b"audio": (b"src",), b"base": (b"href",),
    b"blockquote": (b"cite",), b"body": (b"background",), b"button": (b"formaction",), b"command": (b"icon",),
    b"del": (b"cite",), b"embed": (b"src",), b"form": (b"action",), b"frame": (b"longdesc", b"src"),
    b"head": (b"profile",), b"html": (b"manifest",), b"iframe": (b"longdesc", b"src"),
    b"img": (b"longdesc", b"src", b"usemap"), b"input": (b"src", b"usemap", b"formaction"), b"ins": (b"cite",),
    b"link": (b"href",), b"object": (b"classid", b"codebase", b"data", b"usemap"), b"q": (b"cite",),
    b"script": (b"src",), b"source": (b"src",), b"video": (b"poster", b"src"),
}  # fmt: skip
_RAW_TEXT: Final = frozenset({b"script", b"style", b"textarea", b"title"})  # elements whose content has no tags
_TAG = re.compile(rb"""<(?:!--|([a-zA-Z][^\s/>]*+)((?:[^>"']|"[^"]*+"|'[^']*+')*+)>)""")
_ATTRIBUTE = re.compile(rb"""([^\s"'>/=]++)(\s*+=\s*+)("[^"]*+"|'[^']*+'|[^\s"'>]++)""")
_HELD_BYTES = 64 * 1024  # a tag that is longer is none

Lines = list[tuple[bytes, bytes]]


def request_headers(headers: Mapping[bytes, bytes], client: str, *, upgrade: bool) -> Lines:
    """The headers that a backend gets. ``upgrade``: those that ask for another protocol go along."""
    kept: Lines = []
    for name, value in headers.items():
        if name in _SECRET or name.startswith(_SECRET_PREFIXES) or name == b"x-forwarded-for":
            continue
        if name in _HOP_BY_HOP and not (upgrade and name in (b"connection", b"upgrade")):
            continue
        if name == b"sec-websocket-protocol":
            parts = [part.strip() for part in value.split(b",")]
            value = b", ".join(part for part in parts if not part.startswith(_TOKEN_PROTOCOL))
        kept.append((name, value))
    address = client.rpartition(":")[0].encode()
    before = headers.get(b"x-forwarded-for")
    if address:
        kept.append((b"x-forwarded-for", before + b", " + address if before else address))
    return kept


def response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Lines:
    """The headers of an answer that go on to the client."""
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


class Links:
    """Turns links of a page behind the proxy into links through it. ``prefix`` is the path of the proxy itself."""

    def __init__(self, prefix: str, backend: str, host: str) -> None:
        self._prefix = prefix.rstrip("/")
        self._backend = backend  # host and port of the page
        self._host = host  # as the client knows this server

    def rewritten(self, link: str) -> str:
        try:
            parts = urlsplit(link)
        except ValueError:
            return link
        if parts.netloc not in ("", self._backend, self._host) or not parts.path.startswith("/"):
            return link
        scheme, netloc = (parts.scheme, parts.netloc) if parts.netloc == self._host else ("", "")
        path = parts.path
        if not path.startswith(self._prefix):
            path = self._prefix + path
        return urlunsplit((scheme, netloc, path, parts.query, parts.fragment))

    def in_tag(self, name: bytes, attributes: bytes) -> bytes:
        """The attributes of a tag with its links rewritten."""
        links = _LINKS.get(name.lower())
        if links is None:
            return attributes

        def replaced(found: re.Match[bytes]) -> bytes:
            key, between, value = found.groups()
            if key.lower() not in links:
                return found[0]
            quote = value[:1] if value[:1] in (b'"', b"'") else b""
            link = value[1:-1] if quote else value
            return key + between + quote + self.rewritten(link.decode("latin-1")).encode("latin-1") + quote

        return _ATTRIBUTE.sub(replaced, attributes)


class HtmlPage:
    """Rewrites HTML in pieces of any size; holds back an incomplete tag until its end arrives."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._held = b""
        self._until = b""  # the end of a section that is copied unchanged: a comment, a script

    def feed(self, data: bytes) -> bytes:
        text = self._held + data
        out: list[bytes] = []
        place = 0
        while place < len(text):
            if self._until:
                place, done = self._copy(text, place, out)
                if not done:
                    break
                continue
            start = text.find(b"<", place)
            if start < 0:
                out.append(text[place:])
                place = len(text)
                break
            out.append(text[place:start])
            place = start
            found = _TAG.match(text, start)
            if found is not None:
                out.append(self._tag(found))
                place = found.end()
            elif len(text) - start < _HELD_BYTES and _may_become_tag(text, start):
                break
            else:
                out.append(b"<")
                place = start + 1
        self._held = text[place:]
        return b"".join(out)

    def finish(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _copy(self, text: bytes, place: int, out: list[bytes]) -> tuple[int, bool]:
        end = text.lower().find(self._until, place)
        if end < 0:
            end = max(place, len(text) - len(self._until) + 1)
            out.append(text[place:end])
            return end, False
        end += len(self._until)
        out.append(text[place:end])
        self._until = b""
        return end, True

    def _tag(self, found: re.Match[bytes]) -> bytes:
        name, attributes = found.groups()
        if name is None:
            self._until = b"-->"
            return found[0]
        if name.lower() in _RAW_TEXT and not attributes.endswith(b"/"):
            self._until = b"</" + name.lower()
        return b"<" + name + self._links.in_tag(name, attributes) + b">"


def _may_become_tag(text: bytes, start: int) -> bool:
    rest = text[start + 1 : start + 4]
    return not rest or rest[:1].isalpha() or b"!--".startswith(rest)


class Compressed:
    """A gzipped page on its way through."""

    def __init__(self, page: HtmlPage) -> None:
        self._page = page
        self._unpack = zlib.decompressobj(wbits=31)
        self._pack = zlib.compressobj(wbits=31)

    def feed(self, data: bytes) -> bytes:
        try:
            plain = self._unpack.decompress(data)
        except zlib.error:
            return b""
        return self._pack.compress(self._page.feed(plain)) + self._pack.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._pack.compress(self._page.finish()) + self._pack.flush()


def page_for(links: Links, content_type: bytes, encoding: bytes) -> HtmlPage | Compressed | None:
    """The rewriter of a response; None when it passes unchanged."""
    if content_type.partition(b";")[0].strip().lower() != b"text/html":
        return None
    makers: dict[bytes, Callable[[], HtmlPage | Compressed]] = {
        b"": lambda: HtmlPage(links),
        b"identity": lambda: HtmlPage(links),
        b"gzip": lambda: Compressed(HtmlPage(links)),
    }
    make = makers.get(encoding.strip().lower())
    return None if make is None else make()
