"""What a check is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.control.domain.kinds.check_queries import fill_query
from shoal.control.domain.objects import time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """A step of a rollout. ``weight`` is percent of the app's requests that the candidate has in these regions."""

    workspace_id: str
    environment_id: str  # whose credentials are sent
    rollout_id: str
    deployment_id: str  # the candidate
    app: str
    project: str
    environment: str
    namespace: str  # in clusters
    revision: int
    stable_revision: int  # 0: none
    step: int
    wave: int
    regions: tuple[str, ...]
    clusters: tuple[str, ...]  # in these regions
    weight: int
    started_ms: int

    def as_json(self) -> dict[str, Any]:
        return {
            "app": self.app, "project": self.project, "environment": self.environment, "revision": self.revision,
            "stableRevision": self.stable_revision, "step": self.step, "wave": self.wave,
            "regions": list(self.regions), "weight": self.weight, "startedAt": time_text(self.started_ms),
        }  # fmt: skip

    def filled(self, text: str) -> str:
        """A query with the values of this rollout. All of them are numbers or names without characters that a query
        language knows."""
        values: Mapping[str, Any] = {
            "app": self.app, "project": self.project, "environment": self.environment, "namespace": self.namespace,
            "revision": self.revision, "stableRevision": self.stable_revision,
        }  # fmt: skip
        return fill_query(text, values)
