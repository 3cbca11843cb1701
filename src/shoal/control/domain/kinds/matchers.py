"""How routes and policies recognise a request: by path, method, header or query."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_header, is_regex
from shoal.errors import not_supported, required

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
OPERATORS = ("exact", "prefix", "regex", "present")


@dataclass(frozen=True, slots=True)
class TextMatch:
    """``operator`` is exact, prefix, regex or present; present has no value."""

    operator: str
    value: str = ""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition. ``on`` is path, method, header or query; ``name`` is the header's or the parameter's."""

    on: str
    name: str = ""
    text: TextMatch | None = None
    methods: tuple[str, ...] = ()


def read_text_match(part: Reader, *, present: bool) -> TextMatch:
    operator = part.one_of(OPERATORS if present else OPERATORS[:3], need=not present) or "present"
    values = {
        "exact": part.text("exact"),
        "prefix": part.text("prefix"),
        "regex": part.text("regex", check=is_regex),
    }
    if present:
        part.flag("present", True)
    return TextMatch(operator, values.get(operator, ""), part.flag("ignoreCase"))


def read_named_match(part: Reader) -> tuple[str, TextMatch]:
    """A header or query parameter and what its value must be; without an operator it must be present."""
    made = part.text("name", need=True, check=is_header), read_text_match(part, present=True)
    part.close()
    return made


def read_matchers(parts: list[Reader]) -> tuple[Matcher, ...]:
    """A list of conditions that must all hold; an empty one holds always."""
    return tuple(_matcher(part) for part in parts)


def _matcher(part: Reader) -> Matcher:
    on = part.one_of(("path", "method", "header", "query"))
    below = {name: part.part(name) for name in ("path", "header", "query")}
    methods = part.texts("method", most=len(METHODS), unique=True)
    for method in methods:
        if method not in METHODS:
            part.note(not_supported(part.at("method"), method, METHODS))
    if on == "method" and not methods:
        part.note(required(part.at("method")))
    part.close()
    found = below.get(on)
    if on == "path" and found is not None:
        text = read_text_match(found, present=False)
        found.close()
        return Matcher("path", text=text)
    if found is not None:
        name, text = read_named_match(found)
        return Matcher(on, name, text)
    return Matcher(on, methods=methods)
