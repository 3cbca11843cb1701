"""The fleet's apps as rows."""

from __future__ import annotations

from answers_world import an_object, stamp

from shoal.navigator.answers.apps import AppSummary, app_rows
from shoal.navigator.answers.fleet import Deployments
from shoal.testing.views import MemoryView, a_cluster


def test_the_revisions_of_an_app_in_a_cluster_are_one_row_and_other_deployments_none() -> None:
    view = MemoryView([a_cluster("a"), a_cluster("b")])
    for cluster, revision, replicas in (("a", "dep-1", 0), ("a", "dep-2", 3), ("b", "dep-1", 1)):
        labels = {"shoal.dev/app": "app-1", "shoal.dev/deployment": revision}
        view.put(cluster, "deployments", an_object(
            f"web-{revision}", spec={"replicas": replicas, "template": {"spec": {"containers": [{"image": revision}]}}},
            metadata={"labels": labels, "creationTimestamp": stamp(100 - int(revision[-1]))},
            status={"readyReplicas": replicas}))  # fmt: skip
    view.put("a", "deployments", an_object("other"))
    rows = app_rows(view, Deployments(app={"dep-2": "web"}), ["a", "b"])
    assert [(row.cluster, row.namespace, row.name) for row in rows] == [("a", "shop", "web"), ("b", "shop", "app-1")]
    summary = rows[0].summary
    assert isinstance(summary, AppSummary)
    assert (summary.replicas, summary.ready, summary.revisions) == (3, 3, 1)
    assert summary.images == ("dep-1", "dep-2") and summary.labels["shoal.dev/deployment"] == "dep-2"
    assert [row.cluster for row in app_rows(view, Deployments(), ["b"])] == ["b"]
