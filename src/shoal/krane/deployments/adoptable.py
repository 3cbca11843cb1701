"""Whether a Deployment that runs can be adopted, and which pods are its own; pure.

The command line asks before it writes an App, and the agent before its first write: what is not the Deployment's own,
or is just changing, must not be counted as a revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shoal.krane.labels import DEPLOYMENT, adopted_record
from shoal.kube.objects import Obj

HASH = "pod-template-hash"
RECORDED_HASH, RECORDED_APP = "hash", "app"  # in the annotation of what was adopted
_ENDED = ("Succeeded", "Failed")
_SHOWN = 3


def own_pods(deployment: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Those of its ReplicaSets, which have its name and the hash of their template."""
    return [pod for pod in pods if _owner(pod) == f"{deployment['metadata']['name']}-{hash_of(pod)}"]


def hash_of(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH) or "")


def current_hash(pods: Iterable[Obj], recorded: str) -> str:
    """What tells its pods apart from those of later revisions that carry the same labels: the hash of their template;
    empty while there are several, and the ``recorded`` one while there is none."""
    found = {hash_of(pod) for pod in pods if _lives(pod)}
    if len(found) > 1:
        return ""
    return found.pop() if found else recorded


def recorded_hash(deployment: Obj) -> str:
    """The hash of the template by which the Service of an adopted Deployment selects its pods."""
    return str(adopted_record(deployment).get(RECORDED_HASH) or "")


def adopting_app(deployment: Obj) -> str:
    """PROJECT/ENVIRONMENT/APP of who has adopted it; empty when nobody has."""
    return str(adopted_record(deployment).get(RECORDED_APP) or "")


def selector_text(wanted: Mapping[str, str]) -> str:
    """Of pods with these labels, without those of revisions that Shoal made."""
    return ",".join([*(f"{name}={value}" for name, value in sorted(wanted.items())), f"!{DEPLOYMENT}"])


def refusals(
    deployment: Obj, pods: Sequence[Obj], autoscalers: Iterable[Obj], *, image: str, autoscaler: str, is_scaled: bool
) -> list[str]:
    """Why it cannot be adopted, each with what to do. ``pods`` are those that its selector selects; ``autoscalers`` all
    of the namespace; ``autoscaler`` the one that is adopted with it."""
    about, spec = deployment["metadata"], deployment["spec"]
    named = f"Deployment {about.get('namespace', '')}/{about['name']}"
    found: list[str] = []
    if about.get("deletionTimestamp"):
        found.append(f"{named} is being deleted")
    if spec.get("paused"):
        found.append(f"{named} is paused: resume it first (kubectl rollout resume deployment/{about['name']})")
    elif _is_rolling_out(deployment):
        wait = f"kubectl rollout status deployment/{about['name']}"
        found.append(f"{named} is rolling out: wait until it has finished ({wait})")
    if (spec.get("selector") or {}).get("matchExpressions"):
        found.append(f"{named} selects its pods by expressions, which a Service cannot: import it without --adopt")
    if found_images := [each.get("image", "") for each in spec["template"]["spec"].get("containers") or ()]:
        if image not in found_images:
            runs = ", ".join(found_images)
            found.append(f"{named} runs the image {runs}, and the revision has {image}: import it again")
    own = {id(pod) for pod in own_pods(deployment, pods)}
    if foreign := sorted(pod["metadata"]["name"] for pod in pods if id(pod) not in own and _lives(pod)):
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        found.append(
            f"the selector of {named} also matches pods that are not its own ({', '.join(foreign[:_SHOWN])}{more}): "
            "change their labels"
        )
    return found + _of_autoscalers(named, about["name"], autoscalers, autoscaler, is_scaled=is_scaled)


def _of_autoscalers(named: str, name: str, known: Iterable[Obj], adopted: str, *, is_scaled: bool) -> list[str]:
    found = []
    for each in known:
        target = (each.get("spec") or {}).get("scaleTargetRef") or {}
        called = each["metadata"]["name"]
        if (target.get("kind"), target.get("name")) != ("Deployment", name):
            continue
        if called != adopted:
            found.append(
                f"HorizontalPodAutoscaler {called} scales {named}: name it as `autoscaler` where it is adopted, or "
                "delete it"
            )
        elif not is_scaled:
            found.append(
                f"HorizontalPodAutoscaler {called} scales {named}, and the app has no autoscaling there: set "
                "autoscaling in its row of the topology, or delete it"
            )
    return found


def _is_rolling_out(deployment: Obj) -> bool:
    want, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 1):
        return True
    updated, there = status.get("updatedReplicas") or 0, status.get("replicas") or 0
    return bool(updated < min(want, there) or there > updated)


def _owner(pod: Obj) -> str:
    for each in pod["metadata"].get("ownerReferences") or ():
        if each.get("controller") and each.get("kind") == "ReplicaSet":
            return str(each.get("name") or "")
    return ""


def _lives(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") not in _ENDED and not pod["metadata"].get("deletionTimestamp")
