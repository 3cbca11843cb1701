"""A pod for the tests of simulated nodes."""

from __future__ import annotations

from typing import Any


def a_pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-1", "generation": 1},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i:1"}], **spec},
        "status": {"phase": "Pending"},
    }
