"""The type of a Kubernetes object as data, decoded from JSON, YAML or protobuf."""

from __future__ import annotations

from typing import Any

# A plain dict, for the reasons in decision 0006. Objects from a cache or the store are never changed.
Obj = dict[str, Any]
