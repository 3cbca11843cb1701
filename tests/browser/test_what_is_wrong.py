"""Somebody who has the page open understands within ten seconds what happens to the fleet: the Fleet view alone, without
a click, names what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browser_up import Up, applied
from fleet_faults import main, region_killed, seconds_until

pytestmark = [pytest.mark.chaos, pytest.mark.xdist_group("browser")]

UNDERSTOOD_S = 10.0
RECOVERED_S = 60.0

GOOD = """
apiVersion: shoal.dev/v1
kind: App
metadata: {name: shown, project: demo, environment: production}
spec:
  image: shoal/echo
  port: 8080
  healthcheck: {http: {path: /}, period: 1}
  topology: [{region: eu, replicas: 1}, {region: us, replicas: 1}]
"""
BAD = GOOD.replace("image: shoal/echo", "image: shoal/there-is-no-such-image")


@pytest.fixture
def fleet(open_page: Callable[..., Any]) -> Any:
    """The Fleet view, when everything is well again."""
    page = open_page()
    page.wait_for_selector(".region")
    seconds_until(page, lambda: "Nothing is wrong" in main(page), RECOVERED_S)
    return page


def test_a_region_that_is_killed(fleet: Any, up: Up) -> None:
    with region_killed(up, "eu"):
        took_s = seconds_until(fleet, lambda: "What is wrong" in main(fleet), UNDERSTOOD_S)
        text = main(fleet)
        assert "eu-1" in text.split("Regions")[0]
        assert "1 of 2 agents lost" in text
        assert "connection to the control plane broke" in text
        assert "what runs there goes on" in text
        print(f"a killed region is shown after {took_s:.1f} s")


def test_a_bad_revision(fleet: Any, up: Up) -> None:
    with applied(up, GOOD):
        up.shoal("status", "shown", "-p", "demo", "-e", "production", "--wait-ready", "--timeout", "60s")
        up.shoal("apply", "-f", "-", text=BAD)
        took_s = seconds_until(fleet, lambda: "App demo/production/shown" in main(fleet), UNDERSTOOD_S)
        text = main(fleet).split("Regions")[0]
        assert "there-is-no-such-image" in text or "ErrImagePull" in text or "ImagePullBackOff" in text
        print(f"a bad revision is shown after {took_s:.1f} s")


def test_an_agent_that_is_lost(fleet: Any, up: Up) -> None:
    """Its cluster is well; only what the agent would do and tell is missing. The last test: it does not come back."""
    up.shoal("token", "revoke", "agent-eu-1")
    took_s = seconds_until(fleet, lambda: "Agent eu-1/default" in main(fleet), UNDERSTOOD_S)
    text = main(fleet)
    assert "what runs there goes on and gateways keep serving it" in text
    assert "shoal agents" in text
    card = fleet.locator(".region", has_text="eu-1").inner_text()
    assert "Unreachable" in card
    print(f"a lost agent is shown after {took_s:.1f} s")
