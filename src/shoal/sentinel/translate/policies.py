"""The policies of a route as filters of Envoy, in the order in which a request meets them.

The chain of filters never changes, since a change of it would close connections. Every filter is disabled until a
route enables it, so that a route without policies costs nothing:

    facts · cors · firewall · early limits · tokens · keys · gate · size · late limits · strict limits

``firewall`` and ``gate`` deny in the order of the policies. Authentication runs in between and never denies by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as jwt_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.matcher.v3 import string_pb2
from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.message import Message

from shoal.crds.sentinel import Cors
from shoal.sentinel.model import GatewayPolicy, KeySet, Settings
from shoal.sentinel.policies.lua_filter import KeyCheck, TokenClaims, filter_context, key_script
from shoal.sentinel.translate import envoy, limits, rules, size, tokens
from shoal.sentinel.translate.clusters import LIMITS_SERVICE
from shoal.sentinel.translate.gates import authenticates, gates, payload_key, subject_path
from shoal.sentinel.translate.plan import PlannedRoute, RoutePlan

FACTS, CORS, FIREWALL, TOKENS, KEYS, GATE, SIZE = "facts", "cors", "firewall", "tokens", "keys", "gate", "size"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRules:
    """The per-route configuration of policies."""

    filters: Mapping[str, any_pb2.Any] = field(default_factory=dict)
    removed: Sequence[str] = ()  # headers that the instance does not see


def http_filters(settings: Settings) -> list[hcm_pb2.HttpFilter]:
    """All filters, disabled; they do not change while the gateway runs."""
    early, late = ([name for name in _bucket_filters(settings) if name.startswith(when)] for when in ("early", "late"))
    made = [
        _off(FACTS, header_mutation_pb2.HeaderMutation()),
        _off(CORS, cors_pb2.Cors()),
        _off(FIREWALL, rbac_pb2.RBAC()),
        *(_fetched(name, limits.closed_buckets(name)) for name in early),
        _fetched(TOKENS, jwt_pb2.JwtAuthentication()),
        _fetched(KEYS, lua_pb2.Lua()),
        _off(GATE, rbac_pb2.RBAC()),
        _off(SIZE, composite_pb2.Composite()),
        *(_fetched(name, limits.closed_buckets(name)) for name in late),
    ]
    if settings.limits_socket:
        both = (limits.STRICT, limits.STRICT_OPEN)
        made += [_off(name, limits.service_filter(name, LIMITS_SERVICE, settings)) for name in both]
    return made


def _bucket_filters(settings: Settings) -> list[str]:
    return [name for name in limits.BUCKETS if settings.replicas is not None or not name.endswith("_shared")]


def _off(name: str, config: Message) -> hcm_pb2.HttpFilter:
    return hcm_pb2.HttpFilter(name=name, typed_config=envoy.packed(config), disabled=True)


def _fetched(name: str, default: Message) -> hcm_pb2.HttpFilter:
    """Delivered separately from the listener, so that a change closes no connections; if Envoy refuses it, the default
    is used."""
    packed = envoy.packed(default)
    source = config_source_pb2.ExtensionConfigSource(
        config_source=envoy.ads(),
        default_config=packed,
        type_urls=[packed.type_url],
    )
    return hcm_pb2.HttpFilter(name=name, config_discovery=source, disabled=True)


def key_filter(keys: Mapping[str, KeySet]) -> extension_pb2.TypedExtensionConfig:
    """The Lua filter. It admits every request, also when it fails: the gate behind it requires its verdict."""
    program = base_pb2.DataSource(inline_string=key_script(keys))
    return envoy.extension(KEYS, lua_pb2.Lua(default_source_code=program, stat_prefix=KEYS))


def extensions(
    plan: RoutePlan, settings: Settings, discovered: Mapping[str, str]
) -> dict[str, extension_pb2.TypedExtensionConfig]:
    """Filters that discovery delivers separately from their listener, by name."""
    routes = {tokens.requirement_name(found): found for found in _token_policies(plan)}
    known = tokens.authentication([routes[name] for name in sorted(routes)], discovered)
    limited = _limited(plan, settings)
    counting = {name: limits.buckets(name, limited.get(name, ())) for name in _bucket_filters(settings)}
    return {name: envoy.extension(name, config) for name, config in {TOKENS: known, **counting}.items()}


def _limited(plan: RoutePlan, settings: Settings) -> dict[str, list[tuple[GatewayPolicy, Sequence[GatewayPolicy]]]]:
    """The limits that each filter counts, each once."""
    found: dict[str, dict[str, tuple[GatewayPolicy, Sequence[GatewayPolicy]]]] = {}
    for planned in (each for routes in plan.hosts.values() for each in routes if not each.closed):
        for policy in _limits(planned.policies):
            name = limits.filter_of(policy, planned.policies, settings)
            found.setdefault(name, {})[limits.limit_id(policy, planned.policies)] = (policy, planned.policies)
    return {name: [members[one] for one in sorted(members)] for name, members in found.items()}


def policy_clusters(plan: RoutePlan, discovered: Mapping[str, str]) -> dict[str, cluster_pb2.Cluster]:
    """Clusters of the servers that policies fetch keys from."""
    uris = {
        tokens.keys_uri(policy.spec.jwt, discovered)
        for found in _token_policies(plan)
        for policy in found
        if policy.spec is not None and policy.spec.jwt is not None
    } - {""}
    return {cluster.name: cluster for cluster in map(tokens.cluster_of, sorted(uris))}


def _token_policies(plan: RoutePlan) -> Iterable[list[GatewayPolicy]]:
    for routes in plan.hosts.values():
        for planned in routes:
            if not planned.closed and (found := _with_tokens(planned.policies)):
                yield found


def _with_tokens(policies: Iterable[GatewayPolicy]) -> list[GatewayPolicy]:
    return [one for one in policies if one.spec is not None and one.spec.jwt is not None]


def _limits(policies: Iterable[GatewayPolicy]) -> list[GatewayPolicy]:
    return [one for one in policies if one.spec is not None and one.spec.rate_limit is not None]


def route_rules(planned: PlannedRoute, settings: Settings) -> RouteRules:
    policies = planned.policies
    if not policies:
        return RouteRules()
    filters: dict[str, Message] = {}
    facts = _facts(policies)
    if facts:
        filters[FACTS] = _written(facts)
    before, behind = gates(policies)
    if before is not None:
        filters[FIREWALL] = before
    if behind is not None:
        filters[GATE] = behind
    if known := _with_tokens(policies):
        filters[TOKENS] = jwt_pb2.PerRouteConfig(requirement_name=tokens.requirement_name(known))
    if judged := [one for one in policies if authenticates(one)]:
        told = any(subject_path(one, policies) for one in _limits(policies))
        filters[KEYS] = _key_checks(planned.route.environment, judged, tell=told)
    if shared := next((one.spec.cors for one in policies if one.spec is not None and one.spec.cors), None):
        filters[CORS] = _cors(shared)
    strict = _strict(policies, settings)
    filters.update({name: limits.service_route(found) for name, found in strict.items() if settings.limits_socket})
    packed = {name: envoy.packed(message) for name, message in filters.items()}
    packed.update({name: _on() for name in _counting(policies, settings)})
    if sizes := [one.spec for one in policies if one.spec is not None and one.spec.request_size is not None]:
        packed[SIZE] = size.size_limits(sizes)
    return RouteRules(
        filters=packed,
        removed=[*facts, *rules.verdict_facts(policies).values()],
    )


def _facts(policies: Sequence[GatewayPolicy]) -> dict[str, str]:
    conditions = [condition for one in policies if one.spec is not None for condition in one.spec.match]
    by_path = any(
        one.spec and one.spec.rate_limit and one.spec.rate_limit.identifier.path is not None for one in policies
    )
    limited = [limits.limit_id(one, policies) for one in _limits(policies)]
    named = {rules.LIMITS_FACT: limits.fact(limited)} if limited else {}
    return {**rules.facts(conditions, path=by_path), **named}


def _written(facts: Mapping[str, str]) -> header_mutation_pb2.HeaderMutationPerRoute:
    changes = [
        mutation_rules_pb2.HeaderMutation(append=envoy.set_header(name, form)) for name, form in sorted(facts.items())
    ]
    return header_mutation_pb2.HeaderMutationPerRoute(
        mutations=header_mutation_pb2.Mutations(request_mutations=changes)
    )


def _key_checks(environment: str, policies: Sequence[GatewayPolicy], *, tell: bool) -> lua_pb2.LuaPerRoute:
    """The route's configuration of the Lua filter: where its keys are and which permissions they need, and where the
    claims of its tokens are."""
    asked: list[KeyCheck | TokenClaims] = []
    verdicts = rules.verdict_facts(policies)
    for one in policies:
        if one.spec is not None and one.spec.key_auth is not None:
            asked.append(KeyCheck(verdicts[one.name], one.spec.key_auth))
        elif one.spec is not None and one.spec.jwt is not None:
            asked.append(TokenClaims(payload_key(one.name), one.spec.jwt.subject_claim))
    made = lua_pb2.LuaPerRoute()
    made.filter_context.update(filter_context(environment, asked, tell=tell))
    return made


def _cors(cors: Cors) -> cors_pb2.CorsPolicy:
    origins = [
        string_pb2.StringMatcher(safe_regex=envoy.regex(".*")) if origin == "*" else envoy.exactly(origin)
        for origin in cors.origins
    ]
    return cors_pb2.CorsPolicy(
        allow_origin_string_match=origins,
        allow_methods=", ".join(cors.methods),
        allow_headers=", ".join(cors.headers),
        expose_headers=", ".join(cors.expose_headers),
        max_age=str(cors.max_age),
        allow_credentials=wrappers_pb2.BoolValue(value=cors.credentials),
        filter_enabled=envoy.fraction(100.0),
        forward_not_matching_preflights=wrappers_pb2.BoolValue(value=False),
    )


def _strict(policies: Sequence[GatewayPolicy], settings: Settings) -> dict[str, list[route_pb2.RateLimit]]:
    found: dict[str, list[route_pb2.RateLimit]] = {}
    for policy in _limits(policies):
        name = limits.filter_of(policy, policies, settings)
        if name not in limits.BUCKETS:
            found.setdefault(name, []).append(limits.strict_limit(policy, policies))
    return found


def _counting(policies: Sequence[GatewayPolicy], settings: Settings) -> set[str]:
    return {limits.filter_of(one, policies, settings) for one in _limits(policies)} & set(limits.BUCKETS)


def _on() -> any_pb2.Any:
    """Enables a filter with its default configuration."""
    return envoy.packed(route_pb2.FilterConfig(config=any_pb2.Any()))
