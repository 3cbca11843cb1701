"""Conditions of policies, translated to matchers of Envoy's filters.

Filters match different parts of a request, so two facts are first written into headers, which are removed before the
request is forwarded: the path without the query, and the values of parameters that conditions use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import TypeAlias

from envoy.config.core.v3 import address_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.type.matcher.v3 import metadata_pb2, path_pb2, string_pb2
from google.protobuf import wrappers_pb2

from shoal.crds.sentinel import Condition, KeyAuth, NamedMatch, PolicySpec, TextMatch
from shoal.sentinel.model import GatewayPolicy
from shoal.sentinel.policies.lua_filter import KeyCheck, filter_context
from shoal.sentinel.policies.wire import BadRule
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.match import header_matcher, normal_path, text_fault, text_matcher

PATH_FACT = "x-shoal-fact-path"
LIMITS_FACT = "x-shoal-fact-limits"  # the limits of the route, each between commas
VERDICT_FACT = "x-shoal-fact-key-"  # plus the number of the route's key policy
FIRST_VERDICT = f"{VERDICT_FACT}0"
QUERY_FACT = "x-shoal-fact-query-"  # plus the name of the parameter, as hex
ABSENT = "-"
_Id: TypeAlias = rbac_pb2.Principal


def policy_fault(spec: PolicySpec) -> str:
    """Why a gateway cannot apply the policy; empty if it can."""
    faults = [*(_condition_fault(each) for each in spec.match), _kind_fault(spec)]
    return next((fault for fault in faults if fault), "")


def _condition_fault(condition: Condition) -> str:
    given = [part for part in (condition.path, condition.header, condition.query) if part is not None]
    if len(given) + (condition.method is not None) != 1:
        return "a condition needs exactly one of path, method, header and query"
    if condition.method is not None:
        return "" if all(name.isalpha() for name in condition.method) else "invalid method: use letters only"
    return text_fault(given[0])


def _kind_fault(spec: PolicySpec) -> str:
    if spec.cors is not None and spec.match:
        return "a cors policy cannot have conditions: it applies to whole routes"
    if spec.firewall is not None:
        if spec.firewall.action not in ("deny", "allow"):
            return f"invalid action {spec.firewall.action!r}: use deny or allow"
        wrong = next((text for text in spec.firewall.cidrs if not _is_network(text)), None)
        return "" if wrong is None else f"invalid network {wrong!r}: use for example 10.0.0.0/8"
    if spec.rate_limit is not None:
        limit = spec.rate_limit
        if limit.scope not in ("local", "cluster", "strict"):
            return f"invalid scope {limit.scope!r}: use local, cluster or strict"
        if limit.limit < 1 or limit.window < 1 or limit.cost < 1:
            return "limit, window and cost must be 1 or more"
        by = limit.identifier
        given = (by.remote_ip, by.header or None, by.path, by.subject, by.principal or None)
        if sum(each is not None for each in given) != 1:
            return "an identifier needs exactly one of remoteIp, header, path, subject and principal"
        return ""
    if spec.request_size is not None and spec.request_size.max_bytes < 1:
        return "maxBytes must be 1 or more"
    if spec.key_auth is not None:
        return _key_fault(spec.key_auth)
    if spec.jwt is not None and sum(map(bool, (spec.jwt.jwks_uri, spec.jwt.oidc_issuer, spec.jwt.pem))) != 1:
        return "exactly one of jwksUri, oidcIssuer and pem must be set"
    return ""


def _key_fault(rule: KeyAuth) -> str:
    if not rule.locations:
        return "at least one key location must be set"
    try:
        filter_context("", [KeyCheck("", rule)], tell=False)
    except BadRule as error:
        return str(error)
    return ""


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def facts(conditions: Iterable[Condition], *, path: bool = False) -> dict[str, str]:
    """Headers to write before the conditions are evaluated, with the format of their values."""
    made = {PATH_FACT: "%PATH(NQ:PATH)%"} if path else {}
    for condition in conditions:
        if condition.query is not None:
            name = condition.query.name
            made[query_fact(name)] = f"%QUERY_PARAM({name})%"
        elif condition.path is not None:
            made[PATH_FACT] = "%PATH(NQ:PATH)%"
    return dict(sorted(made.items()))


def query_fact(name: str) -> str:
    return QUERY_FACT + name.encode().hex()


def verdict_facts(policies: Sequence[GatewayPolicy]) -> dict[str, str]:
    """The header with the verdict of the key filter, by policy of a route. Like every fact, clients cannot set it and
    instances do not see it. Numbered, since Envoy finds ``FIRST_VERDICT`` faster when it is registered at start."""
    keyed = [one.name for one in policies if one.spec is not None and one.spec.key_auth is not None]
    return {name: f"{VERDICT_FACT}{number}" for number, name in enumerate(keyed)}


def header_matchers(conditions: Sequence[Condition]) -> list[route_pb2.HeaderMatcher]:
    """All conditions must hold; needs the headers with the facts."""
    return [_as_header(condition) for condition in conditions]


def _as_header(condition: Condition) -> route_pb2.HeaderMatcher:
    if condition.method is not None:
        return route_pb2.HeaderMatcher(
            name=":method",
            string_match=string_pb2.StringMatcher(safe_regex=envoy.regex("|".join(condition.method))),
        )
    if condition.header is not None:
        return header_matcher(condition.header)
    if condition.query is not None:
        return _of_fact(query_fact(condition.query.name), condition.query)
    assert condition.path is not None
    return _of_fact(PATH_FACT, condition.path)


def _of_fact(name: str, match: TextMatch) -> route_pb2.HeaderMatcher:
    wanted = text_matcher(match)
    if wanted is None:
        return route_pb2.HeaderMatcher(name=name, string_match=envoy.exactly(ABSENT), invert_match=True)
    return route_pb2.HeaderMatcher(name=name, string_match=wanted)


def all_of(ids: Sequence[_Id]) -> _Id:
    return ids[0] if len(ids) == 1 else _Id(and_ids=_Id.Set(ids=ids))


def any_of(ids: Sequence[_Id]) -> _Id:
    return ids[0] if len(ids) == 1 else _Id(or_ids=_Id.Set(ids=ids))


def negated(one: _Id) -> _Id:
    return _Id(not_id=one)


def by_conditions(conditions: Sequence[Condition]) -> list[_Id]:
    return [_Id(header=matcher) for matcher in header_matchers(conditions)]


def by_header(name: str, value: str | None = None) -> _Id:
    """``value`` None: it is present."""
    return _Id(header=header_matcher(NamedMatch(name=name, exact=value)))


def by_network(text: str) -> _Id:
    network = ip_network(text, strict=False)
    return _Id(
        remote_ip=address_pb2.CidrRange(
            address_prefix=str(network.network_address), prefix_len=wrappers_pb2.UInt32Value(value=network.prefixlen)
        )
    )


def by_path(path: str) -> _Id:
    """A prefix by whole segments."""
    path = normal_path(path)
    if path == "/":
        return _Id(any=True)
    below = string_pb2.StringMatcher(prefix=f"{path}/")
    same = string_pb2.StringMatcher(exact=path)
    return any_of([_Id(url_path=path_pb2.PathMatcher(path=each)) for each in (same, below)])


def by_metadata(filter_name: str, path: Sequence[str], value: string_pb2.StringMatcher | None) -> _Id:
    """``value`` None: it is present."""
    matcher = metadata_pb2.MetadataMatcher(filter=filter_name)
    for key in path:
        matcher.path.add(key=key)
    if value is None:
        matcher.value.present_match = True
    else:
        matcher.value.string_match.CopyFrom(value)
    return _Id(
        sourced_metadata=rbac_pb2.SourcedMetadata(
            metadata_matcher=matcher, metadata_source=rbac_pb2.MetadataSource.DYNAMIC
        )
    )
