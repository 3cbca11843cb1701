"""Selects and orders the usable routes and policies, and reports faults of the others. Independent of Envoy.

A host belongs to the environment that named it first, so an environment cannot take over the host of another. For an
invalid route or policy all requests it covers are refused; only a policy that would allow more than its absence (CORS)
is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from shoal.crds.sentinel import Backend, Circuit, RouteSpec
from shoal.sentinel.model import GatewayPolicy, GatewayRoute, Inputs, RouteTarget
from shoal.sentinel.translate import rollouts
from shoal.sentinel.translate.limits import limit_fault
from shoal.sentinel.translate.match import normal_path, text_fault
from shoal.sentinel.translate.rules import policy_fault
from shoal.sentinel.translate.tokens import token_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRoute:
    """``closed`` is the reason why every request is refused; empty: ``policies`` decide."""

    route: GatewayRoute
    policies: tuple[GatewayPolicy, ...] = ()
    closed: str = ""
    is_preview: bool = False  # of a route with another host

    @property
    def spec(self) -> RouteSpec:
        assert self.route.spec is not None
        return self.route.spec


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    hosts: Mapping[str, tuple[PlannedRoute, ...]] = field(default_factory=dict)  # in the order in which they are tried
    targets: Mapping[str, RouteTarget] = field(default_factory=dict)  # by deployment
    environments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # deployments of each
    sticky: frozenset[str] = frozenset()  # environments with a sticky route
    certificates: Mapping[str, str] = field(default_factory=dict)  # by host the name of its Secret
    faults: Mapping[str, str] = field(default_factory=dict)  # by ``route/NAME`` or ``policy/NAME``


def plan(inputs: Inputs) -> RoutePlan:
    faults: dict[str, str] = {}
    replicas = replicas_above_limits(inputs)
    policies = _by_environment((_countable(policy, replicas) for policy in inputs.policies.values()), faults)
    hosts: dict[str, list[PlannedRoute]] = {}
    for route, is_preview in _owners_first(_with_previews(inputs.routes.values(), faults), faults):
        planned = _planned(route, policies.get(route.environment, []), inputs, faults)
        hosts.setdefault(route.host.lower(), []).append(replace(planned, is_preview=is_preview))
    ordered = {host: _by_specificity(found, faults) for host, found in sorted(hosts.items())}
    used = [each for found in ordered.values() for each in found if each.route.spec is not None]
    targets, environments = _targets(used)
    return RoutePlan(
        hosts=ordered,
        targets=targets,
        environments=environments,
        sticky=frozenset(each.route.environment for each in used if each.spec.sticky is not None),
        certificates=_certificates(used, inputs, faults),
        faults=faults,
    )


def replicas_above_limits(inputs: Inputs) -> int:
    """How many replicas the gateway has, if that is more than some limit that they share allows; else 0."""
    own = inputs.endpoints.get(inputs.settings.replicas) if inputs.settings.replicas is not None else None
    replicas = len(own.endpoints) if own is not None else 0
    return replicas if any(_is_shared_below(policy, replicas) for policy in inputs.policies.values()) else 0


def _is_shared_below(policy: GatewayPolicy, replicas: int) -> bool:
    limit = policy.spec.rate_limit if policy.spec is not None else None
    return limit is not None and limit.scope == "cluster" and limit.limit < replicas * limit.cost


def _countable(policy: GatewayPolicy, replicas: int) -> GatewayPolicy:
    """A share of less than one request would refuse all requests; then each replica counts for itself."""
    if not replicas or not _is_shared_below(policy, replicas):
        return policy
    assert policy.spec is not None and policy.spec.rate_limit is not None
    alone = msgspec.structs.replace(policy.spec.rate_limit, scope="local")
    return replace(policy, spec=msgspec.structs.replace(policy.spec, rate_limit=alone))


def _by_environment(policies: Iterable[GatewayPolicy], faults: dict[str, str]) -> dict[str, list[GatewayPolicy]]:
    """In the order in which they are applied; invalid ones have their fault set."""
    found: dict[str, list[GatewayPolicy]] = {}
    for policy in policies:
        fault = policy.fault or ("" if policy.spec is None else policy_fault(policy.spec))
        if fault:
            faults[f"policy/{policy.name}"] = fault
            policy = replace(policy, fault=fault) if policy.fault != fault else policy
        found.setdefault(policy.environment, []).append(policy)
    for members in found.values():
        members.sort(key=lambda one: (one.spec.order if one.spec else 0, one.name))
    return found


def _with_previews(routes: Iterable[GatewayRoute], faults: dict[str, str]) -> Iterator[tuple[GatewayRoute, bool]]:
    """Each route, and what of it is a preview."""
    for each in routes:
        route, fault = rollouts.usable(each)
        if fault:
            faults[f"route/{route.name}"] = fault
        yield route, False
        yield from ((preview, True) for preview in rollouts.previews(route))


def _owners_first(
    routes: Iterable[tuple[GatewayRoute, bool]], faults: dict[str, str]
) -> list[tuple[GatewayRoute, bool]]:
    """The routes whose environment owns their host. A route without a host has no requests to refuse. A preview never
    takes the host of a route, which may be younger."""
    owners: dict[str, GatewayRoute] = {}
    kept: list[tuple[GatewayRoute, bool]] = []
    for route, is_preview in sorted(routes, key=lambda one: (one[1], one[0].created_at, one[0].name)):
        if not _is_domain(route.host):
            faults[f"route/{route.name}"] = route.fault or f"invalid host {route.host!r}"
            continue
        owner = owners.setdefault(route.host.lower(), route)
        if owner.environment == route.environment:
            kept.append((route, is_preview))
        else:
            faults[f"route/{route.name}"] = f"host {route.host} belongs to another environment"
    return kept


def _planned(
    route: GatewayRoute, policies: list[GatewayPolicy], inputs: Inputs, faults: dict[str, str]
) -> PlannedRoute:
    fault = route.fault or _route_fault(route.spec)
    if fault:
        faults[f"route/{route.name}"] = fault
        return PlannedRoute(route=route, closed=fault)
    assert route.spec is not None
    chosen, missing = _chosen(route, route.spec, policies)
    chosen = [one for one in chosen if not (one.fault and _only_permits(one))]
    closed = missing or next((f"policy {one.name}: {one.fault}" for one in chosen if one.fault), "")
    closed = closed or _unserved(chosen, inputs)
    if closed:
        faults[f"route/{route.name}"] = closed
    return PlannedRoute(route=route, policies=tuple(chosen), closed=closed)


def _route_fault(spec: RouteSpec | None) -> str:
    if spec is None:
        return "it has no spec"
    faults = (text_fault(match) for match in spec.headers)
    found = next((fault for fault in faults if fault), "")
    if not spec.path.startswith("/") or any(mark in spec.path for mark in "?#"):
        found = found or f"path {spec.path!r} must begin with / and have neither ? nor #"
    return found


def _is_domain(host: str) -> bool:
    bare = "" if host == "*" else host.removeprefix("*.")
    return host == "*" or bool(bare) and "*" not in bare and not any(mark.isspace() or mark in ":/%" for mark in bare)


def _chosen(route: GatewayRoute, spec: RouteSpec, policies: list[GatewayPolicy]) -> tuple[list[GatewayPolicy], str]:
    """The policies of a route, in order; and the names of missing policies."""
    if spec.policies is not None:
        missing = [name for name in spec.policies if not any(name in (one.name, one.alias) for one in policies)]
        named = [one for one in policies if one.name in spec.policies or one.alias and one.alias in spec.policies]
        fault = f"policy {missing[0]} not found" if missing else ""
        return [one for one in named if _enabled(one)], fault
    mine = {route.name, route.alias} - {""}
    return [one for one in policies if _enabled(one) and (not one.routes or mine & set(one.routes))], ""


def _only_permits(policy: GatewayPolicy) -> bool:
    """CORS: without such a policy less is allowed, since browsers block scripts of other sites by default."""
    return policy.spec is not None and policy.spec.cors is not None


def _enabled(policy: GatewayPolicy) -> bool:
    return policy.spec is None or policy.spec.enabled


def _unserved(policies: list[GatewayPolicy], inputs: Inputs) -> str:
    """Why a policy lacks something it needs (Redis, an identity, keys); empty if none does."""
    for policy in policies:
        spec = policy.spec
        if spec is None:
            return f"policy {policy.name}: it has no spec"
        strict = spec.rate_limit is not None and spec.rate_limit.scope == "strict"
        if strict and not inputs.settings.limits_socket and not spec.fail_open:
            return f"policy {policy.name}: strict limits need redis_url in the settings of the gateway"
        fault = limit_fault(policy, policies) or (token_fault(spec.jwt, inputs.issuers) if spec.jwt else "")
        if fault:
            return f"policy {policy.name}: {fault}"
    return ""


def _by_specificity(found: list[PlannedRoute], faults: dict[str, str]) -> tuple[PlannedRoute, ...]:
    """Longer paths first, then more headers; of two that are the same, the older one is used."""

    def rank(each: PlannedRoute) -> tuple[int, int, bool, str, str]:
        headers = len(each.route.spec.headers) if each.route.spec else 0
        path = normal_path(each.route.path)
        length = -len(path) if path != "/" else 0
        return (length, -headers, each.is_preview, each.route.created_at, each.route.name)

    kept: dict[tuple[str, str], PlannedRoute] = {}
    for each in sorted(found, key=rank):
        headers = each.route.spec.headers if each.route.spec else []
        same = (normal_path(each.route.path), repr(sorted(map(repr, headers))))
        first = kept.setdefault(same, each)
        if first is not each and not (first.is_preview and each.is_preview):  # of two routes that lead to one app
            faults.setdefault(
                f"route/{each.route.name}", f"route {first.route.name} has the same host, path and headers"
            )
    return tuple(kept.values())


def _targets(used: list[PlannedRoute]) -> tuple[dict[str, RouteTarget], dict[str, tuple[str, ...]]]:
    targets: dict[str, RouteTarget] = {}
    environments: dict[str, set[str]] = {}
    for each in sorted(used, key=lambda one: one.route.name):
        spec = each.spec
        mirrored: list[Backend] = [spec.mirror] if spec.mirror is not None else []
        for backend in (*spec.backends, *mirrored, *rollouts.backends(each.route.rollout)):
            if not backend.deployment:
                continue
            environments.setdefault(each.route.environment, set()).add(backend.deployment)
            bare = _bare(backend)
            target = targets.setdefault(backend.deployment, RouteTarget(bare, spec.circuit))
            if target.circuit == Circuit() != spec.circuit:
                targets[backend.deployment] = replace(target, circuit=spec.circuit)
    sticky = {each.route.environment for each in used if each.spec.sticky is not None}
    for environment in sticky:
        for deployment in environments.get(environment, ()):
            targets[deployment] = replace(targets[deployment], sticky=True)
    return (
        {name: targets[name] for name in sorted(targets)},
        {name: tuple(sorted(members)) for name, members in sorted(environments.items())},
    )


def _bare(backend: Backend) -> Backend:
    """The backend without the fields that may differ between routes to the same deployment."""
    return Backend(
        deployment=backend.deployment,
        namespace=backend.namespace,
        service=backend.service,
        port=backend.port,
        protocol=backend.protocol,
    )


def _certificates(used: list[PlannedRoute], inputs: Inputs, faults: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in used:
        tls = each.spec.tls
        if tls is None:
            continue
        if tls.secret not in inputs.tls:
            faults.setdefault(f"route/{each.route.name}", f"Secret {tls.secret} with a certificate not found")
            continue
        if fault := inputs.tls[tls.secret].fault:
            faults.setdefault(f"route/{each.route.name}", f"Secret {tls.secret}: {fault}")
        if inputs.tls[tls.secret].usable:
            found.setdefault(each.route.host.lower(), tls.secret)
    return dict(sorted(found.items()))
