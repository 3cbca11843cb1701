"""Labels and annotations of an agent's objects: owner, key and version; pure.

Everything carries the labels of its owner (fleet, cluster, shard) and of what it is a part of, by id. An object without
them, or with those of another owner, is not ours: it is neither changed nor deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from shoal.krane.owner import Owner
from shoal.kube.names import is_label_value
from shoal.kube.objects import Obj
from shoal.sync.versions import Version

FIELD_MANAGER_KRANE = "krane"
FIELD_MANAGER_SCALE = "krane-scale"  # owns the replicas until an autoscaler takes them over

PREFIX = "shoal.dev/"
FLEET = f"{PREFIX}fleet"
CLUSTER = f"{PREFIX}cluster"
SHARD = f"{PREFIX}shard"
WORKSPACE = f"{PREFIX}workspace"
PROJECT = f"{PREFIX}project"
ENVIRONMENT = f"{PREFIX}environment"
DEPLOYMENT = f"{PREFIX}deployment"
SENTINEL = f"{PREFIX}sentinel"
SERVING = f"{PREFIX}serving"  # of a sentinel's pod: whether its Service leads to it
CANDIDATE = f"{PREFIX}candidate"  # of a sentinel's second Deployment and its pods: the revision that is rolled out
CHECKED = f"{PREFIX}checked"  # of the Job of a rollout's check: the deployment that it is about
CHECK_JOB = f"{PREFIX}check-job"  # of such a Job and its pods: its id
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
KRANE = "krane"

VERSION = f"{PREFIX}version"  # annotation: DATABASE:INCARNATION:NUMBER
APPLIED = f"{PREFIX}applied"  # annotation: fingerprint of what was applied
CORRELATION = f"{PREFIX}correlation-id"  # annotation: the request that led to the version that was applied
RENDER = f"{PREFIX}render"  # annotation of Deployments: the rules they were rendered by, if not the first
ADOPTED = f"{PREFIX}adopted"  # annotation of objects that were there before: JSON, with the labels that we replaced
SECRETS = f"{PREFIX}secrets"  # annotation of pods: which secrets, in which versions, they started with

OF_KIND = {
    "deployment": DEPLOYMENT,
    "sentinel": SENTINEL,
    "route": f"{PREFIX}route",
    "policy": f"{PREFIX}policy",
    "keys": f"{PREFIX}keys",
}
"""The id label of each kind of key; the kind is also the component."""

NAMESPACE_SENTINEL = "sentinel"
"""Where the gateways of a cluster are."""

TOPOLOGY_KEY_ZONE = "topology.kubernetes.io/zone"
TOPOLOGY_KEY_HOST = "kubernetes.io/hostname"

_LABEL_VALUE_MAX = 63


def label_value(text: str) -> str:
    """The text if it is a valid label value, else its beginning and a digest."""
    if not is_label_value(text):
        return text
    head = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "-" for each in text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"x{head[: _LABEL_VALUE_MAX - 12]}-{digest}"


def owner_labels(owner: Owner) -> dict[str, str]:
    return {
        MANAGED_BY: KRANE,
        FLEET: label_value(owner.fleet),
        CLUSTER: label_value(owner.cluster),
        SHARD: label_value(owner.shard),
    }


def labels_of(owner: Owner, kind: str, id_: str, **parts: str) -> dict[str, str]:
    """Of an object that belongs to a key. ``parts`` are ids by label name; empty ones are left out."""
    more = {f"{PREFIX}{name}": label_value(text) for name, text in parts.items() if text}
    return {**owner_labels(owner), COMPONENT: kind, OF_KIND[kind]: label_value(id_), **more}


def selector(owner: Owner, kind: str = "", id_: str = "") -> str:
    """Everything of the owner; of one kind of key; of one key."""
    wanted = owner_labels(owner)
    if kind:
        wanted[COMPONENT] = kind
    if id_:
        wanted[OF_KIND[kind]] = label_value(id_)
    return ",".join(f"{name}={value}" for name, value in wanted.items())


def key_of(obj: Obj) -> str | None:
    """The key that an object of ours belongs to; None when its labels do not say."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    kind = labels.get(COMPONENT, "")
    id_ = labels.get(OF_KIND.get(kind, ""), "")
    return f"{kind}/{id_}" if id_ else None


def is_of_krane(obj: Obj) -> bool:
    """Whether some agent of some fleet has it."""
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == KRANE


def is_of(obj: Obj, owner: Owner) -> bool:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in owner_labels(owner).items())


def owner_shown(obj: Obj) -> str:
    """The owner of an object, for messages."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    manager = labels.get(MANAGED_BY)
    if manager != KRANE:
        return f"managed by {manager!r}" if manager else "not managed by krane"
    return f"of fleet {labels.get(FLEET, '')!r}, cluster {labels.get(CLUSTER, '')!r}, shard {labels.get(SHARD, '')!r}"


def live_version(obj: Obj) -> Version | None:
    """The version its annotation names; None when it is missing or cannot be read."""
    text = (obj["metadata"].get("annotations") or {}).get(VERSION, "")
    try:
        return Version.parse(text)
    except ValueError:
        return None


# objects of users that were adopted

KEPT_LABELS = "labels"  # in the annotation


def is_adopted(obj: Obj) -> bool:
    """Whether only a part of it is ours."""
    return ADOPTED in (obj["metadata"].get("annotations") or {})


def adopted_record(obj: Obj) -> Mapping[str, Any]:
    """What was written down when it was adopted; nothing of other objects, or when somebody has changed it."""
    text = (obj["metadata"].get("annotations") or {}).get(ADOPTED) or "{}"
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def kept_labels(live: Obj, ours: Mapping[str, str]) -> dict[str, str]:
    """The labels of a user's object that ours replace: as they are before, or as they were written down then."""
    if is_adopted(live):
        found = adopted_record(live).get(KEPT_LABELS)
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    theirs: Mapping[str, str] = live["metadata"].get("labels") or {}
    return {name: theirs[name] for name in ours if name in theirs and not name.startswith(PREFIX)}


def released_labels(live: Obj) -> dict[str, str | None]:
    """What a release makes of our labels: gone, or what a user had there."""
    kept = kept_labels(live, {}) if is_adopted(live) else {}
    return {name: kept.get(name) for name in live["metadata"].get("labels") or {} if is_ours_to_remove(name)}


def is_ours_to_remove(name: str) -> bool:
    """Whether a label or annotation goes when an object is released."""
    return name.startswith(PREFIX) or name in (MANAGED_BY, COMPONENT)
