"""Cache of encoded deployment states, shared by all places that run the same.

The key is what was read from the database, so no invalidation is needed when a row changes. States with secrets are not
cached, because those are wrapped for one agent.
"""

from __future__ import annotations

from typing import Any

from shoal.control.service.desired.render import EncodedDeployment

_KEPT = 2000


class StateCache:
    def __init__(self, *, keep: int = _KEPT) -> None:
        self._keep = keep
        self._known: dict[Any, EncodedDeployment] = {}

    def get(self, key: Any) -> EncodedDeployment | None:
        try:
            return self._known.get(key)
        except TypeError:  # a driver that decodes documents by itself
            return None

    def put(self, key: Any, state: EncodedDeployment) -> None:
        while len(self._known) >= self._keep:
            del self._known[next(iter(self._known))]
        try:
            self._known[key] = state
        except TypeError:
            return
