"""The control plane's deployments, which queries join with objects.

An item of ``shoal.navigator.view.Fleet.deployments`` has ``id``, ``app``, ``project``, ``environment`` (names) and
``revision``; other fields are not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.navigator.answers.query.fields import APP_LABELS, DEPLOYMENT_LABEL
from shoal.navigator.view import Fleet


@dataclass(frozen=True, slots=True)
class Deployments:
    """By id."""

    app: Mapping[str, str] = field(default_factory=dict)
    project: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    revision: Mapping[str, int] = field(default_factory=dict)

    def app_of(self, labels: Mapping[str, str]) -> str | None:
        """The app of an object with these labels: from the fleet, else from the labels."""
        found = self.app.get(labels.get(DEPLOYMENT_LABEL, ""))
        if found is not None:
            return found
        for label in APP_LABELS:
            found = labels.get(label)
            if found is not None:
                return found
        return None

    def having(self, name: str, value: str) -> Sequence[str]:
        """Ids of the deployments whose app, project or environment has this name."""
        table = {"app": self.app, "project": self.project, "environment": self.environment}[name]
        return [id_ for id_, each in table.items() if each == value]


def read_deployments(fleet: Fleet) -> Deployments:
    found: list[dict[str, Any]] = [each for each in fleet.deployments() if each.get("id")]

    def texts(name: str) -> dict[str, str]:
        return {str(each["id"]): str(each[name]) for each in found if each.get(name)}

    revisions = {str(each["id"]): int(each["revision"]) for each in found if each.get("revision") is not None}
    return Deployments(texts("app"), texts("project"), texts("environment"), revisions)
