"""The ReplicaSets of a Deployment: which one is new, its content, and its revision. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.controllers.deployment.model import (
    DESIRED_REPLICAS,
    HASH_LABEL,
    MAX_REPLICAS,
    NOT_COPIED,
    REVISION,
    REVISION_HISTORY,
    Bounds,
    annotation_of,
    revision_number,
)
from shoal.controllers.pods.template import controller_reference, hash_of
from shoal.controllers.replicaset.plan import replicas_of
from shoal.kube.objects import Obj

_NAME_LIMIT: Final = 253
_HISTORY_LIMIT: Final = 2000  # characters of the annotation


def by_age(replica_set: Obj) -> tuple[str, str]:
    about = replica_set["metadata"]
    return about.get("creationTimestamp") or "~", about["name"]  # one that is not created yet is the youngest


def by_revision(replica_set: Obj) -> tuple[int, tuple[str, str]]:
    return revision_number(replica_set), by_age(replica_set)


@dataclass(frozen=True, slots=True)
class Family:
    """The ReplicaSets of a Deployment: the one with its current template, if any, and the others."""

    new: Obj | None
    old: tuple[Obj, ...]  # oldest first

    @property
    def all(self) -> tuple[Obj, ...]:
        return (*self.old, self.new) if self.new is not None else self.old

    @property
    def active(self) -> tuple[Obj, ...]:
        return tuple(each for each in self.all if replicas_of(each) > 0)

    @property
    def active_old(self) -> tuple[Obj, ...]:
        return tuple(each for each in self.old if replicas_of(each) > 0)


def same_template(one: Obj, other: Obj) -> bool:
    """Whether two templates are equal except for their hash labels."""
    if one.get("spec") != other.get("spec"):
        return False
    return _plain(one.get("metadata") or {}) == _plain(other.get("metadata") or {})


def _plain(about: Obj) -> Obj:
    tags = {key: value for key, value in (about.get("labels") or {}).items() if key != HASH_LABEL}
    rest = {key: value for key, value in about.items() if key != "labels" and value}
    return {**rest, "labels": tags}


def family_of(deployment: Obj, replica_sets: Iterable[Obj]) -> Family:
    template = deployment["spec"]["template"]
    ordered = sorted(replica_sets, key=by_age)
    new = next((each for each in ordered if same_template(each["spec"]["template"], template)), None)
    return Family(new, tuple(each for each in ordered if each is not new))


def next_revision(old: Sequence[Obj]) -> int:
    return max(map(revision_number, old), default=0) + 1


def new_replica_set(deployment: Obj, replicas: int, revision: int, bounds: Bounds) -> Obj:
    """The ReplicaSet of the Deployment's template. Its name is derived from the template, so that it is not created
    twice."""
    about, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    mark = hash_of(template, (deployment.get("status") or {}).get("collisionCount"))
    meta = template.get("metadata") or {}
    tags = {**(meta.get("labels") or {}), HASH_LABEL: mark}
    selector = {
        **spec["selector"],
        "matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: mark},
    }
    annotations = _copied(about.get("annotations") or {}) | replicas_annotations(bounds)
    made: Obj = {
        "replicas": replicas,
        "selector": selector,
        "template": {**template, "metadata": {**meta, "labels": tags}},
    }
    if spec.get("minReadySeconds"):
        made["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{about['name'][: _NAME_LIMIT - 1 - len(mark)]}-{mark}",
            "namespace": about["namespace"],
            "labels": tags,
            "annotations": {**annotations, REVISION: str(revision)},
            "ownerReferences": [controller_reference(deployment, "apps/v1", "Deployment")],
        },
        "spec": made,
    }


def _copied(annotations: Obj) -> Obj:
    return {key: value for key, value in annotations.items() if key not in NOT_COPIED}


def replicas_annotations(bounds: Bounds) -> Obj:
    return {DESIRED_REPLICAS: str(bounds.replicas), MAX_REPLICAS: str(bounds.most)}


def annotations_of_new(deployment: Obj, new: Obj, revision: int) -> Obj:
    """The annotations of the new ReplicaSet: the Deployment's, and the highest revision. One that becomes current again
    records its former revisions."""
    before = new["metadata"].get("annotations") or {}
    wanted = before | _copied(deployment["metadata"].get("annotations") or {})
    text = annotation_of(new, REVISION)
    if text and not text.isdigit():
        return wanted
    if revision_number(new) < revision:
        wanted = wanted | {REVISION: str(revision)}
        if text:
            wanted[REVISION_HISTORY] = _history(before.get(REVISION_HISTORY) or "", text)
    return wanted


def _history(known: str, revision: str) -> str:
    revisions = [*known.split(","), revision] if known else [revision]
    while len(",".join(revisions)) > _HISTORY_LIMIT:
        revisions.pop(0)
    return ",".join(revisions)
