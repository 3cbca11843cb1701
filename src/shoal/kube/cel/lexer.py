"""Expression text to tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from shoal.kube.cel.errors import Issue

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING = (
    r'[rR](?:"""[\s\S]*?"""|' + r"'''[\s\S]*?'''" + r'|"[^"\n\r]*"|' + r"'[^'\n\r]*')"
    r'|"""(?:' + _ESCAPE + r'|[^\\])*?"""'
    r"|'''(?:" + _ESCAPE + r"|[^\\])*?'''"
    r'|"(?:' + _ESCAPE + r'|[^\\"\n\r])*"'
    r"|'(?:" + _ESCAPE + r"|[^\\'\n\r])*'"
)
_TOKEN = re.compile(
    r"(?P<space>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<bytes>[bB](?:{_STRING}))"
    rf"|(?P<string>{_STRING})"
    r"|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])"
    r"|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<ident>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{}().,\-!?:+*/%<>])"
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_UNESCAPE = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))")


class Token(NamedTuple):
    kind: str  # bytes, string, float, uint, int, ident, quoted, op or end
    text: str
    offset: int


def tokenize(source: str) -> tuple[list[Token], list[Issue]]:
    """All tokens, with an ``end`` token last, and the errors."""
    tokens: list[Token] = []
    issues: list[Issue] = []
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            issues.append(Issue(position, f"Syntax error: token recognition error at: '{source[position]}'"))
            position += 1
            continue
        kind = found.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, found[0], position))
        position = found.end()
    tokens.append(Token("end", "<EOF>", len(source)))
    return tokens, issues


def _body(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    size = 3 if text[:3] in ('"""', "'''") else 1
    return text[size:-size], raw


def string_value(text: str) -> str:
    """The value of a string literal; raises ``ValueError`` for an invalid escape."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body

    def plain(found: re.Match[str]) -> str:
        octal, short, wide, wider, simple = found.groups()
        if simple is not None:
            return _SIMPLE[simple]
        number = int(octal, 8) if octal else int(short or wide or wider, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise ValueError("invalid unicode code point")
        return chr(number)

    return _UNESCAPE.sub(plain, body)


def bytes_value(text: str) -> bytes:
    """The value of a bytes literal."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    result, position = bytearray(), 0
    for found in _UNESCAPE.finditer(body):
        result += body[position : found.start()].encode()
        position = found.end()
        octal, short, wide, wider, simple = found.groups()
        if octal or short:
            result.append(int(octal, 8) if octal else int(short, 16))
        elif simple is not None:
            result += _SIMPLE[simple].encode()
        else:
            raise ValueError("unable to unescape string")
        del wide, wider
    return bytes(result + body[position:].encode())
