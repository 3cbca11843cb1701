"""The type of a Kubernetes object as data: what JSON, YAML or protobuf decode to."""

from __future__ import annotations

from typing import Any

# A plain dict rather than a class: decision 0006 has the reasons. Objects from a cache or the store are never changed.
Obj = dict[str, Any]
