"""The pods and claims of a StatefulSet: names, labels, volumes, and owners of the claims. Pure."""

from __future__ import annotations

from shoal.controllers.pods.template import controller_reference, pod_of
from shoal.controllers.replicaset.plan import replicas_of
from shoal.controllers.revisions.plan import REVISION_LABEL
from shoal.controllers.statefulset.model import (
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    ordinal_of,
    parent_and_ordinal,
    start_of,
)
from shoal.kube.objects import Obj


def in_range(owner: Obj, ordinal: int) -> bool:
    return start_of(owner) <= ordinal < start_of(owner) + replicas_of(owner)


def revision_of(pod: Obj) -> str:
    found: str = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) or ""
    return found


def new_pod(owner: Obj, template: Obj, revision: str, ordinal: int) -> Obj:
    name = f"{owner['metadata']['name']}-{ordinal}"
    made = pod_of(template, owner, controller_reference(owner, "apps/v1", "StatefulSet"))
    about = {key: value for key, value in made["metadata"].items() if key != "generateName"}
    about["name"] = name
    about["labels"] = {**_identity_labels(about.get("labels") or {}, name, ordinal), REVISION_LABEL: revision}
    spec = {**made["spec"], "hostname": name, "volumes": volumes(owner, made["spec"].get("volumes") or (), ordinal)}
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    if not spec["volumes"]:
        del spec["volumes"]
    return {**made, "metadata": about, "spec": spec}


def _identity_labels(labels: Obj, name: str, ordinal: int) -> Obj:
    return {**labels, POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}


def with_identity(pod: Obj) -> Obj | None:
    """The pod with the labels of its identity; None if it already has them."""
    about = pod["metadata"]
    labels = about.get("labels") or {}
    if labels.get(POD_NAME_LABEL) == about["name"]:
        return None
    return {**pod, "metadata": {**about, "labels": _identity_labels(labels, about["name"], ordinal_of(pod))}}


def is_member(owner: Obj, pod: Obj) -> bool:
    """Whether the pod's name belongs to the set."""
    name = owner["metadata"]["name"]
    parent, ordinal = parent_and_ordinal(pod["metadata"]["name"])
    return parent == name and ordinal >= 0


# claims


def claim_name(owner: Obj, template: Obj, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{owner['metadata']['name']}-{ordinal}"


def claim_templates(owner: Obj) -> list[Obj]:
    return owner["spec"].get("volumeClaimTemplates") or []


def claim_names(owner: Obj, ordinal: int) -> list[str]:
    return [claim_name(owner, template, ordinal) for template in claim_templates(owner)]


def volumes(owner: Obj, present: list[Obj] | tuple[Obj, ...], ordinal: int) -> list[Obj]:
    """The volumes of a pod: its claims first, then the template's other volumes."""
    made: list[Obj] = []
    for template in claim_templates(owner):
        source = {"claimName": claim_name(owner, template, ordinal)}
        made.append({"name": template["metadata"]["name"], "persistentVolumeClaim": source})
    names = {each["name"] for each in made}
    return made + [each for each in present if each["name"] not in names]


def new_claims(owner: Obj, ordinal: int) -> list[Obj]:
    selected = owner["spec"]["selector"].get("matchLabels") or {}
    made = []
    for template in claim_templates(owner):
        meta = template["metadata"]
        about: Obj = {
            "name": claim_name(owner, template, ordinal),
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **selected},
        }
        if meta.get("annotations"):
            about["annotations"] = meta["annotations"]
        if _policy(owner, "whenDeleted") == "Delete":
            about["ownerReferences"] = [controller_reference(owner, "apps/v1", "StatefulSet")]
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": template["spec"]})
    return made


# owners of the claims


def _policy(owner: Obj, when: str) -> str:
    return (owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get(when) or "Retain"


def _names(reference: Obj, obj: Obj, api_version: str, kind: str) -> bool:
    return (reference["apiVersion"], reference["kind"], reference["name"]) == (
        api_version, kind, obj["metadata"]["name"],
    )  # fmt: skip


def is_stale(owner: Obj, claim: Obj, pod: Obj) -> bool:
    """Whether the claim will be deleted with an earlier pod of this name; then the new pod must wait for a new
    claim."""
    if _policy(owner, "whenScaled") == "Retain":
        return False
    return any(
        _names(each, pod, "v1", "Pod") and each["uid"] != pod["metadata"].get("uid")
        for each in claim["metadata"].get("ownerReferences") or ()
    )


def references_of(owner: Obj, claim: Obj, pod: Obj) -> list[Obj] | None:
    """The owner references that the claim of a pod should have; None if they are right, or must not be changed."""
    present: list[Obj] = claim["metadata"].get("ownerReferences") or []
    to_set = [each for each in present if _names(each, owner, "apps/v1", "StatefulSet")]
    to_pod = [each for each in present if _names(each, pod, "v1", "Pod")]
    uids = {"set": owner["metadata"]["uid"], "pod": pod["metadata"].get("uid") or ""}
    if any(each["uid"] != uids["set"] for each in to_set) or any(each["uid"] != uids["pod"] for each in to_pod):
        return None  # of earlier objects of these names: the garbage collector handles them
    others = [each for each in present if each not in to_set and each not in to_pod]
    retained = _policy(owner, "whenScaled") == _policy(owner, "whenDeleted") == "Retain"
    if not retained and any(each.get("controller") for each in others):
        return others if len(others) != len(present) else None  # another controller owns it: do not change it
    down = not in_range(owner, ordinal_of(pod))
    goes_down = _policy(owner, "whenScaled") == "Delete" and down
    wanted = list(others)
    if _policy(owner, "whenDeleted") == "Delete" and not goes_down:
        wanted.append(controller_reference(owner, "apps/v1", "StatefulSet"))
    if goes_down:
        wanted.append(controller_reference(pod, "v1", "Pod"))
    return None if _owners(wanted) == _owners(present) else wanted


def _owners(references: list[Obj]) -> set[tuple[str, bool]]:
    return {(each["uid"], bool(each.get("controller"))) for each in references}
