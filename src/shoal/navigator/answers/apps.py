"""The fleet's apps as rows: the Kubernetes Deployments of one app in one cluster together, found by their labels.

They are made of the view that is asked, so they are as current, or as old, as the Deployments in it. While a new
revision takes over, an app has the Deployments of two revisions; labels and age are those of the newest.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.query.fields import APP_LABEL, APPS
from shoal.navigator.model import Row
from shoal.navigator.summaries import DeploymentSummary
from shoal.navigator.view import View


class AppSummary(DeploymentSummary, frozen=True, kw_only=True, gc=False):
    """The numbers are those of all revisions together."""

    revisions: int = 0  # that run, or should


def app_rows(view: View, deployments: Deployments, clusters: Iterable[str]) -> list[Row]:
    found: dict[tuple[str, str, str], list[tuple[Row, DeploymentSummary]]] = {}
    for cluster in clusters:
        for row in view.rows("deployments", cluster=cluster):
            summary = row.summary
            if isinstance(summary, DeploymentSummary) and (app := summary.labels.get(APP_LABEL)):
                found.setdefault((cluster, row.namespace, app), []).append((row, summary))
    return [_app(deployments, *place, parts) for place, parts in found.items()]


def _app(
    deployments: Deployments, cluster: str, namespace: str, app: str, parts: list[tuple[Row, DeploymentSummary]]
) -> Row:  # fmt: skip
    newest = max(parts, key=lambda part: (part[1].created_at, part[0].name))[1]
    summaries = [summary for _, summary in parts]
    made = AppSummary(
        labels=newest.labels,
        created_at=newest.created_at,
        replicas=sum(each.replicas for each in summaries),
        ready=sum(each.ready for each in summaries),
        updated=sum(each.updated for each in summaries),
        images=tuple(dict.fromkeys(image for each in summaries for image in each.images)),
        revisions=sum(each.replicas > 0 for each in summaries),
    )
    name = deployments.app_of(newest.labels) or app
    return Row(cluster, APPS, namespace, name, 0, max(row.changed_at_s for row, _ in parts), made)
