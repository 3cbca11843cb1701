"""The Huffman code of HPACK (RFC 7541, appendix B): decoding only, since answers are sent without it.

The code is canonical: the lengths of its codes define it. Decoding walks its tree one octet of input at a time. What an
octet does at a node is computed when it first occurs there: text uses few of the 65 536 combinations, and strings made
to use all of them cost 10 MB once in a process.
"""

from __future__ import annotations

_END = 256  # the symbol that only pads the last octet, as the first bits of its code
# the symbols of each length of code, in the order of their codes
_SYMBOLS: dict[int, list[int]] = {
    5: [*b"012aceiost"],
    6: [*b" %-./3456789=A_bdfghlmnpru"],
    7: [*b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"],
    8: [*b"&*,;XZ"],
    10: [*b'!"()?'],
    11: [*b"'+|"],
    12: [*b"#>"],
    13: [*b"\x00$@[]~"],
    14: [*b"^}"],
    15: [*b"<`{"],
    19: [*b"\\\xc3\xd0"],
    20: [*b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"],
    21: [*b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"],
    22: [*b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9"],
    23: [
        *b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5",
        *b"\xe7\xef",
    ],
    24: [*b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"],
    25: [*b"\xc7\xcf\xea\xeb"],
    26: [*b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"],
    27: [*b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"],
    28: [
        *b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
        *b"\x7f\xdc\xf9",
    ],
    30: [10, 13, 22, _END],
}  # fmt: skip
_LONGEST = 30


class HuffmanError(ValueError):
    """The input is not a string of this code."""


class _Node(dict[int, "tuple[_Node, bytes]"]):
    """A place inside the tree: what each octet leads to from here, and the text that is complete then."""

    __slots__ = ("code", "length", "may_end")

    def __init__(self, code: int, length: int) -> None:
        super().__init__()
        self.code, self.length = code, length  # the bits read since the last symbol
        self.may_end = length < 8 and code == (1 << length) - 1  # only padding, and less than an octet of it

    def __missing__(self, octet: int) -> tuple[_Node, bytes]:
        code, length, text = self.code, self.length, b""
        for shift in range(7, -1, -1):
            code, length = code << 1 | (octet >> shift & 1), length + 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                if symbol == _END:
                    raise HuffmanError("the end of the string is inside of it")
                text += bytes((symbol,))
                code = length = 0
        node = _NODES.get((length, code))
        if node is None:
            node = _NODES[length, code] = _Node(code, length)
        self[octet] = found = (node, text)
        return found


def _codes() -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    code = 0
    for length in range(1, _LONGEST + 1):
        code <<= 1
        for symbol in _SYMBOLS.get(length, ()):
            found[length, code] = symbol
            code += 1
    return found


_CODES = _codes()
_ROOT = _Node(0, 0)
_NODES: dict[tuple[int, int], _Node] = {(0, 0): _ROOT}


def huffman_decoded(data: bytes) -> bytes:
    """The string behind its code; raises ``HuffmanError`` for anything that is none, wrong padding included."""
    node, found = _ROOT, bytearray()
    for octet in data:
        node, text = node[octet]
        found += text
    if not node.may_end:
        raise HuffmanError("the last octet is not padded with ones")
    return bytes(found)
