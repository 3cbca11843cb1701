"""Routes and policies for the unit tests of translations."""

from __future__ import annotations

from typing import Any

from shoal.sentinel.model import GatewayPolicy, GatewayRoute, Inputs, Settings
from shoal.sentinel.translate.reading import policy_of, route_of

WITH_SERVICES = Settings(limits_socket="/run/limits")


def backend(deployment: str, **rest: Any) -> dict[str, Any]:
    return {"deployment": deployment, "namespace": "apps", "service": deployment, **rest}


def route(name: str, host: str, *backends: dict[str, Any], created: str = "", **spec: Any) -> GatewayRoute:
    whole = {"environment": "env_1", "host": host, "backends": list(backends), **spec}
    return route_of({"metadata": {"name": name, "generation": 1, "creationTimestamp": created}, "spec": whole})


def policy(name: str, **spec: Any) -> GatewayPolicy:
    return policy_of({"metadata": {"name": name, "generation": 1}, "spec": {"environment": "env_1", **spec}})


def inputs_of(*objects: GatewayRoute | GatewayPolicy, **rest: Any) -> Inputs:
    return Inputs(
        routes={each.name: each for each in objects if isinstance(each, GatewayRoute)},
        policies={each.name: each for each in objects if isinstance(each, GatewayPolicy)},
        **{"settings": WITH_SERVICES, **rest},
    )
