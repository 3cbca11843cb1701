"""Request size limits: bodies are counted while they are forwarded, not buffered. The smallest limit applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2, wrappers_pb2
from xds.type.matcher.v3 import matcher_pb2, regex_pb2, string_pb2

from shoal.crds.sentinel import Condition, PolicySpec, TextMatch
from shoal.sentinel.translate import envoy, rules

_LIMIT = "envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimit"
_PER_ROUTE = "envoy.extensions.filters.http.composite.v3.CompositePerRoute"
_Predicate: TypeAlias = matcher_pb2.Matcher.MatcherList.Predicate


def size_limits(specs: Sequence[PolicySpec]) -> any_pb2.Any:
    made = matcher_pb2.Matcher()
    for spec in sorted(specs, key=lambda one: one.request_size.max_bytes if one.request_size else 0):
        assert spec.request_size is not None
        limit = matcher_pb2.Matcher.OnMatch(action=_limit(spec.request_size.max_bytes))
        if not spec.match:
            made.on_no_match.CopyFrom(limit)
            break
        made.matcher_list.matchers.add(predicate=_all(spec.match), on_match=limit)
    return envoy.packed_as(_PER_ROUTE, _field(1, made.SerializeToString(deterministic=True)))


def _limit(max_bytes: int) -> object:
    packed = envoy.packed_as(_LIMIT, _field(1, wrappers_pb2.UInt64Value(value=max_bytes).SerializeToString()))
    run = composite_pb2.ExecuteFilterAction(
        typed_config=extension_pb2.TypedExtensionConfig(name="limit", typed_config=packed)
    )
    return envoy.matching("limit", run)


def _field(number: int, value: bytes) -> bytes:
    """The wire form of a field that holds a message."""
    made, left = bytearray([number << 3 | 2]), len(value)
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made) + value


def _all(conditions: Sequence[Condition]) -> _Predicate:
    found = [_one(condition) for condition in conditions]
    if len(found) == 1:
        return found[0]
    return _Predicate(and_matcher=_Predicate.PredicateList(predicate=found))


def _one(condition: Condition) -> _Predicate:
    if condition.method is not None:
        pattern = "|".join(condition.method)
        return _header(":method", string_pb2.StringMatcher(safe_regex=_regex(pattern)))
    if condition.header is not None:
        return _header(condition.header.name.lower(), _text(condition.header, absent=""))
    if condition.query is not None:
        return _header(rules.query_fact(condition.query.name), _text(condition.query, absent=rules.ABSENT))
    assert condition.path is not None
    return _header(rules.PATH_FACT, _text(condition.path, absent=rules.ABSENT))


def _header(name: str, value: string_pb2.StringMatcher) -> _Predicate:
    looked_at = envoy.matching("header", http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))
    return _Predicate(single_predicate=_Predicate.SinglePredicate(input=looked_at, value_match=value))


def _text(match: TextMatch, *, absent: str) -> string_pb2.StringMatcher:
    """A missing field never matches."""
    if match.exact is not None:
        return string_pb2.StringMatcher(exact=match.exact, ignore_case=match.ignore_case)
    if match.prefix:
        return string_pb2.StringMatcher(prefix=match.prefix, ignore_case=match.ignore_case)
    if match.regex is not None:
        return string_pb2.StringMatcher(safe_regex=_regex(f"(?i:{match.regex})" if match.ignore_case else match.regex))
    return string_pb2.StringMatcher(safe_regex=_regex(f"[^{absent}].*|{absent}.+" if absent else ".*"))


def _regex(pattern: str) -> regex_pb2.RegexMatcher:
    return regex_pb2.RegexMatcher(google_re2=regex_pb2.RegexMatcher.GoogleRE2(), regex=pattern)
