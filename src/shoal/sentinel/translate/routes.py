"""RouteConfigurations: one virtual host for each host, its routes from the most specific to the least.

Each route becomes up to five routes of Envoy. Requests that name a deployment go to it if it belongs to the host's
environment, else they get 404. Idempotent requests are retried in more cases than others. The most frequent kind, a GET
that names no deployment and announces no body, comes first: it is matched without a regular expression and needs one
timer less (``actions.is_brief``). Those of testers (``rollouts``) come before the others of their route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as route_pb2
from envoy.config.route.v3 import route_pb2 as config_pb2
from envoy.extensions.router.cluster_specifiers.matcher.v3 import matcher_pb2 as specifier_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2, wrappers_pb2
from xds.type.matcher.v3 import matcher_pb2

from shoal.crds.sentinel import RouteSpec, Timeouts
from shoal.sentinel.headers import DEPLOYMENT_HEADER, ERROR_HEADER, TARGET_HEADER
from shoal.sentinel.model import Settings
from shoal.sentinel.translate import actions, envoy, policies, rollouts
from shoal.sentinel.translate.match import IDEMPOTENT, header_matcher, method_matcher, route_match, text_fault
from shoal.sentinel.translate.plan import PlannedRoute, RoutePlan

POLICY_ERROR = "policy_error"
_FORWARDED_FOR = envoy.appended_header("x-forwarded-for", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%")


def choice_name(environment: str, *, sticky: bool) -> str:
    return f"{'sticky' if sticky else 'choice'}/{environment}"


def route_configuration(
    plan: RoutePlan, hosts: Iterable[route_pb2.VirtualHost], settings: Settings
) -> config_pb2.RouteConfiguration:
    made = config_pb2.RouteConfiguration(
        name=envoy.ALL_ROUTES,
        virtual_hosts=list(hosts),
        ignore_port_in_host_matching=True,
        validate_clusters=wrappers_pb2.BoolValue(value=False),
        request_headers_to_add=[_FORWARDED_FOR],
    )
    for environment, deployments in plan.environments.items():
        named = {deployment: envoy.deployment_cluster(deployment) for deployment in deployments}
        made.cluster_specifier_plugins.append(
            _specifier(choice_name(environment, sticky=False), DEPLOYMENT_HEADER, named)
        )
        if environment in plan.sticky:
            named = {deployment: envoy.sticky_cluster(deployment) for deployment in deployments}
            made.cluster_specifier_plugins.append(
                _specifier(choice_name(environment, sticky=True), DEPLOYMENT_HEADER, named)
            )
    return made


def entry_configuration(plan: RoutePlan) -> config_pb2.RouteConfiguration:
    """The routes for peers: to instances of this region only, of the deployment that the peer chose."""
    made = config_pb2.RouteConfiguration(name=envoy.ENTRY_ROUTES, validate_clusters=wrappers_pb2.BoolValue(value=False))
    here = made.virtual_hosts.add(name="entry", domains=["*"])
    if plan.targets:
        named = {deployment: envoy.local_cluster(deployment) for deployment in plan.targets}
        made.cluster_specifier_plugins.append(_specifier("entry", TARGET_HEADER, named))
        onward = RouteSpec(environment="", host="*", retries=1, timeouts=Timeouts(total=0, idle=0, header=0))
        here.routes.add(
            name="entry",
            match=route_match("/", []),
            route=actions.forward(onward, idempotent=False, chosen="entry", peers=False),
        )
        # An unknown deployment means: no instance in this region. The peer then tries another region.
        here.routes[
            0
        ].route.cluster_not_found_response_code = route_pb2.RouteAction.ClusterNotFoundResponseCode.SERVICE_UNAVAILABLE
    return made


def virtual_host(
    host: str, routes: Sequence[PlannedRoute], settings: Settings, *, environments: Mapping[str, Sequence[str]]
) -> route_pb2.VirtualHost:
    """``environments``: the deployments that a request may name, by environment."""
    made = route_pb2.VirtualHost(name=host, domains=[host])
    for planned in routes:
        made.routes.extend(_routes(planned, settings, choosable=bool(environments.get(planned.route.environment))))
    return made


def _routes(planned: PlannedRoute, settings: Settings, *, choosable: bool) -> Iterable[route_pb2.Route]:
    route = planned.route
    # An invalid condition closes its route and is left out: the route refuses requests with any value of the header.
    wanted = [match for match in route.spec.headers if not text_fault(match)] if route.spec else []
    headers = [header_matcher(match) for match in wanted]
    if planned.closed:
        yield _refusing(route.name, route_match(route.path, headers))
        return
    spec, rules = planned.spec, policies.route_rules(planned, settings)
    if spec.redirect is not None:
        moved = route_pb2.Route(name=route.name, match=route_match(route.path, headers))
        moved.redirect.CopyFrom(actions.redirect(spec, spec.redirect))
        yield _filtered(moved, rules.filters)
        return
    peers = bool(settings.entry_secret)
    choice = choice_name(route.environment, sticky=spec.sticky is not None)
    variants = list(_variants(choice, choosable=choosable, brief=actions.is_brief(spec)))
    aimed = [
        (rollouts.aimed_at(spec, tester.target), replace(variant, matchers=[*variant.matchers, matcher]))
        for tester in route.rollout.testers
        for matcher in [rollouts.matcher_of(tester)]
        for variant in variants
        if not variant.chosen
    ]
    for leads, variant in [*aimed, *((spec, variant) for variant in variants)]:
        copied = leads is spec and not variant.chosen
        made = route_pb2.Route(
            name=route.name,
            match=route_match(route.path, [*headers, *variant.matchers]),
            route=actions.forward(
                leads,
                idempotent=variant.idempotent,
                chosen=variant.chosen,
                peers=peers,
                brief=variant.brief,
                mirrors=route.rollout.mirrors if copied else (),
                local_copies=bool(settings.entry_port),
            ),
            request_headers_to_add=_target(leads, variant.chosen) if peers else (),
            request_headers_to_remove=rules.removed,
        )
        yield _filtered(made, rules.filters)


@dataclass(frozen=True, slots=True)
class _Variant:
    """One of the Envoy routes for a route: what it matches, what chooses the deployment, and whether to repeat."""

    matchers: Sequence[route_pb2.HeaderMatcher]
    chosen: str = ""
    idempotent: bool = False
    brief: bool = False


def _variants(choice: str, *, choosable: bool, brief: bool) -> Iterable[_Variant]:
    named = route_pb2.HeaderMatcher(name=DEPLOYMENT_HEADER, present_match=True)
    unnamed = route_pb2.HeaderMatcher(name=DEPLOYMENT_HEADER, present_match=True, invert_match=True)
    short = [
        route_pb2.HeaderMatcher(name=name, present_match=True, invert_match=True)
        for name in ("upgrade", "content-length")  # no WebSocket, and no body that is announced
    ]
    free = [unnamed] if choosable else []
    yield _Variant([*free, *(short if brief else ()), method_matcher("GET")], idempotent=True, brief=brief)
    yield _Variant([*free, method_matcher(IDEMPOTENT)], idempotent=True)
    yield _Variant(free)
    if choosable:
        yield _Variant([named, method_matcher(IDEMPOTENT)], chosen=choice, idempotent=True)
        yield _Variant([named], chosen=choice)


def _target(spec: RouteSpec, chosen: str) -> Iterable[base_pb2.HeaderValueOption]:
    if chosen:
        yield envoy.set_header(TARGET_HEADER, f"%REQ({DEPLOYMENT_HEADER})%")
    elif only := actions.only_target(spec):
        yield actions.target_header(only)


def _filtered(route: route_pb2.Route, filters: Mapping[str, any_pb2.Any]) -> route_pb2.Route:
    for name, packed in sorted(filters.items()):
        route.typed_per_filter_config[name].CopyFrom(packed)
    return route


def _refusing(name: str, match: route_pb2.RouteMatch) -> route_pb2.Route:
    """A route that cannot be applied refuses all requests; the reason is in its status, not in the answer."""
    body = orjson.dumps({"error": {"code": POLICY_ERROR, "message": "a rule of this route cannot be applied"}})
    return route_pb2.Route(
        name=name,
        match=match,
        direct_response=route_pb2.DirectResponseAction(status=503, body=base_pb2.DataSource(inline_bytes=body)),
        response_headers_to_add=[
            envoy.set_header("content-type", "application/json"),
            envoy.set_header(ERROR_HEADER, POLICY_ERROR),
        ],
    )


def _specifier(name: str, header: str, clusters: Mapping[str, str]) -> route_pb2.ClusterSpecifierPlugin:
    """Reads the deployment from a header; values that are not in ``clusters`` have no cluster."""
    tree = matcher_pb2.Matcher.MatcherTree(
        input=envoy.matching("header", http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=header))
    )
    for value, cluster in sorted(clusters.items()):
        action = envoy.matching("cluster", specifier_pb2.ClusterAction(cluster=cluster))
        tree.exact_match_map.map[value].action.CopyFrom(action)
    made = specifier_pb2.MatcherClusterSpecifier(cluster_matcher=matcher_pb2.Matcher(matcher_tree=tree))
    return route_pb2.ClusterSpecifierPlugin(extension=envoy.extension(name, made))
