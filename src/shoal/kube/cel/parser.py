"""Tokens to a syntax tree, by recursive descent over the grammar of the language."""

from __future__ import annotations

from shoal.kube.cel import lexer
from shoal.kube.cel.ast import Call, Expr, Ident, ListExpr, Literal, MapExpr, Select, Struct
from shoal.kube.cel.errors import CompileError, Issue
from shoal.kube.cel.lexer import Token, tokenize
from shoal.kube.cel.macros import MEMBER_MACROS, MacroError, has
from shoal.kube.cel.values import UInt

RESERVED = frozenset({
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
})  # fmt: skip
_STARTS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!="})
_MAX_DEPTH = 60  # limit of nested brackets; each needs some ten frames of the interpreter's stack
_MAX_SIZE = 100_000
_MAX_ISSUES = 100


class _Stop(Exception):
    """Parsing stops; the issue is already recorded."""


def parse(source: str) -> Expr:
    """The tree of an expression; raises ``CompileError`` if the text is invalid."""
    if len(source) > _MAX_SIZE:
        text = f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_SIZE}"
        raise CompileError("", [Issue(0, text)])
    tokens, issues = tokenize(source)
    parser = _Parser(tokens, issues)
    try:
        tree = parser.whole()
    except RecursionError:
        raise CompileError(source, [Issue(0, "expression nested too deeply")]) from None
    if tree is None or parser.issues:
        raise CompileError(source, parser.issues[:_MAX_ISSUES])
    return tree


def _balanced(function: str, terms: list[Expr], places: list[int]) -> Expr:
    """A chain of one logical operator as a flat tree: long ones are common, and the order makes no difference."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    left = _balanced(function, terms[:middle], places[: middle - 1])
    return Call(places[middle - 1], function, [left, _balanced(function, terms[middle:], places[middle:])])


class _Parser:
    def __init__(self, tokens: list[Token], issues: list[Issue]) -> None:
        self.tokens = tokens
        self.issues = issues
        self.place = 0
        self.depth = 0

    def whole(self) -> Expr | None:
        try:
            tree = self.expression()
            token = self.tokens[self.place]
            if token.kind != "end":
                self.stop(token, f"mismatched input '{token.text}' expecting <EOF>")
            return tree
        except _Stop:
            return None

    def stop(self, token: Token, message: str) -> None:
        if not any(issue.message.startswith("Syntax error") for issue in self.issues):
            self.issues.append(Issue(token.offset, f"Syntax error: {message}"))
        raise _Stop

    def fault(self, at: int, message: str) -> Literal:
        self.issues.append(Issue(at, message))
        return Literal(at, None)

    def peek(self) -> str:
        token = self.tokens[self.place]
        return token.text if token.kind == "op" or (token.kind == "ident" and token.text == "in") else ""

    def take(self) -> Token:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def expect(self, text: str) -> Token:
        token = self.tokens[self.place]
        if token.kind != "op" or token.text != text:
            self.stop(token, f"mismatched input '{token.text}' expecting '{text}'")
        return self.take()

    def expression(self) -> Expr:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            token = self.tokens[self.place]
            self.issues.append(Issue(token.offset, f"expression recursion limit exceeded: {_MAX_DEPTH}"))
            raise _Stop
        left = self.either()
        if self.peek() == "?":
            mark = self.take()
            then = self.either()
            self.expect(":")
            left = Call(mark.offset, "_?_:_", [left, then, self.expression()])
        self.depth -= 1
        return left

    def either(self) -> Expr:
        terms, places = [self.both()], []
        while self.peek() == "||":
            places.append(self.take().offset)
            terms.append(self.both())
        return _balanced("_||_", terms, places)

    def both(self) -> Expr:
        terms, places = [self.relation()], []
        while self.peek() == "&&":
            places.append(self.take().offset)
            terms.append(self.relation())
        return _balanced("_&&_", terms, places)

    def relation(self) -> Expr:
        left = self.sum()
        while (operator := self.peek()) in _RELATIONS or operator == "in":
            token = self.take()
            name = "@in" if operator == "in" else f"_{operator}_"
            left = Call(token.offset, name, [left, self.sum()])
        return left

    def sum(self) -> Expr:
        left = self.product()
        while (operator := self.peek()) in ("+", "-"):
            left = Call(self.take().offset, f"_{operator}_", [left, self.product()])
        return left

    def product(self) -> Expr:
        left = self.unary()
        while (operator := self.peek()) in ("*", "/", "%"):
            left = Call(self.take().offset, f"_{operator}_", [left, self.unary()])
        return left

    def unary(self) -> Expr:
        operator = self.peek()
        if operator not in ("!", "-"):
            return self.member()
        first, count = self.tokens[self.place], 0
        while self.peek() == operator:
            self.take()
            count += 1
        following = self.tokens[self.place].kind
        if operator == "-" and following in ("int", "float"):
            self.place -= 1  # the last sign belongs to the number: -9223372036854775808 has no positive twin
            count -= 1
        inner = self.member()
        if count % 2 == 0:
            return inner
        return Call(first.offset, "!_" if operator == "!" else "-_", [inner])

    def member(self) -> Expr:
        left = self.primary()
        while (mark := self.peek()) in (".", "["):
            token = self.take()
            left = self.index(left, token) if mark == "[" else self.dotted(left, token)
        return left

    def index(self, left: Expr, token: Token) -> Expr:
        optional = self.peek() == "?"
        if optional:
            self.take()
        inner = self.expression()
        self.expect("]")
        return Call(token.offset, "_[?_]" if optional else "_[_]", [left, inner])

    def dotted(self, left: Expr, token: Token) -> Expr:
        optional = self.peek() == "?"
        if optional:
            self.take()
        name = self.take()
        if name.kind == "quoted":
            return self.fault(name.offset, "unsupported syntax: '`'")
        if name.kind != "ident" or name.text in ("in", "true", "false", "null"):
            if name.kind == "end":
                self.stop(name, "no viable alternative at input '.'")
            self.stop(name, f"mismatched input '{name.text}' expecting IDENTIFIER")
        if not optional and self.peek() == "(":
            opening = self.take()
            return self.member_call(opening.offset, left, name.text, self.arguments())
        return Select(token.offset, left, name.text, optional=optional)

    def member_call(self, offset: int, target: Expr, name: str, args: list[Expr]) -> Expr:
        macro = MEMBER_MACROS.get((name, len(args)))
        if macro is not None:
            try:
                return macro(offset, target, args)
            except MacroError as error:
                self.issues.append(error.issue)
                return Literal(offset, None)
        return Call(offset, name, args, target)

    def arguments(self) -> list[Expr]:
        args: list[Expr] = []
        if self.peek() != ")":
            args.append(self.expression())
            while self.peek() == ",":
                self.take()
                args.append(self.expression())
        self.expect(")")
        return args

    def primary(self) -> Expr:
        token = self.take()
        if token.kind == "op":
            return self.grouped(token)
        if token.kind == "ident":
            return self.named(token)
        return self.literal(token)

    def grouped(self, token: Token) -> Expr:
        if token.text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if token.text == "[":
            return self.list_literal(token)
        if token.text == "{":
            return self.map_literal(token)
        if token.text == "." and self.tokens[self.place].kind == "ident":
            return self.named(self.take(), leading=".")
        if token.text == "-" and self.tokens[self.place].kind in ("int", "float"):
            return self.number(self.take(), "-", token.offset)
        self.stop(token, f"mismatched input '{token.text}' expecting {_STARTS}")
        raise AssertionError

    def named(self, token: Token, leading: str = "") -> Expr:
        if token.text in ("true", "false") and not leading:
            return Literal(token.offset, token.text == "true")
        if token.text == "null" and not leading:
            return Literal(token.offset, None)
        if token.text == "in":
            self.stop(token, f"mismatched input 'in' expecting {_STARTS}")
        if token.text in RESERVED:
            return self.fault(token.offset, f"reserved identifier: {token.text}")
        if self.peek() == "(":
            opening = self.take()
            args = self.arguments()
            if token.text == "has" and len(args) == 1:
                try:
                    return has(opening.offset, args)
                except MacroError as error:
                    self.issues.append(error.issue)
                    return Literal(token.offset, None)
            return Call(opening.offset, leading + token.text, args)
        if self.begins_struct():
            return self.struct(token, leading)
        return Ident(token.offset, leading + token.text)

    def begins_struct(self) -> bool:
        place = self.place
        while self.tokens[place].text == "." and self.tokens[place + 1].kind == "ident":
            place += 2
        return self.tokens[place].text == "{" and self.tokens[place].kind == "op"

    def struct(self, token: Token, leading: str) -> Expr:
        name = leading + token.text
        while self.peek() == ".":
            self.take()
            name += "." + self.take().text
        opening = self.expect("{")
        fields: list[tuple[int, str, Expr, bool]] = []
        while self.peek() != "}":
            optional = self.peek() == "?"
            if optional:
                self.take()
            field = self.take()
            if field.kind not in ("ident", "quoted"):
                self.stop(field, f"mismatched input '{field.text}' expecting IDENTIFIER")
            colon = self.expect(":")
            fields.append((colon.offset, field.text.strip("`"), self.expression(), optional))
            if self.peek() != ",":
                break
            self.take()
        self.expect("}")
        return Struct(opening.offset, name, fields)

    def list_literal(self, token: Token) -> Expr:
        elements: list[Expr] = []
        optional: set[int] = set()
        while self.peek() != "]":
            if self.peek() == "?":
                self.take()
                optional.add(len(elements))
            elements.append(self.expression())
            if self.peek() != ",":
                break
            self.take()
        self.expect("]")
        return ListExpr(token.offset, elements, frozenset(optional))

    def map_literal(self, token: Token) -> Expr:
        entries: list[tuple[Expr, Expr, bool]] = []
        while self.peek() != "}":
            optional = self.peek() == "?"
            if optional:
                self.take()
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if self.peek() != ",":
                break
            self.take()
        self.expect("}")
        return MapExpr(token.offset, entries)

    def literal(self, token: Token) -> Expr:
        if token.kind in ("int", "uint", "float"):
            return self.number(token, "", token.offset)
        try:
            if token.kind == "string":
                return Literal(token.offset, lexer.string_value(token.text))
            if token.kind == "bytes":
                return Literal(token.offset, lexer.bytes_value(token.text))
        except ValueError as error:
            return self.fault(token.offset, str(error))
        self.stop(token, f"mismatched input '{token.text}' expecting {_STARTS}")
        raise AssertionError

    def number(self, token: Token, sign: str, at: int) -> Expr:
        if token.kind == "float":
            value = float(sign + token.text)
            return Literal(at, value) if abs(value) != float("inf") else self.fault(at, "invalid double literal")
        text = token.text.rstrip("uU")
        number = int(sign + text, 16) if text.startswith("0x") else int(sign + text) if len(text) < 30 else 2**70
        if token.kind == "uint":
            return Literal(at, UInt(number)) if number < 2**64 else self.fault(at, "invalid uint literal")
        return Literal(at, number) if -(2**63) <= number < 2**63 else self.fault(at, "invalid int literal")
