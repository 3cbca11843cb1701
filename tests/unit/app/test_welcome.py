"""The demo of ``shoal up``: its documents are valid, and are applied once."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.app import welcome
from shoal.cli.rest import RequestRefused, RestReply
from shoal.control.domain.specs import parse


class Plane:
    """As much of the REST client as the demo uses."""

    def __init__(self, there: bool, sentinels: list[dict[str, Any]] | None = None, status: int = 404) -> None:
        self.there, self.sentinels, self.status = there, sentinels or [], status
        self.applied: list[Any] = []

    def get(self, path: str, **params: Any) -> Any:
        if path.endswith("/sentinels"):
            return {"items": self.sentinels}
        if not self.there:
            raise RequestRefused(self.status, "NotFound", "no such project", [])
        return {}

    def request(self, method: str, path: str, body: Any = None) -> RestReply:
        self.applied.append(body)
        return RestReply(200, {})


def gateway(region: str, health: str = "healthy", address: str = "127.0.0.1:8040") -> dict[str, Any]:
    return {"spec": {"region": region}, "status": {"health": health, "address": address}}


def test_every_document_is_valid() -> None:
    kinds = [parse(document).kind.name for document in welcome.documents(["eu", "us"])]
    assert kinds == ["Project", "Environment", "App", "Route"]


def test_it_is_applied_once_and_then_left_alone() -> None:
    fresh, known = Plane(there=False), Plane(there=True)
    welcome.ensure(fresh, ["eu"])  # type: ignore[arg-type]
    welcome.ensure(known, ["eu"])  # type: ignore[arg-type]
    assert (len(fresh.applied), len(known.applied)) == (1, 0)
    with pytest.raises(RequestRefused):
        welcome.ensure(Plane(there=False, status=503), ["eu"])  # type: ignore[arg-type]


def test_it_waits_for_a_gateway_in_every_region_but_not_for_ever() -> None:
    plane = Plane(there=True, sentinels=[gateway("eu"), gateway("us", health="unhealthy")])
    pauses = iter((True, True, False))
    found = welcome.until_ready(plane, ["eu", "us"], lambda: next(pauses))  # type: ignore[arg-type]
    assert found == {"eu": "127.0.0.1:8040"}
    plane.sentinels[1] = gateway("us")
    assert set(welcome.until_ready(plane, ["eu", "us"], lambda: False)) == {"eu", "us"}  # type: ignore[arg-type]


def test_a_line_per_region_says_how_to_ask() -> None:
    shown = welcome.lines({"eu": "127.1.2.3:8040"})
    assert "  curl --noproxy '*' -H 'Host: welcome.localhost' http://127.1.2.3:8040/  # eu" in shown
    assert welcome.lines({}) == ["The demo app is starting: `shoal status -w` shows its state."]
