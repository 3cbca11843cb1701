"""Rewrites proxied messages: headers, and links that must point to the proxy. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
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
# elements whose content has no tags, with the beginning of their end
_RAW_TEXT: Final = {
    name: re.compile(b"</" + name, re.IGNORECASE) for name in (b"script", b"style", b"textarea", b"title")
}
_COMMENT_END = re.compile(b"-->")
_END_BYTES = len(b"</textarea") - 1  # an end that is cut off has at most so many
_TAG = re.compile(rb"""<([a-zA-Z][^\s/>]*+)((?:[^>"']|"[^"]*+"|'[^']*+')*+)>""")
_TAG_STOP = re.compile(rb"""[>"']""")
# a name begins after a character that is not part of one: otherwise a long name would be tried from each character
_ATTRIBUTE = re.compile(rb"""(?<![^\s"'>/=])([^\s"'>/=]++)(\s*+=\s*+)("[^"]*+"|'[^']*+'|[^\s"'>]++)""")
_HELD_BYTES = 64 * 1024  # a tag that is longer is none
SLICE_BYTES = 16 * 1024  # of a page that are changed at once

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
    """Rewrites HTML in pieces of any size; holds back an incomplete tag until its end arrives.

    Each byte is looked at once, however the page is cut and whatever it contains: pages come from pods, which may want
    to keep the API server busy.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._held = bytearray()  # a tag whose end has not come yet, from its "<" on
        self._quote = b""  # that the tag's text so far leaves open
        self._until: re.Pattern[bytes] | None = None  # the end of a section that is copied unchanged: comment, script
        self._copied = b""  # the last bytes of that section, which may be the beginning of its end

    def feed(self, data: bytes) -> bytes:
        out: list[bytes] = []
        place = 0
        while place < len(data):
            if self._until is not None:
                place = self._copy(self._until, data, place, out)
            elif self._held:
                place = self._hold(data, place, out)
            else:
                start = data.find(b"<", place)
                if start < 0:
                    out.append(data[place:])
                    break
                out.append(data[place:start])
                self._held += b"<"
                place = start + 1
        return b"".join(out)

    def finish(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held

    def _copy(self, until: re.Pattern[bytes], data: bytes, place: int, out: list[bytes]) -> int:
        """Copy up to the end of a section; it may have begun in the piece before."""
        before = self._copied
        found = until.search(before + data[place : place + _END_BYTES]) if before else None
        if found is not None:
            end = place + found.end() - len(before)
        else:
            found = until.search(data, place)
            end = len(data) if found is None else found.end()
        out.append(data[place:end])
        if found is None:
            self._copied = (before + data[max(place, end - _END_BYTES) : end])[-_END_BYTES:]
        else:
            self._copied, self._until = b"", None
        return end

    def _hold(self, data: bytes, place: int, out: list[bytes]) -> int:
        """Add to a tag what belongs to it, and write it once it has ended or is none."""
        held = self._held
        if len(held) == 1 or held.startswith(b"<!"):
            return self._begin(data, place, out)
        if self._quote:
            end = data.find(self._quote, place)
        else:
            stop = _TAG_STOP.search(data, place)
            end = -1 if stop is None else stop.start()
        after = len(data) if end < 0 else end + 1
        held += data[place:after]
        if len(held) > _HELD_BYTES:
            self._release(out)
        elif end >= 0:
            mark = data[end:after]
            if mark == b">" and not self._quote:
                out.append(self._tag(bytes(held)))
                held.clear()
            else:
                self._quote = b"" if self._quote else mark
        return after

    def _begin(self, data: bytes, place: int, out: list[bytes]) -> int:
        """One more byte after "<": the beginning of a tag, of a comment, or plain text."""
        held, byte = self._held, data[place : place + 1]
        if len(held) == 1 and byte.isalpha():
            held += byte
        elif b"<!--".startswith(held + byte):
            held += byte
            if held == b"<!--":
                self._until = _COMMENT_END
                self._release(out)
        else:  # the byte may itself begin a tag
            self._release(out)
            return place
        return place + 1

    def _release(self, out: list[bytes]) -> None:
        """Write unchanged what was held."""
        out.append(bytes(self._held))
        self._held.clear()
        self._quote = b""

    def _tag(self, text: bytes) -> bytes:
        found = _TAG.fullmatch(text)
        if found is None:
            return text
        name, attributes = found.groups()
        if name.lower() in _RAW_TEXT and not attributes.endswith(b"/"):
            self._until = _RAW_TEXT[name.lower()]
        return b"<" + name + self._links.in_tag(name, attributes) + b">"


class PageChange:
    """A page on its way through, in slices: the event loop serves other clients between them.

    ``put`` what arrived, then ``take`` while ``pending``.
    """

    def __init__(self, page: HtmlPage, *, compressed: bool) -> None:
        self._page = page
        self._unpack = zlib.decompressobj(wbits=31) if compressed else None
        self._pack = zlib.compressobj(wbits=31)
        self._waiting = bytearray()
        self.pending = False
        self.failed = False  # what arrived is not gzip

    def put(self, data: bytes) -> None:
        self._waiting += data
        self.pending = True

    def take(self) -> bytes:
        """The next slice, changed. It may be empty."""
        if self._unpack is None:
            plain = bytes(self._waiting[:SLICE_BYTES])
            del self._waiting[: len(plain)]
            self.pending = bool(self._waiting)
            return self._page.feed(plain)
        plain = self._unpacked(self._unpack)
        return self._pack.compress(self._page.feed(plain)) + self._pack.flush(zlib.Z_SYNC_FLUSH) if plain else b""

    def finish(self) -> bytes:
        rest = self._page.finish()
        return rest if self._unpack is None else self._pack.compress(rest) + self._pack.flush()

    def _unpacked(self, unpack: zlib._Decompress) -> bytes:
        """Not more than a slice: a small body can hold a very large page."""
        data, self._waiting = bytes(self._waiting), bytearray()
        try:
            plain = unpack.decompress(data, SLICE_BYTES)
        except zlib.error:
            self.pending, self.failed = False, True
            return b""
        self._waiting += unpack.unconsumed_tail
        if unpack.eof and unpack.unused_data:  # another part: gzip allows several
            self._waiting += unpack.unused_data
            self._unpack = zlib.decompressobj(wbits=31)
        self.pending = bool(self._waiting) or len(plain) == SLICE_BYTES
        return plain


def page_for(links: Links, content_type: bytes, encoding: bytes) -> PageChange | None:
    """The rewriter of a response; None when it passes unchanged."""
    if content_type.partition(b";")[0].strip().lower() != b"text/html":
        return None
    encoding = encoding.strip().lower()
    if encoding not in (b"", b"identity", b"gzip"):
        return None
    return PageChange(HtmlPage(links), compressed=encoding == b"gzip")
