"""Strings: the standard tests, the extended functions, regular expressions, formatting and base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from shoal.kube.cel.errors import EvalError
from shoal.kube.cel.functions import Library
from shoal.kube.cel.regex import compile_regex, matcher
from shoal.kube.cel.values import Duration, Timestamp, UInt, go_float, type_name

_LOWER = {ord(char): ord(char) + 32 for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER = {small: large for large, small in _LOWER.items()}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]+))?([a-zA-Z])|)")


def matches(text: str, pattern: str) -> bool:
    try:
        return matcher(pattern)(text)
    except ValueError as error:
        raise EvalError(str(error)) from None


def _regex(pattern: str) -> Any:
    try:
        return compile_regex(pattern)
    except ValueError as error:
        raise EvalError(f"Illegal regex: {error}") from None


def find(text: str, pattern: str) -> str:
    found = _regex(pattern).search(text)
    return found.group() if found is not None else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    result: list[str] = []
    for found in _regex(pattern).finditer(text):
        if len(result) == limit:
            break
        result.append(found.group())
    return result


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvalError(f"index out of range: {index}")
    return text[index : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if not 0 <= start <= len(text):
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


def last_index_of(text: str, part: str, end: int | None = None) -> int:
    if end is None:
        return len(text) if not part else text.rfind(part)
    if not part:
        return end
    if not 0 <= end <= len(text):
        raise EvalError(f"index out of range: {end}")
    return text.rfind(part, 0, end + len(part))


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def split(text: str, mark: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not mark:
        if limit < 0 or limit > len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return text.split(mark, limit - 1 if limit > 0 else -1)


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
    if not 0 <= start <= len(text):
        raise EvalError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise EvalError(f"index out of range: {end}")
    if start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def join(parts: list[str], mark: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise EvalError("no such overload")
    return mark.join(parts)


def quote(text: str) -> str:
    escapes = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    escapes |= {"\\": "\\\\", '"': '\\"'}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def format_text(template: str, args: list[Any]) -> str:
    """``%s %d %f %e %b %x %X %o`` with the values of a list."""
    place = 0

    def clause(found: re.Match[str]) -> str:
        nonlocal place
        if found[0] == "%%":
            return "%"
        if not found[2]:
            raise EvalError("could not parse formatting clause: unexpected end of string")
        if place >= len(args):
            raise EvalError(f"index {place} out of range")
        value = args[place]
        place += 1
        try:
            return _formatted(found[2], found[1], value)
        except EvalError as error:
            raise EvalError(f"error during formatting: {error}") from None

    return _CLAUSE.sub(clause, template)


def _formatted(verb: str, precision: str | None, value: Any) -> str:
    if verb == "s":
        return _as_text(value)
    number = type(value) in (int, UInt)
    if verb == "d" and (number or type(value) is float and value != value):
        return str(value)
    if verb in "fe" and (number or type(value) is float):
        digits = int(precision) if precision is not None else 6
        text = f"{float(value):.{min(digits, 1000)}{verb}}"
        text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
        mantissa, mark, exponent = text.partition("e")
        return f"{mantissa}×10{exponent.lstrip('+').translate(_SUPERSCRIPT)}" if mark and verb == "e" else text
    if verb == "b" and (number or type(value) is bool):
        return f"{int(value):b}"
    if verb == "o" and number:
        return f"{int(value):o}"
    if verb in "xX":
        if number:
            return f"{int(value):{verb}}"
        if type(value) in (str, bytes):
            raw = value if type(value) is bytes else value.encode("utf-8", "surrogatepass")
            return raw.hex().upper() if verb == "X" else raw.hex()
    if verb not in "sdfeboxX":
        raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    raise EvalError(f"{_CLAUSE_NAMES[verb]}, was given {type_name(value)}")


_CLAUSE_NAMES = {
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
}


def _as_text(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is float:
        return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(go_float(value), go_float(value))
    if kind is bytes:
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, list):
        return "[" + ", ".join(_as_text(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = sorted((_as_text(key), _as_text(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, int | Timestamp | Duration):
        return str(value)
    if hasattr(value, "kind") and hasattr(value, "params"):
        return str(value)
    raise EvalError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
        f"timestamps, was given {type_name(value)}"
    )


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvalError(f"illegal base64 data: {json.dumps(text[:64])}") from None


def declare(library: Library) -> None:
    add = library.add
    add("contains_string", "string.contains(string): bool", lambda text, part: part in text)
    add("starts_with_string", "string.startsWith(string): bool", str.startswith)
    add("ends_with_string", "string.endsWith(string): bool", str.endswith)
    add("matches", "matches(string, string): bool", matches)
    add("matches_string", "string.matches(string): bool", matches)
    add("string_find_string", "string.find(string): string", find)
    add("string_find_all_string", "string.findAll(string): list(string)", find_all)
    add("string_find_all_string_int", "string.findAll(string, int): list(string)", find_all)
    add("string_char_at_int", "string.charAt(int): string", char_at)
    add("string_index_of_string", "string.indexOf(string): int", index_of)
    add("string_index_of_string_int", "string.indexOf(string, int): int", index_of)
    add("string_last_index_of_string", "string.lastIndexOf(string): int", last_index_of)
    add("string_last_index_of_string_int", "string.lastIndexOf(string, int): int", last_index_of)
    add("string_lower_ascii", "string.lowerAscii(): string", lambda text: text.translate(_LOWER))
    add("string_upper_ascii", "string.upperAscii(): string", lambda text: text.translate(_UPPER))
    add("string_replace_string_string", "string.replace(string, string): string", replace)
    add("string_replace_string_string_int", "string.replace(string, string, int): string", replace)
    add("string_split_string", "string.split(string): list(string)", split)
    add("string_split_string_int", "string.split(string, int): list(string)", split)
    add("string_substring_int", "string.substring(int): string", substring)
    add("string_substring_int_int", "string.substring(int, int): string", substring)
    add("string_trim", "string.trim(): string", lambda text: text.strip(_SPACE))
    add("string_reverse", "string.reverse(): string", lambda text: text[::-1])
    add("string_format", "string.format(list(dyn)): string", format_text)
    add("list_join", "list(string).join(): string", join)
    add("list_join_string", "list(string).join(string): string", join)
    add("strings_quote", "|strings.quote(string): string", quote)
    add("base64_encode_bytes", "|base64.encode(bytes): string", lambda raw: base64.b64encode(raw).decode())
    add("base64_decode_string", "|base64.decode(string): bytes", _decode)
