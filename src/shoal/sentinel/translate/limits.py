"""Rate limits: token buckets in Envoy (per gateway, or divided among its replicas), and counters of the rate-limit
service for strict limits.

Buckets are delivered separately from routes, so that a changed route does not reset them: a route enables the filter
and names its limits in a header. A limit before the first policy that authenticates counts all requests; one after it
counts only requests that passed that policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2 as local_pb2
from envoy.extensions.filters.http.ratelimit.v3 import rate_limit_pb2 as service_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import token_bucket_pb2
from google.protobuf import wrappers_pb2

from shoal.crds.sentinel import RateLimitRule
from shoal.sentinel.model import GatewayPolicy, Settings
from shoal.sentinel.translate import envoy, rules
from shoal.sentinel.translate.gates import authenticates, subject_path

BUCKETS = ("early", "early_shared", "late", "late_shared")
"""Filters with buckets."""
STRICT, STRICT_OPEN = "strict", "strict_open"
DOMAIN = "shoal"
_MAX = 2**32 - 1
_COUNTED_AT_ONCE = 10_000  # values of an identifier with a bucket of their own; the oldest is forgotten
_NETWORK_OF_A_CLIENT = 64  # bits of an IPv6 address
_PERCENT = 100.0
_Action: TypeAlias = route_pb2.RateLimit.Action


def filter_of(policy: GatewayPolicy, policies: Sequence[GatewayPolicy], settings: Settings) -> str:
    """The name of the filter that counts."""
    assert policy.spec is not None and policy.spec.rate_limit is not None
    scope = policy.spec.rate_limit.scope
    if scope == "strict":
        return STRICT_OPEN if policy.spec.fail_open else STRICT
    late = any(authenticates(one) for one in policies[: policies.index(policy)])
    shared = scope == "cluster" and settings.replicas is not None
    return ("late" if late else "early") + ("_shared" if shared else "")


def limit_fault(policy: GatewayPolicy, policies: Sequence[GatewayPolicy]) -> str:
    if policy.spec is None or policy.spec.rate_limit is None:
        return ""
    by = policy.spec.rate_limit.identifier
    if (by.subject is not None or by.principal) and not subject_path(policy, policies):
        return "it counts by identity, but no policy before it authenticates requests"
    return ""


def limit_id(policy: GatewayPolicy, policies: Sequence[GatewayPolicy]) -> str:
    """A policy that counts by identity may use different authentication on different routes."""
    where = subject_path(policy, policies)
    return f"{policy.name}@{'/'.join(where)}" if where else policy.name


def fact(found: Iterable[str]) -> str:
    """The header that names the limits of a route."""
    return envoy.literal(f",{','.join(found)},")


def _counted(policy: GatewayPolicy, policies: Sequence[GatewayPolicy]) -> route_pb2.RateLimit:
    """The identifier that a limit counts by. The gate denies requests without it."""
    assert policy.spec is not None and policy.spec.rate_limit is not None
    limit = policy.spec.rate_limit
    name = limit_id(policy, policies)
    here = route_pb2.HeaderMatcher(name=rules.LIMITS_FACT, string_match=string_pb2.StringMatcher(contains=fact([name])))
    fits = _Action.HeaderValueMatch(
        descriptor_key="policy", descriptor_value=name, headers=[here, *rules.header_matchers(policy.spec.match)]
    )
    made = route_pb2.RateLimit(actions=[_Action(header_value_match=fits), _identifier(policy, limit, policies)])
    if limit.cost > 1:
        made.hits_addend.number.value = limit.cost
    return made


def strict_limit(policy: GatewayPolicy, policies: Sequence[GatewayPolicy]) -> route_pb2.RateLimit:
    """The same for the rate-limit service, with the limit itself."""
    assert policy.spec is not None and policy.spec.rate_limit is not None
    limit = policy.spec.rate_limit
    made = _counted(policy, policies)
    made.actions.insert(1, _generic("limit", str(limit.limit)))
    made.actions.insert(2, _generic("window", str(limit.window)))
    return made


def _generic(key: str, value: str) -> _Action:
    return _Action(generic_key=_Action.GenericKey(descriptor_key=key, descriptor_value=value))


def _identifier(policy: GatewayPolicy, limit: RateLimitRule, policies: Sequence[GatewayPolicy]) -> _Action:
    by = limit.identifier
    if by.header:
        return _Action(request_headers=_Action.RequestHeaders(header_name=by.header.lower(), descriptor_key="by"))
    if by.path is not None:
        return _Action(request_headers=_Action.RequestHeaders(header_name=rules.PATH_FACT, descriptor_key="by"))
    if where := subject_path(policy, policies):
        made = _Action(metadata=_Action.MetaData(descriptor_key="by"))
        made.metadata.metadata_key.key = where[0]
        for step in where[1:]:
            made.metadata.metadata_key.path.add(key=step)
        return made
    # A client with one IPv6 address has its whole /64; with a bucket for each address it would have no limit.
    mask = _Action.MaskedRemoteAddress(v6_prefix_mask_len=wrappers_pb2.UInt32Value(value=_NETWORK_OF_A_CLIENT))
    return _Action(masked_remote_address=mask)


def buckets(name: str, limited: Sequence[tuple[GatewayPolicy, Sequence[GatewayPolicy]]]) -> local_pb2.LocalRateLimit:
    """A bucket for every value that one of the limits counts by. Each limit comes with the policies of its route."""
    made = local_pb2.LocalRateLimit(
        stat_prefix=name,
        filter_enabled=envoy.fraction(_PERCENT),
        filter_enforced=envoy.fraction(_PERCENT),
        always_consume_default_token_bucket=wrappers_pb2.BoolValue(value=False),
        enable_x_ratelimit_headers=ratelimit_pb2.XRateLimitHeadersRFCVersion.DRAFT_VERSION_03,
        max_dynamic_descriptors=wrappers_pb2.UInt32Value(value=_COUNTED_AT_ONCE),
    )
    if name.endswith("_shared"):
        made.local_cluster_rate_limit.SetInParent()
    for policy, policies in limited:
        assert policy.spec is not None and policy.spec.rate_limit is not None
        limit = policy.spec.rate_limit
        entry = ratelimit_pb2.RateLimitDescriptor.Entry
        who = "masked_remote_address" if limit.identifier.remote_ip is not None else "by"
        made.rate_limits.append(_counted(policy, policies))
        made.descriptors.add(
            entries=[entry(key="policy", value=limit_id(policy, policies)), entry(key=who)],
            token_bucket=_bucket(limit.limit, limit.window),
        )
    return made


def closed_buckets(name: str) -> local_pb2.LocalRateLimit:
    """Default with a minimal rate, used if Envoy refuses the buckets."""
    return local_pb2.LocalRateLimit(
        stat_prefix=name,
        token_bucket=_bucket(1, 86_400),
        filter_enabled=envoy.fraction(_PERCENT),
        filter_enforced=envoy.fraction(_PERCENT),
    )


def _bucket(tokens: int, window_s: int) -> token_bucket_pb2.TokenBucket:
    return token_bucket_pb2.TokenBucket(
        max_tokens=min(tokens, _MAX),
        tokens_per_fill=wrappers_pb2.UInt32Value(value=min(tokens, _MAX)),
        fill_interval=envoy.duration(window_s),
    )


def service_filter(name: str, cluster: str, settings: Settings) -> service_pb2.RateLimit:
    made = service_pb2.RateLimit(
        domain=DOMAIN,
        failure_mode_deny=name == STRICT,
        timeout=envoy.duration(settings.limits_timeout_s),
        enable_x_ratelimit_headers=service_pb2.RateLimit.XRateLimitHeadersRFCVersion.DRAFT_VERSION_03,
        stat_prefix=name,
    )
    service = made.rate_limit_service
    service.transport_api_version = 2  # of Envoy: version 3
    service.grpc_service.envoy_grpc.cluster_name = cluster
    service.grpc_service.timeout.CopyFrom(envoy.duration(settings.limits_timeout_s))
    return made


def service_route(limits: Sequence[route_pb2.RateLimit]) -> service_pb2.RateLimitPerRoute:
    return service_pb2.RateLimitPerRoute(rate_limits=limits, domain=DOMAIN)
