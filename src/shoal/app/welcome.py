"""The demo of ``shoal up``: an app in every region behind gateways, applied once; later changes by the user stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.cli.rest import RequestRefused, Rest

PROJECT, ENVIRONMENT, APP, HOST = "welcome", "production", "web", "welcome.localhost"
_HOME = f"/api/v1/projects/{PROJECT}/environments/{ENVIRONMENT}"


def documents(regions: Sequence[str]) -> list[dict[str, Any]]:
    """The demo's documents, as for ``shoal apply``."""
    within = {"project": PROJECT, "environment": ENVIRONMENT}
    app = {
        "image": "shoal/demo-app:v1",
        "port": 8080,
        "resources": {"cpu": "50m", "memory": "64Mi"},
        "healthcheck": {"http": {"path": "/health"}, "period": 1},
        "topology": [{"region": region, "replicas": 2} for region in regions],
    }
    return [
        _document("Project", {"name": PROJECT}, {}),
        _document("Environment", {"name": ENVIRONMENT, "project": PROJECT}, {}),
        _document("App", {"name": APP, **within}, app),
        _document("Route", {"name": APP, **within}, {"host": HOST, "app": APP}),
    ]


def _document(kind: str, about: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": about, "spec": spec}


def ensure(rest: Rest, regions: Sequence[str]) -> None:
    """Apply the demo unless its project exists."""
    try:
        rest.get(f"/api/v1/projects/{PROJECT}")
    except RequestRefused as refused:
        if refused.status != 404:
            raise
        rest.request("POST", "/api/v1/apply", documents(regions))


def addresses(rest: Rest) -> dict[str, str]:
    """The addresses of the ready gateways of the demo's environment, by region."""
    found = rest.get(f"{_HOME}/sentinels")["items"]
    return {
        each["spec"]["region"]: each["status"]["address"]
        for each in found
        if each["status"].get("health") == "healthy" and each["status"].get("address")
    }


def until_ready(rest: Rest, regions: Sequence[str], pause: Callable[[], bool]) -> dict[str, str]:
    """Wait until every region has an address, or ``pause`` returns False; returns the known addresses."""
    while True:
        found = addresses(rest)
        if set(found) >= set(regions) or not pause():
            return found


def lines(found: dict[str, str]) -> list[str]:
    """Commands to try with the demo."""
    if not found:
        return ["The demo app is starting: `shoal status -w` shows its state."]
    return [
        f"The app {PROJECT}/{ENVIRONMENT}/{APP} runs behind a gateway in each region:",
        "",
        *(f"  curl --noproxy '*' -H 'Host: {HOST}' http://{address}/  # {region}" for region, address in found.items()),
        "",
    ]
