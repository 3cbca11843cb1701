"""The heads of messages in HTTP/2: requests out of header fields, and header blocks of answers."""

from __future__ import annotations

import re

from shoal.apiserver.messages import Answer, Request, Response, header_lines
from shoal.base.hpack import Encoder, Field, literal

# marks of fields, which the decoder keeps with those in its table
PLAIN, METHOD, PATH, SCHEME, AUTHORITY, MALFORMED = range(6)

_PSEUDO = {b":method": METHOD, b":scheme": SCHEME, b":authority": AUTHORITY}
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_METHOD = re.compile(rb"[A-Z]+")
_TARGET = re.compile(rb"/[^\x00-\x20\x7f#]*")
_NOT_IN_VALUE = re.compile(rb"[\x00\r\n]|\A[ \t]|[ \t]\Z")
_OF_A_CONNECTION = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_CACHED = 256  # heads of answers; a server sends few


def mark(name: bytes, value: bytes) -> int:
    """What a field of a request is, or that it must not be there."""
    if name == b":path":  # the one that is seldom in the table
        return PATH if _TARGET.fullmatch(value) else MALFORMED
    if name[:1] == b":":
        kind = _PSEUDO.get(name, MALFORMED)
        if (kind == METHOD and not _METHOD.fullmatch(value)) or _NOT_IN_VALUE.search(value):
            return MALFORMED
        return kind
    if name in _OF_A_CONNECTION or (name == b"te" and value != b"trailers") or not _NAME.fullmatch(name):
        return MALFORMED
    return MALFORMED if _NOT_IN_VALUE.search(value) else PLAIN


def request_of(fields: list[Field]) -> Request | None:
    """The request without its body; None when it is malformed."""
    headers: dict[bytes, bytes] = {}
    method = target = scheme = authority = b""
    for name, value, _, kind in fields:
        if kind == PLAIN:
            if name in headers:
                value = _joined(name, headers[name], value)
            headers[name] = value
        elif headers:
            return None  # what describes the request comes first
        elif kind == METHOD and not method:
            method = value
        elif kind == PATH and not target:
            target = value
        elif kind == SCHEME and not scheme:
            scheme = value
        elif kind == AUTHORITY and not authority:
            authority = value
        else:
            return None
    if not (method and target and scheme):
        return None
    if authority:
        headers[b"host"] = authority  # one of these names it, and this one was meant for us
    return Request(method.decode("ascii"), target, headers)


def _joined(name: bytes, first: bytes, second: bytes) -> bytes:
    """Repeated headers are joined as HTTP says, except where a value may contain a comma itself."""
    if name == b"cookie":
        return first + b"; " + second
    return first + (b"\x00" if name.startswith(b"impersonate-") else b", ") + second


def declared_length(request: Request) -> int | None:
    """The length that a request gives for its body; -1 when it is not a number."""
    text = request.headers.get(b"content-length")
    if text is None:
        return None
    return int(text) if text.isdigit() and len(text) < 20 else -1


def _line(line: bytes) -> bytes:
    """A header line as a field that stays out of the tables."""
    name, _, value = line.partition(b": ")
    coded = _LINE_NAMES.get(name)
    if coded is None:
        coded = b"\x00%c%b" % (len(name), name.lower())
        if len(_LINE_NAMES) < _CACHED:
            _LINE_NAMES[name] = coded
    return b"%b%c%b" % (coded, len(value), value) if len(value) < 127 else literal(name.lower(), value)


_LINE_NAMES: dict[bytes, bytes] = {}


class ResponseHeads:
    """Header blocks of the answers of one connection: what repeats is one octet in each."""

    __slots__ = ("_common", "_count", "_known", "encoder")

    def __init__(self, common: tuple[tuple[bytes, bytes], ...]) -> None:
        """``common``: headers of all answers, with names in lower case."""
        self.encoder = Encoder()
        self._common = common
        self._known: dict[tuple[int, bytes, bytes], bytes] = {}
        self._count = 0

    def of(self, answer: Answer, length: int | None) -> bytes:
        """The block that begins an answer; ``length`` of its body, if known."""
        encoder = self.encoder
        block = encoder.begin()
        own = b""
        if isinstance(answer, Response):
            # the first line names the request and is never the same; the rest are the same for many
            first, _, rest = answer.head.partition(b"\r\n")
            key = (answer.status, answer.content_type, rest)
            if encoder.count != self._count:  # the codes of fields have moved
                self._known.clear()
                self._count = encoder.count
            known = self._known.get(key)
            if known is None:
                known = encoder.repeated(self._fields(answer, rest))
                if encoder.count == self._count and len(self._known) < _CACHED:
                    self._known[key] = known
            block += known
            if first:
                own = _line(first)
        elif getattr(answer, "own_headers", False):
            block += encoder.repeated(((b":status", b"%d" % answer.status),))
        else:
            block += encoder.repeated(self._fields(answer, b""))
        for name, value in answer.headers:
            if name.lower() not in _OF_A_CONNECTION:
                own += literal(name.lower(), value)
        if length is None:
            return block + own
        digits = b"%d" % length
        return b"%b%b\x0f\x0d%c%b" % (block, own, len(digits), digits)  # content-length, which is index 28

    def _fields(self, answer: Answer, lines: bytes) -> list[tuple[bytes, bytes]]:
        kind = ((b"content-type", answer.content_type),) if answer.content_type else ()
        rest = ((name.lower(), value) for name, value in header_lines(lines))
        return [(b":status", b"%d" % answer.status), *kind, *self._common, *rest]
