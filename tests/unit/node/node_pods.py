"""Pods for the tests of a node's parts."""

from __future__ import annotations

from typing import Any

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"b": "2", "a": 'x"y'},
        "annotations": {"k": "v"},
    },
    "spec": {"nodeName": "node", "serviceAccountName": "sa", "containers": [{"name": "c"}]},
}


def requesting(name: str, **amounts: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": amounts}}
