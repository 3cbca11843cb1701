"""Conditions on requests as matchers of Envoy, and the check of regular expressions.

One expression that Envoy refuses would make it refuse all routes, so expressions are checked here first. Envoy uses
RE2: no look-around, no back references. Expressions that Python cannot compile are refused too.
"""

from __future__ import annotations

import re

from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.type.matcher.v3 import string_pb2

from shoal.crds.sentinel import NamedMatch, TextMatch
from shoal.sentinel.translate import envoy

IDEMPOTENT = "GET|HEAD|OPTIONS|PUT|DELETE|TRACE"
_BEYOND_RE2 = re.compile(
    r"""\(\?(?:[=!>(]|<[=!]|P=|\#)   # look-around, atomic and conditional groups, named back references, comments
    | \\[1-9]                        # back references
    | \\[ZuUN]                       # escapes of Python
    | [*+?}]\+                       # possessive
    """,
    re.VERBOSE,
)
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MAX_REPEAT, _MAX_LENGTH = 1000, 1000


def regex_fault(pattern: str) -> str:
    """Why Envoy would refuse the expression; empty if it would not."""
    if len(pattern) > _MAX_LENGTH:
        return f"a regular expression may have at most {_MAX_LENGTH} characters"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"invalid regular expression {pattern!r}: {error}"
    bare = pattern.replace("\\\\", "")
    if found := _BEYOND_RE2.search(bare):
        return f"invalid regular expression {pattern!r}: RE2 does not support {found.group()!r}"
    counts = [int(number) for pair in _REPEATED.findall(bare) for number in pair if number]
    if any(count > _MAX_REPEAT for count in counts):
        return f"{pattern!r} repeats more than {_MAX_REPEAT} times"
    return ""


def text_fault(match: TextMatch) -> str:
    given = [text for text in (match.exact, match.prefix, match.regex) if text is not None]
    if len(given) > 1:
        return "only one of exact, prefix and regex may be set"
    return regex_fault(match.regex) if match.regex is not None else ""


def text_matcher(match: TextMatch) -> string_pb2.StringMatcher | None:
    """None if the condition only requires the header's presence."""
    if match.exact is not None:
        return string_pb2.StringMatcher(exact=match.exact, ignore_case=match.ignore_case)
    if match.prefix:
        return string_pb2.StringMatcher(prefix=match.prefix, ignore_case=match.ignore_case)
    if match.regex is not None:
        return string_pb2.StringMatcher(safe_regex=envoy.regex(_folded(match)))
    return None


def _folded(match: TextMatch) -> str:
    return f"(?i:{match.regex})" if match.ignore_case else str(match.regex)


def header_matcher(match: NamedMatch) -> route_pb2.HeaderMatcher:
    wanted = text_matcher(match)
    name = match.name.lower()
    if wanted is None:
        return route_pb2.HeaderMatcher(name=name, present_match=True)
    return route_pb2.HeaderMatcher(name=name, string_match=wanted)


def method_matcher(methods: str) -> route_pb2.HeaderMatcher:
    """``methods``: names with | between them."""
    one = "|" not in methods
    wanted = (
        string_pb2.StringMatcher(exact=methods) if one else string_pb2.StringMatcher(safe_regex=envoy.regex(methods))
    )
    return route_pb2.HeaderMatcher(name=":method", string_match=wanted)


def normal_path(path: str) -> str:
    """The path as a prefix of whole segments, without query, fragment and trailing slash; ``/`` matches all."""
    return path.partition("?")[0].partition("#")[0].rstrip("/") or "/"


def route_match(path: str, headers: list[route_pb2.HeaderMatcher]) -> route_pb2.RouteMatch:
    path = normal_path(path)
    if path == "/":
        return route_pb2.RouteMatch(prefix="/", headers=headers)
    return route_pb2.RouteMatch(path_separated_prefix=path, headers=headers)
