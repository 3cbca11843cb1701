"""The objects of a revision that is a Deployment which ran before; pure.

Of that Deployment only labels, annotations and the number of replicas are applied, and of its autoscaler the bounds:
all else stays as it is, so nothing restarts. Beside it there is a headless Service for the gateways, whose name is the
revision's. It has no budget and no network policy: those of the user go on, and two budgets would stop every drain.

Which labels of the user were replaced is written down in an annotation, and a release puts them back.
"""

from __future__ import annotations

import orjson

from shoal.krane.deployments.adoptable import HASH, RECORDED_APP, RECORDED_HASH
from shoal.krane.deployments.render import Rendered, autoscaler, is_scaled, namespace_of, service
from shoal.krane.labels import ADOPTED, DEPLOYMENT, KEPT_LABELS, is_adopted, kept_labels, labels_of
from shoal.krane.owner import Owner
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb


def render_adopted(state: pb.DeploymentState, owner: Owner, live: Obj, scaler: Obj | None, hash_: str) -> Rendered:
    """``live`` is the Deployment and ``scaler`` its autoscaler, as they are; ``hash_`` that of its pods' template."""
    adopted = state.adopted or pb.Adopted()
    labels = labels_of(
        owner, "deployment", state.deployment,
        workspace=state.workspace, project=state.project, environment=state.environment, app=state.app,
    )  # fmt: skip
    about = {"name": state.name, "namespace": state.namespace, "labels": labels}
    selector = dict(adopted.selector) | ({HASH: hash_} if hash_ else {})
    app = f"{state.project_name or state.project}/{state.environment_name or state.environment}/{state.app_name}"
    record = {RECORDED_HASH: hash_, RECORDED_APP: app, KEPT_LABELS: kept_labels(live, labels)}
    root: Obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **about,
            "name": adopted.deployment,
            "uid": adopted.uid,
            "annotations": {ADOPTED: _text(record)},
        },
    }
    if not is_scaled(state):
        root["spec"] = {"replicas": state.replicas if state.running else 0}
    after: list[Obj] = [service(about, selector, state)] if state.port else []
    if is_scaled(state):
        after.append(_scaler(state, about, adopted, scaler))
    return Rendered(namespace=namespace_of(state, owner), before=(), root=root, after=tuple(after))


def _scaler(state: pb.DeploymentState, about: Obj, adopted: pb.Adopted, live: Obj | None) -> Obj:
    """The user's, with our bounds; ours where there is none."""
    named = {**about, "name": adopted.autoscaler or state.name}
    if live is None or (DEPLOYMENT in (live["metadata"].get("labels") or {}) and not is_adopted(live)):
        return autoscaler(named, state, adopted.deployment)
    named["annotations"] = {ADOPTED: _text({KEPT_LABELS: kept_labels(live, about["labels"])})}
    scaling = state.autoscaling or pb.Autoscaling()
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": named,
        "spec": {"minReplicas": scaling.min, "maxReplicas": scaling.max},
    }


def _text(record: Obj) -> str:
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()
