"""Header blocks of HTTP/2 (HPACK, RFC 7541): a decoder for what clients send, an encoder for what a server answers.

Written for few allocations on a server's hot path. The decoder keeps to the size of table that HTTP/2 begins with, and
stops at a limit on the whole block, which a few octets can otherwise make as large as they like. The encoder never
removes what it has put into its peer's table: it puts there what is repeated, and while there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from shoal.base.huffman import HuffmanError, huffman_decoded

TABLE_BYTES = 4096  # of either side, unless settings say otherwise
_ENTRY_BYTES = 32  # that each entry counts beside its text
_LONGEST_INTEGER = 4  # octets after the first one: no length or index of ours needs more
_DYNAMIC = 62  # the first index after the static table

_STATIC_TEXT = """:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|
:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|
content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|cookie|
date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|
link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie|
strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""


class HpackError(ValueError):
    """The block cannot be decoded; nor can any later one of the connection."""


class BlockTooLarge(HpackError):
    """The fields of the block are larger than allowed. The decoder cannot be used any further."""


# name, value, what it counts in the table, and a mark that the decoder's owner gives it
Field = tuple[bytes, bytes, int, int]
Mark = Callable[[bytes, bytes], int]


def static_fields() -> list[tuple[bytes, bytes]]:
    """The static table, without its index 0."""
    parts = (part.partition(" ") for part in _STATIC_TEXT.replace("\n", "").split("|"))
    return [(name.encode(), value.encode()) for name, _, value in parts]


_STATIC = static_fields()


class Decoder:
    """The receiving end of one connection. ``mark`` judges a field once, also if it is repeated from the table."""

    __slots__ = ("_known", "_limit_bytes", "_mark", "_size", "_static", "_table", "_table_bytes")

    def __init__(self, limit_bytes: int, mark: Mark) -> None:
        self._mark = mark
        self._limit_bytes = limit_bytes  # of a block's fields
        self._table: deque[Field] = deque()  # the newest first
        self._size = 0
        self._table_bytes = TABLE_BYTES
        self._static = _marked(mark)

    def decode(self, block: bytes) -> list[Field]:
        """The fields of one block. After an error the table is no longer that of the peer."""
        found: list[Field] = []
        at, end, left = 0, len(block), self._limit_bytes
        table, static = self._table, self._static
        try:
            while at < end:
                octet = block[at]
                at += 1
                if octet & 0x80:  # a field from a table
                    index = octet & 0x7F
                    if index == 0x7F:
                        index, at = _integer(block, at, 0x7F)
                    field = static[index] if index < _DYNAMIC else table[index - _DYNAMIC]
                    if not index:
                        raise HpackError("index 0")
                elif octet & 0xE0 == 0x20:  # a new size of the table, only before the first field
                    size = octet & 0x1F
                    if size == 0x1F:
                        size, at = _integer(block, at, 0x1F)
                    if found or size > TABLE_BYTES:
                        raise HpackError("change of the table's size")
                    self._table_bytes = size
                    self._shrink(size)
                    continue
                else:  # a literal, which may enter the table
                    keep = octet & 0x40
                    mask = 0x3F if keep else 0x0F
                    index = octet & mask
                    if index == mask:
                        index, at = _integer(block, at, mask)
                    if index:
                        name = (static[index] if index < _DYNAMIC else table[index - _DYNAMIC])[0]
                    else:
                        name, at = _string(block, at)
                    value, at = _string(block, at)
                    field = (name, value, len(name) + len(value) + _ENTRY_BYTES, self._mark(name, value))
                    if keep:
                        self._add(field)
                left -= field[2]
                if left < 0:
                    raise BlockTooLarge("too many header fields")
                found.append(field)
        except (IndexError, HuffmanError) as error:
            raise HpackError(str(error)) from error
        return found

    def _add(self, field: Field) -> None:
        size = field[2]
        if self._size + size > self._table_bytes:
            self._shrink(self._table_bytes - size)
        if size <= self._table_bytes:  # a larger one empties the table and is not kept
            self._table.appendleft(field)
            self._size += size

    def _shrink(self, limit_bytes: int) -> None:
        table = self._table
        while table and self._size > limit_bytes:
            self._size -= table.pop()[2]


def _marked(mark: Mark) -> list[Field]:
    fields = [(name, value, len(name) + len(value) + _ENTRY_BYTES, mark(name, value)) for name, value in _STATIC]
    return [(b"", b"", 0, 0), *fields]


def _integer(block: bytes, at: int, first: int) -> tuple[int, int]:
    """The rest of an integer that did not fit into its first octet, and where it ends."""
    shift = 0
    for octet in block[at : at + _LONGEST_INTEGER]:
        at += 1
        first += (octet & 0x7F) << shift
        if octet < 0x80:
            return first, at
        shift += 7
    raise HpackError("an integer does not end")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    octet = block[at]
    at += 1
    length = octet & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HpackError("a string does not end")
    text = block[at:end]
    return huffman_decoded(text) if octet & 0x80 else text, end


_STATIC_INDEX = {field: index for index, field in reversed(list(enumerate(_STATIC, 1)))}
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


class Encoder:
    """The sending end of one connection."""

    __slots__ = ("_added", "_limit_bytes", "_size", "_update", "count")

    def __init__(self) -> None:
        self._added: dict[tuple[bytes, bytes], int] = {}  # fields in the peer's table, and their number
        self._size = 0
        self._limit_bytes = TABLE_BYTES
        self._update = b""  # goes before the next block
        self.count = 0  # of fields added since the start: while it is the same, equal fields have equal codes

    def resize(self, limit_bytes: int) -> None:
        """The peer has set the size of its table."""
        limit_bytes = min(limit_bytes, TABLE_BYTES)
        if limit_bytes == self._limit_bytes:
            return
        self._added, self._size, self._limit_bytes = {}, 0, limit_bytes
        self.count += 1
        self._update = _prefixed(0, 0x1F, 0x20) + _prefixed(limit_bytes, 0x1F, 0x20)

    def begin(self) -> bytes:
        """What a block begins with; mostly nothing."""
        update, self._update = self._update, b""
        return update

    def repeated(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Fields that will be sent again."""
        return b"".join(self._repeated(field) for field in fields)

    def _repeated(self, field: tuple[bytes, bytes]) -> bytes:
        index = _STATIC_INDEX.get(field)
        if index is not None:
            return _prefixed(index, 0x7F, 0x80)
        number = self._added.get(field)
        if number is not None:
            return _prefixed(_DYNAMIC + len(self._added) - number, 0x7F, 0x80)
        size = len(field[0]) + len(field[1]) + _ENTRY_BYTES
        if self._size + size > self._limit_bytes:
            return literal(*field)
        self._size += size
        self.count += 1
        self._added[field] = len(self._added) + 1
        return _named(field[0], 0x3F, 0x40) + _text(field[1])


def literal(name: bytes, value: bytes) -> bytes:
    """A field that stays out of all tables."""
    return _named(name, 0x0F, 0x00) + _text(value)


def _named(name: bytes, limit: int, pattern: int) -> bytes:
    index = _STATIC_NAMES.get(name, 0)
    return _prefixed(index, limit, pattern) + (b"" if index else _text(name))


def _text(text: bytes) -> bytes:
    return _prefixed(len(text), 0x7F, 0x00) + text


def _prefixed(value: int, limit: int, pattern: int) -> bytes:
    if value < limit:
        return bytes((pattern | value,))
    octets = [pattern | limit]
    value -= limit
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
