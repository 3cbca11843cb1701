"""DefaultTolerationSeconds: new pods tolerate a lost node for five minutes."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import PODS, a_pod

from shoal.testing.servers import local_server

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def added(taint: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], [UNREACHABLE]),
        ([{"key": UNREACHABLE, "operator": "Exists"}], [NOT_READY]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ],
)
async def test_pods_tolerate_a_lost_node_for_five_minutes(given: list[dict[str, Any]], missing: list[str]) -> None:
    async with local_server() as server:
        made = await server.post(PODS, a_pod(tolerations=given))
        assert (made["spec"].get("tolerations") or []) == given + [added(taint) for taint in missing]
