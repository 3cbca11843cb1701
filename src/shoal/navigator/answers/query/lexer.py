"""Splits the text of a query into tokens with their positions.

There is no arithmetic, so a word may contain all characters of names: ``web-1``, ``istio/proxyv2:1.24``, ``5m``.
A text in quotes has no escapes, since regular expressions are full of backslashes; a quote is written twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from shoal.navigator.answers.query.model import QueryError

MAX_LENGTH = 4096

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<word>[A-Za-z0-9_][\w./:@*+-]*)
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<sign>!=|!~|<=|>=|=~|==|&&|\|\||[=~<>(),\[\]!*])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_SPACE = re.compile(r"\s*", re.ASCII)
_OTHERS = {"==": "=", "=~": "~", "&&": "and", "||": "or", "!": "not"}


class TokenSort(StrEnum):
    WORD = "word"
    TEXT = "text"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class QueryToken:
    sort: TokenSort
    text: str  # of a text in quotes: what is between them
    start: int
    end: int

    @property
    def shown(self) -> str:
        return "the end" if self.sort is TokenSort.END else repr(self.text)


def tokens(text: str) -> list[QueryToken]:
    """``QueryError`` at a character that begins no token."""
    if len(text) > MAX_LENGTH:
        raise QueryError(text[:60], 0, 1, f"the query has {len(text)} characters: use at most {MAX_LENGTH}")
    found: list[QueryToken] = []
    at = 0
    while True:
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise _unknown(text, at)
        sort = TokenSort(str(matched.lastgroup))
        start, at = matched.span(sort.value)
        said = matched[sort.value]
        if said in _OTHERS:
            raise QueryError(text, start, at, f"unknown operator {said!r}", [_OTHERS[said]])
        if sort is TokenSort.TEXT:
            said = said[1:-1].replace(said[0] * 2, said[0])
        found.append(QueryToken(sort, said, start, at))
        if sort is TokenSort.END:
            return found


def _unknown(text: str, at: int) -> QueryError:
    matched = _SPACE.match(text, at)
    assert matched is not None  # of any length
    at = matched.end()
    if text[at] in "'\"":
        return QueryError(text, at, len(text), "a text without a closing quote", [f"a closing {text[at]}"])
    return QueryError(text, at, at + 1, f"{text[at]!r} has no meaning here", ["a word", "a text in quotes"])
