"""What routes do for a revision that is being rolled out, besides its weight: testers, copies and preview hosts.

    tester    a request with a header or cookie goes to the candidate, by an Envoy route before the others of its route
    mirror    a share of all requests is copied to it; Envoy ends the host of copies with ``-shadow``
    preview   a host whose requests go to it: the route once more, with that host and the candidate as its only backend

A preview host is made of the route's object and is no object of its own, so a gateway takes both at once and
acknowledges both with one verdict. Rules that cannot be applied are left out and reported; the others are applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import msgspec
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.type.matcher.v3 import string_pb2

from shoal.crds.sentinel import Backend, RouteRollout, RouteSpec, Tester
from shoal.sentinel.model import GatewayRoute
from shoal.sentinel.translate import envoy

MAX_TESTERS = 100
_MAX_VALUE = 256
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*")
_HEADER_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?")


def usable(route: GatewayRoute) -> tuple[GatewayRoute, str]:
    """The route without the rules that cannot be applied, and the first reason why one cannot; empty if all can."""
    rollout = route.rollout
    faults = [_tester_fault(tester) for tester in rollout.testers]
    kept = [tester for tester, fault in zip(rollout.testers, faults, strict=True) if not fault]
    found = [route.rollout_fault, *faults]
    if len(kept) > MAX_TESTERS:
        found.append(f"{len(kept)} rules for testers, of which at most {MAX_TESTERS} are applied")
    fault = next((each for each in found if each), "")
    if not fault:
        return route, ""
    return replace(route, rollout=msgspec.structs.replace(rollout, testers=kept[:MAX_TESTERS])), fault


def _tester_fault(tester: Tester) -> str:
    given = [each for each in (tester.header, tester.cookie) if each is not None]
    if len(given) != 1:
        return "a rule for testers must have one of header and cookie"
    (one,), allowed = given, _HEADER_VALUE if tester.header else _COOKIE_VALUE
    if not _TOKEN.fullmatch(one.name):
        return f"a rule for testers has the invalid name {one.name!r}"
    if len(one.value) > _MAX_VALUE or not allowed.fullmatch(one.value):
        return f"the rule for testers with {one.name} has an invalid value, or one of more than {_MAX_VALUE} characters"
    return ""


def previews(route: GatewayRoute) -> Iterable[GatewayRoute]:
    """The route once more for each preview host. Such a host is served without TLS."""
    for preview in route.rollout.previews if route.spec is not None else ():
        assert route.spec is not None
        aimed = msgspec.structs.replace(aimed_at(route.spec, preview.target), host=preview.host, tls=None)
        yield replace(route, host=preview.host.lower(), spec=aimed, rollout=RouteRollout(), rollout_fault="")


def aimed_at(spec: RouteSpec, target: Backend) -> RouteSpec:
    """The spec with one backend, and all else as it is."""
    return msgspec.structs.replace(spec, backends=[msgspec.structs.replace(target, weight=100)])


def backends(rollout: RouteRollout) -> Iterable[Backend]:
    """Every deployment that is led to; preview hosts have routes of their own."""
    yield from (tester.target for tester in rollout.testers)
    yield from rollout.mirrors


def matcher_of(tester: Tester) -> route_pb2.HeaderMatcher:
    """A cookie is one of those in its header, between semicolons."""
    if tester.header is not None:
        wanted = string_pb2.StringMatcher(exact=tester.header.value)
        return route_pb2.HeaderMatcher(name=tester.header.name.lower(), string_match=wanted)
    assert tester.cookie is not None
    pair = f"{re.escape(tester.cookie.name)}={re.escape(tester.cookie.value)}"
    wanted = string_pb2.StringMatcher(safe_regex=envoy.regex(f"(?:.*; *)?{pair}(?: *;.*)?"))
    return route_pb2.HeaderMatcher(name="cookie", string_match=wanted)
