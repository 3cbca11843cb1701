"""Parses and checks a query. ``QueryError`` shows the place of an unknown name or an invalid comparison.

query  := KIND [where or] [select field {, field} | select * | count [by field {, field}]]
          [order by field [asc|desc] {, ...}] [limit N]
or     := and {or and}
and    := not {and not}
not    := not not | ( or ) | field [op value | [not] in ( value {, value} )]
field  := NAME [. KEY | [ 'KEY' ]]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeVar

from shoal.navigator.answers.query.fields import BY_WORD, QUERY_KINDS
from shoal.navigator.answers.query.lexer import QueryToken, TokenSort, tokens
from shoal.navigator.answers.query.model import (
    OPERATORS,
    And,
    Compare,
    Expr,
    FieldRef,
    FieldType,
    Not,
    Or,
    Order,
    Query,
    QueryError,
    QueryKind,
    Truth,
    Value,
)
from shoal.navigator.answers.query.patterns import PatternError, parse_pattern
from shoal.navigator.answers.query.values import length_s, moment_s, version_key

MAX_DEPTH = 50
MAX_LIMIT = 100_000
_CLAUSES = ("where", "select", "count", "order by", "limit")
_KEYWORDS = frozenset({"where", "select", "count", "order", "by", "limit", "and", "or", "not", "in", "asc", "desc"})
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}
_COUNT = "count"
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?", re.ASCII)

T = TypeVar("T")


def parse(text: str, *, now_s: float) -> Query:
    """``now_s`` gives moments that are written as "how long ago" their meaning."""
    return _Parser(text, now_s).query()


class _Parser:
    def __init__(self, text: str, now_s: float) -> None:
        self._text = text
        self._now_s = now_s
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0
        self._kind: QueryKind = QUERY_KINDS["pods"]

    def query(self) -> Query:
        self._kind = self._known_kind()
        where = self._or() if self._takes("where") else None
        select: tuple[FieldRef, ...] = ()
        count_by: tuple[FieldRef, ...] = ()
        order: tuple[Order, ...] = ()
        counted = False
        if self._takes("select"):
            select = self._selected()
        elif self._takes(_COUNT):
            counted = True
            count_by = tuple(self._listed(self._shown_field)) if self._takes("by") else ()
        if self._takes("order"):
            self._expect("by")
            by_name = {ref.name: ref for ref in count_by}
            order = tuple(self._listed(lambda: self._ordered(by_name if counted else None)))
        limit = self._limit() if self._takes("limit") else None
        if self._next.sort is not TokenSort.END:
            raise self._unexpected(self._clauses_left(where, select, order, limit, counted=counted))
        return Query(
            text=self._text, kind=self._kind, where=where, select=select, counted=counted, count_by=count_by,
            order=order, limit=limit,
        )  # fmt: skip

    # Names

    def _known_kind(self) -> QueryKind:
        token = self._next
        if token.sort is not TokenSort.WORD:
            raise self._error(token, "a query begins with a kind", sorted(QUERY_KINDS))
        kind = BY_WORD.get(token.text.lower())
        if kind is None:
            raise self._error(token, f"unknown kind {token.text!r}{_near(token.text, BY_WORD)}", sorted(QUERY_KINDS))
        self._at += 1
        return kind

    def _field(self) -> FieldRef:
        token = self._next
        if token.sort is not TokenSort.WORD or token.text.lower() in _KEYWORDS:
            raise self._error(token, f"a field is missing before {token.shown}", self._field_names())
        self._at += 1
        name, dot, key = token.text.partition(".")
        field = self._kind.fields.get(name)
        if field is None:
            near = _near(name, self._kind.fields)
            raise self._error(token, f"{self._kind.name} have no field {name!r}{near}", self._field_names())
        end = token.end
        if not dot and self._is_sign("["):
            self._at += 1
            key_token = self._next
            if key_token.sort not in (TokenSort.TEXT, TokenSort.WORD):
                raise self._error(key_token, "a key is missing", ["a text in quotes"])
            self._at += 1
            key, end = key_token.text, self._next.end
            self._expect("]")
        if key and field.type is not FieldType.MAP:
            raise self._error(token, f"{name} is {_article(field.type)}, which has no keys", [name])
        if (dot and not key) or (field.type is FieldType.MAP and token.text.endswith(".")):
            raise self._error(token, "a key is missing after the dot", [f"{name}.KEY", f"{name}['KEY']"])
        return FieldRef(field, key, token.start, end)

    def _shown_field(self) -> FieldRef:
        """One that can be a column."""
        return self._field()

    def _selected(self) -> tuple[FieldRef, ...]:
        if self._is_sign("*"):
            self._at += 1
            return tuple(FieldRef(field) for field in self._kind.fields.values())
        return tuple(self._listed(self._shown_field))

    def _ordered(self, counted: dict[str, FieldRef] | None) -> Order:
        token = self._next
        if counted is not None and token.text.lower() == _COUNT:
            self._at += 1
            return Order(_COUNT, self._direction())
        ref = self._field()
        if counted is not None and ref.name not in counted:
            raise self._error(token, f"{ref.name} is not one of the fields of count by", [_COUNT, *counted])
        if ref.type is FieldType.MAP:
            raise self._error(token, f"{ref.name} cannot be sorted without a key", [f"{ref.name}.KEY"])
        return Order(ref.name, self._direction(), ref)

    def _direction(self) -> bool:
        if self._takes("desc"):
            return True
        self._takes("asc")
        return False

    def _limit(self) -> int:
        token = self._next
        if token.sort is not TokenSort.WORD or not token.text.isdecimal() or not 0 < int(token.text[:12]) <= MAX_LIMIT:
            raise self._error(token, f"limit is {token.shown}", [f"a whole number from 1 to {MAX_LIMIT}"])
        self._at += 1
        return int(token.text)

    # Expressions

    def _or(self) -> Expr:
        parts = [self._and()]
        while self._takes("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Expr:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(self._next, f"more than {MAX_DEPTH} levels of parentheses and not")
        try:
            if self._takes("not"):
                return Not(self._not())
            if self._is_sign("("):
                self._at += 1
                inner = self._or()
                if not self._is_sign(")"):
                    raise self._unexpected(["and", "or", ")"])
                self._at += 1
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Expr:
        ref = self._field()
        token = self._next
        if token.sort is TokenSort.SIGN and token.text not in ("(", ")", ",", "[", "]", "*"):
            return self._compared(ref, token)
        if self._takes("in"):
            return Compare(ref, self._allowed(ref, "in", token), self._several(ref))
        if token.text.lower() == "not" and self._after.text.lower() == "in":
            self._at += 2
            return Not(Compare(ref, self._allowed(ref, "in", token), self._several(ref)))
        if ref.type is FieldType.BOOL or ref.key:
            return Truth(ref)
        if ref.type is FieldType.MAP:
            raise self._error(token, f"{ref.name} needs a key", [f"{ref.name}.KEY", f"{ref.name}['KEY']"], ref)
        raise self._error(
            token, f"{ref.name} is {_article(ref.type)} and must be compared", OPERATORS[ref.type], ref
        )  # fmt: skip

    def _compared(self, ref: FieldRef, token: QueryToken) -> Expr:
        op = self._allowed(ref, token.text, token)
        self._at += 1
        value = self._value(ref, op)
        if op == "!=":
            return Not(Compare(ref, "=", (value,)))
        if op == "!~":
            return Not(Compare(ref, "~", (value,)))
        return Compare(ref, op, (value,))

    def _allowed(self, ref: FieldRef, op: str, token: QueryToken) -> str:
        if ref.type is FieldType.MAP:
            raise self._error(token, f"{ref.name} needs a key", [f"{ref.name}.KEY", f"{ref.name}['KEY']"], ref)
        if op not in OPERATORS[ref.type]:
            raise self._error(
                token, f"{ref.name} is {_article(ref.type)}, which does not support {op}", OPERATORS[ref.type]
            )  # fmt: skip
        return op

    def _several(self, ref: FieldRef) -> tuple[Value, ...]:
        self._expect("(")
        found = tuple(self._listed(lambda: self._value(ref, "in")))
        if not self._is_sign(")"):
            raise self._unexpected([",", ")"])
        self._at += 1
        return found

    def _value(self, ref: FieldRef, op: str) -> Value:
        token = self._next
        if token.sort not in (TokenSort.WORD, TokenSort.TEXT):
            raise self._error(token, f"a value is missing before {token.shown}", [_EXAMPLES[ref.type]])
        if (
            ref.type is FieldType.NUMBER
            and op != "in"
            and token.sort is TokenSort.WORD
            and token.text in self._kind.fields
        ):
            return self._other_number(ref)
        self._at += 1
        if op == "~":
            return self._pattern(token)
        value = _converted(ref.type, token.text, self._now_s)
        if value is None:
            raise self._error(token, f"{ref.name} is {_article(ref.type)}, not {token.shown}", [_EXAMPLES[ref.type]])
        return value

    def _other_number(self, ref: FieldRef) -> FieldRef:
        token = self._next
        other = self._field()
        if other.type is not FieldType.NUMBER:
            numbers = [name for name, field in self._kind.fields.items() if field.type is FieldType.NUMBER]
            raise self._error(token, f"{other.name} is {_article(other.type)}, and {ref.name} a number", numbers)
        return other

    def _pattern(self, token: QueryToken) -> str:
        try:
            parse_pattern(token.text)
        except PatternError as error:
            start = token.start + (1 if token.sort is TokenSort.TEXT else 0) + error.position
            raise QueryError(self._text, start, start + 1, f"the pattern cannot be used: {error}") from None
        return token.text

    # Tokens

    @property
    def _next(self) -> QueryToken:
        return self._tokens[self._at]

    @property
    def _after(self) -> QueryToken:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _takes(self, word: str) -> bool:
        token = self._next
        if token.sort is TokenSort.WORD and token.text.lower() == word:
            self._at += 1
            return True
        return False

    def _is_sign(self, sign: str) -> bool:
        return self._next.sort is TokenSort.SIGN and self._next.text == sign

    def _expect(self, said: str) -> None:
        if not (self._takes(said) or self._is_sign(said)):
            raise self._unexpected([said])
        if self._is_sign(said):
            self._at += 1

    def _listed(self, one: Callable[[], T]) -> list[T]:
        found = [one()]
        while self._is_sign(","):
            self._at += 1
            found.append(one())
        return found

    def _clauses_left(
        self, where: Expr | None, select: tuple[FieldRef, ...], order: tuple[Order, ...], limit: int | None, *,
        counted: bool,
    ) -> list[str]:  # fmt: skip
        if limit is not None:
            return ["the end"]
        if order:
            return [",", "asc", "desc", "limit", "the end"]
        if select or counted:
            return [",", "order by", "limit", "the end"]
        return [*(("and", "or") if where is not None else ("where",)), *_CLAUSES[1:], "the end"]

    def _field_names(self) -> list[str]:
        return sorted(self._kind.fields)

    def _unexpected(self, accepted: Iterable[str]) -> QueryError:
        token = self._next
        names = list(accepted)
        near = _near(token.text, names) if token.sort is TokenSort.WORD else ""
        return self._error(token, f"{token.shown} is not expected here{near}", names)

    def _error(
        self, token: QueryToken, problem: str, accepted: Iterable[str] = (), ref: FieldRef | None = None
    ) -> QueryError:  # fmt: skip
        start, end = (ref.start, ref.end) if ref is not None else (token.start, token.end)
        return QueryError(self._text, start, end, problem, list(accepted))


_EXAMPLES = {
    FieldType.TEXT: "a text in quotes or a word",
    FieldType.TEXTS: "a text in quotes or a word",
    FieldType.NUMBER: "a number",
    FieldType.NUMBERS: "a number",
    FieldType.BOOL: "true or false",
    FieldType.AGE: "a length of time: 90s, 5m, 1h30m, 2d",
    FieldType.TIME: "a moment: '2026-01-31T12:00:00Z', '2026-01-31', or how long ago: 5m",
    FieldType.VERSION: "a version: v1.30",
    FieldType.MAP: "a key",
}


def _converted(type_: FieldType, text: str, now_s: float) -> Value | None:
    match type_:
        case FieldType.NUMBER | FieldType.NUMBERS:
            if not _NUMBER.fullmatch(text):
                return None
            return float(text) if "." in text else int(text)
        case FieldType.BOOL:
            return _FLAGS.get(text.lower())
        case FieldType.AGE:
            return length_s(text)
        case FieldType.TIME:
            return moment_s(text, now_s)
        case FieldType.VERSION:
            return text if version_key(text) else None
        case _:
            return text


def _article(type_: FieldType) -> str:
    words = {
        FieldType.TEXTS: "a list of texts",
        FieldType.NUMBERS: "a list of numbers",
        FieldType.BOOL: "a flag",
        FieldType.AGE: "an age",
    }
    return words.get(type_, "a " + type_.value)


def _near(word: str, names: Iterable[str]) -> str:
    found = get_close_matches(word.lower(), list(names), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
