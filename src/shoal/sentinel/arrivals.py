"""Detects a route that arrived before its endpoints: routes and endpoints come from different watches."""

from __future__ import annotations

from shoal.sentinel.model import GatewayRoute, Inputs, RouteTarget


def is_early(published: Inputs | None, known: Inputs) -> bool:
    """Whether the new version of a route would have no instance yet, while the published one works."""
    if published is None or published.routes is known.routes:
        return False
    for name, route in known.routes.items():
        before = published.routes.get(name)
        if before is None or before is route or route.spec is None or route.spec.redirect is not None:
            continue
        if not _is_answered(route, known) and _is_answered(before, known):
            return True
    return False


def _is_answered(route: GatewayRoute, inputs: Inputs) -> bool:
    for backend in route.spec.backends if route.spec is not None else ():
        found = inputs.endpoints.get(RouteTarget(backend).service)
        if backend.weight > 0 and found is not None and found.endpoints:
            return True
    return False
