"""The methods that the interceptor admits."""

from __future__ import annotations

from shoal.control.service.agents.auth import ALLOWED
from shoal.wire.fleet.v1.cluster_connect import ClusterService


def test_the_gate_knows_every_method_and_no_other() -> None:
    assert set(ALLOWED) == {method.name for method in ClusterService.desc().methods}
