"""Mistakes in VirtualServices: hosts, gateways, destinations and routes that are never reached."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from shoal.kube.objects import Obj
from shoal.navigator.istio.hosts import audience, full_name, overlap, shared_audience, visible
from shoal.navigator.istio.mistakes.finding import ERROR, WARNING, MeshLookup, mistake, nearest
from shoal.navigator.istio.model import Mistake
from shoal.navigator.istio.resources import (
    MESH,
    destinations,
    gateway_name,
    gateways_of,
    name_of,
    namespace_of,
    spec_of,
)

_ALL = {"prefix": "/"}  # every path begins so


def find(lookup: MeshLookup) -> Iterator[Mistake]:
    yield from conflicting_hosts(lookup)
    for route in lookup.all("virtualservices"):
        yield from unknown_gateways(lookup, route)
        yield from unknown_destinations(lookup, route)
        yield from shadowed(route)


def conflicting_hosts(lookup: MeshLookup) -> Iterator[Mistake]:
    """Sidecars take one VirtualService per host; which one is not defined. Gateways merge theirs."""
    claims: dict[str, list[Obj]] = {}
    for route in lookup.all("virtualservices"):
        if MESH in gateways_of(route):
            for host in spec_of(route).get("hosts") or []:
                claims.setdefault(full_name(host, namespace_of(route), lookup.mesh.domain), []).append(route)
    for host, routes in claims.items():
        for one, other in combinations(routes, 2):
            if one is other or not shared_audience(_audience(one), _audience(other)):
                continue
            for mine, theirs in ((one, other), (other, one)):
                yield mistake(
                    "host-claimed-twice",
                    ERROR,
                    mine,
                    "spec.hosts",
                    f"{host} is also routed by {namespace_of(theirs)}/{name_of(theirs)}; sidecars follow only one",
                    "put the routes of one host into one VirtualService, or export them to different namespaces",
                    [theirs],
                )


def _audience(route: Obj) -> frozenset[str]:
    return audience(spec_of(route).get("exportTo"), namespace_of(route))


def unknown_gateways(lookup: MeshLookup, route: Obj) -> Iterator[Mistake]:
    known = {f"{namespace_of(it)}/{name_of(it)}": it for it in lookup.all("gateways")}
    hosts = spec_of(route).get("hosts") or []
    home = namespace_of(route)
    for number, written in enumerate(spec_of(route).get("gateways") or []):
        if written == MESH:
            continue
        name = gateway_name(written, home)
        gateway = known.get(name)
        path = f"spec.gateways[{number}]"
        if gateway is None:
            fix = nearest(name, known) or f"create the Gateway {name}, or name one that exists"
            yield mistake("unknown-gateway", ERROR, route, path, f"Gateway {name} not found", fix)
        elif not any(_served(gateway, host, home) for host in hosts):
            yield mistake(
                "gateway-does-not-serve-host",
                ERROR,
                route,
                path,
                f"the Gateway {name} serves none of {', '.join(hosts)}",
                "add a host to the Gateway's servers, or change spec.hosts",
                [gateway],
            )


def _served(gateway: Obj, host: str, namespace: str) -> bool:
    for server in spec_of(gateway).get("servers") or []:
        for written in server.get("hosts") or []:
            place, slash, pattern = written.rpartition("/")
            if slash and place not in ("*", namespace) and not (place == "." and namespace_of(gateway) == namespace):
                continue
            if overlap(pattern, host):
                return True
    return False


def unknown_destinations(lookup: MeshLookup, route: Obj) -> Iterator[Mistake]:
    home, domain = namespace_of(route), lookup.mesh.domain
    for path, destination in destinations(route):
        written = destination.get("host", "")
        host = full_name(written, home, domain)
        owner = _owner(lookup, host, home)
        if owner is None:
            yield mistake(
                "unknown-host",
                ERROR,
                route,
                f"{path}.host",
                f"service {host} not found",
                _host_fix(lookup, written, host),
            )
            continue
        yield from _unknown_port(lookup, route, path, destination, host)
        subset = destination.get("subset")
        if subset:
            yield from _unknown_subset(lookup, route, path, host, owner, subset)


def _owner(lookup: MeshLookup, host: str, client: str) -> str | None:
    """The namespace of the service that a host means for a client; None when it means none."""
    service = lookup.registry.kubernetes.get(host)
    if service is not None:
        return namespace_of(service)
    for known, entries in lookup.registry.entries.items():
        if overlap(known, host):
            for entry in entries:
                if visible(spec_of(entry).get("exportTo"), namespace_of(entry), client):
                    return namespace_of(entry)
    return None


def _host_fix(lookup: MeshLookup, written: str, host: str) -> str:
    whole = f"{written}.svc.{lookup.mesh.domain}"
    if whole in lookup.registry.kubernetes:
        return f"write {whole}: a name with dots is taken as it is"
    return nearest(host, lookup.registry.names) or "name a Service or a ServiceEntry that exists"


def _unknown_port(lookup: MeshLookup, route: Obj, path: str, destination: Obj, host: str) -> Iterator[Mistake]:
    service = lookup.registry.kubernetes.get(host)
    number = (destination.get("port") or {}).get("number")
    ports = [it.get("port") for it in spec_of(service).get("ports") or []] if service is not None else []
    if service is None:
        return
    if number is not None and number not in ports:
        yield mistake(
            "unknown-port",
            ERROR,
            route,
            f"{path}.port.number",
            f"{host} has no port {number}",
            f"use one of {', '.join(map(str, ports))}" if ports else "give the service a port",
            [service],
        )


def _unknown_subset(lookup: MeshLookup, route: Obj, path: str, host: str, owner: str, subset: str) -> Iterator[Mistake]:
    rules, _ = lookup.rules.for_host(host, owner, namespace_of(route))
    known = [it.get("name", "") for rule in rules for it in spec_of(rule).get("subsets") or []]
    if subset in known:
        return
    if not rules:
        message, fix = f"no DestinationRule for {host} is visible here, so there is no subset {subset}", "create one"
    else:
        message = f"the DestinationRule of {host} has no subset {subset}"
        fix = nearest(subset, known) or f"add the subset, or use one of {', '.join(known) or 'none'}"
    yield mistake("unknown-subset", ERROR, route, f"{path}.subset", message, fix, rules)


def shadowed(route: Obj) -> Iterator[Mistake]:
    """HTTP routes that come after one that takes everything they would."""
    routes = spec_of(route).get("http") or []
    for later in range(1, len(routes)):
        for earlier in range(later):
            if takes_all(routes[earlier].get("match") or [], routes[later].get("match") or []):
                yield mistake(
                    "route-never-reached",
                    WARNING,
                    route,
                    f"spec.http[{later}]",
                    f"spec.http[{earlier}] takes every request that this route matches",
                    f"move it before spec.http[{earlier}], or narrow that one",
                )
                break


def takes_all(earlier: list[Obj], later: list[Obj]) -> bool:
    """Whether each way to match the later list is one to match the earlier. No match at all is everything."""
    if not earlier:
        return True
    if not later:
        return any(_covers(it, {}) for it in earlier)
    return all(any(_covers(one, other) for one in earlier) for other in later)


def _conditions(match: Obj) -> Obj:
    return {name: value for name, value in match.items() if name != "name" and value not in ({}, [], None, "")}


def _covers(one: Obj, other: Obj) -> bool:
    """Whether every request that matches ``other`` matches ``one``: each condition of one is implied by other's."""
    wide, narrow = _conditions(one), _conditions(other)
    if narrow.get("ignoreUriCase") and not wide.get("ignoreUriCase") and wide.get("uri", _ALL) != _ALL:
        return False
    return all(_implied(name, wanted, narrow.get(name)) for name, wanted in wide.items() if name != "ignoreUriCase")


def _implied(name: str, wanted: Any, given: Any) -> bool:
    if name == "uri" and wanted == _ALL:
        return True
    if given is None:
        return False
    if name in ("headers", "queryParams"):
        return all(_text_covers(text, given.get(key)) for key, text in wanted.items())
    if isinstance(wanted, dict) and set(wanted) <= {"exact", "prefix", "regex"}:
        return _text_covers(wanted, given)
    return bool(wanted == given)


def _text_covers(one: Obj, other: Obj | None) -> bool:
    if one == other:
        return True
    if other is None:
        return False
    if not one:
        return True  # present is enough
    prefix = one.get("prefix")
    if prefix is None:
        return False
    text = other.get("exact", other.get("prefix"))
    return isinstance(text, str) and text.startswith(prefix)
